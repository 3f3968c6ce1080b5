/**
 * What ended flights leave behind in this process's memory: what their keys are kept with, and their settlements for
 * whoever joined them.
 *
 * Invariants: expiry is exact whenever a key is read; kept responses are bounded by `mostBytes`, least recently used out
 * first; facts (an outcome is unknown, a response is not kept) are never evicted, and of a response that stands against a
 * second execution the fact stays when its content goes; a settlement stays until everybody who joined its flight has asked
 * for it, at most `GRACE_MS`, and longer only while there is room for it.
 */

import type { ClaimResult, Ended, FlightRef, KeyMaterial, Lease, Settlement, TakenKey } from '../core/claim.js';
import type { SharedResponse } from '../core/sharing.js';
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

type Kept = PastAs<Ended & { readonly kind: 'response' }> & { readonly bytes: number };
type Fact = PastAs<{ readonly kind: 'not-kept' } | { readonly kind: 'unknown' }>;
export type Past = Kept | Fact;

type Result = {
  readonly settlement: Settlement;
  readonly expiresAt: number;
  readonly bytes: number;
  uncollected: number;
};

const GRACE_MS = 10_000;
/** Objects, map entries and the like, for one response. */
const OVERHEAD_BYTES = 512;

export class MemoryPast {
  readonly #mostBytes: number;
  /** Least recently used first. */
  readonly #kept = new Map<string, Kept>();
  #keptBytes = 0;
  readonly #facts = new Map<string, Fact>();
  /** Ended flights, by flight id, oldest first. */
  readonly #results = new Map<string, Result>();
  #resultBytes = 0;
  readonly #keptSweep = new PartialSweep(this.#kept, (key, now) => this.of(key, now));
  readonly #factsSweep = new PartialSweep(this.#facts, (key, now) => this.of(key, now));

  constructor(mostBytes: number) {
    this.#mostBytes = mostBytes;
  }

  /** What an ended flight has left behind under the key. Asked when the key has no flight. */
  of(key: string, now: number): Past | null {
    const past = this.#kept.get(key) ?? this.#facts.get(key);
    if (past === undefined) return null;
    if (now < past.expiresAt) return past;
    this.drop(past);
    return null;
  }

  /** All keys under which there is something, or was until it expired. */
  *keys(): Iterable<string> {
    yield* this.#kept.keys();
    yield* this.#facts.keys();
  }

  /** What it answers to a claim. */
  repeat(past: Past, material: KeyMaterial, now: number): ClaimResult {
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
        const bytes = sizeOf(settlement.response);
        const kept: Kept = { origin, ended: settlement, settledAs, ...times, bytes };
        if (bytes > this.#mostBytes) return this.#keepFact(kept);
        this.#kept.set(origin.key, kept);
        this.#keptBytes += bytes;
        return this.#evict();
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
    if (this.#kept.delete(key) && 'bytes' in past) this.#keptBytes -= past.bytes;
  }

  *taken(now: number): Iterable<TakenKey> {
    for (const key of this.keys()) {
      const past = this.of(key, now);
      if (past === null) continue;
      const state = past.ended.kind === 'unknown' ? 'unknown' : 'kept';
      const ageMs = now - (state === 'unknown' ? past.origin.startedAt : past.endedAt);
      yield { ...named(past.origin), state, ageMs, leftMs: past.expiresAt - now, waiting: 0 };
    }
  }

  /** Remembers a settlement for those who joined and have not asked for it yet. */
  remember(flight: string, settlement: Settlement, uncollected: number, now: number): void {
    const bytes = settlement.kind === 'response' ? sizeOf(settlement.response) : OVERHEAD_BYTES;
    this.#results.set(flight, { settlement, expiresAt: now + GRACE_MS, bytes, uncollected });
    this.#resultBytes += bytes;
    this.#evict();
  }

  collect(ref: FlightRef): Settlement {
    const result = this.#results.get(ref.flight);
    if (result === undefined) return { kind: 'unknown', election: ref.election };
    result.uncollected = Math.max(0, result.uncollected - 1);
    this.#evict();
    return result.settlement;
  }

  /** Gives back what has expired, a part of it at a time: it costs nothing but its memory. */
  sweep(now: number): void {
    this.#keptSweep.step(now);
    this.#factsSweep.step(now);
    for (const [flight, result] of this.#results) {
      if (now < result.expiresAt) break;
      this.#forget(flight, result);
    }
  }

  clear(): void {
    for (const map of [this.#kept, this.#facts, this.#results]) map.clear();
  }

  /** There is no room for a response. Where a repeat must not be executed the fact is kept that there was one. */
  #keepFact({ origin, settledAs, endedAt, expiresAt }: Kept): void {
    if (origin.fingerprint === '' && origin.holdMs === 0) return;
    this.#facts.set(origin.key, { origin, ended: { kind: 'not-kept' }, settledAs, endedAt, expiresAt });
  }

  #forget(flight: string, result: Result): void {
    this.#results.delete(flight);
    this.#resultBytes -= result.bytes;
  }

  /** Results that everybody has collected go first: they only answer somebody who asks twice. */
  #evict(): void {
    if (this.#keptBytes + this.#resultBytes <= this.#mostBytes) return;
    for (const [flight, result] of this.#results) {
      if (this.#keptBytes + this.#resultBytes <= this.#mostBytes) return;
      if (result.uncollected === 0) this.#forget(flight, result);
    }
    for (const kept of this.#kept.values()) {
      if (this.#keptBytes <= this.#mostBytes) return;
      this.drop(kept);
      this.#keepFact(kept);
    }
  }
}

export function isOf(origin: Origin, lease: Lease): boolean {
  return origin.flight === lease.flight && origin.fence === lease.fence;
}

/** What operators see of it. */
export function named({ key, flight, route, fence }: Origin) {
  return { key, flight, route, fence };
}

/** The settlement that somebody's word stands for. */
export function endingAs(as: SettleAs, election: number): Settlement {
  if (as.kind === 'free') return { kind: 'failed', election };
  return as.kind === 'response' ? { kind: 'response', response: as.response } : { kind: 'not-kept' };
}

export function keepMsOf(as: SettleAs): number {
  return as.kind === 'free' ? 0 : as.keepMs;
}

function sizeOf({ reason, content, fields, trailers, vary }: SharedResponse): number {
  let bytes = OVERHEAD_BYTES + content.length + reason.length + vary.digest.length;
  for (const list of [fields, trailers, vary.names]) {
    for (const text of list) bytes += text.length;
  }
  return bytes;
}
