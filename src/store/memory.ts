/**
 * The store in this process's memory, for a gateway of one process.
 *
 * Invariants: expiry is exact whenever a key is read, the sweep only gives memory back and ends waits; kept responses
 * are bounded by `maxMemoryBytes`, least recently used out first, claims are never evicted; a settlement stays until
 * everybody who joined its flight has asked for it, at most `GRACE_MS`, and longer only while there is room for it.
 */

import { performance } from 'node:perf_hooks';
import type { ClaimResult, FlightRef, Held, Lease, Settlement } from '../core/claim.js';
import type { SharedResponse } from '../core/sharing.js';
import { type ClaimRequest, type SettledOptions, type Store, StoreUnavailable } from './store.js';

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

type Flight = {
  readonly key: string;
  readonly flight: string;
  readonly fence: number;
  readonly election: number;
  readonly startedAt: number;
  expiresAt: number;
  /** Claims that joined and have not asked for the settlement yet. */
  uncollected: number;
  readonly callers: Set<Caller>;
};

type Kept = {
  readonly flight: string;
  readonly fence: number;
  readonly response: SharedResponse;
  readonly completedAt: number;
  readonly expiresAt: number;
  readonly bytes: number;
};

type Result = {
  readonly settlement: Settlement;
  readonly expiresAt: number;
  readonly bytes: number;
  uncollected: number;
};

const GRACE_MS = 10_000;
const SWEEP_MS = 250;
/** How many kept responses one sweep looks at. */
const SWEEP_KEPT = 1_000;
/** Objects, map entries and the like, for one response. */
const OVERHEAD_BYTES = 512;

export class MemoryStore implements Store {
  readonly #maxBytes: number;
  readonly #now: () => number;
  readonly #flights = new Map<string, Flight>();
  /** Least recently used first. */
  readonly #kept = new Map<string, Kept>();
  #keptBytes = 0;
  /** Ended flights, by flight id, oldest first. */
  readonly #results = new Map<string, Result>();
  #resultBytes = 0;
  /** Above every fence of an earlier process on this machine, as long as its clock is not set back. */
  #fence = Date.now() * 1_000;
  #sweeper: NodeJS.Timeout | null = null;
  #toSweep: Iterator<string> | null = null;
  #closed = false;

  constructor(options: MemoryStoreOptions) {
    this.#maxBytes = options.maxMemoryBytes;
    this.#now = options.now ?? (() => performance.now());
  }

  async claim(request: ClaimRequest): Promise<ClaimResult> {
    this.#assertOpen();
    const now = this.#now();
    const flight = this.#flightOf(request.key, now);
    if (flight !== null) return this.#taken(flight, request, now);
    const kept = this.#keptOf(request.key, now);
    if (kept !== null) return this.#replay(request.key, kept, now);
    return { kind: 'leader', lease: this.#lead(request, now) };
  }

  async renew(lease: Lease): Promise<Held> {
    this.#assertOpen();
    const flight = this.#held(lease);
    if (flight === null) return 'lost';
    flight.expiresAt = this.#now() + lease.leaseMs;
    return 'held';
  }

  async complete(lease: Lease, settlement: Settlement, keepMs: number): Promise<Held> {
    this.#assertOpen();
    const flight = this.#held(lease);
    if (flight === null) return this.#settledBy(lease) ? 'held' : 'lost';
    if (settlement.kind === 'response' && keepMs > 0) this.#keep(flight, settlement.response, keepMs);
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

  async settled(ref: FlightRef, { signal }: SettledOptions): Promise<Settlement> {
    this.#assertOpen();
    const flight = this.#flightOf(ref.key, this.#now());
    if (flight === null || flight.flight !== ref.flight) {
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

  async ping(): Promise<void> {
    this.#assertOpen();
  }

  async open(): Promise<void> {
    this.#sweeper ??= setInterval(() => this.#sweep(), SWEEP_MS).unref();
  }

  async close(): Promise<void> {
    this.#closed = true;
    if (this.#sweeper !== null) clearInterval(this.#sweeper);
    const reason = new StoreUnavailable('the store is closed');
    for (const flight of this.#flights.values()) {
      for (const caller of takeCallers(flight)) caller.reject(reason);
    }
    for (const map of [this.#flights, this.#kept, this.#results]) map.clear();
  }

  #assertOpen(): void {
    if (this.#closed) throw new StoreUnavailable('the store is closed');
  }

  /** The key's flight. One whose lease has passed is gone from here on, without a settlement. */
  #flightOf(key: string, now: number): Flight | null {
    const flight = this.#flights.get(key);
    if (flight === undefined) return null;
    if (now < flight.expiresAt) return flight;
    this.#flights.delete(key);
    for (const caller of takeCallers(flight)) caller.resolve({ kind: 'unknown', election: flight.election });
    return null;
  }

  #held(lease: Lease): Flight | null {
    const flight = this.#flightOf(lease.key, this.#now());
    return flight !== null && flight.flight === lease.flight && flight.fence === lease.fence ? flight : null;
  }

  #lead({ key, flight, leaseMs, election }: ClaimRequest, now: number): Lease {
    this.#fence += 1;
    this.#flights.set(key, {
      key,
      flight,
      fence: this.#fence,
      election,
      startedAt: now,
      expiresAt: now + leaseMs,
      uncollected: 0,
      callers: new Set(),
    });
    return { key, flight, fence: this.#fence, leaseMs };
  }

  #taken(flight: Flight, request: ClaimRequest, now: number): ClaimResult {
    const { key, fence, election } = flight;
    if (flight.flight === request.flight) {
      flight.expiresAt = now + request.leaseMs;
      return { kind: 'leader', lease: { key, flight: flight.flight, fence, leaseMs: request.leaseMs } };
    }
    if (request.join) flight.uncollected += 1;
    const leaseLeftMs = flight.expiresAt - now;
    return {
      kind: 'follower',
      flight: { key, flight: flight.flight, leaseLeftMs, ageMs: now - flight.startedAt, election },
    };
  }

  #keptOf(key: string, now: number): Kept | null {
    const kept = this.#kept.get(key);
    if (kept === undefined) return null;
    if (now < kept.expiresAt) return kept;
    this.#drop(key, kept);
    return null;
  }

  #replay(key: string, kept: Kept, now: number): ClaimResult {
    this.#kept.delete(key);
    this.#kept.set(key, kept);
    const { flight, response, completedAt, expiresAt } = kept;
    return { kind: 'stored', flight, response, ageMs: now - completedAt, ttlMs: expiresAt - now };
  }

