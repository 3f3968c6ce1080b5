/**
 * How a duplicate is answered: with the response of a flight, with a kept one, or with a refusal that says what has the
 * key.
 *
 * Invariant: a copy says what it is: `Idempotent-Replayed` of a replay, the age of what was kept.
 */

import type { FlightRef } from '../core/claim.js';
import type { BypassReason } from '../core/outcome.js';
import { conflictOf, type Decision, type Refusal, repeatStatusOf } from '../core/policy.js';
import type { ClaimPolicy } from '../core/rule.js';
import type { SharedResponse } from '../core/sharing.js';
import { spanOfFlight } from '../core/trace-context.js';
import type { Caller } from './caller.js';
import { HandingOut } from './handing-out.js';
import type { Leaders } from './leaders.js';
import type { ExchangeObserver, VerifiedReport } from './observer.js';
import { bypass } from './passing.js';
import { Verifying } from './verifying.js';

export type AnsweringOptions = {
  readonly leaders: Pick<Leaders, 'budget' | 'latencyMsOf' | 'calls' | 'goesOn'>;
  readonly observer: ExchangeObserver;
};

export class Answering {
  readonly #options: AnsweringOptions;
  readonly #handingOut: HandingOut;
  readonly #verifying: Verifying;

  constructor(options: AnsweringOptions) {
    this.#options = options;
    this.#handingOut = new HandingOut(options.leaders.budget);
    this.#verifying = new Verifying(options);
  }

  /** With what the key was kept with. */
  giveKept(caller: Caller, key: string, { response, ageMs, ttlMs }: Decision & { kind: 'replay' }): void {
    const added = claimPolicyOf(caller).kind === 'replay' ? replayFields(ttlMs) : [];
    const given = { ageMs, outcome: { kind: 'hit', ttlMs }, added } as const;
    if (this.#handingOut.give(caller, key, response, given, false) === 'overloaded') caller.refuse('overloaded');
    else if (this.isToBeVerified(caller)) this.verify(caller, response, 'hit');
  }

  /** With the response of the flight that it has waited for: that one is in memory by now. */
  giveCollapsed(caller: Caller, key: string, response: SharedResponse): void {
    const policy = claimPolicyOf(caller);
    const isReplay = policy.kind === 'replay';
    const added = isReplay ? replayFields(policy.keepMs) : [];
    const given = { ageMs: isReplay ? 0 : null, outcome: { kind: 'collapsed' }, added } as const;
    if (this.#handingOut.give(caller, key, response, given, true) === 'overloaded') caller.refuse('overloaded');
    else if (this.isToBeVerified(caller)) this.verify(caller, response, 'collapsed');
  }

  /** Whether what a request is given is to be compared with what it would have got: drawn by lot, each time. */
  isToBeVerified(caller: Caller): boolean {
    return this.#verifying.draws(caller, claimPolicyOf(caller));
  }

  /** Compares what a request was given. */
  verify(caller: Caller, response: SharedResponse, as: VerifiedReport['as']): void {
    const policy = claimPolicyOf(caller);
    if (policy.kind === 'coalesce') this.#verifying.verify(caller, policy, response, as);
  }

  /** With nobody's response but its own: it is forwarded as if it had no key. */
  bypass(caller: Caller, reason: BypassReason): void {
    const { observer, leaders } = this.#options;
    bypass(caller, caller.upstream, reason, { observer, calls: leaders.calls });
  }

  /** That the flight has the key, and when to ask again. */
  refuseDuplicate(caller: Caller, flight: FlightRef): void {
    caller.trace?.linkTo(spanOfFlight(flight.flight));
    caller.refuse(
      'in-flight',
      conflictOf(claimPolicyOf(caller), flight, this.#options.leaders.latencyMsOf(caller.route)),
    );
  }
}

/** Tells a repeat what holds its key, or what was done. */
export function refuseRepeat(caller: Caller, code: Refusal): void {
  const status = repeatStatusOf(code);
  caller.refuse(code, status === null ? {} : { status });
}

/** The policy of a request that has a key and is no queue's. */
export function claimPolicyOf(caller: Caller): ClaimPolicy {
  const policy = caller.rule?.policy;
  if (policy === undefined || policy.kind === 'pass' || policy.kind === 'queue')
    throw new Error('a request of this policy joins no flight');
  return policy;
}

/** What tells a replay from the first answer (draft-ietf-httpapi-idempotency-key-header), and until when it can be had. */
function replayFields(ttlMs: number): string[] {
  const expires = new Date(Date.now() + ttlMs).toUTCString();
  return ['Idempotent-Replayed', 'true', 'Idempotency-Expires', expires];
}
