/**
 * Every way a request can end, named once. Cache-Status, the metrics label and the log line are derived from it, in
 * one place each, so that they never disagree.
 */

/** Answers that the gateway makes itself; the table of statuses is http/problem.ts. */
export type ProblemCode =
  | 'in-flight'
  | 'key-reused'
  | 'response-not-kept'
  | 'key-missing'
  | 'key-malformed'
  | 'content-too-large'
  | 'wait-timeout'
  | 'queue-full'
  | 'not-shareable'
  | 'no-route'
  | 'upstream-unavailable'
  | 'upstream-unreachable'
  | 'upstream-timeout'
  | 'outcome-unknown'
  | 'leader-failed'
  | 'store-unavailable'
  | 'bad-upstream-response'
  | 'bad-request'
  | 'internal-error'
  | 'overloaded'
  | 'loop-detected'
  | 'draining';

/**
 * Why a request is refused as one too many: the event loop is late, the gateway has as many under way as it may, so has its
 * connection, or its rule has as many upstream calls.
 */
export type OverloadReason = 'event-loop' | 'requests' | 'route';

/** Why a request of a rule with a policy was forwarded without its protection. */
export type BypassReason = (typeof BYPASS_REASONS)[number];
export const BYPASS_REASONS = ['key-missing', 'key-malformed', 'store-unavailable', 'not-shareable'] as const;

/** What a request was to its flight. `queued`: it waited for its turn to have one; `none`: it had none. */
export type Role = 'leader' | 'follower' | 'queued' | 'none';

export type Outcome =
  /** Forwarded by a rule without a policy, or by no rule. */
  | { readonly kind: 'passed' }
  /** The upstream switched protocols: the connection was joined with its own until it ended. */
  | { readonly kind: 'upgraded' }
  /**
   * Forwarded as leader, at once or after a wait for its turn; `stored` tells whether the response was recorded for
   * others. `failed`: it should have been.
   */
  | { readonly kind: 'led'; readonly stored: 'yes' | 'no' | 'failed'; readonly came: 'at-once' | 'queued' }
  /** Follower that got the response of its leader. */
  | { readonly kind: 'collapsed' }
  /** Answered from a kept response. */
  | { readonly kind: 'hit'; readonly ttlMs: number }
  /** Forwarded unprotected. */
  | { readonly kind: 'bypassed'; readonly reason: BypassReason }
  /** Forwarded by a rule that only observes; what would have become of it is told apart (observed.ts). */
  | { readonly kind: 'observed' }
  /** Answered by the gateway itself. */
  | { readonly kind: 'refused'; readonly code: ProblemCode; readonly role: Role }
  /** An answer that had begun could not be finished: the connection was cut. */
  | { readonly kind: 'cut'; readonly role: Role }
  /** The client left before its answer was complete. */
  | { readonly kind: 'left'; readonly role: Role };

/** The metrics label of an outcome: its kind, or the problem's code. */
export function labelOf(outcome: Outcome): string {
  return outcome.kind === 'refused' ? outcome.code : outcome.kind;
}

/** What the request was to its flight. */
export function roleOf(outcome: Outcome): Role {
  switch (outcome.kind) {
    case 'led':
      return 'leader';
    case 'collapsed':
      return 'follower';
    case 'refused':
    case 'cut':
    case 'left':
      return outcome.role;
    case 'passed':
    case 'upgraded':
    case 'hit':
    case 'bypassed':
    case 'observed':
      return 'none';
  }
}
