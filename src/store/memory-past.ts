/**
 * What ended flights leave behind in this process's memory: what their keys are kept with, and their settlements for
 * whoever joined them.
 *
 * Invariants: expiry is exact whenever a key is read; kept responses are bounded by the budget of all responses in this
 * process, least recently used out first, and what stands against a second execution after everything else; facts (an outcome is unknown, a response is not kept) are never evicted, and of a response that stands against a
 * second execution the fact stays when its content goes; a settlement stays until everybody who joined its flight has asked
 * for it, at most `GRACE_MS`, and longer only while there is room for it.
 */

import type { ClaimResult, Ended, FlightRef, KeyMaterial, Lease, Settlement, TakenKey } from '../core/claim.js';
import type { Giver, MemoryBudget } from '../core/memory-budget.js';
import { Registry } from '../core/roster.js';
import { sizeOf } from '../core/sharing.js';
import { PartialSweep } from './partial-sweep.js';
import type { SettleAs } from './store.js';

/** What is known of a flight from its claim to the end of its record. */
export type Origin = {
  readonly key: string;
  readonly flight: string;
  readonly fence: number;
  readonly fingerprint: string;
  readonly holdMs: number;
  readonly route: string;
  /** The process that leads, or led, the flight. */
  readonly leader: string;
  readonly startedAt: number;
};

/** A flight that has ended and still has its key. */
type PastAs<E> = {
  readonly origin: Origin;
  readonly ended: E;
  /** The settlement by which its leader ended it; null: it did not. */
  readonly settledAs: Settlement['kind'] | null;
  readonly endedAt: number;
  readonly expiresAt: number;
};

type Kept = PastAs<Ended & { readonly kind: 'response' }>;
type Fact = PastAs<{ readonly kind: 'not-kept' } | { readonly kind: 'unknown' }>;
export type Past = Kept | Fact;

type Result = {
  readonly settlement: Settlement;
  readonly expiresAt: number;
  uncollected: number;
};

const GRACE_MS = 10_000;
/** A settlement without a response. */
const OVERHEAD_BYTES = 512;

export class MemoryPast implements Giver {
  readonly #budget: MemoryBudget;
  /** Kept responses that stand against a second execution, and those that only spare one; least recently used first. */
  readonly #promised = new Registry<Kept>();
  readonly #spare = new Registry<Kept>();
  readonly #facts = new Map<string, Fact>();
  /** Ended flights, by flight id, oldest first. */
  readonly #results = new Registry<Result>();
  /** Of those, the ones that only answer somebody who asks twice. */
  readonly #collected = new Set<string>();
  /** What is kept and what was collected: what can be given up, if nobody else holds it. */
  #spareBytes = 0;
  readonly #promisedSweep = new PartialSweep(this.#promised, (key, now) => this.of(key, now));
  readonly #spareSweep = new PartialSweep(this.#spare, (key, now) => this.of(key, now));
  readonly #factsSweep = new PartialSweep(this.#facts, (key, now) => this.of(key, now));

  constructor(budget: MemoryBudget) {
    this.#budget = budget;
    budget.onShort(this);
  }

  /** What an ended flight has left behind under the key. Asked when the key has no flight. */
  of(key: string, now: number): Past | null {
    const past = this.#promised.get(key) ?? this.#spare.get(key) ?? this.#facts.get(key);
    if (past === undefined) return null;
    if (now < past.expiresAt) return past;
    this.drop(past);
    return null;
  }

  /** All keys under which there is something, or was until it expired. */
  *keys(): Iterable<string> {
    yield* this.#promised.keys();
    yield* this.#spare.keys();
    yield* this.#facts.keys();
  }

  /** What it answers to a claim. */
  repeat(past: Past, material: KeyMaterial, now: number): ClaimResult {
    const { ended, endedAt, expiresAt, origin } = past;
    const { key, flight } = origin;
    const ttlMs = expiresAt - now;
    if (ended.kind === 'unknown') return { kind: 'unknown', key, material, flight, ttlMs };
    if (isKept(past)) {
      const all = this.#roomOf(past);
      all.delete(key);
      all.set(key, past);
    }
    return { kind: 'stored', flight, ended, ageMs: now - endedAt, ttlMs };
  }

