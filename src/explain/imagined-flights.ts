/**
 * Flights and turns as they would have been: who would have led, followed, been refused or queued, by when requests came
 * and how long the upstream took for those that lead.
 *
 * Invariants: what is decided is decided by `core/policy.ts`, from the answers that a store would have given; time is that
 * of the log; memory is bounded, and what is forgotten for it is counted.
 */

import type { ClaimResult } from '../core/claim.js';
import { decide, keepMsFor } from '../core/policy.js';
import type { ClaimPolicy, KeyedPolicy, QueuePolicy } from '../core/rule.js';
import { judge } from '../core/sharing.js';
import { ANY_RESPONSE, SOMEBODY } from './imagined.js';
import { Recent } from './recent.js';

/** What would have become of a request that has a key. */
export type Fate =
  | 'led'
  | 'coalesced'
  | 'replayed'
  | 'rejected'
  | 'queued'
  | 'keyReused'
  | 'waitTimeout'
  | 'queueFull'
  | 'notShareable';

export type KeyedRequest = {
  readonly atMs: number;
  readonly durationMs: number;
  readonly status: number;
  readonly method: string;
  readonly policy: KeyedPolicy;
  readonly digest: string;
  readonly fingerprint: string;
};

type Flight = {
  readonly kind: 'flight';
  readonly fingerprint: string;
  readonly endsMs: number;
  readonly keptUntilMs: number;
  readonly shared: 'yes' | 'no';
};

/** Ends of those who have or will have a turn, the earliest first, and when those who wait begin. */
type Line = { readonly kind: 'line'; readonly endsMs: readonly number[]; readonly beginsMs: readonly number[] };

export class ImaginedFlights {
  readonly #keys: Recent<Flight | Line>;

  constructor(mostKeys: number) {
    this.#keys = new Recent(mostKeys);
  }

  /** How many keys were forgotten while they were taken. */
  get forgotten(): number {
    return this.#keys.dropped;
  }

  /** Takes the next request, in the order of their times. */
  arrive(request: KeyedRequest): Fate {
    const { policy } = request;
    return policy.kind === 'queue' ? this.#enter(request, policy) : this.#claim(request, policy);
  }

  #claim(request: KeyedRequest, policy: ClaimPolicy): Fate {
    const there = this.#keys.get(request.digest);
    const flight = there?.kind === 'flight' ? there : null;
    const decision = decide(policy, claimed(request, flight));
    switch (decision.kind) {
      case 'forward':
        this.#set(request, flightOf(request, policy));
        return 'led';
      case 'wait':
        return waited(request, policy, flight);
      case 'apart':
        return 'notShareable';
      case 'replay':
        return 'replayed';
      case 'reject':
        return 'rejected';
      case 'refuse':
        return decision.code === 'key-reused' ? 'keyReused' : 'rejected';
    }
  }

  #enter(request: KeyedRequest, { concurrency, maxQueue, waitMs }: QueuePolicy): Fate {
    const { atMs, durationMs, digest } = request;
    const there = this.#keys.get(digest);
    const ends = there?.kind === 'line' ? there.endsMs.filter((end) => end > atMs) : [];
    const begins = there?.kind === 'line' ? there.beginsMs.filter((begin) => begin > atMs) : [];
    // Of those who are there as many must have ended as leave one turn free.
    const beginsMs = ends.length < concurrency ? atMs : (ends[ends.length - concurrency] as number);
    if (beginsMs > atMs && begins.length >= maxQueue) return 'queueFull';
    if (beginsMs - atMs > waitMs) return 'waitTimeout';
    const endsMs = [...ends, beginsMs + durationMs].sort((a, b) => a - b);
    this.#set(request, { kind: 'line', endsMs, beginsMs: beginsMs > atMs ? [...begins, beginsMs] : begins });
    return beginsMs > atMs ? 'queued' : 'led';
  }

  #set({ digest, atMs }: KeyedRequest, state: Flight | Line): void {
    this.#keys.set(digest, state, (old) => lastMs(old) <= atMs);
  }
}

function lastMs(state: Flight | Line): number {
  if (state.kind === 'line') return state.endsMs.at(-1) ?? 0;
  return Math.max(state.endsMs, state.keptUntilMs);
}

/** What a store would have answered. */
function claimed({ atMs, fingerprint }: KeyedRequest, flight: Flight | null): ClaimResult {
  if (flight === null || lastMs(flight) <= atMs) {
    const lease = { key: '', flight: '', fence: 0, leaseMs: 0, material: null };
    return { kind: 'leader', lease, expects: 'shareable' };
  }
  if (flight.fingerprint !== fingerprint) return { kind: 'mismatch' };
  if (atMs < flight.endsMs) return { kind: 'follower', flight: SOMEBODY, expects: 'shareable' };
  const ttlMs = flight.keptUntilMs - atMs;
  return { kind: 'stored', flight: '', ended: { kind: 'response', response: ANY_RESPONSE }, ageMs: 0, ttlMs };
}

/** A follower of a flight that ends in time, if its response is for others as well. */
function waited({ atMs }: KeyedRequest, policy: ClaimPolicy, flight: Flight | null): Fate {
  const leftMs = (flight?.endsMs ?? atMs) - atMs;
  const waitMs =
    policy.kind === 'coalesce'
      ? policy.waitMs
      : policy.kind === 'replay' && policy.wait.kind === 'bounded'
        ? policy.wait.waitMs
        : 0;
  if (leftMs > waitMs) return policy.kind === 'replay' ? 'rejected' : 'waitTimeout';
  return flight?.shared === 'no' ? 'notShareable' : 'coalesced';
}

function flightOf(request: KeyedRequest, policy: ClaimPolicy): Flight {
  const { atMs, durationMs, fingerprint } = request;
  const endsMs = atMs + durationMs;
  return { kind: 'flight', fingerprint, endsMs, ...keptBy(request, policy, endsMs) };
}

/** By the status alone: a log does not tell of the fields of responses. */
function keptBy(
  { method, status }: KeyedRequest,
  policy: ClaimPolicy,
  endsMs: number,
): Pick<Flight, 'keptUntilMs' | 'shared'> {
  switch (policy.kind) {
    case 'reject':
      return { keptUntilMs: endsMs, shared: 'no' };
    case 'replay':
      return { keptUntilMs: endsMs + (policy.release.includes(status) ? 0 : policy.keepMs), shared: 'yes' };
    case 'coalesce': {
      if (judge(policy, status, [], null).kind === 'unshareable') return { keptUntilMs: endsMs, shared: 'no' };
      return { keptUntilMs: endsMs + keepMsFor(policy, method, status), shared: 'yes' };
    }
  }
}
