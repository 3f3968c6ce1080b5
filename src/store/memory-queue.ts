/**
 * The queues of the store in memory: who has a turn, who waits, by key.
 *
 * Invariants: expiry is exact whenever a key is read, and the sweep passes turns on whose lease has ended unread; a
 * place is in its queue until it has the turn, is turned away or is left, exactly one of these; a queue without turns
 * and places is gone. One process has all places, so none outlives its process.
 */

import { performance } from 'node:perf_hooks';
import type { Held, Lease, Settlement, TakenKey } from '../core/claim.js';
import { Registry } from '../core/roster.js';
import type { LeaseHolder, WaitOptions } from './leases.js';
import type { Entered, NoTurn, PlaceRequest, Queue, Turn } from './queue.js';
import type { Revocations } from './revocations.js';
import { StoreUnavailable } from './store.js';

type Waiter = {
  readonly resolve: (result: Turn | NoTurn) => void;
  readonly reject: (reason: unknown) => void;
  readonly signal: AbortSignal;
  readonly onAbort: () => void;
};

type Place = { readonly request: PlaceRequest; readonly process: string; waiter: Waiter | null };

type Holder = {
  readonly request: PlaceRequest;
  readonly process: string;
  readonly fence: number;
  readonly startedAt: number;
  state: 'in-flight' | 'unknown';
  /** End of the lease, or of the hold. */
  endsAt: number;
};

type Line = {
  readonly key: string;
  concurrency: number;
  /** By flight, in the order in which they had their turn. */
  readonly turns: Map<string, Holder>;
  /** By flight, first come first. */
  readonly places: Map<string, Place>;
};

export class MemoryQueue implements Queue {
  readonly #now: () => number;
  readonly #process: string;
  readonly #revocations: Revocations;
  readonly #lines = new Registry<Line>();
  /** What became of places whose `turn` has not been asked for yet. */
  readonly #untold = new Registry<Turn | NoTurn>();
  #fence = Date.now() * 1_000;
  #closed = false;

  constructor(now: () => number, process: string, revocations: Revocations) {
    this.#now = now;
    this.#process = process;
    this.#revocations = revocations;
  }

  /** `process`: the one that asks, where that is another one. */
  async enter(request: PlaceRequest, process = this.#process): Promise<Entered> {
    this.#assertOpen();
    const line = this.#lineOf(request.key) ?? this.#begin(request);
    line.concurrency = request.concurrency;
    this.#advance(line);
    const own = line.turns.get(request.flight);
    if (own !== undefined && own.state === 'in-flight') {
      own.endsAt = this.#now() + request.leaseMs;
      return turnOf(own);
    }
    if (line.places.has(request.flight)) return { kind: 'queued', place: request };
    const unknown = this.#unknown(line);
    if (unknown !== null) return unknown;
    if (line.turns.size < line.concurrency) return turnOf(this.#give(line, request, process));
    if (line.places.size >= request.maxQueue) return this.#full(line);
    line.places.set(request.flight, { request, process, waiter: null });
    return { kind: 'queued', place: request };
  }

  async turn(request: PlaceRequest, { signal }: WaitOptions): Promise<Turn | NoTurn> {
    this.#assertOpen();
    const { flight } = request;
    const told = this.#untold.get(flight);
    this.#untold.delete(flight);
    const line = this.#lineOf(request.key);
    const place = line?.places.get(flight);
    if (signal.aborted) {
      if (line !== null) this.#leave(line, flight);
      throw signal.reason;
    }
    if (told !== undefined) return told;
    if (place === undefined) throw new StoreUnavailable('there is no such place');
    return new Promise((resolve, reject) => {
      const onAbort = () => {
        if (line !== null) this.#leave(line, flight);
        reject(signal.reason);
      };
      place.waiter = { resolve, reject, signal, onAbort };
      signal.addEventListener('abort', onAbort, { once: true });
    });
  }

  async renew(lease: Lease): Promise<Held> {
    this.#assertOpen();
    const holder = this.#held(lease);
    if (holder === null) return 'lost';
    holder.endsAt = this.#now() + lease.leaseMs;
    return 'held';
  }

  async complete(lease: Lease, settlement: Settlement, keepMs: number): Promise<Held> {
    if (settlement.kind !== 'unknown' || keepMs <= 0) return this.release(lease);
    this.#assertOpen();
    const holder = this.#held(lease);
    if (holder === null) return 'lost';
    holder.state = 'unknown';
    holder.endsAt = this.#now() + keepMs;
    this.#advance(this.#lines.get(lease.key)!);
    return 'held';
  }

  async release(lease: Lease): Promise<Held> {
    this.#assertOpen();
    if (this.#held(lease) === null) return 'lost';
    this.#leave(this.#lines.get(lease.key)!, lease.flight);
    return 'held';
  }

  watch(lease: Lease, holder: LeaseHolder): void {
    this.#revocations.watch(lease, holder);
  }

  unwatch(lease: Lease): void {
    this.#revocations.unwatch(lease);
  }

  /** Frees, by an operator's word, the turn of a flight, or with null every turn whose outcome is unknown. */
  free(key: string, flight: string | null): 'settled' | 'absent' | 'other' {
    const line = this.#lineOf(key);
    if (line === null) return 'absent';
    const meant = [...line.turns.values()].filter(({ request, state }) =>
      flight === null ? state === 'unknown' : request.flight === flight,
    );
    if (meant.length === 0) return 'other';
    for (const { request } of meant) line.turns.delete(request.flight);
    this.#advance(line);
    for (const { request, state } of meant) if (state === 'in-flight') this.#revocations.tell(request.flight);
    return 'settled';
  }

  /** Whether somebody has a turn for the key, or waits for one. */
  has(key: string): boolean {
    return this.#lineOf(key) !== null;
  }

  *taken(): Iterable<TakenKey> {
    const now = this.#now();
    for (const key of this.#lines.keys()) {
      const line = this.#lineOf(key);
      for (const { request, process, state, fence, startedAt, endsAt } of line?.turns.values() ?? []) {
        const { flight, route } = request;
        const waiting = line?.places.size ?? 0;
        const times = { ageMs: now - startedAt, leftMs: endsAt - now };
        yield { key, flight, route, state, fence, leader: process, ...times, waiting };
      }
    }
  }

  sweep(): void {
    for (const key of this.#lines.keys()) this.#lineOf(key);
  }

  close(): void {
    this.#closed = true;
    const reason = new StoreUnavailable('the store is closed');
    for (const { places } of this.#lines.values()) {
      for (const { waiter } of places.values()) {
        waiter?.signal.removeEventListener('abort', waiter.onAbort);
        waiter?.reject(reason);
      }
    }
    this.#lines.clear();
    this.#untold.clear();
  }

  #assertOpen(): void {
    if (this.#closed) throw new StoreUnavailable('the store is closed');
  }

  #begin({ key, concurrency }: PlaceRequest): Line {
    const line: Line = { key, concurrency, turns: new Map(), places: new Map() };
    this.#lines.set(key, line);
    return line;
  }

  /** The key's queue as it stands now: what has expired is over, and its turns are passed on. */
  #lineOf(key: string): Line | null {
    const line = this.#lines.get(key);
    if (line === undefined) return null;
    this.#advance(line);
    return this.#lines.get(key) ?? null;
  }

  #held({ key, flight, fence }: Lease): Holder | null {
    const holder = this.#lineOf(key)?.turns.get(flight);
    return holder?.fence === fence && holder.state === 'in-flight' ? holder : null;
  }

