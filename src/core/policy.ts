/**
 * What is done with a request once the store has said who has its key. Pure: the answer of the store goes in, a
 * decision comes out; carrying it out is the exchange's work.
 */

import type { ClaimResult, Expects, FlightRef, Lease, Settlement } from './claim.js';
import {
  type ClaimPolicy,
  type CoalescePolicy,
  isSafe,
  type KeyedPolicy,
  keepMsOf,
  type RejectPolicy,
  type ReplayPolicy,
} from './rule.js';
import type { SharedResponse } from './sharing.js';

/** Why a request is refused by what its key is taken with. */
export type Refusal = 'key-reused' | 'outcome-unknown' | 'response-not-kept' | 'leader-failed';

export type Decision =
  | { readonly kind: 'forward'; readonly lease: Lease; readonly expects: Expects }
  | { readonly kind: 'wait'; readonly flight: FlightRef }
  /** Does not wait for a response that would hardly be for it: ends as a follower of an unshareable one. */
  | { readonly kind: 'apart' }
  | {
      readonly kind: 'replay';
      readonly response: SharedResponse;
      readonly ageMs: number;
      readonly ttlMs: number;
    }
  /** Refused for the flight that is under way. */
  | { readonly kind: 'reject'; readonly flight: FlightRef }
  /** Refused for good, or until the key is free. */
  | { readonly kind: 'refuse'; readonly code: Refusal };

/** Turns the store's answer into what happens. */
export function decide(policy: ClaimPolicy, claim: ClaimResult): Decision {
  switch (claim.kind) {
    case 'leader':
      return { kind: 'forward', lease: claim.lease, expects: claim.expects };
    case 'follower':
      if (waits(policy) && claim.expects === 'unshareable') return { kind: 'apart' };
      return { kind: waits(policy) ? 'wait' : 'reject', flight: claim.flight };
    case 'stored':
      if (claim.ended.kind === 'not-kept') return { kind: 'refuse', code: 'response-not-kept' };
      return { kind: 'replay', response: claim.ended.response, ageMs: claim.ageMs, ttlMs: claim.ttlMs };
    case 'mismatch':
      return { kind: 'refuse', code: 'key-reused' };
    case 'unknown':
      return { kind: 'refuse', code: 'outcome-unknown' };
    case 'late':
      return { kind: 'refuse', code: 'leader-failed' };
  }
}

/** Whether a duplicate of a flight waits for its end. */
export function waits(policy: KeyedPolicy): policy is CoalescePolicy | ReplayPolicy {
  return policy.kind === 'coalesce' || (policy.kind === 'replay' && policy.wait.kind === 'bounded');
}

/** The longest that a duplicate, or who is queued, waits, and the interval of its safety re-read, milliseconds; null: it does not wait. */
export function waitOf(policy: KeyedPolicy): { readonly waitMs: number; readonly pollMs: number } | null {
  if (policy.kind === 'coalesce' || policy.kind === 'queue') return policy;
  return policy.kind === 'replay' && policy.wait.kind === 'bounded' ? policy.wait : null;
}

/** Whether what the upstream answers is given to others; where a resource is locked it never is. */
export function sharesResponses(policy: KeyedPolicy): policy is CoalescePolicy | ReplayPolicy {
  return policy.kind === 'coalesce' || policy.kind === 'replay';
}

/** What a follower does with the settlement of its flight. */
export type Ending =
  | { readonly kind: 'answer'; readonly response: SharedResponse }
  | { readonly kind: 'elect'; readonly election: number }
  /** Asks once more who has the key. */
  | { readonly kind: 'ask-again'; readonly election: number }
  | { readonly kind: 'forward' }
  | {
      readonly kind: 'refuse';
      readonly code: 'leader-failed' | 'not-shareable' | 'outcome-unknown' | 'response-not-kept';
    };

