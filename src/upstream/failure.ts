/** How an exchange with an upstream can fail. What matters is whether request bytes were handed to a connected socket. */

export type FailureCause =
  /** No address of the upstream is to be used now: health checks or the circuit breaker say so. */
  | 'unavailable'
  /** All connections that the upstream may have are in use, and no more requests may wait, or wait longer. */
  | 'limit'
  | 'refused'
  | 'dns'
  | 'tls'
  | 'connect-timeout'
  | 'unreachable'
  | 'unsendable'
  | 'given-up'
  | 'reset'
  /** A connection kept from an earlier exchange ended before a byte of the answer: its upstream had most likely closed it. */
  | 'stale'
  | 'headers-timeout'
  | 'body-timeout'
  | 'malformed'
  | 'client-content'
  /** What the client was sending could not be read to its end, after some of it had been written. */
  | 'content-lost';

/**
 * - `not-sent`: certainly nothing was executed, no byte was written.
 * - `unanswered`: written, and no response fields came.
 * - `cut`: the response began and did not come to its end.
 */
export type UpstreamFailure = { readonly kind: 'not-sent' | 'unanswered' | 'cut'; readonly cause: FailureCause };

const CONNECT_CAUSES: Readonly<Record<string, FailureCause>> = {
  ECONNREFUSED: 'refused',
  UND_ERR_CONNECT_TIMEOUT: 'connect-timeout',
  ETIMEDOUT: 'connect-timeout',
  ENOTFOUND: 'dns',
  EAI_AGAIN: 'dns',
  EAI_FAIL: 'dns',
  UND_ERR_INVALID_ARG: 'unsendable',
  UND_ERR_NOT_SUPPORTED: 'unsendable',
};

const EXCHANGE_CAUSES: Readonly<Record<string, FailureCause>> = {
  UND_ERR_HEADERS_TIMEOUT: 'headers-timeout',
  UND_ERR_BODY_TIMEOUT: 'body-timeout',
  UND_ERR_HEADERS_OVERFLOW: 'malformed',
  // Node's own words for a status or a field that it cannot pass on.
  ERR_INVALID_CHAR: 'malformed',
  ERR_INVALID_HTTP_TOKEN: 'malformed',
  ERR_HTTP_INVALID_STATUS_CODE: 'malformed',
  UND_ERR_RES_CONTENT_LENGTH_MISMATCH: 'reset',
  UND_ERR_REQ_CONTENT_LENGTH_MISMATCH: 'client-content',
  ERR_CONTENT_LOST: 'content-lost',
};

/** The error that ends an upload whose client has left, or cannot be read any further. */
export class ContentLost extends Error {
  readonly code = 'ERR_CONTENT_LOST';
}

/** The cause of an error that came before anything was written. */
export function connectCause(error: Error): FailureCause {
  const code = codeOf(error);
  const known = CONNECT_CAUSES[code];
  if (known !== undefined) return known;
  // Node's certificate errors have the OpenSSL verification names as codes; there are some thirty of them.
  if (/CERT|_TLS_|^ERR_SSL|SELF_SIGNED|UNABLE_TO_|EPROTO/.test(code)) return 'tls';
  return 'unreachable';
}

/**
 * The cause of an error that came after the request had been handed to a connected socket. `answering`: the response's
 * fields had been read.
 */
export function exchangeCause(error: Error, answering: boolean): FailureCause {
  const code = codeOf(error);
  // undici says so of every message that it cannot read once it has seen a `Content-Length`: one that is repeated or out
  // of range, or that stands beside `Transfer-Encoding`, too. Only of a response that began does it mean what it says.
  if (!answering && code === 'UND_ERR_RES_CONTENT_LENGTH_MISMATCH') return 'malformed';
  const known = EXCHANGE_CAUSES[code];
  if (known !== undefined) return known;
  return error.name === 'HTTPParserError' || code.startsWith('HPE_') ? 'malformed' : 'reset';
}

function codeOf(error: Error): string {
  const { code } = error as { code?: unknown };
  if (typeof code === 'string') return code;
  // A dual-stack connect fails with the errors of every address it tried; they are of one kind, the first will do.
  if (error instanceof AggregateError && error.errors[0] instanceof Error) return codeOf(error.errors[0]);
  return '';
}
