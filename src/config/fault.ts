/**
 * What is wrong with a configuration, or doubtful, and how it is said.
 *
 * Invariant: nothing that may be a secret is quoted, so that errors can go to a log.
 */

import type { Located } from './source.js';

/** A place in a file as it was named, or as its pattern made it. One-based; columns count UTF-16 units, as editors do. */
export type Position = { readonly file: string; readonly line: number; readonly column: number };

export type FieldPath = readonly (string | number)[];

/** What kind of mistake it is, for programs that read errors. */
export type FaultCode =
  | 'unreadable-file'
  | 'bad-yaml'
  /** Such as `${VAR}`, of a variable that is not set. */
  | 'bad-reference'
  | 'bad-include'
  | 'unknown-field'
  | 'missing-field'
  | 'bad-value'
  /** Each field is good for itself. */
  | 'conflict'
  /** Valid, but the gateway could not begin to use it. */
  | 'unusable';

/** What kind of doubt it is. */
export type WarningCode =
  | 'bounds-differ'
  | 'doubtful-release'
  | 'holds-differ'
  | 'keep-over-memory'
  | 'key-as-it-stands'
  | 'key-too-fine'
  | 'literal-param'
  | 'long-wait'
  | 'loop'
  | 'no-file'
  | 'nothing-kept'
  | 'open-proxy-protocol'
  | 'route-shadowed'
  | 'scope-not-shared'
  | 'shared-across-callers'
  | 'short-lease'
  | 'unknown-beyond-keep'
  | 'unsealed-store'
  | 'unusable-variable';

export type Fault = Position & {
  readonly code: FaultCode;
  /** Such as `routes[2].wait`, as the file itself has it; empty when the whole file is meant. */
  readonly path: string;
  readonly expected: string;
  readonly got: string;
  /** The known word that was probably meant. */
  readonly suggestion: string | null;
};

/** What is doubtful about a field, before its place in the file is known. */
export type Doubt = { readonly code: WarningCode; readonly path: FieldPath; readonly message: string };

export type ConfigWarning = Position & {
  readonly code: WarningCode;
  readonly path: string;
  readonly message: string;
};

/** `file:line:column: path: expected …, got …`, one line. */
export function formatError(error: Fault): string {
  const suggestion = error.suggestion === null ? '' : `, did you mean ${error.suggestion}?`;
  return `${placeOf(error)}expected ${error.expected}, got ${error.got}${suggestion}`;
}

/** `file:line:column: path: warning: …`, one line. */
export function formatWarning(warning: ConfigWarning): string {
  return `${placeOf(warning)}warning: ${warning.message}`;
}

function placeOf(where: Position & { readonly path: string }): string {
  const path = where.path === '' ? '' : `${where.path}: `;
  return `${where.file}:${where.line}:${where.column}: ${path}`;
}

/** `['routes', 2, 'wait']` → `routes[2].wait`. */
export function pathText(path: FieldPath): string {
  let text = '';
  for (const step of path) {
    if (typeof step === 'number') text += `[${step}]`;
    else if (/^[\w-]+$/.test(step)) text += text === '' ? step : `.${step}`;
    else text += `[${quoted(step)}]`;
  }
  return text;
}

/** Fields whose text is a secret. */
export const SECRET_FIELDS: ReadonlySet<string> = new Set(['secret', 'token', 'password']);

/** The fields of the question to an API, and of requests to a collector, carry what the gateway is to be known by. */
function isCredential(path: FieldPath): boolean {
  return path.at(-2) === 'headers' && (path.at(-3) === 'reconcile' || path.at(-3) === 'tracing');
}

const URL_FIELDS: ReadonlySet<string> = new Set(['url', 'endpoint']);

/** A value as an error quotes it. */
export function describeValue(path: FieldPath, node: Located | undefined): string {
  if (node === undefined || node.kind === 'unusable') return 'nothing';
  if (node.kind === 'list') return node.items.length === 0 ? 'an empty list' : 'a list';
  if (node.kind === 'mapping') return node.entries.size === 0 ? 'an empty mapping' : 'a mapping';
  if (node.value === null) return 'nothing';
  // An item of a list is named by the list.
  const field = String(path.findLast((step) => typeof step === 'string'));
  const text = String(node.value);
  if (node.origin === 'file' || SECRET_FIELDS.has(field) || isCredential(path))
    return `a text of ${text.length} characters`;
  const shown = typeof node.value === 'string' ? quoted(URL_FIELDS.has(field) ? withoutCredentials(text) : text) : text;
  return node.origin === 'variable' ? `${shown} from ${quoted(node.written)}` : shown;
}

function quoted(text: string): string {
  return JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text);
}

/** Greedy on purpose: a password may hold unencoded `/` and `@`. */
export function withoutCredentials(url: string): string {
  return url.replace(/^([a-z][a-z0-9+.-]*:\/\/)?.*@/is, '$1***@');
}
