/**
 * The store in this process's memory, for a gateway of one process, or for the workers of one parent, who ask it over
 * their channels (parent-store.ts, store-server.ts).
 *
 * Invariants: a lease ends exactly whenever its key is read, the sweep only gives memory back and ends waits; claims are
 * never evicted; a key has a flight or something that an earlier one left behind (memory-past.ts), never both.
 */

import { performance } from 'node:perf_hooks';
import type { ClaimResult, FlightRef, Held, Lease, Purged, Settlement, TakenKey } from '../core/claim.js';
import type { MemoryBudget } from '../core/memory-budget.js';
import { Registry } from '../core/roster.js';
import { variantStart } from '../core/sharing.js';
import type { LeaseHolder, WaitOptions } from './leases.js';
import { MemoryMarks } from './memory-marks.js';
import { endingAs, isOf, keepMsOf, MemoryPast, named, type Origin, type Past } from './memory-past.js';
import { MemoryQueue } from './memory-queue.js';
import type { MemoryRelay } from './memory-relay.js';
import { inParts, PartialSweep } from './partial-sweep.js';
import { newProcessId } from './process-id.js';
import type { Piece, PieceReader, Reading, StillRead } from './relay.js';
import { Revocations } from './revocations.js';
import {
  type ClaimRequest,
  type FlightStanding,
  type Looked,
  type SettleAs,
  type Store,
  StoreUnavailable,
  type TakenOptions,
} from './store.js';

export type MemoryStoreOptions = {
  /** For what is kept. A response for which there is no room is not. */
  readonly budget: MemoryBudget;
  /** For followers in other processes. Default: none, whoever follows is in the leader's process and reads there. */
  readonly relay?: MemoryRelay;
  /** Names this process. Default: host, process number and a random part. */
  readonly processId?: string;
  /** Milliseconds of a clock that never goes back. Default: the process's own. */
  readonly now?: () => number;
};

type Caller = {
  readonly resolve: (settlement: Settlement) => void;
  readonly reject: (reason: unknown) => void;
  readonly signal: AbortSignal;
  readonly onAbort: () => void;
};

type Flight = {
  readonly origin: Origin;
  readonly election: number;
  leaseEndsAt: number;
  /** Claims that joined and have not asked for the settlement yet. */
  uncollected: number;
  readonly callers: Set<Caller>;
};

/** How long it is remembered that somebody was elected after a flight: until all its followers must have asked. */
const ELECTION_MS = 120_000;
const SWEEP_MS = 250;
/** The flight of whoever only looks: no flight has this id, so that none is renewed by it. */
const NOBODY = '';

export class MemoryStore implements Store {
  readonly queue: MemoryQueue;
  readonly #now: () => number;
  readonly #process: string;
  readonly #revocations = new Revocations();
  readonly #flights = new Registry<Flight>();
  readonly #past: MemoryPast;
  readonly #relay: MemoryRelay | null;
  /** Flights after which somebody was elected, and until when that is remembered; oldest first. */
  readonly #elected = new Map<string, number>();
  readonly #marks = new MemoryMarks();
  /** Above every fence of an earlier process on this machine, as long as its clock is not set back. */
  #fence = Date.now() * 1_000;
  #sweeper: NodeJS.Timeout | null = null;
  readonly #marksSweep = new PartialSweep(this.#marks.all, (key, now) => this.#marks.expects(key, now));
  #closed = false;

