/**
 * The field table: what is removed, added and kept when a message crosses the gateway. Field lines are flat lists as
 * Node gives them (name, value, name, value …); order, spelling and repetition are the sender's.
 */

import { fieldLines } from '../core/field-lines.js';
import { lengthOf } from './framing.js';
import { PRODUCT, viaValue } from './via.js';

/** Connection-specific fields (RFC 9110 section 7.6.1): they belong to one connection and never cross, either way. */
const CONNECTION_SPECIFIC: ReadonlySet<string> = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'te',
  'transfer-encoding',
  'upgrade',
]);

/**
 * What of a request is not forwarded as it is: `Expect` is answered by the gateway, and `Trailer` belongs to how the
 * content is sent, which is the gateway's to say (`announcedTrailers`).
 */
const NEVER_UPSTREAM: ReadonlySet<string> = new Set([...CONNECTION_SPECIFIC, 'expect', 'trailer']);

/**
 * Fields of a response that tell of its one exchange, or speak to the one client that asked: followers, and those who come
 * later, are not given them. `Date`, `Age` and `Server` are of the response, whoever reads it; `WWW-Authenticate` is what
 * makes a 401 one (RFC 9110 section 15.5.2); `Alt-Svc` is about the origin (RFC 7838).
 */
const PER_EXCHANGE: ReadonlySet<string> = new Set([
  // Ids of one request: whoever reports a follower's would lead to the log lines of somebody else.
  'x-request-id',
  'request-id',
  'x-correlation-id',
  // The trace of the leader's request (W3C Trace Context).
  'traceresponse',
  'traceparent',
  'tracestate',
  // What the leader's exchange took (W3C Server Timing); a follower waited for less, a later one for nothing.
  'server-timing',
  // "Only to the next outbound client on the response chain" (RFC 9110 sections 11.7.1 and 11.7.3).
  'proxy-authenticate',
  'proxy-authentication-info',
  // The end of one client's authentication, its next nonce for one (RFC 9110 section 11.6.3).
  'authentication-info',
]);

/** Fields whose value many clients make anew for every attempt, so that they tell a retry from the request before it. */
export const PER_ATTEMPT_FIELDS = ['x-request-id', 'x-correlation-id', 'traceparent'] as const;

/** Whether a field of a request can reach the upstream, whatever the spelling of its name. */
export function goesUpstream(name: string): boolean {
  return !NEVER_UPSTREAM.has(name.toLowerCase());
}

/** Fields that `Connection` cannot declare connection-specific: dropping them would change what the message means. */
const NEVER_NAMED_BY_CONNECTION: ReadonlySet<string> = new Set([
  'authorization',
  'cache-control',
  'content-length',
  'content-type',
  'cookie',
  'forwarded',
  'host',
  'idempotency-key',
  'via',
  'x-forwarded-for',
  'x-forwarded-host',
  'x-forwarded-proto',
]);

/** What says who the client is: only the gateway, and the proxies it trusts, may write these. */
const CLAIMS: ReadonlySet<string> = new Set(['x-forwarded-for', 'x-forwarded-host', 'x-forwarded-proto']);

/** Who the client is, as far as the fields towards the upstream tell. */
export type Peer = {
  readonly address: string;
  readonly scheme: 'http' | 'https';
  /** Whether the peer is one of `trustedProxies`, so that its own X-Forwarded-* are believed. */
  readonly trusted: boolean;
};

/** Field names that the `Connection` lines declare connection-specific; null when there are none. */
function namedByConnection(fields: readonly string[]): ReadonlySet<string> | null {
  let named: Set<string> | null = null;
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const name = fields[i] as string;
    if (name.length !== 10 || name.toLowerCase() !== 'connection') continue;
    for (const option of (fields[i + 1] as string).split(',')) {
      const token = option.trim().toLowerCase();
      if (token === '' || token === 'close' || token === 'keep-alive' || NEVER_NAMED_BY_CONNECTION.has(token)) continue;
      named ??= new Set();
      named.add(token);
    }
  }
  return named;
}

/**
 * The field lines of a client's request as the upstream will know them: without connection-specific fields, with
 * `X-Forwarded-*` as they will be sent (exactly one `X-Forwarded-For` line, ending in the real peer), and with a request
 * id only where it was taken. Rules, keys and `Vary` read these and nothing else, so that a field which the upstream
 * never sees cannot decide whose response somebody gets.
 */
