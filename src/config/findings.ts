/**
 * What the schema's issues say of single fields, in the words that errors are made of.
 *
 * Invariant: the message of an issue is what was expected (schema.ts); where the schema has no words, `expectation` has.
 */

import type { z } from 'zod';
import type { FieldPath } from './fault.js';
import { ROUTE_POLICIES, routeOfUnknownPolicy } from './route-schema.js';
import { STORE_KINDS } from './schema.js';

type Issue = z.core.$ZodIssue;

/** What one issue says of one field. */
export type Finding = {
  readonly path: FieldPath;
  /** Whether it is about the field's name or its value. */
  readonly about: 'name' | 'value';
  readonly code: 'unknown-field' | 'bad-value';
  readonly expected: string;
  readonly candidates: readonly string[];
  /** Whether a value of another type could be right. */
  readonly wrongType: boolean;
};

/** The message of every issue for which the schema has no words of its own: what was expected. Empty: see its branches. */
export function expectation(issue: z.core.$ZodRawIssue): string {
  if (issue.code === 'invalid_type') return TYPE_NAMES[issue.expected] ?? issue.expected;
  if (issue.code === 'invalid_value') return alternatives(issue.values.map(String));
  return '';
}

const TYPE_NAMES: Readonly<Record<string, string>> = {
  object: 'a mapping',
  record: 'a mapping',
  array: 'a list',
  string: 'a text',
  number: 'a number',
  boolean: 'true or false',
};

function alternatives(words: readonly string[]): string {
  return words.length < 2 ? words.join() : `${words.slice(0, -1).join(', ')} or ${words.at(-1)}`;
}

/** What an issue says, its path put behind a prefix. */
export function findingsOf(issue: Issue, prefix: FieldPath, plain: unknown): Finding[] {
  const path = [...prefix, ...(issue.path as FieldPath)];
  const about = {
    path,
    about: 'value',
    code: 'bad-value',
    expected: issue.message,
    candidates: [],
    wrongType: false,
  } as const;
  switch (issue.code) {
    case 'unrecognized_keys':
      return issue.keys.map((key) => unknownField([...path, key], issue.message.split(', '), plain));
    case 'invalid_key':
      return [{ ...about, about: 'name', expected: issue.issues[0]?.message ?? issue.message }];
    case 'invalid_value':
      return [{ ...about, candidates: issue.values.map(String), wrongType: true }];
    case 'invalid_type':
    case 'invalid_format':
      return [{ ...about, wrongType: true }];
    case 'invalid_union':
      return issue.message === '' ? unionFindings(issue, path, plain) : [{ ...about, wrongType: true }];
    default:
      return [about];
  }
}

/** A union is judged by the branch that the value's type chooses, or by all of them when it chooses none. */
function unionFindings(issue: z.core.$ZodIssueInvalidUnion, path: FieldPath, plain: unknown): Finding[] {
  if (issue.errors.length === 0) return wrongVariant(path, plain);
  const mismatched = (branch: readonly Issue[]) =>
    branch.some((inner) => inner.path.length === 0 && /^invalid_(?:type|value|union)$/.test(inner.code));
  const chosen = issue.errors.filter((branch) => !mismatched(branch));
  if (chosen.length === 1) return chosen[0]!.flatMap((inner) => findingsOf(inner, path, plain));
  const atRoot = issue.errors.flat().filter((inner) => inner.path.length === 0);
  const candidates = atRoot.flatMap((inner) => (inner.code === 'invalid_value' ? inner.values.map(String) : []));
  const expected = [...new Set(atRoot.map((inner) => inner.message))].join(' or ');
  return [{ path, about: 'value', code: 'bad-value', expected, candidates, wrongType: true }];
}

/** A policy or a kind of store that is none. What else can be said of such a route is said too. */
function wrongVariant(path: FieldPath, plain: unknown): Finding[] {
  const names = Object.keys(path[0] === 'routes' ? ROUTE_POLICIES : STORE_KINDS);
  const finding: Finding = {
    path,
    about: 'value',
    code: 'bad-value',
    expected: alternatives(names),
    candidates: names,
    wrongType: true,
  };
  if (path[0] !== 'routes') return [finding];
  const routePath = path.slice(0, -1);
  const rest = routeOfUnknownPolicy.safeParse(plainAt(plain, routePath), { error: expectation });
  return [finding, ...(rest.error?.issues.flatMap((issue) => findingsOf(issue, routePath, plain)) ?? [])];
}

/** A field that is unknown here; perhaps another policy or another kind of store has it. */
function unknownField(path: FieldPath, known: readonly string[], plain: unknown): Finding {
  const parent = path.slice(0, -1);
  const field = String(path.at(-1));
  const [label, tag, variants] =
    path[0] === 'routes' && path.length === 3
      ? (['policy', 'policy', ROUTE_POLICIES] as const)
      : path[0] === 'store' && path.length === 2
        ? (['store', 'kind', STORE_KINDS] as const)
        : (['', '', {}] as const);
  const owners = Object.entries(variants).filter(([, variant]) => Object.hasOwn(variant.shape, field));
  const about = { path, about: 'name', code: 'unknown-field' } as const;
  if (owners.length === 0) {
    return { ...about, expected: `one of ${known.join(', ')}`, candidates: known, wrongType: false };
  }
  const own = plainAt(plain, [...parent, tag]) ?? Object.keys(variants)[0];
  const expected = `no ${field} with ${label} ${own} (${owners.map(([name]) => name).join(', ')} only)`;
  return { ...about, expected, candidates: [], wrongType: false };
}

/** The first finding of every field. */
export function onePerField(findings: readonly Finding[]): Finding[] {
  const seen = new Set<string>();
  return findings.filter((finding) => {
    const key = JSON.stringify(finding.path);
    return !seen.has(key) && seen.add(key);
  });
}

/** The value at a path of plain values, or undefined. */
export function plainAt(plain: unknown, path: FieldPath): unknown {
  let value = plain;
  for (const step of path) value = isObject(value) ? value[step] : undefined;
  return value;
}

export function isObject(value: unknown): value is Record<string | number, unknown> {
  return typeof value === 'object' && value !== null;
}
