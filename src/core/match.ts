/**
 * Which rule a request meets: the first in file order whose method, path, host and header conditions all hold.
 *
 * Invariants: a table is compiled once and never changes; no pattern is run as a regular expression; a request is
 * compared segment by segment with the rules that can begin with its first segment.
 *
 * Paths, both sides normalised (target.ts), letters counting as written:
 * - `:name` takes exactly one segment that is not empty, as normalised.
 * - A trailing `*` takes any rest. `/a/*` takes `/a/`, `/a/b/c` and `/a` itself; `/a*` takes `/a`, `/ab`, `/a/b`.
 * - `/a` takes `/a/` too, since many servers answer both alike and a lock must not depend on it; `/a/` takes only `/a/`,
 *   so that a rule for the slash can stand before the one without.
 * - The asterisk form (`OPTIONS *`) is no path and meets no rule.
 */

import { utf8ByteText } from './byte-text.js';
import { fieldLines } from './field-lines.js';
import type { Rule } from './rule.js';
import { normalisePath } from './target.js';

export type MatchRequest = {
  readonly method: string;
  /** Normalised path (`Target.path`). */
  readonly path: string;
  /** Host as the request names it, with or without a port. */
  readonly host: string;
  /** Flat list of field lines. */
  readonly fields: readonly string[];
};

export type MatchResult = { readonly rule: Rule; readonly params: ReadonlyMap<string, string> };

export type RuleTable = {
  /** Candidates, in file order, by the first segment of the request's path. */
  readonly byFirstSegment: ReadonlyMap<string, readonly Entry[]>;
  /** Candidates of a path whose first segment no rule names. */
  readonly otherwise: readonly Entry[];
};

/** One segment of a pattern: literal text, or the name of a parameter. */
type Segment = { readonly kind: 'literal' | 'param'; readonly text: string };

type Entry = {
  readonly rule: Rule;
  readonly segments: readonly Segment[];
  /** What a trailing `*` must be preceded by within its segment; null without a `*`. */
  readonly restPrefix: string | null;
  readonly hasParams: boolean;
  readonly host: string | null;
  readonly headers: readonly { readonly name: string; readonly value: string }[];
};

const NO_PARAMS: ReadonlyMap<string, string> = new Map();
const PARAM_NAME = /^[A-Za-z0-9_-]+$/;

