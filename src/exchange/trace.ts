/**
 * What the exchange tells of a request that is traced. One that is not has no trace, and pays for the question whether it
 * has one. Whoever traces never changes what happens but for the fields that tell the upstream of it.
 */

import type { Outcome } from '../core/outcome.js';
import type { Rule } from '../core/rule.js';
import type { SpanContext } from '../core/trace-context.js';

/** What is to be known of a request before it is looked at; its rule and its wait are read when it is over. */
export type TracedRequest = {
  readonly method: string;
  readonly fields: readonly string[];
  readonly req: { readonly httpVersion: string };
  readonly peer: { readonly scheme: string };
  readonly rule: Rule | null;
  /** Monotonic time, ms; null: it did not wait. */
  readonly waitingSinceMs: number | null;
};

/** What is known of it when it is over. */
export type TracedEnd = {
  readonly route: string;
  readonly policy: string;
  readonly outcome: Outcome;
  readonly status: number;
  readonly requestId: string;
  readonly waitedMs: number | null;
};

/** Where an upstream call goes. */
export type TracedCall = {
  readonly method: string;
  readonly upstream: string;
  /** Origin of its only address; null: it has several. */
  readonly server: URL | null;
};

export interface RequestTrace {
  /** Its own span. */
  readonly context: SpanContext;
  /** It has a key. `digest` is what may be told of it. */
  keyed(digest: string): void;
  /** Its answer comes from there, or is kept from it by that one. null: nobody knows a span there. */
  linkTo(other: SpanContext | null): void;
  /** The store is asked who has the key; what is answered is to be told to what this returns. */
  claiming(): (answer: string) => void;
  /** An upstream call begins. */
  calling(call: TracedCall): CallTrace;
  /** It is over. Told once. */
  over(end: TracedEnd): void;
}

export interface CallTrace {
  /** Flat field lines that tell the upstream, in place of those of the same names. */
  readonly fields: readonly string[];
  /** Names, in lower case, whose lines are not to be passed on beside them. */
  readonly replaced: ReadonlySet<string>;
  /** It is handed to a connected socket, again with each attempt. */
  sent(): void;
  answered(status: number): void;
  /** It is over; told once or more, of which the first counts. null: as it should be. */
  over(failure: string | null): void;
}
