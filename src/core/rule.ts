/**
 * A rule is a route of the configuration with every default applied: what the rest of the gateway reads.
 *
 * Invariants: everything is readonly and decided at load time, so that a request is judged by the one rule object it
 * met on arrival, whatever is reloaded meanwhile; durations are milliseconds, sizes are bytes, and the unit stands in
 * the name.
 */

/** The places that a key part can come from. */
export const KEY_SOURCES = ['header', 'query', 'param', 'cookie', 'body', 'form', 'request'] as const;
/** What a part can be of the request itself. */
export const REQUEST_PROPERTIES = ['host', 'path', 'target', 'content'] as const;

/** Where one part of a key comes from (SPEC: key parts). */
export type KeyPart = {
  /** `idempotency-key` is the default key of replay and cannot be written as a part. */
  readonly from: (typeof KEY_SOURCES)[number] | 'idempotency-key';
  /** Field, parameter, cookie or form name; the JSON pointer of `body`; the property of `request`. Header names are lower case. */
  readonly name: string;
  /** When true, absence is a value of its own; when false it makes the key missing. */
  readonly optional: boolean;
};

/** What separates callers from each other; `public` shares across callers. */
export type Identity = { readonly kind: 'public' } | { readonly kind: 'parts'; readonly parts: readonly KeyPart[] };

export type Match = {
  /** Method tokens as written (they are case-sensitive, RFC 9110 section 9.1); empty: every method. */
  readonly methods: readonly string[];
  /** As written: literal segments, `:param` segments and an optional trailing `*` (path-pattern.ts). */
  readonly path: string;
  /** Lower-case host without port, or `*.example.com`; null: any. */
  readonly host: string | null;
  /** Lower-case field name and the exact value or `*.suffix` pattern it must have. */
  readonly headers: readonly { readonly name: string; readonly value: string }[];
};

export type OnMissingKey = 'pass' | 'reject';
export type OnStoreDown = 'local' | 'pass' | 'reject';

/** What every policy with a key has. */
type Keyed = {
  /** `observes`: every request is forwarded, and what would have become of it is counted and logged. */
  readonly mode: 'protects' | 'observes';
  /** Namespace of the key; rules of one policy with one scope share their keys. */
  readonly scope: string;
  readonly key: readonly KeyPart[];
  readonly identity: Identity;
  readonly onMissingKey: OnMissingKey;
  readonly onStoreDown: OnStoreDown;
  readonly leaseMs: number;
  readonly maxKeyBodyBytes: number;
  /** How long an outcome that nobody knows holds the key; 0: the next request may run (`onUnknown: release`). */
  readonly unknownForMs: number;
  /** How the API itself is asked what became of such an operation; null: it is not. */
  readonly reconcile: Reconcile | null;
  readonly forward: Forward;
};

/** The question to the API about an operation of which nobody knows what became. */
export type Reconcile = {
  readonly url: QuestionUrl;
  readonly everyMs: number;
  /** Flat list of the field lines that the question carries, its credentials among them. */
  readonly fields: readonly string[];
  /** What the content of a 200 must say; empty: every 200 counts. */
  readonly done: readonly DoneCondition[];
};

export type QuestionUrl = {
  /** Scheme, host and port; null: those of the route's upstream. */
  readonly origin: string | null;
  /** Path and query with the placeholder in them (question-url.ts). */
  readonly target: string;
  /** What stands for it: the value of the key, or the key derived from it that `forward` tells the upstream. */
  readonly placeholder: 'key' | 'idempotencyKey';
};

export type DoneCondition = {
  /** JSON pointer into the content. */
  readonly pointer: string;
  /** The value there must be one of these. */
  readonly values: readonly (string | number | boolean | null)[];
};

/** Fields that tell the upstream about the flight; null: not sent. */
export type Forward = {
  /** Carries the fence. */
  readonly fence: string | null;
  /** Carries a key derived from the flight's key, the same for every attempt. */
  readonly idempotencyKey: string | null;
};

export type PassPolicy = { readonly kind: 'pass' };

