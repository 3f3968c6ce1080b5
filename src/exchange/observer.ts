/** What the exchange tells those who watch it. Observers never change what happens. */

import type { Compared, Difference } from '../core/likeness.js';
import type { Fate } from '../core/observed.js';
import type { BypassReason, OverloadReason } from '../core/outcome.js';
import type { Reconciled, ReconcileVerdict } from '../core/reconcile.js';
import type { UnshareableReason } from '../core/sharing.js';
import type { Report } from './caller.js';
import type { RequestTrace } from './trace.js';

/** An unknown outcome that the API's answer ended. `key` is the digest. */
export type ReconciledReport = {
  readonly route: string;
  readonly key: string;
  readonly flight: string;
  readonly as: Reconciled['kind'];
  /** `unanswered`: the store was asked to and its answer did not come. */
  readonly result: 'settled' | 'unanswered';
};

/** A question to the API that is over, or that cannot be asked. */
export type AskedReport = {
  readonly route: string;
  readonly key: string;
  readonly flight: string;
  readonly verdict: ReconcileVerdict;
  /** The status, or what went wrong: `not-askable` when the key's value cannot stand in a URL. */
  readonly answer: string;
  /** How many were asked about this flight in this process. */
  readonly count: number;
};

/** What was seen of the keys of a rule. */
export type KeyFinding =
  /** A flight has had its first duplicate in this process. */
  | { readonly kind: 'flight-met'; readonly leader: 'here' | 'elsewhere' }
  /** A duplicate is another request than the one whose key it has; `unknown`: the store says so, the leader was elsewhere. */
  | { readonly kind: 'too-coarse'; readonly differsIn: Difference | 'unknown'; readonly compared: Compared }
  /** An equal request came within the lease and had another key, first of all by this part of it. */
  | { readonly kind: 'too-fine'; readonly part: string; readonly compared: Compared }
  /** A request was forgotten for want of room while an equal one might still have come within the lease. */
  | { readonly kind: 'forgotten' };

/** What would have become of a request of a rule that only observes; told when its own call is over. */
export type ObservedReport = {
  readonly route: string;
  readonly policy: string;
  readonly method: string;
  readonly requestId: string;
  readonly fate: Fate;
  /** How long it would have waited, ms; null: not at all. */
  readonly waitedMs: number | null;
  /** How long its upstream call took, ms; null: nothing was sent. */
  readonly callMs: number | null;
};

/** A response that was given to somebody else than its leader's client, compared with the upstream's own answer. */
export type VerifiedReport = {
  readonly route: string;
  readonly method: string;
  readonly requestId: string;
  /** What it was given as. */
  readonly as: 'collapsed' | 'hit';
  /** `failed`: the upstream gave no answer in time; `skipped`: there were as many such calls as there may be. */
  readonly result: 'same' | 'different' | 'failed' | 'skipped';
  /** `status`, `content`, and names of fields. */
  readonly differs: readonly string[];
  /** What the key is made of, as the configuration names it. */
  readonly keyParts: readonly string[];
};

/** What an upstream call is made for: a request of a client, or a comparison of responses. */
export type CallPurpose = 'client' | 'verify';

export interface ExchangeObserver {
  /** A request was handed to a connected upstream socket. */
  sent(route: string, purpose: CallPurpose): void;
  /** The fields of its response are here, so many milliseconds later; with the trace of the request, if it has one. */
  answered(route: string, afterMs: number, trace: RequestTrace | null): void;
  /** A shared response was verified, or should have been. */
  verified(report: VerifiedReport): void;
  /** A request of a rule with a policy is forwarded without it. */
  unprotected(route: string, reason: BypassReason): void;
  /** A request is refused as one too many. */
  overloaded(route: string, reason: OverloadReason): void;
  /** A response can be given to nobody but its leader's client. */
  unshareable(route: string, reason: UnshareableReason): void;
  /** A flight began (+1) or ended (-1) in this process. */
  flights(route: string, change: 1 | -1): void;
  /** A request began (+1) or ended (-1) to wait for its turn in this process. */
  queued(route: string, change: 1 | -1): void;
  /** A connection was handed over to another protocol (+1), or has ended (-1). */
  upgrades(route: string, change: 1 | -1): void;
  keyFound(route: string, finding: KeyFinding): void;
  /** A leader lost its lease: another may have run beside it. `key` is the digest. */
  leaseLost(route: string, key: string): void;
  /** A settlement could not be brought to the store within the lease. */
  unsettled(route: string, key: string): void;
  /** The API was asked about an unknown outcome. */
  asked(report: AskedReport): void;
  /** An unknown outcome was settled by what the API said. */
  reconciled(report: ReconciledReport): void;
  /** It is known what would have become of a request. Called once each. */
  observed(report: ObservedReport): void;
  /** A request is over, whichever way. Called once each. */
  over(report: Report): void;
  /** Something that must not happen did. */
  failed(error: unknown): void;
}
