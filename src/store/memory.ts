/**
 * The store in this process's memory, for a gateway of one process.
 *
 * Invariants: expiry is exact whenever a key is read, the sweep only gives memory back and ends waits; kept responses
 * are bounded by `maxMemoryBytes`, least recently used out first; claims and facts (an outcome is unknown, a response is
 * not kept) are never evicted, and of a response that stands against a second execution the fact stays when its content
 * goes; a settlement stays until everybody who joined its flight has asked for it, at most `GRACE_MS`, and longer only
 * while there is room for it.
 */

import { performance } from 'node:perf_hooks';
import type {
  ClaimResult,
  Ended,
  FlightRef,
  Held,
  KeyMaterial,
  Lease,
  Purged,
  Settlement,
  TakenKey,
} from '../core/claim.js';
import type { SharedResponse } from '../core/sharing.js';
import type { WaitOptions } from './leases.js';
import { MemoryMarks } from './memory-marks.js';
import { MemoryQueue } from './memory-queue.js';
import type { Reading } from './relay.js';
import {
  type ClaimRequest,
  type FlightStanding,
  type SettleAs,
  type Store,
  StoreUnavailable,
  type TakenOptions,
} from './store.js';

export type MemoryStoreOptions = {
  /** Bound of all kept responses together. A response that is larger alone is not kept. */
  readonly maxMemoryBytes: number;
  /** Milliseconds of a clock that never goes back. Default: the process's own. */
  readonly now?: () => number;
};

type Caller = {
  readonly resolve: (settlement: Settlement) => void;
  readonly reject: (reason: unknown) => void;
  readonly signal: AbortSignal;
  readonly onAbort: () => void;
};

/** What is known of a flight from its claim to the end of its record. */
type Origin = {
  readonly key: string;
  readonly flight: string;
  readonly fence: number;
  readonly fingerprint: string;
  readonly holdMs: number;
  readonly route: string;
  readonly startedAt: number;
};

type Flight = {
  readonly origin: Origin;
  readonly election: number;
  leaseEndsAt: number;
  /** Claims that joined and have not asked for the settlement yet. */
  uncollected: number;
  readonly callers: Set<Caller>;
};

/** A flight that has ended and still has its key. */
type Past<E> = {
  readonly origin: Origin;
  readonly ended: E;
  /** The settlement by which its leader ended it; null: it did not. */
  readonly settledAs: Settlement['kind'] | null;
  readonly endedAt: number;
  readonly expiresAt: number;
};

type Kept = Past<Ended & { readonly kind: 'response' }> & { readonly bytes: number };
type Fact = Past<{ readonly kind: 'not-kept' } | { readonly kind: 'unknown' }>;

type Result = {
  readonly settlement: Settlement;
  readonly expiresAt: number;
  readonly bytes: number;
  uncollected: number;
};

const GRACE_MS = 10_000;
/** How long it is remembered that somebody was elected after a flight: until all its followers must have asked. */
const ELECTION_MS = 120_000;
const SWEEP_MS = 250;
/** How many kept responses, how many facts and how many marks one sweep looks at. */
const SWEEP_MOST = 1_000;
/** Objects, map entries and the like, for one response. */
const OVERHEAD_BYTES = 512;

export class MemoryStore implements Store {
  readonly queue: MemoryQueue;
  readonly #maxBytes: number;
  readonly #now: () => number;
  readonly #flights = new Map<string, Flight>();
  /** Least recently used first. */
  readonly #kept = new Map<string, Kept>();
  #keptBytes = 0;
  readonly #facts = new Map<string, Fact>();
  /** Ended flights, by flight id, oldest first. */
  readonly #results = new Map<string, Result>();
  #resultBytes = 0;
  /** Flights after which somebody was elected, and until when that is remembered; oldest first. */
  readonly #elected = new Map<string, number>();
  readonly #marks = new MemoryMarks();
  /** Above every fence of an earlier process on this machine, as long as its clock is not set back. */
  #fence = Date.now() * 1_000;
  #sweeper: NodeJS.Timeout | null = null;
  readonly #keptSweep = new PartialSweep(this.#kept, (key, now) => this.#pastOf(key, now));
  readonly #factsSweep = new PartialSweep(this.#facts, (key, now) => this.#pastOf(key, now));
  readonly #marksSweep = new PartialSweep(this.#marks.all, (key, now) => this.#marks.expects(key, now));
  #closed = false;