export type CoalescePolicy = Keyed & {
  readonly kind: 'coalesce';
  /** The longest a follower waits. */
  readonly waitMs: number;
  /** Interval of the follower's safety re-read of the store. */
  readonly pollMs: number;
  readonly keep: { readonly kind: 'by-method' } | { readonly kind: 'fixed'; readonly keepMs: number };
  /** Responses of these statuses are kept; any other is for those who joined its flight. */
  readonly keepStatuses: readonly StatusRange[];
  readonly maxSharedBytes: number;
  /** How many wait for, or read, one flight's response in this process; more are refused. */
  readonly maxFollowers: number;
  /** Whether followers in other processes get the response as it comes, and event streams are shared at all. */
  readonly stream: 'to-all-processes' | 'in-process';
  /** How long a follower may hold up the others of a response that is too long to be kept. */
  readonly stallMs: number;
  readonly onLeaderFailure: { readonly kind: 'fail' } | { readonly kind: 'elect'; readonly elections: number };
  /** What followers of an unshareable response do; `by-method`: safe methods forward, others fail. */
  readonly onUnshareable: 'by-method' | 'forward' | 'fail';
  /** How long it is remembered of a key that its response was unshareable; 0: it is not. */
  readonly unshareableForMs: number;
  /** Of which requests that were given somebody else's response the upstream is asked as well; null: of none. */
  readonly verify: Verify | null;
};

export type Verify = {
  /** Above 0, up to 1. */
  readonly share: number;
  /** Fields of the two responses that are compared beside status and content; lower case. */
  readonly fields: readonly string[];
};

/** Statuses from one to another, both included. */
export type StatusRange = { readonly from: number; readonly to: number };

export type RejectPolicy = Keyed & {
  readonly kind: 'reject';
  readonly conflict: {
    readonly status: 409 | 429;
    readonly retryAfter: { readonly kind: 'computed' } | { readonly kind: 'fixed'; readonly seconds: number };
  };
};

/** How equal two requests of one key must be. */
export type FingerprintKind = 'exact' | 'canonical' | 'none';

export type ReplayPolicy = Keyed & {
  readonly kind: 'replay';
  readonly keepMs: number;
  /** Whether a duplicate in flight waits for the result, and how long. */
  readonly wait:
    | { readonly kind: 'none' }
    | { readonly kind: 'bounded'; readonly waitMs: number; readonly pollMs: number };
  readonly maxSharedBytes: number;
  readonly fingerprint: FingerprintKind;
  /** Statuses that are not recorded and free the key. */
  readonly release: readonly number[];
  /** What of the content is kept: all, nothing, or the members that these JSON pointers name. */
  readonly keepContent:
    | { readonly kind: 'full' | 'none' }
    | { readonly kind: 'members'; readonly pointers: readonly string[] };
};

export type QueuePolicy = Keyed & {
  readonly kind: 'queue';
  /** The longest a request waits for its turn. */
  readonly waitMs: number;
  /** Interval of its safety re-read of the store. */
  readonly pollMs: number;
  /** How many requests of a key are forwarded at a time. */
  readonly concurrency: number;
  /** How many may wait; with as many the next is refused. */
  readonly maxQueue: number;
};

/** Policies by which a duplicate meets the flight that has its key. */
export type ClaimPolicy = CoalescePolicy | RejectPolicy | ReplayPolicy;
export type KeyedPolicy = ClaimPolicy | QueuePolicy;
export type Policy = PassPolicy | KeyedPolicy;

export type Rule = {
  /** Unique; the label in metrics and logs. */
  readonly name: string;
  readonly match: Match;
  /** Name of the upstream. */
  readonly upstream: string;
  /** Most upstream calls that it has in progress in one process; Infinity: any number. */
  readonly maxRequests: number;
  readonly policy: Policy;
};

/** Safe methods, RFC 9110 section 9.2.1 and the HTTP method registry: only reading is asked for. */
const SAFE_METHODS: ReadonlySet<string> = new Set([
  'GET',
  'HEAD',
  'OPTIONS',
  'TRACE',
  'QUERY',
  'PROPFIND',
  'REPORT',
  'SEARCH',
]);

/** Whether a method is safe. Unknown methods are not. */
export function isSafe(method: string): boolean {
  return SAFE_METHODS.has(method);
}

/** How long a completed response answers later duplicates, by the rule and the method (SPEC: `keep`). */
export function keepMsOf(policy: CoalescePolicy, method: string): number {
  if (policy.keep.kind === 'fixed') return policy.keep.keepMs;
  return isSafe(method) ? 0 : 5_000;
}
