/**
 * The tree of values against the schema: every fault at once, and a draft of what is sound.
 *
 * Invariants: one fault a field; a value that could not be read at all (its fault is told by the source) gets no second
 * one; a text that came from a variable is text first and is read as number, true or false only where the schema
 * refuses text.
 */

import type { Fault } from './fault.js';
import { expectation, type Finding, findingsOf, isObject, onePerField, plainAt } from './findings.js';
import { faultAt, namePosition, valueAt } from './locate.js';
import { type ConfigInput, type ConfigOutput, configSchema } from './schema.js';
import type { Located, LocatedScalar } from './source.js';
import { nearest } from './suggest.js';

/** Everything may be missing, but what is there is valid. A field that is there as `undefined` was invalid. */
export type Draft<T> = T extends readonly (infer Item)[]
  ? readonly (Draft<Item> | undefined)[]
  : T extends object
    ? { readonly [Field in keyof T]?: Draft<T[Field]> | undefined }
    : T;

export type ConfigDraft = Draft<ConfigInput>;
export type RouteDraft = NonNullable<NonNullable<ConfigDraft['routes']>[number]>;

export type Checked = {
  readonly faults: readonly Fault[];
  readonly draft: ConfigDraft;
  /** Null when there are faults. */
  readonly output: ConfigOutput | null;
};

/** Checks a file's values against the schema. */
export function check(root: Located): Checked {
  const retyped = new Map<LocatedScalar, number | boolean>();
  for (;;) {
    const plain = plainOf(root, retyped);
    const result = configSchema.safeParse(plain, { error: expectation });
    if (result.success) return { faults: [], draft: result.data, output: result.data };
    const findings = onePerField(result.error.issues.flatMap((issue) => findingsOf(issue, [], plain)));
    if (findings.filter((finding) => retype(finding, root, retyped)).length > 0) continue;
    return {
      faults: findings.flatMap((finding) => faultOf(finding, root)),
      draft: draftOf(plain, findings),
      output: null,
    };
  }
}

function faultOf(finding: Finding, root: Located): Fault[] {
  const value = valueAt(root, finding.path);
  if (value?.kind === 'unusable') return [];
  if (finding.about === 'name') {
    const field = String(finding.path.at(-1));
    const suggestion = nearest(field, finding.candidates);
    const fault = faultAt(root, finding.path, finding.expected, {
      got: JSON.stringify(field),
      suggestion,
      code: finding.code,
    });
    return [{ ...fault, ...namePosition(root, finding.path) }];
  }
  const written = value?.kind === 'scalar' && typeof value.value === 'string' ? value.value : null;
  const suggestion = written === null ? null : nearest(written, finding.candidates);
  const code = value === undefined ? 'missing-field' : finding.code;
  return [faultAt(root, finding.path, finding.expected, { suggestion, code })];
}

/** Reads the text of a variable as the number or truth value that it spells. Answers whether that is news. */
function retype(finding: Finding, root: Located, retyped: Map<LocatedScalar, number | boolean>): boolean {
  const node = valueAt(root, finding.path);
  if (!finding.wrongType || node?.kind !== 'scalar' || node.origin === 'written' || retyped.has(node)) return false;
  const text = String(node.value);
  if (text === 'true' || text === 'false') retyped.set(node, text === 'true');
  else if (/^-?[0-9]{1,15}(?:\.[0-9]{1,15})?$/.test(text)) retyped.set(node, Number(text));
  return retyped.has(node);
}

function plainOf(node: Located, retyped: ReadonlyMap<LocatedScalar, number | boolean>): unknown {
  if (node.kind === 'unusable') return null;
  if (node.kind === 'scalar') return retyped.get(node) ?? node.value;
  if (node.kind === 'list') return node.items.map((item) => plainOf(item, retyped));
  return Object.fromEntries([...node.entries].map(([key, entry]) => [key, plainOf(entry.value, retyped)]));
}

function draftOf(plain: unknown, findings: readonly Finding[]): ConfigDraft {
  for (const { path } of findings) {
    const parent = plainAt(plain, path.slice(0, -1));
    if (path.length > 0 && isObject(parent)) parent[path.at(-1)!] = undefined;
  }
  const rootFailed = findings.some((finding) => finding.path.length === 0) || !isObject(plain);
  // Every value with a finding is gone, so that what is left has the schema's types.
  return rootFailed ? {} : (plain as ConfigDraft);
}