export function forwardedFields(fields: readonly string[], peer: Peer, requestId: string): string[] {
  const named = namedByConnection(fields);
  const out: string[] = [];
  let forwardedFor = '';
  let forwardedProto: string = peer.scheme;
  let forwardedHost: string | null = null;
  let host: string | null = null;
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const spelled = fields[i] as string;
    const value = fields[i + 1] as string;
    const name = spelled.toLowerCase();
    if (NEVER_UPSTREAM.has(name) || named?.has(name)) continue;
    // Servers that hand fields to programs as variables (RFC 3875 section 4.1.18) take `_` for `-`.
    if (name.includes('_') && CLAIMS.has(name.replaceAll('_', '-'))) continue;
    switch (name) {
      case 'x-request-id':
        if (value !== requestId) continue;
        break;
      case 'host':
        host ??= value;
        break;
      case 'x-forwarded-for':
        if (peer.trusted) forwardedFor = forwardedFor === '' ? value : `${forwardedFor}, ${value}`;
        continue;
      case 'x-forwarded-proto':
        if (peer.trusted) forwardedProto = value;
        continue;
      case 'x-forwarded-host':
        if (peer.trusted) forwardedHost ??= value;
        continue;
    }
    out.push(spelled, value);
  }
  out.push('X-Forwarded-For', forwardedFor === '' ? peer.address : `${forwardedFor}, ${peer.address}`);
  out.push('X-Forwarded-Proto', forwardedProto);
  forwardedHost ??= host;
  if (forwardedHost !== null) out.push('X-Forwarded-Host', forwardedHost);
  return out;
}

/** The field lines that go upstream: the forwarded ones, and what this hop adds. */
export function upstreamFields(
  forwarded: readonly string[],
  httpVersion: string,
  requestId: string,
  pseudonym: string = PRODUCT,
): string[] {
  const out = [...forwarded];
  if (fieldLines(forwarded, 'x-request-id').length === 0) out.push('X-Request-Id', requestId);
  out.push('Via', viaValue(httpVersion, pseudonym));
  return out;
}

/** The lines with that `Host`, in the place of another one. */
export function withHost(fields: readonly string[], host: string): string[] {
  const out = fields.slice();
  for (let i = 0; i + 1 < out.length; i += 2) {
    const name = out[i] as string;
    if (name.length !== 4 || name.toLowerCase() !== 'host') continue;
    out[i + 1] = host;
    return out;
  }
  out.push('Host', host);
  return out;
}

/** The lines of a request that announce trailers, where its content is sent in chunks. */
export function announcedTrailers(fields: readonly string[]): string[] {
  return fieldLines(fields, 'trailer').flatMap((line) => ['Trailer', line]);
}

/**
 * The trailer lines of a request that cross. Not those that say who asks, where to, or how the message is to be read
 * (RFC 9110 section 6.5.1): keys were made without them, and whoever merges trailers into the fields would go by them.
 */
export function requestTrailers(trailers: readonly string[]): string[] {
  const out: string[] = [];
  for (let i = 0; i + 1 < trailers.length; i += 2) {
    const name = (trailers[i] as string).toLowerCase();
    if (NEVER_UPSTREAM.has(name) || NEVER_NAMED_BY_CONNECTION.has(name) || name === 'x-request-id') continue;
    out.push(trailers[i] as string, trailers[i + 1] as string);
  }
  return out;
}

/** The field lines of an upstream's response that cross. */
export function clientFields(fields: readonly string[]): string[] {
  const named = namedByConnection(fields);
  const out: string[] = [];
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const spelled = fields[i] as string;
    const name = spelled.toLowerCase();
    if (CONNECTION_SPECIFIC.has(name) || named?.has(name)) continue;
    out.push(spelled, fields[i + 1] as string);
  }
  return out;
}

/** The field lines of a response that are given to others than its leader's client; those of its trailer as well. */
export function sharedFields(fields: readonly string[]): string[] {
  const out: string[] = [];
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const name = fields[i] as string;
    if (!PER_EXCHANGE.has(name.toLowerCase())) out.push(name, fields[i + 1] as string);
  }
  return out;
}

/** Whether a response of this status to this method has no content, whatever its fields say (RFC 9110 section 6.4.1). */
export function hasNoContent(method: string, status: number): boolean {
  return method === 'HEAD' || status === 204 || status === 304 || (status >= 100 && status < 200);
}

/**
 * The length that the fields announce; null when they announce none or none that can be read. What passes
 * as a length in `framingFault` is one here as well: a response has one length, however it is spelled.
 */
export function contentLengthOf(fields: readonly string[]): number | null {
  const [value] = fieldLines(fields, 'content-length');
  return value === undefined ? null : lengthOf(value);
}

/** Whole seconds of the upstream's own `Age` (RFC 9111 section 5.1); 0 when it sent none. */
export function ageSecondsOf(fields: readonly string[]): number {
  const [value] = fieldLines(fields, 'age');
  return value !== undefined && /^\d{1,9}$/.test(value) ? Number(value) : 0;
}

/** The lines without those of one field. `name` is lower case. */
export function withoutField(fields: readonly string[], name: string): string[] {
  const out: string[] = [];
  for (let i = 0; i + 1 < fields.length; i += 2) {
    if ((fields[i] as string).toLowerCase() !== name) out.push(fields[i] as string, fields[i + 1] as string);
  }
  return out;
}
