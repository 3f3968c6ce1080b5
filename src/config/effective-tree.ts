/**
 * Values of a configuration that know where they came from.
 *
 * Invariants: what is nowhere in the files is a default; no secret is in it (masking.ts).
 */

import type { Reference } from './expansion.js';
import type { FieldPath, Position } from './fault.js';
import { shownText } from './masking.js';
import type { Located } from './source.js';

/** Where a value came from. */
export type ValueSource =
  | { readonly kind: 'default' }
  /** `references`: what of it the file only names. */
  | (Position & { readonly kind: 'file'; readonly references: readonly Reference[] });

export type EffectiveValue = {
  readonly kind: 'value';
  readonly value: string | number | boolean | null;
  readonly source: ValueSource;
};
export type EffectiveList = {
  readonly kind: 'list';
  readonly items: readonly Effective[];
  readonly source: ValueSource;
};
export type EffectiveMapping = {
  readonly kind: 'mapping';
  readonly entries: ReadonlyMap<string, Effective>;
  readonly source: ValueSource;
};
/** A default that has no value of its own: what happens instead. */
export type EffectiveWords = { readonly kind: 'words'; readonly words: string; readonly source: ValueSource };
export type Effective = EffectiveValue | EffectiveList | EffectiveMapping | EffectiveWords;

const DEFAULT: ValueSource = { kind: 'default' };

/** Values and their places; what is nowhere in the files is a default. */
export function treeOf(value: unknown, node: Located | undefined, path: FieldPath): Effective {
  const source: ValueSource =
    node === undefined
      ? DEFAULT
      : { kind: 'file', ...node.position, references: node.kind === 'scalar' ? node.references : [] };
  if (Array.isArray(value)) {
    const items = node?.kind === 'list' ? node.items : [];
    return { kind: 'list', items: value.map((item, index) => treeOf(item, items[index], [...path, index])), source };
  }
  if (typeof value === 'object' && value !== null) {
    const written = node?.kind === 'mapping' ? node.entries : new Map<string, never>();
    const entries = Object.entries(value).filter(([, one]) => one !== undefined);
    return {
      kind: 'mapping',
      entries: new Map(entries.map(([name, one]) => [name, treeOf(one, written.get(name)?.value, [...path, name])])),
      source,
    };
  }
  const origin = node?.kind === 'scalar' ? node.origin : 'written';
  // A number from a file is as secret as a text.
  const isText = typeof value === 'string' || origin === 'file';
  const shown = isText ? shownText(path, String(value), origin) : (value as EffectiveValue['value']);
  return { kind: 'value', value: shown, source };
}

export function byDefault(value: EffectiveValue['value']): EffectiveValue {
  return { kind: 'value', value, source: DEFAULT };
}

export function inWords(words: string): EffectiveWords {
  return { kind: 'words', words, source: DEFAULT };
}

/** The value of an option that has one. */
export function plainOf(node: Effective | undefined): EffectiveValue['value'] | undefined {
  return node?.kind === 'value' ? node.value : undefined;
}
