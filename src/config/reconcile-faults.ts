/** What the schema cannot say of `reconcile`: its placeholder needs something that other fields give. */

import { parseQuestionUrl } from '../core/question-url.js';
import { KEY_SOURCES } from '../core/rule.js';
import type { RouteDraft } from './check.js';
import type { Fault, FieldPath } from './fault.js';
import { faultAt } from './locate.js';
import type { Located } from './source.js';

/** Checks `reconcile` against the rest of its route. */
export function reconcileFaults(route: RouteDraft, path: FieldPath, root: Located): Fault[] {
  if (!('reconcile' in route) || route.reconcile === undefined) return [];
  return [...twiceFaults(route.reconcile.headers, path, root), ...placeholderFaults(route, path, root)];
}

/** Field names are case-insensitive: two spellings of one would be two lines. */
function twiceFaults(headers: object | undefined, path: FieldPath, root: Located): Fault[] {
  const names = Object.keys(headers ?? {});
  return names.flatMap((name, index) => {
    const lower = name.toLowerCase();
    if (names.findIndex((other) => other.toLowerCase() === lower) === index) return [];
    return [faultAt(root, [...path, 'reconcile', 'headers', name], `${lower} once`, { got: 'it in two spellings' })];
  });
}

function placeholderFaults(route: RouteDraft, path: FieldPath, root: Located): Fault[] {
  if (!('reconcile' in route) || route.reconcile?.url === undefined) return [];
  const parsed = parseQuestionUrl(route.reconcile.url);
  if (parsed.kind === 'fault') return [];
  const where = [...path, 'reconcile', 'url'];
  if (parsed.url.placeholder === 'key') return hasTextKey(route) ? [] : [faultAt(root, where, TEXT_KEY)];
  const { forward } = route;
  const given = forward === undefined ? !('forward' in route) : !('idempotencyKey' in forward);
  return given ? [faultAt(root, where, 'forward.idempotencyKey to be set for {idempotencyKey}')] : [];
}

const TEXT_KEY =
  'a key of exactly one part that is a text (header, query, param, cookie, form or body, not optional) for {key}';

/** Whether the key is one text. What is invalid in it has been told already. */
function hasTextKey(route: RouteDraft): boolean {
  // Left out, it is the Idempotency-Key of replay; the other policies are told that they need one.
  if (!('key' in route) || route.key === undefined) return true;
  const [part, ...others] = route.key;
  if (others.length > 0) return false;
  if (part === undefined) return true;
  return part.optional !== true && !KEY_SOURCES.some((source) => source === 'request' && part[source] !== undefined);
}
