/** The forms of single texts: each says whether a text is one. */

import { isIP } from 'node:net';
import { isToken } from '../core/token.js';
import { goesUpstream } from '../http/fields.js';

/** Names of routes, scopes and upstreams: they become metric labels and parts of store keys. */
export const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
/** No `{` or `}`: Redis Cluster would take what they hold for the hash tag. */
export const STORE_PREFIX = /^[A-Za-z0-9._:-]{1,64}$/;
/** Visible ASCII with inner blanks, RFC 9110 section 5.5: what a field can have as its value after trimming. */
export const FIELD_VALUE = /^[!-~](?:[ \t!-~]*[!-~])?$/;

const HOST_NAME =
  /^(?=.{1,253}$)[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?(?:\.[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?)*$/;

/** Methods whose lower-case spelling is a slip: method names are case-sensitive (RFC 9110 section 9.1). */
const COMMON_METHODS = new Set([
  'GET',
  'HEAD',
  'POST',
  'PUT',
  'PATCH',
  'DELETE',
  'OPTIONS',
  'TRACE',
  'CONNECT',
  'QUERY',
]);

export function isMethod(text: string): boolean {
  const upper = text.toUpperCase();
  return isToken(text) && (text === upper || !COMMON_METHODS.has(upper));
}

/**
 * Request fields that HTTP or the gateway itself writes, or that say who is calling: another value in them would change
 * what the request is.
 */
const TAKEN_FIELDS = new Set([
  ...['content-encoding', 'content-length', 'content-range', 'content-type', 'host', 'http2-settings', 'range'],
  ...['authorization', 'proxy-authorization', 'cookie', 'cache-control', 'date'],
  ...['forwarded', 'x-forwarded-for', 'x-forwarded-host', 'x-forwarded-proto', 'x-request-id', 'via'],
  ...['traceparent', 'tracestate'],
]);

/** The name of a field that the gateway may add to a request. */
export function isFreeField(text: string): boolean {
  return isToken(text) && goesUpstream(text) && !TAKEN_FIELDS.has(text.toLowerCase());
}

/**
 * Fields of a question to the API that the gateway writes itself, or that would make its answer something else than the
 * whole, fresh and plain one.
 */
const QUESTION_TAKEN = new Set([
  ...['content-length', 'content-encoding', 'content-type', 'host', 'http2-settings', 'via'],
  ...['accept-encoding', 'if-match', 'if-modified-since', 'if-none-match', 'if-range', 'if-unmodified-since', 'range'],
]);

/** The name of a field that a question to the API may carry. */
export function isQuestionField(text: string): boolean {
  return isToken(text) && goesUpstream(text) && !QUESTION_TAKEN.has(text.toLowerCase());
}

/** An address or a host name to listen on. */
export function isListenHost(text: string): boolean {
  return isIP(text) !== 0 || HOST_NAME.test(text);
}

/** Whether only this machine can reach it. */
export function isLoopback(host: string): boolean {
  return host.toLowerCase() === 'localhost' || host === '::1' || (isIP(host) === 4 && host.startsWith('127.'));
}

/** A host as requests name it, without port, or `*.example.com`. */
export function isHostPattern(text: string): boolean {
  if (text.startsWith('[') && text.endsWith(']')) return isIP(text.slice(1, -1)) === 6;
  return HOST_NAME.test(text.startsWith('*.') ? text.slice(2) : text);
}

/** An address or a CIDR range. */
export function isNetworkRange(text: string): boolean {
  const [address = '', length, ...rest] = text.split('/');
  const version = isIP(address);
  if (version === 0 || rest.length > 0) return false;
  return length === undefined || (/^[0-9]{1,3}$/.test(length) && Number(length) <= (version === 4 ? 32 : 128));
}

/** Scheme, host and port of an upstream, and nothing else: paths are the client's. */
export function isHttpOrigin(text: string): boolean {
  return /^https?:\/\/[^/?#@\\\s]+\/?$/i.test(text) && URL.canParse(text);
}

const UNIX_SOCKET = /^unix:(\/[!-~]{1,102})$/;

/** The path of a Unix socket, of at most as many bytes as systems take, that a text such as `unix:/run/api.sock` names; null when it names none. */
export function socketPathOf(text: string): string | null {
  return UNIX_SOCKET.exec(text)?.[1] ?? null;
}

/** Where a server of an upstream is. */
export function isAddress(text: string): boolean {
  return isHttpOrigin(text) || socketPathOf(text) !== null;
}

/** Where a collector takes traces. No user: credentials are fields. */
export function isCollectorUrl(text: string): boolean {
  return /^https?:\/\/[^/?#@\\\s]+(?:\/[^?#\\\s]*)?$/i.test(text) && URL.canParse(text);
}

const COLLECTOR_TAKEN = new Set(['content-length', 'content-encoding', 'content-type', 'host', 'expect']);

/** The name of a field that requests to a collector may carry. */
export function isFreeCollectorField(text: string): boolean {
  return isToken(text) && goesUpstream(text) && !COLLECTOR_TAKEN.has(text.toLowerCase());
}

/** A target in origin form. */
export function isOriginForm(text: string): boolean {
  return /^\/[!-~]*$/.test(text) && !text.includes('#');
}

/** A path prefix of whole segments. */
export function isPrefix(text: string): boolean {
  return /^(?:\/[\w\-.~!$&'()*+,;=:@]+)+$/.test(text) && !/\/\.{1,2}(?:\/|$)/.test(text);
}

/** Fields that are how a message is framed or encoded, or that belong to one connection: what is edited is what it says. */
const FRAMING_FIELDS = new Set(['content-encoding', 'content-length', 'content-range', 'host', 'range', 'trailer']);

/** The name of a field that an upstream's edits may concern. */
export function isEditableField(text: string): boolean {
  return isToken(text) && goesUpstream(text) && !FRAMING_FIELDS.has(text.toLowerCase());
}

/** A Redis URL. A query is refused: the client would read options of its own from it. */
export function isRedisUrl(text: string): boolean {
  if (!/^rediss?:\/\//i.test(text) || /[?#\s]/.test(text) || !URL.canParse(text)) return false;
  const url = new URL(text);
  if (url.hostname === '' || !/^(?:\/[0-9]{0,5})?$/.test(url.pathname)) return false;
  try {
    return typeof decodeURIComponent(`${url.username}${url.password}`) === 'string';
  } catch {
    return false;
  }
}

/** Host and port of a text such as `redis-1:6379`, `10.0.0.1` or `[::1]:6379`; null when it is none. */
export function hostAndPortOf(text: string): { readonly host: string; readonly port: number | null } | null {
  const [, v6, plain, port] = /^(?:\[([0-9A-Fa-f:.]+)\]|([^:[\]]+))(?::([0-9]{1,5}))?$/.exec(text) ?? [];
  const host = v6 ?? plain;
  if (host === undefined || !isListenHost(host) || (v6 !== undefined && isIP(v6) !== 6)) return null;
  if (port === undefined) return { host, port: null };
  return Number(port) > 0 && Number(port) <= 65_535 ? { host, port: Number(port) } : null;
}

export function isHostAndPort(text: string): boolean {
  return hostAndPortOf(text) !== null;
}

/** Paths and patterns of files. No `**`: which folders a gateway looks into is to be seen in the pattern. */
export function isIncludePattern(text: string): boolean {
  return text !== '' && !text.includes('**') && !text.includes('\0') && !text.endsWith('/');
}