  /** A completion repeated by its own flight was held, as in the other stores. */
  #settledBy({ key, flight, fence }: Lease): boolean {
    const kept = this.#keptOf(key, this.#now());
    return kept !== null && kept.flight === flight && kept.fence === fence;
  }

  #keep({ key, flight, fence }: Flight, response: SharedResponse, keepMs: number): void {
    const bytes = sizeOf(response);
    if (bytes > this.#maxBytes) return;
    const now = this.#now();
    this.#kept.set(key, { flight, fence, response, completedAt: now, expiresAt: now + keepMs, bytes });
    this.#keptBytes += bytes;
  }

  #drop(key: string, kept: Kept): void {
    this.#kept.delete(key);
    this.#keptBytes -= kept.bytes;
  }

  #end(flight: Flight, settlement: Settlement): void {
    this.#flights.delete(flight.key);
    const awaited = isAwaited(flight);
    for (const caller of takeCallers(flight)) caller.resolve(settlement);
    if (awaited) {
      const bytes = settlement.kind === 'response' ? sizeOf(settlement.response) : OVERHEAD_BYTES;
      const expiresAt = this.#now() + GRACE_MS;
      this.#results.set(flight.flight, { settlement, expiresAt, bytes, uncollected: flight.uncollected });
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
    for (const [key, kept] of this.#kept) {
      if (this.#keptBytes <= this.#maxBytes) return;
      this.#drop(key, kept);
    }
  }

  #sweep(): void {
    const now = this.#now();
    for (const key of this.#flights.keys()) this.#flightOf(key, now);
    this.#sweepKept(now);
    for (const [flight, result] of this.#results) {
      if (now < result.expiresAt) break;
      this.#forget(flight, result);
    }
  }

  /** A part at a time: there may be hundreds of thousands, and one that has expired costs nothing but its memory. */
  #sweepKept(now: number): void {
    this.#toSweep ??= this.#kept.keys();
    for (let i = 0; i < SWEEP_KEPT; i += 1) {
      const next = this.#toSweep.next();
      if (next.done) {
        this.#toSweep = null;
        return;
      }
      this.#keptOf(next.value, now);
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

function sizeOf({ reason, content, fields, trailers, vary }: SharedResponse): number {
  let bytes = OVERHEAD_BYTES + content.length + reason.length + vary.digest.length;
  for (const list of [fields, trailers, vary.names]) {
    for (const text of list) bytes += text.length;
  }
  return bytes;
}
