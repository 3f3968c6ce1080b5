/**
 * The request target (RFC 9112 section 3.2) and the normalised path by which rules are matched.
 *
 * Invariants: the normalised path is for matching and keys only, the bytes forwarded are the client's own; it is plain
 * ASCII; normalising it again changes nothing; the work is linear in its length.
 *
 * Two spellings have one normalised path exactly where every server reads them alike:
 * - Escapes of unreserved characters are decoded, the hex digits of others become upper case (RFC 3986 section 6.2.2).
 *   Escapes of reserved characters stay: `%2F` is never a separator, and `%2B` is not `+` (object stores differ there).
 * - A character that no URI may hold (controls, space, `"<>^{|}` and the backtick, bytes over 0x7E) equals its escape. So
 *   does a `%` that begins no escape: it becomes `%25`, otherwise `%%341` would turn into `%41` and then into `A`.
 * - A raw backslash is a separator, because WHATWG parsers read it as one; `%5C` is not.
 * - Dot segments go first (RFC 3986 section 5.2.4), encoded ones too, then runs of `/` become one.
 * - `;parameters` are part of their segment, a trailing slash is part of the path (what a rule makes of it is said in
 *   match.ts), `%00` ends nothing, letters keep their case, a fragment is cut off as servers do, an empty path is `/`.
 */

import { isByteText, utf8ByteText } from './byte-text.js';

export type Target = {
  /** As it came. */
  readonly raw: string;
  /** Normalised path; `*` for the asterisk form. */
  readonly path: string;
  /** What stands between `?` and the end or a fragment, as it came; null without a `?`. */
  readonly query: string | null;
  /** Host of the absolute form, lower case, with its port as sent and without user information; null otherwise. */
  readonly host: string | null;
};

const ABSOLUTE_FORM = /^[A-Za-z][A-Za-z0-9+.-]*:\/\/([^/?#\\]*)/;

/** Where the path of a target begins and ends, as it came. */
export function pathSpan(raw: string): { readonly start: number; readonly end: number } {
  const absolute = raw.startsWith('/') ? null : ABSOLUTE_FORM.exec(raw);
  const start = absolute === null ? 0 : absolute[0].length;
  const length = raw.slice(start).search(/[?#]/);
  return { start, end: length === -1 ? raw.length : start + length };
}

/** The target with another host and port, where it names one. */
export function withAuthority(raw: string, authority: string): string {
  if (raw.startsWith('/')) return raw;
  return raw.replace(ABSOLUTE_FORM, (origin) => origin.slice(0, origin.indexOf('//') + 2) + authority);
}

/** Reads a request target in any form. Total: whatever the parser of the server let through has a path here. */
export function parseTarget(raw: string): Target {
  if (raw === '*') return { raw, path: '*', query: null, host: null };
  const absolute = raw.startsWith('/') ? null : ABSOLUTE_FORM.exec(raw);
  const start = absolute === null ? 0 : absolute[0].length;
  const fragment = raw.indexOf('#', start);
  const end = fragment === -1 ? raw.length : fragment;
  const mark = raw.indexOf('?', start);
  const pathEnd = mark === -1 || mark > end ? end : mark;
  return {
    raw,
    path: normalisePath(raw.slice(start, pathEnd)),
    query: pathEnd === end ? null : raw.slice(pathEnd + 1, end),
    host: absolute === null ? null : hostOf(absolute[1]!),
  };
}

function hostOf(authority: string): string | null {
  const host = authority.slice(authority.lastIndexOf('@') + 1).toLowerCase();
  return host === '' ? null : host;
}

/** Whatever is not already normal, on the cautious side: any dot at the start of a segment takes the long way. */
const TO_NORMALISE = /[^\w\-.~!$&'()*+,;=:@/]|\/[/.]/;

/** Normalises a path given as byte text; a missing `/` at its start is added (`*` followed by a path can arrive). */
export function normalisePath(text: string): string {
  const path = text.startsWith('/') ? text : `/${text}`;
  if (!TO_NORMALISE.test(path)) return path;
  return withoutDotSegments(withCanonicalEscapes(isByteText(path) ? path : utf8ByteText(path)));
}

const ESCAPE_OR_ODD = /%[0-9A-Fa-f]{2}|[^\w\-.~!$&'()*+,;=:@/]/g;
const UNRESERVED = /[\w\-.~]/;

function withCanonicalEscapes(path: string): string {
  return path.replace(ESCAPE_OR_ODD, (found) => {
    if (found.length === 1) return found === '\\' ? '/' : escapeOf(found);
    const character = String.fromCharCode(Number.parseInt(found.slice(1), 16));
    return UNRESERVED.test(character) ? character : found.toUpperCase();
  });
}

function escapeOf(byte: string): string {
  return `%${byte.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`;
}

/** Dot segments are resolved against empty segments too (`/a//../b` is `/a/b`), and only then are those dropped. */
function withoutDotSegments(path: string): string {
  const segments = path.slice(1).split('/');
  const last = segments.length - 1;
  const kept: string[] = [];
  for (const [i, segment] of segments.entries()) {
    const dots = segment === '.' || segment === '..';
    if (segment === '..') kept.pop();
    if (!dots) kept.push(segment);
    else if (i === last) kept.push('');
  }
  return `/${kept.filter((segment, i) => segment !== '' || i === kept.length - 1).join('/')}`;
}