  constructor(options: MemoryStoreOptions) {
    this.#maxBytes = options.maxMemoryBytes;
    this.#now = options.now ?? (() => performance.now());
    this.queue = new MemoryQueue(this.#now);
  }

  /** Nobody else has this memory, so that no key has another name here. */
  async claim(request: ClaimRequest): Promise<ClaimResult> {
    this.#assertOpen();
    const now = this.#now();
    const flight = this.#flightOf(request.key, now);
    const past = flight === null ? this.#pastOf(request.key, now) : null;
    const origin = flight?.origin ?? past?.origin;
    if (origin !== undefined && origin.flight !== request.flight && origin.fingerprint !== request.fingerprint) {
      return { kind: 'mismatch' };
    }
    if (flight !== null) return this.#join(flight, request, now);
    if (past !== null) return this.#repeat(past, request.material, now);
    if (request.after !== '') {
      if (this.#elected.has(request.after)) return { kind: 'late' };
      this.#elected.set(request.after, now + ELECTION_MS);
    }
    return { kind: 'leader', lease: this.#lead(request, now), expects: this.#marks.expects(request.key, now) };
  }

  async renew(lease: Lease): Promise<Held> {
    this.#assertOpen();
    const flight = this.#held(lease);
    if (flight === null) return 'lost';
    flight.leaseEndsAt = this.#now() + lease.leaseMs;
    return 'held';
  }

  async complete(lease: Lease, settlement: Settlement, keepMs: number): Promise<Held> {
    this.#assertOpen();
    const flight = this.#held(lease);
    if (flight === null) return this.#settledBy(lease, settlement) ? 'held' : 'lost';
    this.#keep(flight.origin, settlement, settlement.kind, keepMs);
    this.#marks.after(lease.key, settlement, keepMs, this.#now());
    this.#end(flight, settlement);
    return 'held';
  }

  async release(lease: Lease, { unlessAwaited }: { readonly unlessAwaited: boolean }): Promise<Held | 'awaited'> {
    this.#assertOpen();
    const flight = this.#held(lease);
    if (flight === null) return 'lost';
    if (unlessAwaited && isAwaited(flight)) return 'awaited';
    this.#end(flight, { kind: 'failed', election: flight.election });
    return 'held';
  }

  /** Whoever follows is in the leader's process and reads there. */
  async relay(lease: Lease): Promise<Held> {
    this.#assertOpen();
    return this.#held(lease) === null ? 'lost' : 'held';
  }

  async relayOn(): Promise<null> {
    return null;
  }

  relayed(): Reading {
    return { resume: () => {} };
  }

  async settled(ref: FlightRef, { signal }: WaitOptions): Promise<Settlement> {
    this.#assertOpen();
    const flight = this.#flightOf(ref.key, this.#now());
    if (flight === null || flight.origin.flight !== ref.flight) {
      const settlement = this.#collect(ref);
      signal.throwIfAborted();
      return settlement;
    }
    flight.uncollected = Math.max(0, flight.uncollected - 1);
    signal.throwIfAborted();
    return new Promise((resolve, reject) => {
      const onAbort = () => {
        flight.callers.delete(caller);
        reject(signal.reason);
      };
      const caller: Caller = { resolve, reject, signal, onAbort };
      flight.callers.add(caller);
      signal.addEventListener('abort', onAbort, { once: true });
    });
  }

  async settle(key: string, as: SettleAs, only: string | null): Promise<'settled' | 'absent' | 'other'> {
    this.#assertOpen();
    const now = this.#now();
    const flight = this.#flightOf(key, now);
    const past = flight === null ? this.#pastOf(key, now) : null;
    const origin = flight?.origin ?? past?.origin;
    if (origin === undefined) return as.kind === 'free' ? this.queue.free(key, only) : 'absent';
    const meant = only === null ? past?.ended.kind === 'unknown' : origin.flight === only;
    if (!meant) return 'other';
    if (past !== null) this.#settlePast(past, as);
    if (flight !== null) {
      const ending = endingAs(as, flight.election);
      this.#keep(flight.origin, ending, null, keepMsOf(as));
      this.#end(flight, ending);
    }
    return 'settled';
  }

  // Nothing is sealed: whoever reads this memory has the secret and the requests too.
  async settleUnknown(key: string, flight: string, as: SettleAs): Promise<'settled' | 'absent'> {
    this.#assertOpen();
    const unknown = this.#unknownOf(key, flight, this.#now());
    if (unknown === null) return 'absent';
    this.#settlePast(unknown, as);
    return 'settled';
  }

  async standing(key: string, flight: string): Promise<FlightStanding> {
    this.#assertOpen();
    const now = this.#now();
    if (this.#flightOf(key, now)?.origin.flight === flight) return { kind: 'in-flight' };
    const unknown = this.#unknownOf(key, flight, now);
    return unknown === null ? { kind: 'over' } : { kind: 'unknown', leftMs: unknown.expiresAt - now };
  }

  async taken({ state, limit }: TakenOptions): Promise<TakenKey[]> {
    this.#assertOpen();
    const now = this.#now();
    const taken: TakenKey[] = [];
    for (const all of [this.#allTaken(now), this.queue.taken()]) {
      for (const one of all) {
        if (taken.length >= limit) return taken;
        if (state === 'any' || state === one.state) taken.push(one);
      }
    }
    return taken;
  }

  async purge(key: string): Promise<Purged> {
    this.#assertOpen();
    const now = this.#now();
    const past = this.#flightOf(key, now) === null ? this.#pastOf(key, now) : null;
    if (this.#flights.has(key) || past?.ended.kind === 'unknown' || this.queue.has(key)) return 'taken';
    const marked = this.#marks.remove(key, now);
    if (past === null) return marked ? 'purged' : 'absent';
    this.#drop(past);
    return 'purged';
  }

  async purgeRoute(route: string): Promise<number> {
    let purged = 0;
    let looked = 0;
    for (const map of [this.#kept, this.#facts]) {
      for (const [key, { origin, ended }] of map) {
        this.#assertOpen();
        const isKept = origin.route === route && ended.kind !== 'unknown' && this.#pastOf(key, this.#now()) !== null;
        if (isKept && (await this.purge(key)) === 'purged') purged += 1;
        looked += 1;
        if (looked % SWEEP_MOST === 0) await new Promise((resolve) => setImmediate(resolve));
      }
    }
    return purged;
  }

  async ping(): Promise<void> {
    this.#assertOpen();
  }

  async open(): Promise<void> {
    this.#sweeper ??= setInterval(() => this.#sweep(), SWEEP_MS).unref();
  }

  async close(): Promise<void> {
    this.#closed = true;
    if (this.#sweeper !== null) clearInterval(this.#sweeper);
    this.queue.close();
    const reason = new StoreUnavailable('the store is closed');
    for (const flight of this.#flights.values()) {
      for (const caller of takeCallers(flight)) caller.reject(reason);
    }
    for (const map of [this.#flights, this.#kept, this.#facts, this.#results, this.#elected, this.#marks]) map.clear();
  }

  #assertOpen(): void {
    if (this.#closed) throw new StoreUnavailable('the store is closed');
  }

  /** The key's flight. One whose lease has passed is gone from here on; what it leaves behind is at most a fact. */
  #flightOf(key: string, now: number): Flight | null {
    const flight = this.#flights.get(key);
    if (flight === undefined) return null;
    if (now < flight.leaseEndsAt) return flight;
    this.#flights.delete(key);
    const { origin, leaseEndsAt } = flight;
    if (origin.holdMs > 0) {
      const expiresAt = leaseEndsAt + origin.holdMs;
      this.#facts.set(key, { origin, ended: { kind: 'unknown' }, settledAs: null, endedAt: leaseEndsAt, expiresAt });
    }
    for (const caller of takeCallers(flight)) caller.resolve({ kind: 'unknown', election: flight.election });
    return null;
  }

  #held(lease: Lease): Flight | null {
    const flight = this.#flightOf(lease.key, this.#now());
    return flight !== null && isOf(flight.origin, lease) ? flight : null;
  }

  #lead(request: ClaimRequest, now: number): Lease {
    const { key, flight, leaseMs, election, fingerprint, holdMs, route, material } = request;
    this.#fence += 1;
    const fence = this.#fence;
    this.#flights.set(key, {
      origin: { key, flight, fence, fingerprint, holdMs, route, startedAt: now },
      election,
      leaseEndsAt: now + leaseMs,
      uncollected: 0,
      callers: new Set(),
    });
    return { key, flight, fence, leaseMs, material };
  }

  #join(flight: Flight, request: ClaimRequest, now: number): ClaimResult {
    const { key, fence, startedAt, flight: id } = flight.origin;
    const { material } = request;
    const expects = this.#marks.expects(key, now);
    if (id === request.flight) {
      flight.leaseEndsAt = now + request.leaseMs;
      return { kind: 'leader', lease: { key, flight: id, fence, leaseMs: request.leaseMs, material }, expects };
    }
    if (request.join && expects === 'shareable') flight.uncollected += 1;
    const leaseLeftMs = flight.leaseEndsAt - now;
    return {
      kind: 'follower',
      flight: { key, flight: id, leaseLeftMs, ageMs: now - startedAt, election: flight.election, material },
      expects,
    };
  }

  /** What an ended flight has left behind under the key. Asked when the key has no flight. */
  #pastOf(key: string, now: number): Kept | Fact | null {
    const past = this.#kept.get(key) ?? this.#facts.get(key);
    if (past === undefined) return null;
    if (now < past.expiresAt) return past;
    this.#drop(past);
    return null;
  }

  #repeat(past: Kept | Fact, material: KeyMaterial, now: number): ClaimResult {
    const { ended, endedAt, expiresAt, origin } = past;
    const { key, flight } = origin;
    const ttlMs = expiresAt - now;
    if (ended.kind === 'unknown') return { kind: 'unknown', key, material, flight, ttlMs };
    if ('bytes' in past) {
      this.#kept.delete(key);
      this.#kept.set(key, past);
    }
    return { kind: 'stored', flight, ended, ageMs: now - endedAt, ttlMs };
  }

  /** A completion repeated by its own flight was held, as in the other stores. */
  #settledBy(lease: Lease, settlement: Settlement): boolean {
    const past = this.#pastOf(lease.key, this.#now());
    return past !== null && isOf(past.origin, lease) && past.settledAs === settlement.kind;
  }

  #keep(origin: Origin, settlement: Settlement, settledAs: Settlement['kind'] | null, keepMs: number): void {
    if (keepMs <= 0) return;
    const now = this.#now();
    const times = { endedAt: now, expiresAt: now + keepMs };
    switch (settlement.kind) {
      case 'response': {
        const bytes = sizeOf(settlement.response);
        const kept: Kept = { origin, ended: settlement, settledAs, ...times, bytes };
        if (bytes > this.#maxBytes) return this.#keepFact(kept);
        this.#kept.set(origin.key, kept);
        this.#keptBytes += bytes;
        return;
      }
      case 'not-kept':
      case 'unknown':
        this.#facts.set(origin.key, { origin, ended: { kind: settlement.kind }, settledAs, ...times });
    }
  }

  /** There is no room for a response. Where a repeat must not be executed the fact is kept that there was one. */
  #keepFact({ origin, settledAs, endedAt, expiresAt }: Kept): void {
    if (origin.fingerprint === '' && origin.holdMs === 0) return;
    this.#facts.set(origin.key, { origin, ended: { kind: 'not-kept' }, settledAs, endedAt, expiresAt });
  }