  constructor(options: MemoryStoreOptions) {
    this.#past = new MemoryPast(options.budget);
    this.#relay = options.relay ?? null;
    this.#now = options.now ?? (() => performance.now());
    this.#process = options.processId ?? newProcessId();
    this.queue = new MemoryQueue(this.#now, this.#process, this.#revocations);
  }

  /**
   * Nobody else has this memory, so that no key has another name here. `leader`: the process that asks, where that is
   * another one.
   */
  async claim(request: ClaimRequest, leader = this.#process): Promise<ClaimResult> {
    this.#assertOpen();
    const now = this.#now();
    const there = this.#there(request, now);
    if (there.kind !== 'free') return there;
    if (request.after !== '') {
      if (this.#elected.has(request.after)) return { kind: 'late' };
      this.#elected.set(request.after, now + ELECTION_MS);
    }
    return { kind: 'leader', lease: this.#lead(request, leader, now), expects: this.#marks.expects(request.key, now) };
  }

  async look(request: ClaimRequest): Promise<Looked> {
    this.#assertOpen();
    return this.#there({ ...request, join: false, flight: NOBODY }, this.#now());
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
    const now = this.#now();
    this.#past.keep(flight.origin, settlement, settlement.kind, keepMs, now);
    this.#marks.after(lease.key, settlement, keepMs, now);
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

  watch(lease: Lease, holder: LeaseHolder): void {
    this.#revocations.watch(lease, holder);
  }

  unwatch(lease: Lease): void {
    this.#revocations.unwatch(lease);
  }

  async relay(lease: Lease, piece: Piece): Promise<Held> {
    this.#assertOpen();
    if (this.#held(lease) === null) return 'lost';
    this.#relay?.add(lease, piece);
    return 'held';
  }

  async relayOn(lease: Lease, piece: Piece | null, dropBefore: number): Promise<StillRead | null> {
    return this.#relay?.goOn(lease, piece, dropBefore) ?? null;
  }

  relayed(ref: FlightRef, reader: PieceReader, { signal }: WaitOptions): Reading {
    if (this.#relay === null) return { resume: () => {} };
    const isUp = !this.#closed && this.#flightOf(ref.key, this.#now())?.origin.flight === ref.flight;
    return this.#relay.read(ref, reader, signal, isUp);
  }

  async settled(ref: FlightRef, { signal }: WaitOptions): Promise<Settlement> {
    this.#assertOpen();
    const flight = this.#flightOf(ref.key, this.#now());
    if (flight === null || flight.origin.flight !== ref.flight) {
      const settlement = this.#past.collect(ref);
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
    const past = flight === null ? this.#past.of(key, now) : null;
    const origin = flight?.origin ?? past?.origin;
    if (origin === undefined) return as.kind === 'free' ? this.queue.free(key, only) : 'absent';
    const meant = only === null ? past?.ended.kind === 'unknown' : origin.flight === only;
    if (!meant) return 'other';
    if (past !== null) this.#past.settle(past, as, now);
    if (flight !== null) {
      const ending = endingAs(as, flight.election);
      this.#past.keep(flight.origin, ending, null, keepMsOf(as), now);
      this.#end(flight, ending);
      this.#revocations.tell(flight.origin.flight);
    }
    return 'settled';
  }

  // Nothing is sealed: whoever reads this memory has the secret and the requests too.
  async settleUnknown(key: string, flight: string, as: SettleAs): Promise<'settled' | 'absent'> {
    this.#assertOpen();
    const now = this.#now();
    const unknown = this.#unknownOf(key, flight, now);
    if (unknown === null) return 'absent';
    this.#past.settle(unknown, as, now);
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
    for (const all of [this.#inFlight(now), this.#past.taken(now), this.queue.taken()]) {
      for (const one of all) {
        if (taken.length >= limit) return taken;
        if (state === 'any' || state === one.state) taken.push(one);
      }
    }
    return taken;
  }

  async purge(key: string): Promise<Purged> {
    this.#assertOpen();
    const own = this.#purge(key);
    if (own === 'taken') return own;
    const start = variantStart(key);
    let some = own === 'purged';
    for (const keys of [this.#past.keys(), this.#marks.all.keys()]) {
      await inParts(keys, (variant) => {
        this.#assertOpen();
        if (variant.startsWith(start) && this.#purge(variant) === 'purged') some = true;
      });
    }
    return some ? 'purged' : 'absent';
  }

  async purgeRoute(route: string): Promise<number> {
    let purged = 0;
    await inParts(this.#past.keys(), (key) => {
      this.#assertOpen();
      const past = this.#past.of(key, this.#now());
      if (past?.origin.route === route && this.#purge(key) === 'purged') purged += 1;
    });
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
    this.#relay?.close();
    const reason = new StoreUnavailable('the store is closed');
    for (const flight of this.#flights.values()) {
      for (const caller of takeCallers(flight)) caller.reject(reason);
    }
    for (const map of [this.#flights, this.#past, this.#elected, this.#marks]) map.clear();
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
    this.#past.keep(origin, { kind: 'unknown', election: flight.election }, null, origin.holdMs, leaseEndsAt);
    this.#tell(flight, { kind: 'unknown', election: flight.election });
    return null;
  }

  #held(lease: Lease): Flight | null {
    const flight = this.#flightOf(lease.key, this.#now());
    return flight !== null && isOf(flight.origin, lease) ? flight : null;
  }

  #lead(request: ClaimRequest, leader: string, now: number): Lease {
    const { key, flight, leaseMs, election, fingerprint, holdMs, route, material } = request;
    this.#fence += 1;
    const fence = this.#fence;
    this.#flights.set(key, {
      origin: { key, flight, fence, fingerprint, holdMs, route, leader, startedAt: now },
      election,
      leaseEndsAt: now + leaseMs,
      uncollected: 0,
      callers: new Set(),
    });
    return { key, flight, fence, leaseMs, material };
  }

  #there(request: ClaimRequest, now: number): Looked {
    const flight = this.#flightOf(request.key, now);
    const past = flight === null ? this.#past.of(request.key, now) : null;
    const origin = flight?.origin ?? past?.origin;
    if (origin !== undefined && origin.flight !== request.flight && origin.fingerprint !== request.fingerprint) {
      return { kind: 'mismatch' };
    }
    if (flight !== null) return this.#join(flight, request, now);
    return past === null ? { kind: 'free' } : this.#past.repeat(past, request.material, now);
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

  /** A completion repeated by its own flight was held, as in the other stores. */
  #settledBy(lease: Lease, settlement: Settlement): boolean {
    const past = this.#past.of(lease.key, this.#now());
    return past !== null && isOf(past.origin, lease) && past.settledAs === settlement.kind;
  }

  /** What the flight left behind, if that is an unknown outcome which still has the key. */
  #unknownOf(key: string, flight: string, now: number): Past | null {
    if (this.#flightOf(key, now) !== null) return null;
    const past = this.#past.of(key, now);
    return past?.ended.kind === 'unknown' && past.origin.flight === flight ? past : null;
  }

  #purge(key: string): Purged {
    const now = this.#now();
    const past = this.#flightOf(key, now) === null ? this.#past.of(key, now) : null;
    if (this.#flights.has(key) || past?.ended.kind === 'unknown' || this.queue.has(key)) return 'taken';
    const marked = this.#marks.remove(key, now);
    if (past === null) return marked ? 'purged' : 'absent';
    this.#past.drop(past);
    return 'purged';
  }

  *#inFlight(now: number): Iterable<TakenKey> {
    for (const key of this.#flights.keys()) {
      const flight = this.#flightOf(key, now);
      if (flight === null) continue;
      const { startedAt } = flight.origin;
      // Each process asks once, however many requests wait in it.
      const waiting = flight.uncollected + flight.callers.size;
      yield {
        ...named(flight.origin),
        state: 'in-flight',
        ageMs: now - startedAt,
        leftMs: flight.leaseEndsAt - now,
        waiting,
      };
    }
  }

  #end(flight: Flight, settlement: Settlement): void {
    const { key, flight: id } = flight.origin;
    this.#flights.delete(key);
    const awaited = isAwaited(flight);
    this.#tell(flight, settlement);
    if (awaited) this.#past.remember(id, settlement, flight.uncollected, this.#now());
  }

  #tell(flight: Flight, settlement: Settlement): void {
    for (const caller of takeCallers(flight)) caller.resolve(settlement);
    this.#relay?.ended(flight.origin.flight, settlement);
  }

  #sweep(): void {
    const now = this.#now();
    for (const key of this.#flights.keys()) this.#flightOf(key, now);
    this.queue.sweep();
    this.#past.sweep(now);
    this.#marksSweep.step(now);
    for (const [flight, expiresAt] of this.#elected) {
      if (now < expiresAt) break;
      this.#elected.delete(flight);
    }
  }
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
