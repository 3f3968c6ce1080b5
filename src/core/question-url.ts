/**
 * The language of `reconcile.url`: where the API is asked what became of one operation, with a placeholder for its key.
 *
 * Invariants: a value fills the place of one path segment or of one query value and can never be more than that: all of
 * it but the unreserved characters is escaped, and a value that a server could read as a way to another path (`..`, also
 * behind an escaped slash, since many servers decode before they route) is not asked about at all; an empty one neither,
 * for it would ask for the whole collection.
 */

import { isByteText } from './byte-text.js';
import type { QuestionUrl } from './rule.js';

export const PLACEHOLDERS = ['key', 'idempotencyKey'] as const;

/** Longest path and query that is asked for: what every server takes. */
const LONGEST_TARGET = 4_096;
const PLACEHOLDER = /\{([^{}]*)\}/g;
const ORIGIN = /^https?:\/\/[^/?#@\\{}]+/i;

export type ParsedQuestionUrl =
  | { readonly kind: 'url'; readonly url: QuestionUrl }
  /** What should have been written instead, as a noun phrase. */
  | { readonly kind: 'fault'; readonly expected: string };

/** Reads a URL as the configuration writes it. */
export function parseQuestionUrl(text: string): ParsedQuestionUrl {
  const fault = (expected: string): ParsedQuestionUrl => ({ kind: 'fault', expected });
  // A request target and nothing that a URL parser would change on the way.
  if (!/^[!-~]+$/.test(text) || /["<>\\^`|#]/.test(text)) return fault('a URL of visible ASCII without fragment');
  const absolute = /^https?:/i.test(text);
  const origin = absolute ? (ORIGIN.exec(text)?.[0] ?? null) : null;
  if (absolute && (origin === null || !URL.canParse(origin) || !/^(?:[/?]|$)/.test(text.slice(origin.length)))) {
    return fault('an http:// or https:// URL without credentials, and with placeholders in path or query only');
  }
  if (!absolute && (!text.startsWith('/') || text.startsWith('//'))) {
    return fault('a path such as /operations/{key} or an http(s) URL');
  }
  const names = new Set([...text.matchAll(PLACEHOLDER)].map(([, name]) => name));
  const [name] = names;
  const placeholder = PLACEHOLDERS.find((known) => known === name);
  if (names.size !== 1 || placeholder === undefined || /[{}]/.test(text.replace(PLACEHOLDER, ''))) {
    return fault('{key} or {idempotencyKey} in it, one of them and no other placeholder');
  }
  const target = text.slice(origin?.length ?? 0);
  const path = target.replace(PLACEHOLDER, 'x').split('?', 1)[0] as string;
  if (path.split('/').some(isDotSegment)) return fault('a path without . and .. segments');
  return { kind: 'url', url: { origin, target: target.startsWith('?') ? `/${target}` : target, placeholder } };
}

/** The path and query that ask about one key (byte text); null when its value cannot be asked about. */
export function questionTarget(url: QuestionUrl, value: string): string | null {
  if (value === '' || !isByteText(value) || value.split(/[/\\]/).some(isDotSegment)) return null;
  const target = url.target.replace(PLACEHOLDER, () => escaped(value));
  // The text around a placeholder can complete such a segment.
  const path = target.split('?', 1)[0] as string;
  if (target.length > LONGEST_TARGET || path.split('/').some(isDotSegment)) return null;
  return target;
}

function isDotSegment(segment: string): boolean {
  return /^(?:\.|%2e){1,2}$/i.test(segment);
}

/** Every byte that is not unreserved (RFC 3986 section 2.3), escaped. */
function escaped(value: string): string {
  return value.replace(
    /[^A-Za-z0-9._~-]/g,
    (byte) => `%${byte.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`,
  );
}