/** What is wrong with a rule's path, in words for an error message; null when nothing is. */
export function pathPatternProblem(pattern: string): string | null {
  if (!pattern.startsWith('/')) return 'must begin with "/"';
  if (/[?#]/.test(pattern)) return 'must be a path alone, without "?" or "#"';
  if (pattern.slice(0, -1).includes('*')) return 'may have "*" at its end only';
  const names = paramNames(pattern);
  if (!names.every((name) => PARAM_NAME.test(name))) {
    return 'must name each parameter by letters, digits, "_" and "-" up to the next "/"';
  }
  if (new Set(names).size < names.length) return 'must not name a parameter twice';
  return null;
}

/** Names of the parameters of a rule's path, in order. */
export function paramNames(pattern: string): string[] {
  const segments = pattern.split('/').filter((segment) => segment.startsWith(':'));
  return segments.map((segment) => segment.slice(1));
}

/** Compiles rules, in file order. Throws when a path is no pattern; the configuration has refused those before. */
export function compileRules(rules: readonly Rule[]): RuleTable {
  const entries = rules.map(compileRule);
  const named = new Set(entries.map(firstLiteral).filter((first) => first !== null));
  const candidates = (segment: string | null) =>
    entries.filter((entry) => firstLiteral(entry) === null || firstLiteral(entry) === segment);
  return {
    byFirstSegment: new Map([...named].map((segment) => [segment, candidates(segment)])),
    otherwise: candidates(null),
  };
}

function compileRule(rule: Rule): Entry {
  const problem = pathPatternProblem(rule.match.path);
  if (problem !== null) throw new Error(`path of rule ${rule.name} ${problem}: ${rule.match.path}`);
  const path = normalisePath(utf8ByteText(rule.match.path));
  const texts = path.slice(1).split('/');
  const restPrefix = path.endsWith('*') ? texts.pop()!.slice(0, -1) : null;
  const segments = texts.map(
    (text): Segment => (text.startsWith(':') ? { kind: 'param', text: text.slice(1) } : { kind: 'literal', text }),
  );
  return {
    rule,
    segments,
    restPrefix,
    hasParams: segments.some((segment) => segment.kind === 'param'),
    host: rule.match.host === null ? null : bareHost(rule.match.host),
    headers: rule.match.headers.map(({ name, value }) => ({ name: name.toLowerCase(), value: utf8ByteText(value) })),
  };
}

/** The literal that a path must begin with to meet the entry; null: any. */
function firstLiteral(entry: Entry): string | null {
  const first = entry.segments[0];
  return first?.kind === 'literal' ? first.text : null;
}

/** The rule a request meets and the parameters of its path, or null. */
export function matchRule(table: RuleTable, request: MatchRequest): MatchResult | null {
  if (!request.path.startsWith('/')) return null;
  const segments = request.path.slice(1).split('/');
  for (const entry of table.byFirstSegment.get(segments[0]!) ?? table.otherwise) {
    if (!takesMethod(entry.rule, request.method) || !takesPath(entry, segments)) continue;
    if (!takesHost(entry, request.host) || !takesFields(entry, request.fields)) continue;
    return { rule: entry.rule, params: entry.hasParams ? paramsOf(entry, segments) : NO_PARAMS };
  }
  return null;
}

function takesMethod(rule: Rule, method: string): boolean {
  return rule.match.methods.length === 0 || rule.match.methods.includes(method);
}

function takesPath(entry: Entry, segments: readonly string[]): boolean {
  const count = entry.segments.length;
  if (segments.length < count || !takesLength(entry, segments)) return false;
  for (let i = 0; i < count; i += 1) {
    const { kind, text } = entry.segments[i]!;
    if (kind === 'param' ? segments[i] === '' : segments[i] !== text) return false;
  }
  return true;
}

/** Whether what follows the pattern's own segments is allowed: nothing, one slash, or the rest of a trailing `*`. */
function takesLength(entry: Entry, segments: readonly string[]): boolean {
  const next = segments[entry.segments.length];
  if (entry.restPrefix !== null) return entry.restPrefix === '' || next?.startsWith(entry.restPrefix) === true;
  // In a normalised path only the last segment is empty.
  return next === undefined || next === '';
}

function paramsOf(entry: Entry, segments: readonly string[]): ReadonlyMap<string, string> {
  const params = new Map<string, string>();
  for (const [i, segment] of entry.segments.entries()) {
    if (segment.kind === 'param') params.set(segment.text, segments[i]!);
  }
  return params;
}

function takesHost(entry: Entry, host: string): boolean {
  return entry.host === null || takesValue(entry.host, bareHost(host));
}

/** Every condition must be met by one line of its field; values count as written. */
function takesFields(entry: Entry, fields: readonly string[]): boolean {
  return entry.headers.every(({ name, value }) => fieldLines(fields, name).some((line) => takesValue(value, line)));
}

/** Exact, or `*.suffix`: at least one character before the dot, over any number of labels. */
function takesValue(pattern: string, value: string): boolean {
  if (!pattern.startsWith('*.')) return value === pattern;
  return value.length >= pattern.length && value.endsWith(pattern.slice(1));
}

/** Lower case, without the port, the brackets of an IPv6 literal and the dot of a fully qualified name. */
function bareHost(host: string): string {
  const name = host.toLowerCase();
  if (name.startsWith('[')) return name.slice(1, name.includes(']') ? name.indexOf(']') : undefined);
  const colon = name.indexOf(':');
  const bare = colon === -1 || name.includes(':', colon + 1) ? name : name.slice(0, colon);
  return bare.endsWith('.') ? bare.slice(0, -1) : bare;
}
