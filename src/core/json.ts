/**
 * Reads JSON content from its bytes and gives, for each pointer, a canonical text of the value found there.
 *
 * Invariants: the whole document is checked, whatever is asked for (RFC 8259, UTF-8 without a byte order mark, nothing
 * behind the value, no member twice in an object, at most 64 levels), and content that fails gives no value at all; two
 * values have one canonical text exactly when they are equal; nothing is looked up on an object, so `__proto__` is a
 * name like any other; time is linear, the stack is bounded by the level limit.
 *
 * The document is walked once. Values that no pointer leads to are skipped without being built.
 */

import { isUtf8 } from 'node:buffer';
import { asSpelled, canonicalJson, type NumberSpelling } from './json-canonical.js';
import {
  BAD,
  CLOSE_BRACE,
  CLOSE_BRACKET,
  COLON,
  COMMA,
  endOfNumber,
  endOfString,
  endOfWord,
  hasEscape,
  OPEN_BRACE,
  OPEN_BRACKET,
  QUOTE,
  skipSpace,
  stringValue,
} from './json-lexing.js';
import type { JsonPointer } from './json-pointer.js';
import { MemberNames } from './member-names.js';

/** In the order of the pointers; null where the document has no such value, which is not the value `null`. */
export type JsonValues =
  | { readonly kind: 'values'; readonly values: readonly (string | null)[] }
  | { readonly kind: 'malformed' };

const MAX_DEPTH = 64;
const MALFORMED: JsonValues = { kind: 'malformed' };

/** A pointer on its way: `slot` is its place in the result. */
type Wanted = { readonly pointer: JsonPointer; readonly slot: number };
const NOTHING: readonly Wanted[] = [];

type Walk = {
  readonly bytes: Buffer;
  readonly names: MemberNames;
  /** Where the value of each pointer begins. */
  readonly starts: number[];
};

/** Reads the values that the pointers lead to. Numbers are equal when `spell` gives them one spelling. */
export function readJson(
  content: Buffer,
  pointers: readonly JsonPointer[],
  spell: NumberSpelling = asSpelled,
): JsonValues {
  if (!isUtf8(content)) return MALFORMED;
  const walk: Walk = { bytes: content, names: new MemberNames(content), starts: pointers.map(() => BAD) };
  const wanted = pointers.map((pointer, slot) => ({ pointer, slot }));
  const end = walkValue(walk, skipSpace(content, 0), 0, wanted);
  if (end === BAD || skipSpace(content, end) !== content.length) return MALFORMED;
  const values = walk.starts.map((start) => (start === BAD ? null : canonicalJson(content, start, spell)));
  return { kind: 'values', values };
}

/** Walks the value at `at`, which lies within `depth` containers; returns the position behind it. */
function walkValue(walk: Walk, at: number, depth: number, wanted: readonly Wanted[]): number {
  for (const { pointer, slot } of wanted) if (pointer.length === depth) walk.starts[slot] = at;
  const { bytes } = walk;
  const first = bytes[at]!;
  if (first === QUOTE) {
    const quote = endOfString(bytes, at + 1);
    return quote === BAD ? BAD : quote + 1;
  }
  if (first === OPEN_BRACE) return depth === MAX_DEPTH ? BAD : walkObject(walk, at + 1, depth, wanted);
  if (first === OPEN_BRACKET) return depth === MAX_DEPTH ? BAD : walkArray(walk, at + 1, depth, wanted);
  return first < 0x3a ? endOfNumber(bytes, at) : endOfWord(bytes, at);
}

function walkArray(walk: Walk, at: number, depth: number, wanted: readonly Wanted[]): number {
  const { bytes } = walk;
  let i = skipSpace(bytes, at);
  if (bytes[i] === CLOSE_BRACKET) return i + 1;
  for (let index = 0; ; index += 1) {
    const below = wanted.length === 0 ? NOTHING : wantedAt(index, depth, wanted);
    i = walkValue(walk, i, depth + 1, below);
    if (i === BAD) return BAD;
    i = skipSpace(bytes, i);
    if (bytes[i] === CLOSE_BRACKET) return i + 1;
    if (bytes[i] !== COMMA) return BAD;
    i = skipSpace(bytes, i + 1);
  }
}

/** The pointers that lead through the element with this index. */
function wantedAt(index: number, depth: number, wanted: readonly Wanted[]): readonly Wanted[] {
  let below = NOTHING;
  for (const one of wanted) if (one.pointer[depth]?.index === index) below = [...below, one];
  return below;
}

function walkObject(walk: Walk, at: number, depth: number, wanted: readonly Wanted[]): number {
  const { bytes, names } = walk;
  let i = skipSpace(bytes, at);
  if (bytes[i] === CLOSE_BRACE) return i + 1;
  const members = names.open();
  for (;;) {
    if (bytes[i] !== QUOTE) return BAD;
    const start = i + 1;
    const quote = endOfString(bytes, start);
    if (quote === BAD || !names.add(members, start, quote)) return BAD;
    i = skipSpace(bytes, quote + 1);
    if (bytes[i] !== COLON) return BAD;
    const below = wanted.length === 0 ? NOTHING : wantedOf(bytes, start, quote, depth, wanted);
    i = walkValue(walk, skipSpace(bytes, i + 1), depth + 1, below);
    if (i === BAD) return BAD;
    i = skipSpace(bytes, i);
    if (bytes[i] === CLOSE_BRACE) break;
    if (bytes[i] !== COMMA) return BAD;
    i = skipSpace(bytes, i + 1);
  }
  names.close(members);
  return i + 1;
}

/** The pointers that lead through the member whose name stands between two quotes. */
function wantedOf(bytes: Buffer, start: number, end: number, depth: number, wanted: readonly Wanted[]) {
  const name = hasEscape(bytes, start, end) ? stringValue(bytes, start, end) : null;
  let below = NOTHING;
  for (const one of wanted) {
    const token = one.pointer[depth];
    if (token === undefined) continue;
    const leads = name === null ? isBetween(bytes, start, end, token.bytes) : name === token.name;
    if (leads) below = [...below, one];
  }
  return below;
}

function isBetween(bytes: Buffer, start: number, end: number, expected: Buffer): boolean {
  if (end - start !== expected.length) return false;
  for (let i = 0; i < expected.length; i += 1) if (bytes[start + i] !== expected[i]) return false;
  return true;
}