  /** Keeps how a flight ended, if it is of those that have their key on; `settledAs` is null when its leader did not end it. */
  keep(
    origin: Origin,
    settlement: Settlement,
    settledAs: Settlement['kind'] | null,
    keepMs: number,
    endedAt: number,
  ): void {
    if (keepMs <= 0) return;
    const times = { endedAt, expiresAt: endedAt + keepMs };
    switch (settlement.kind) {
      case 'response': {
        const { response } = settlement;
        const kept: Kept = { origin, ended: settlement, settledAs, ...times };
        const bytes = sizeOf(response);
        if (!this.#budget.hold(response, bytes)) return this.#keepFact(kept);
        this.#spareBytes += bytes;
        this.#roomOf(kept).set(origin.key, kept);
        return;
      }
      case 'not-kept':
      case 'unknown':
        this.#facts.set(origin.key, { origin, ended: { kind: settlement.kind }, settledAs, ...times });
    }
  }

  /** Somebody's word on what is there takes its place. */
  settle(past: Past, as: SettleAs, now: number): void {
    this.drop(past);
    this.keep(past.origin, endingAs(as, 0), null, keepMsOf(as), now);
  }

  drop(past: Past): void {
    const { key } = past.origin;
    this.#facts.delete(key);
    if (!isKept(past) || !this.#roomOf(past).delete(key)) return;
    this.#spareBytes -= sizeOf(past.ended.response);
    this.#budget.letGo(past.ended.response);
  }

  *taken(now: number): Iterable<TakenKey> {
    for (const key of this.keys()) {
      const past = this.of(key, now);
      if (past === null) continue;
      const state = past.ended.kind === 'unknown' ? 'unknown' : 'kept';
      const ageMs = now - (state === 'unknown' ? past.origin.startedAt : past.endedAt);
      const leader = state === 'unknown' ? past.origin.leader : null;
      yield { ...named(past.origin), leader, state, ageMs, leftMs: past.expiresAt - now, waiting: 0 };
    }
  }

  /** Remembers a settlement for those who joined and have not asked for it yet. */
  remember(flight: string, settlement: Settlement, uncollected: number, now: number): void {
    const { what, bytes } = heldOf(settlement);
    this.#budget.holdAnyway(what, bytes);
    this.#results.set(flight, { settlement, expiresAt: now + GRACE_MS, uncollected });
    if (uncollected === 0) this.#isCollected(flight, bytes);
    this.#budget.reclaim();
  }

  collect(ref: FlightRef): Settlement {
    const result = this.#results.get(ref.flight);
    if (result === undefined) return { kind: 'unknown', election: ref.election };
    result.uncollected = Math.max(0, result.uncollected - 1);
    if (result.uncollected === 0) this.#isCollected(ref.flight, heldOf(result.settlement).bytes);
    this.#budget.reclaim();
    return result.settlement;
  }

  /** Gives back what has expired, a part of it at a time: it costs nothing but its memory. */
  sweep(now: number): void {
    this.#promisedSweep.step(now);
    this.#spareSweep.step(now);
    this.#factsSweep.step(now);
    for (const [flight, result] of this.#results) {
      if (now < result.expiresAt) break;
      this.#forget(flight, result);
    }
  }

  clear(): void {
    for (const all of [this.#promised, this.#spare]) for (const kept of all.values()) this.drop(kept);
    for (const [flight, result] of this.#results) this.#forget(flight, result);
    this.#facts.clear();
  }

  /** There is no room for a response. Where a repeat must not be executed the fact is kept that there was one. */
  #keepFact({ origin, settledAs, endedAt, expiresAt }: Kept): void {
    if (!isPromised(origin)) return;
    this.#facts.set(origin.key, { origin, ended: { kind: 'not-kept' }, settledAs, endedAt, expiresAt });
  }

  #forget(flight: string, result: Result): void {
    const { what, bytes } = heldOf(result.settlement);
    this.#results.delete(flight);
    if (this.#collected.delete(flight)) this.#spareBytes -= bytes;
    this.#budget.letGo(what);
  }

  #isCollected(flight: string, bytes: number): void {
    if (this.#collected.has(flight)) return;
    this.#collected.add(flight);
    this.#spareBytes += bytes;
  }

  #roomOf({ origin }: Kept): Registry<Kept> {
    return isPromised(origin) ? this.#promised : this.#spare;
  }

  /** Results that everybody has collected go first, and promises last: of them it stays known that there was a response. */
  giveUp(missingBytes: number): void {
    const until = this.#budget.usedBytes - missingBytes;
    for (const flight of this.#collected) {
      if (this.#budget.usedBytes <= until) return;
      this.#forget(flight, this.#results.get(flight) as Result);
    }
    for (const all of [this.#spare, this.#promised]) {
      for (const kept of all.values()) {
        if (this.#budget.usedBytes <= until) return;
        // What a client reads as well would not be given back.
        if (!this.#budget.isHeldOnce(kept.ended.response)) continue;
        this.drop(kept);
        this.#keepFact(kept);
      }
    }
  }

  spareBytes(): number {
    return this.#spareBytes;
  }
}

function isKept(past: Past): past is Kept {
  return past.ended.kind === 'response';
}

/** Whether a repeat must not be executed, whatever becomes of the response. */
function isPromised({ fingerprint, holdMs }: Origin): boolean {
  return fingerprint !== '' || holdMs > 0;
}

/** What of a settlement takes room. */
function heldOf(settlement: Settlement): { readonly what: object; readonly bytes: number } {
  if (settlement.kind !== 'response') return { what: settlement, bytes: OVERHEAD_BYTES };
  return { what: settlement.response, bytes: sizeOf(settlement.response) };
}

export function isOf(origin: Origin, lease: Lease): boolean {
  return origin.flight === lease.flight && origin.fence === lease.fence;
}

/** What operators see of it. */
export function named({ key, flight, route, fence, leader }: Origin) {
  return { key, flight, route, fence, leader };
}

/** The settlement that somebody's word stands for. */
export function endingAs(as: SettleAs, election: number): Settlement {
  if (as.kind === 'free') return { kind: 'failed', election };
  return as.kind === 'response' ? { kind: 'response', response: as.response } : { kind: 'not-kept' };
}

export function keepMsOf(as: SettleAs): number {
  return as.kind === 'free' ? 0 : as.keepMs;
}
