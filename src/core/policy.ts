/**
 * What is done with a request once the store has said who has its key. Pure: the answer of the store goes in, a
 * decision comes out; carrying it out is the exchange's work.
 */

import type { ClaimResult, FlightRef, Lease, Settlement } from './claim.js';
import { type CoalescePolicy, isSafe, type KeyedPolicy, keepMsOf } from './rule.js';
import type { SharedResponse } from './sharing.js';

export type Decision =
  | { readonly kind: 'forward'; readonly lease: Lease }
  | { readonly kind: 'wait'; readonly flight: FlightRef }
  | {
      readonly kind: 'replay';
      readonly response: SharedResponse;
      readonly ageMs: number;
      readonly ttlMs: number;
    }
  | { readonly kind: 'reject'; readonly flight: FlightRef };

/** Turns the store's answer into what happens. */
export function decide(policy: KeyedPolicy, claim: ClaimResult): Decision {
  switch (claim.kind) {
    case 'leader':
      return { kind: 'forward', lease: claim.lease };
    case 'follower':
      return { kind: policy.kind === 'coalesce' ? 'wait' : 'reject', flight: claim.flight };
    case 'stored':
      return { kind: 'replay', response: claim.response, ageMs: claim.ageMs, ttlMs: claim.ttlMs };
  }
}

/** What a follower does with the settlement of its flight. */
export type Ending =
  | { readonly kind: 'answer'; readonly response: SharedResponse }
  | { readonly kind: 'elect'; readonly election: number }
  | { readonly kind: 'forward' }
  | { readonly kind: 'refuse'; readonly code: 'leader-failed' | 'not-shareable' };

/** Turns a settlement into a follower's ending. Strict by default: nobody is promoted after a failed leader. */
export function endingOf(policy: CoalescePolicy, method: string, settlement: Settlement): Ending {
  switch (settlement.kind) {
    case 'response':
      return { kind: 'answer', response: settlement.response };
    case 'failed':
    case 'unknown': {
      const { onLeaderFailure } = policy;
      // After an unknown outcome the next request may run (coalesce has no hold), so an election may follow it as well.
      if (onLeaderFailure.kind === 'elect' && settlement.election < onLeaderFailure.elections) {
        return { kind: 'elect', election: settlement.election + 1 };
      }
      return { kind: 'refuse', code: 'leader-failed' };
    }
    case 'unshareable': {
      // By default only what asks for nothing but reading may be sent once more.
      const forwards = policy.onUnshareable === 'by-method' ? isSafe(method) : policy.onUnshareable === 'forward';
      return forwards ? { kind: 'forward' } : { kind: 'refuse', code: 'not-shareable' };
    }
  }
}

/** For how long a response answers later duplicates: what the upstream answered as an error is kept for nobody. */
export function keepMsFor(policy: CoalescePolicy, method: string, status: number): number {
  return status >= 400 ? 0 : keepMsOf(policy, method);
}

/**
 * Seconds after which a refused duplicate may try again: what is left of the flight by the latency seen on this rule
 * so far, or else by its lease; at least 1, at most the lease.
 */
export function retryAfterSeconds(leaseMs: number, flight: FlightRef, latencyMs: number | null): number {
  const expectedMs =
    latencyMs !== null && latencyMs > flight.ageMs ? latencyMs - flight.ageMs : Math.max(0, flight.leaseLeftMs);
  const mostSeconds = Math.max(1, Math.floor(leaseMs / 1000));
  return Math.min(mostSeconds, Math.max(1, Math.ceil(expectedMs / 1000)));
}