/** Turns a settlement into a follower's ending. Strict by default: nobody is promoted after a failed leader. */
export function endingOf(policy: CoalescePolicy | ReplayPolicy, method: string, settlement: Settlement): Ending {
  switch (settlement.kind) {
    case 'response':
      return { kind: 'answer', response: settlement.response };
    case 'not-kept':
      return { kind: 'refuse', code: 'response-not-kept' };
    case 'withdrawn':
      return { kind: 'ask-again', election: settlement.election };
    case 'failed':
    case 'unknown':
      return afterFailure(policy, settlement);
    case 'unshareable': {
      // By default only what asks for nothing but reading may be sent once more.
      const choice = policy.kind === 'coalesce' ? policy.onUnshareable : 'fail';
      const forwards = choice === 'by-method' ? isSafe(method) : choice === 'forward';
      return forwards ? { kind: 'forward' } : { kind: 'refuse', code: 'not-shareable' };
    }
  }
}

function afterFailure(
  policy: CoalescePolicy | ReplayPolicy,
  { kind, election }: Settlement & { kind: 'failed' | 'unknown' },
): Ending {
  // A held outcome is what a repeat of the request would be told; nobody may run until it is known.
  if (kind === 'unknown' && policy.unknownForMs > 0) {
    return { kind: 'refuse', code: policy.kind === 'replay' ? 'outcome-unknown' : 'leader-failed' };
  }
  // Otherwise the next request may run even after an unknown outcome, so an election may follow it as well.
  const elections =
    policy.kind === 'coalesce' && policy.onLeaderFailure.kind === 'elect' ? policy.onLeaderFailure.elections : 0;
  return election < elections ? { kind: 'elect', election: election + 1 } : { kind: 'refuse', code: 'leader-failed' };
}

/** For how long a response of this status answers later duplicates. */
export function keepMsFor(policy: CoalescePolicy | ReplayPolicy, method: string, status: number): number {
  if (policy.kind === 'replay') return policy.keepMs;
  const isKept = policy.keepStatuses.some(({ from, to }) => from <= status && status <= to);
  return isKept ? keepMsOf(policy, method) : 0;
}

/** How a duplicate of a flight that is under way is refused. */
export type Conflict = { readonly status: 409 | 429; readonly retryAfterSeconds: number };

const PLAIN_CONFLICT = { status: 409, retryAfter: { kind: 'computed' } } as const satisfies RejectPolicy['conflict'];

/** By the rule, and by what is left of the flight. `latencyMs` is what was seen on this rule so far; null: nothing. */
export function conflictOf(
  policy: ClaimPolicy,
  flight: Pick<FlightRef, 'ageMs' | 'leaseLeftMs'>,
  latencyMs: number | null,
): Conflict {
  const { status, retryAfter } = policy.kind === 'reject' ? policy.conflict : PLAIN_CONFLICT;
  const seconds =
    retryAfter.kind === 'fixed' ? retryAfter.seconds : retryAfterSeconds(policy.leaseMs, flight, latencyMs);
  return { status, retryAfterSeconds: seconds };
}

/** The status of a repeat's refusal where it is not that of its code: the first caller of an unknown outcome had 504. */
export function repeatStatusOf(code: Refusal): 409 | null {
  return code === 'outcome-unknown' ? 409 : null;
}

/**
 * Seconds after which a refused duplicate may try again: what is left of the flight by the latency seen on this rule
 * so far, or else by its lease; at least 1, at most the lease.
 */
export function retryAfterSeconds(
  leaseMs: number,
  flight: Pick<FlightRef, 'ageMs' | 'leaseLeftMs'>,
  latencyMs: number | null,
): number {
  const expectedMs =
    latencyMs !== null && latencyMs > flight.ageMs ? latencyMs - flight.ageMs : Math.max(0, flight.leaseLeftMs);
  const mostSeconds = Math.max(1, Math.floor(leaseMs / 1000));
  return Math.min(mostSeconds, Math.max(1, Math.ceil(expectedMs / 1000)));
}