  /** What the flight left behind, if that is an unknown outcome which still has the key. */
  #unknownOf(key: string, flight: string, now: number): Kept | Fact | null {
    if (this.#flightOf(key, now) !== null) return null;
    const past = this.#pastOf(key, now);
    return past?.ended.kind === 'unknown' && past.origin.flight === flight ? past : null;
  }

  #settlePast(past: Kept | Fact, as: SettleAs): void {
    this.#drop(past);
    this.#keep(past.origin, endingAs(as, 0), null, keepMsOf(as));
    this.#evict();
  }

  #drop(past: Kept | Fact): void {
    const { key } = past.origin;
    this.#facts.delete(key);
    if (this.#kept.delete(key) && 'bytes' in past) this.#keptBytes -= past.bytes;
  }

  *#allTaken(now: number): Iterable<TakenKey> {
    for (const key of this.#flights.keys()) {
      const flight = this.#flightOf(key, now);
      if (flight === null) continue;
      const { startedAt } = flight.origin;
      const waiting = isAwaited(flight) ? 1 : 0;
      yield {
        ...named(flight.origin),
        state: 'in-flight',
        ageMs: now - startedAt,
        leftMs: flight.leaseEndsAt - now,
        waiting,
      };
    }
    for (const map of [this.#kept, this.#facts]) {
      for (const key of map.keys()) {
        const past = this.#pastOf(key, now);
        if (past === null) continue;
        const state = past.ended.kind === 'unknown' ? 'unknown' : 'kept';
        const ageMs = now - (state === 'unknown' ? past.origin.startedAt : past.endedAt);
        yield { ...named(past.origin), state, ageMs, leftMs: past.expiresAt - now, waiting: 0 };
      }
    }
  }

  #end(flight: Flight, settlement: Settlement): void {
    const { key, flight: id } = flight.origin;
    this.#flights.delete(key);
    const awaited = isAwaited(flight);
    for (const caller of takeCallers(flight)) caller.resolve(settlement);
    if (awaited) {
      const bytes = settlement.kind === 'response' ? sizeOf(settlement.response) : OVERHEAD_BYTES;
      const expiresAt = this.#now() + GRACE_MS;
      this.#results.set(id, { settlement, expiresAt, bytes, uncollected: flight.uncollected });
      this.#resultBytes += bytes;
    }
    this.#evict();
  }

  #collect(ref: FlightRef): Settlement {
    const result = this.#results.get(ref.flight);
    if (result === undefined) return { kind: 'unknown', election: ref.election };
    result.uncollected = Math.max(0, result.uncollected - 1);
    this.#evict();
    return result.settlement;
  }

  #forget(flight: string, result: Result): void {
    this.#results.delete(flight);
    this.#resultBytes -= result.bytes;
  }

  /** Results that everybody has collected go first: they only answer somebody who asks twice. */
  #evict(): void {
    if (this.#keptBytes + this.#resultBytes <= this.#maxBytes) return;
    for (const [flight, result] of this.#results) {
      if (this.#keptBytes + this.#resultBytes <= this.#maxBytes) return;
      if (result.uncollected === 0) this.#forget(flight, result);
    }
    for (const kept of this.#kept.values()) {
      if (this.#keptBytes <= this.#maxBytes) return;
      this.#drop(kept);
      this.#keepFact(kept);
    }
  }

  #sweep(): void {
    const now = this.#now();
    for (const key of this.#flights.keys()) this.#flightOf(key, now);
    this.queue.sweep();
    this.#keptSweep.step(now);
    this.#factsSweep.step(now);
    this.#marksSweep.step(now);
    for (const [flight, result] of this.#results) {
      if (now < result.expiresAt) break;
      this.#forget(flight, result);
    }
    for (const [flight, expiresAt] of this.#elected) {
      if (now < expiresAt) break;
      this.#elected.delete(flight);
    }
  }
}

/** A part at a time: there may be hundreds of thousands, and one that has expired costs nothing but its memory. */
class PartialSweep {
  readonly #map: ReadonlyMap<string, unknown>;
  readonly #visit: (key: string, now: number) => void;
  #left: Iterator<string> | null = null;

  constructor(map: ReadonlyMap<string, unknown>, visit: (key: string, now: number) => void) {
    this.#map = map;
    this.#visit = visit;
  }

  step(now: number): void {
    this.#left ??= this.#map.keys();
    for (let i = 0; i < SWEEP_MOST; i += 1) {
      const next = this.#left.next();
      if (next.done) {
        this.#left = null;
        return;
      }
      this.#visit(next.value, now);
    }
  }
}

function isOf(origin: Origin, lease: Lease): boolean {
  return origin.flight === lease.flight && origin.fence === lease.fence;
}

/** The settlement that somebody's word stands for. */
function endingAs(as: SettleAs, election: number): Settlement {
  if (as.kind === 'free') return { kind: 'failed', election };
  return as.kind === 'response' ? { kind: 'response', response: as.response } : { kind: 'not-kept' };
}

function keepMsOf(as: SettleAs): number {
  return as.kind === 'free' ? 0 : as.keepMs;
}

function named({ key, flight, route, fence }: Origin) {
  return { key, flight, route, fence };
}

/** Whether somebody joined who has neither left nor been told. */
function isAwaited({ uncollected, callers }: Flight): boolean {
  return uncollected > 0 || callers.size > 0;
}

function takeCallers(flight: Flight): Caller[] {
  const callers = [...flight.callers];
  flight.callers.clear();
  for (const { signal, onAbort } of callers) signal.removeEventListener('abort', onAbort);
  return callers;
}

function sizeOf({ reason, content, fields, trailers, vary }: SharedResponse): number {
  let bytes = OVERHEAD_BYTES + content.length + reason.length + vary.digest.length;
  for (const list of [fields, trailers, vary.names]) {
    for (const text of list) bytes += text.length;
  }
  return bytes;
}
