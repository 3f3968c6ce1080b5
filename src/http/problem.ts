/**
 * The answers that the gateway makes itself: one table from code to status, title and Proxy-Status error type, and
 * the message built from it (RFC 9457, RFC 9209). They are never recorded and never shared.
 */

import { fieldLines } from '../core/field-lines.js';
import type { ProblemCode } from '../core/outcome.js';

type Entry = {
  readonly status: number;
  readonly title: string;
  /** Error type of RFC 9209 section 2.3 that comes closest. */
  readonly error: string;
  readonly retry: boolean;
};

/** Each line argued by its RFC: 4xx where the client can do something about it, 5xx where it cannot. */
const PROBLEMS: Readonly<Record<ProblemCode, Entry>> = {
  'in-flight': entry(409, 'The same operation is in progress', 'http_request_denied', true),
  'key-reused': entry(422, 'The key was used for a different request', 'http_request_error'),
  'response-not-kept': entry(409, 'The operation was executed; its response was not kept', 'http_request_denied'),
  'key-missing': entry(400, 'The request lacks what its key is made of', 'http_request_error'),
  'key-malformed': entry(400, 'The request has a malformed key', 'http_request_error'),
  'content-too-large': entry(413, 'The content is too large', 'http_request_error'),
  'wait-timeout': entry(504, 'The wait ended before the request had its turn or its answer', 'http_response_timeout'),
  'queue-full': entry(429, 'Too many requests wait for this resource', 'connection_limit_reached', true),
  'not-shareable': entry(503, "The leader's response is not for this request", 'proxy_internal_response', true),
  'no-route': entry(404, 'No rule matches and nothing else is configured', 'destination_not_found'),
  'upstream-unavailable': entry(503, 'The upstream is not to be used now', 'destination_unavailable', true),
  'upstream-unreachable': entry(502, 'The upstream could not be reached', 'destination_unavailable'),
  'upstream-timeout': entry(504, 'The upstream did not answer in time', 'http_response_timeout'),
  'outcome-unknown': entry(504, 'The request was sent; its outcome is unknown', 'http_response_incomplete'),
  'leader-failed': entry(503, 'The leader of this flight failed', 'destination_unavailable', true),
  'store-unavailable': entry(503, 'The store that holds the claims cannot be reached', 'proxy_internal_error', true),
  'bad-upstream-response': entry(502, 'The upstream sent a response that cannot be read', 'http_protocol_error'),
  'bad-request': entry(400, 'The request cannot be read in one way only', 'http_request_error'),
  'internal-error': entry(500, 'The gateway failed', 'proxy_internal_error'),
  overloaded: entry(503, 'The gateway has as much to do as it may', 'connection_limit_reached', true),
  // RFC 9209 recommends 502, which many clients send again by themselves: round the loop once more.
  'loop-detected': entry(508, 'The request has been through this gateway before', 'proxy_loop_detected'),
  draining: entry(503, 'The gateway is stopping', 'connection_limit_reached', true),
};

/** What is wrong with a request when it is not that it can be read in several ways. */
const BAD_REQUEST_TITLES: ReadonlyMap<number, string> = new Map([
  [408, 'The request did not come in time'],
  [413, 'The request has too much around its content'],
  [417, 'The expectation of the request is not known here'],
  [431, 'The fields of the request are too large'],
  [501, 'The method of the request is not known here'],
]);

function entry(status: number, title: string, error: string, retry = false): Entry {
  return { status, title, error, retry };
}

/**
 * Type of the extension member `error` (RFC 9457 section 3.2), where it is not `api_error`. Clients of many APIs go by
 * that member alone, whatever the status (the npm package `stripe` does): without it they would take a refusal for a
 * success. The names are those of the API that made the member common.
 */
const ERROR_TYPES: Readonly<Partial<Record<ProblemCode, string>>> = {
  'key-reused': 'idempotency_error',
  'key-missing': 'idempotency_error',
  'key-malformed': 'idempotency_error',
  'in-flight': 'idempotency_error',
  'outcome-unknown': 'idempotency_error',
  'response-not-kept': 'idempotency_error',
};

/** Answers of a gateway behind which it is not known whether the upstream has executed the request. */
const UNKNOWN_BEHIND: ReadonlySet<string> = new Set<ProblemCode>([
  'outcome-unknown',
  'bad-upstream-response',
  'upstream-timeout',
  'wait-timeout',
  'internal-error',
]);
const OWN_ANSWER = /^\s*oneflight\s*;[^,]*\bdetails="([a-z-]+)"/;

/**
 * Whether an upstream's answer is one that a gateway of this kind made itself, and what that says of the request: the API
 * has not answered it, and has not executed it, or nobody knows. The first member of `Proxy-Status` is that of whoever
 * was nearest to the API (RFC 9209 section 2).
 */
export function ownAnswer(fields: readonly string[]): 'not-own' | 'not-executed' | 'unknown' {
  const code = OWN_ANSWER.exec(fieldLines(fields, 'proxy-status')[0] ?? '')?.[1];
  if (code === undefined) return 'not-own';
  return UNKNOWN_BEHIND.has(code) ? 'unknown' : 'not-executed';
}

/** What an occurrence knows better than the table. */
export type ProblemOptions = {
  /** `in-flight` may be 429, `outcome-unknown` is 409 to repeats. */
  readonly status?: number;
  /** A sentence about this occurrence; never a value of the request. */
  readonly detail?: string;
  /** Whole seconds; by the table it is 1 where a repeat makes sense. */
  readonly retryAfterSeconds?: number;
  /** RFC 9209 error type. */
  readonly proxyError?: string;
};

export type ProblemMessage = {
  readonly status: number;
  readonly fields: string[];
  readonly content: Buffer;
};

/** The status of a code, where an occurrence does not know better. */
export function statusOf(code: ProblemCode): number {
  return PROBLEMS[code].status;
}

/** Builds the whole message of a problem. */
export function problemMessage(code: ProblemCode, options: ProblemOptions = {}): ProblemMessage {
  const known = PROBLEMS[code];
  const status = options.status ?? known.status;
  const title = (code === 'bad-request' ? BAD_REQUEST_TITLES.get(status) : undefined) ?? known.title;
  const content = Buffer.from(
    JSON.stringify({
      type: `urn:oneflight:problem:${code}`,
      title,
      status,
      detail: options.detail,
      error: { type: ERROR_TYPES[code] ?? 'api_error', code, message: options.detail ?? title },
    }),
  );
  const fields = [
    'Content-Type',
    'application/problem+json',
    'Content-Length',
    String(content.length),
    'Cache-Control',
    'no-store',
    'Proxy-Status',
    `oneflight; error=${options.proxyError ?? known.error}; details="${code}"`,
  ];
  const retryAfter = options.retryAfterSeconds ?? (known.retry ? 1 : undefined);
  if (retryAfter !== undefined) fields.push('Retry-After', String(retryAfter));
  return { status, fields, content };
}
