/**
 * Which rule a request meets: the first in file order whose method, path, host and header conditions all hold.
 *
 * Invariants: a table is compiled once and never changes; a request is compared segment by segment with the rules that
 * can begin with its first segment; paths are compared as path-pattern.ts says, both sides normalised (target.ts); the
 * asterisk form (`OPTIONS *`) is no path and meets no rule.
 */

import { utf8ByteText } from './byte-text.js';
import { fieldLines } from './field-lines.js';
import { type PathPattern, parsePathPattern, takesPath } from './path-pattern.js';
import type { Rule } from './rule.js';

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
  /** All, in file order. */
  readonly all: readonly Entry[];
};

type Entry = {
  readonly rule: Rule;
  readonly path: PathPattern;
  readonly hasParams: boolean;
  readonly host: string | null;
  readonly headers: readonly { readonly name: string; readonly value: string }[];
};

const NO_PARAMS: ReadonlyMap<string, string> = new Map();

/** Compiles rules, in file order. Throws when a path is no pattern; the configuration has refused those before. */
export function compileRules(rules: readonly Rule[]): RuleTable {
  const entries = rules.map(compileRule);
  const named = new Set(entries.map(firstLiteral).filter((first) => first !== null));
  const candidates = (segment: string | null) =>
    entries.filter((entry) => firstLiteral(entry) === null || firstLiteral(entry) === segment);
  return {
    byFirstSegment: new Map([...named].map((segment) => [segment, candidates(segment)])),
    otherwise: candidates(null),
    all: entries,
  };
}

function compileRule(rule: Rule): Entry {
  const path = parsePathPattern(rule.match.path);
  return {
    rule,
    path,
    hasParams: path.segments.some((segment) => segment.kind === 'param'),
    host: rule.match.host === null ? null : bareHost(rule.match.host),
    headers: rule.match.headers.map(({ name, value }) => ({ name: name.toLowerCase(), value: utf8ByteText(value) })),
  };
}

/** The literal that a path must begin with to meet the entry; null: any. */
function firstLiteral(entry: Entry): string | null {
  const first = entry.path.segments[0];
  return first?.kind === 'literal' ? first.text : null;
}

/** The rule a request meets and the parameters of its path, or null. */
export function matchRule(table: RuleTable, request: MatchRequest): MatchResult | null {
  if (!request.path.startsWith('/')) return null;
  const segments = request.path.slice(1).split('/');
  for (const entry of table.byFirstSegment.get(segments[0]!) ?? table.otherwise) {
    if (!takesMethod(entry, request) || !takesPath(entry.path, segments)) continue;
    if (!takesHost(entry, request) || !takesFields(entry, request)) continue;
    return { rule: entry.rule, params: entry.hasParams ? paramsOf(entry, segments) : NO_PARAMS };
  }
  return null;
}

/** A condition of a rule that a request does not meet; `name` is that of the field. */
export type Unmet = { readonly kind: 'method' | 'path' | 'host' } | { readonly kind: 'header'; readonly name: string };

/** The rules before the one that a request meets (all of them where it meets none), each with what is not met of it. */
export function passedOver(
  table: RuleTable,
  request: MatchRequest,
): { readonly rule: Rule; readonly unmet: readonly Unmet[] }[] {
  const found: { readonly rule: Rule; readonly unmet: readonly Unmet[] }[] = [];
  for (const entry of table.all) {
    const unmet = unmetOf(entry, request);
    if (unmet.length === 0) return found;
    found.push({ rule: entry.rule, unmet });
  }
  return found;
}

function unmetOf(entry: Entry, request: MatchRequest): Unmet[] {
  const { path } = request;
  const unmet: Unmet[] = [];
  if (!takesMethod(entry, request)) unmet.push({ kind: 'method' });
  if (!path.startsWith('/') || !takesPath(entry.path, path.slice(1).split('/'))) unmet.push({ kind: 'path' });
  if (!takesHost(entry, request)) unmet.push({ kind: 'host' });
  for (const header of entry.headers) {
    if (!takesField(header, request)) unmet.push({ kind: 'header', name: header.name });
  }
  return unmet;
}

function takesMethod({ rule }: Entry, { method }: MatchRequest): boolean {
  return rule.match.methods.length === 0 || rule.match.methods.includes(method);
}

function paramsOf(entry: Entry, segments: readonly string[]): ReadonlyMap<string, string> {
  const params = new Map<string, string>();
  for (const [i, segment] of entry.path.segments.entries()) {
    if (segment.kind === 'param') params.set(segment.text, segments[i]!);
  }
  return params;
}

function takesHost(entry: Entry, { host }: MatchRequest): boolean {
  return entry.host === null || takesValue(entry.host, bareHost(host));
}

function takesFields(entry: Entry, request: MatchRequest): boolean {
  return entry.headers.every((header) => takesField(header, request));
}

/** One line of the field must have the value; values count as written. */
function takesField({ name, value }: Entry['headers'][number], { fields }: MatchRequest): boolean {
  return fieldLines(fields, name).some((line) => takesValue(value, line));
}

/**
 * Exact, or `*.suffix`: at least one character before the dot, over any number of labels. A pattern takes another one as
 * text exactly when it takes every value of it.
 */
export function takesValue(pattern: string, value: string): boolean {
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