  /** Ends what has expired, gives free turns to those who came first, and forgets a queue that is empty. */
  #advance(line: Line): void {
    const now = this.#now();
    for (const [flight, holder] of line.turns) {
      if (now < holder.endsAt) continue;
      const { holdMs } = holder.request;
      if (holder.state === 'in-flight' && now < holder.endsAt + holdMs) {
        holder.state = 'unknown';
        holder.endsAt += holdMs;
      } else {
        line.turns.delete(flight);
      }
    }
    const unknown = this.#unknown(line);
    for (const place of line.places.values()) {
      if (unknown === null && line.turns.size >= line.concurrency) break;
      line.places.delete(place.request.flight);
      this.#tell(place, unknown ?? turnOf(this.#give(line, place.request, place.process)));
    }
    if (line.turns.size === 0 && line.places.size === 0) this.#lines.delete(line.key);
    else this.#lines.set(line.key, line);
  }

  #give(line: Line, request: PlaceRequest, process: string): Holder {
    this.#fence += 1;
    const startedAt = this.#now();
    const endsAt = startedAt + request.leaseMs;
    const holder: Holder = { request, process, fence: this.#fence, startedAt, state: 'in-flight', endsAt };
    line.turns.set(request.flight, holder);
    this.#lines.set(line.key, line);
    return holder;
  }

  #tell({ request, waiter }: Place, result: Turn | NoTurn): void {
    if (waiter === null) {
      this.#untold.set(request.flight, result);
      return;
    }
    waiter.signal.removeEventListener('abort', waiter.onAbort);
    waiter.resolve(result);
  }

  /** Gives up the place, or the turn, of a flight. */
  #leave(line: Line, flight: string): void {
    line.places.delete(flight);
    line.turns.delete(flight);
    this.#advance(line);
  }

  /** Not null when outcomes that nobody knows have every turn. */
  #unknown({ turns, concurrency }: Line): NoTurn | null {
    const unknown = [...turns.values()].filter(({ state }) => state === 'unknown');
    if (unknown.length < concurrency) return null;
    return { kind: 'unknown', ttlMs: Math.min(...unknown.map(({ endsAt }) => endsAt)) - this.#now() };
  }

  #full({ turns }: Line): NoTurn {
    const now = this.#now();
    const [first] = turns.values();
    if (first === undefined) return { kind: 'full', leaseLeftMs: 0, ageMs: 0 };
    return { kind: 'full', leaseLeftMs: first.endsAt - now, ageMs: now - first.startedAt };
  }
}

function turnOf({ request, fence }: Holder): Turn {
  const { key, flight, leaseMs } = request;
  return { kind: 'turn', lease: { key, flight, fence, leaseMs, material: null }, claimedAtMs: performance.now() };
}
