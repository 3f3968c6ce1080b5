/** Which of the gateway's own answers tells a client that its upstream call failed. */

import type { ProblemCode } from '../core/outcome.js';
import type { FailureCause, UpstreamFailure } from '../upstream/failure.js';

export type UpstreamProblem = { readonly code: ProblemCode; readonly proxyError: string };

/** Error types of RFC 9209 section 2.3. */
const PROXY_ERRORS: Readonly<Record<FailureCause, string>> = {
  unavailable: 'destination_unavailable',
  limit: 'connection_limit_reached',
  refused: 'connection_refused',
  dns: 'dns_error',
  tls: 'tls_certificate_error',
  'connect-timeout': 'connection_timeout',
  unreachable: 'destination_unavailable',
  unsendable: 'http_request_error',
  'given-up': 'destination_unavailable',
  reset: 'connection_terminated',
  stale: 'connection_terminated',
  'headers-timeout': 'http_response_timeout',
  'body-timeout': 'http_response_timeout',
  malformed: 'http_protocol_error',
  'client-content': 'http_request_error',
  'content-lost': 'http_request_error',
};

/**
 * The problem of a failed upstream call. In a flight a request that was written and not answered is `outcome-unknown`;
 * without one nobody asked for certainty and the plain gateway statuses say enough.
 */
export function upstreamProblem(failure: UpstreamFailure, inFlight: boolean): UpstreamProblem {
  return { code: codeOf(failure, inFlight), proxyError: PROXY_ERRORS[failure.cause] };
}

function codeOf({ kind, cause }: UpstreamFailure, inFlight: boolean): ProblemCode {
  if (cause === 'unsendable' || cause === 'client-content') return 'bad-request';
  if (cause === 'given-up') return 'leader-failed';
  if (cause === 'unavailable') return 'upstream-unavailable';
  if (cause === 'limit') return 'overloaded';
  if (cause === 'malformed') return 'bad-upstream-response';
  if (kind !== 'not-sent' && inFlight) return 'outcome-unknown';
  return cause === 'connect-timeout' || cause === 'headers-timeout' || cause === 'body-timeout'
    ? 'upstream-timeout'
    : 'upstream-unreachable';
}
