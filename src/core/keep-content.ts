/**
 * What of a response is kept when its content, or most of it, must not be: the status, the fields that do not speak of the
 * content, and the members that a rule names.
 *
 * Invariants: what is not named is not kept, in no field either; values keep their source text (a number all its digits);
 * the same pointer leads to the same value in what is kept as in the original. So objects and arrays are nested as they
 * were, and the elements of an array before a named one are `null`.
 *
 * Content that is no JSON of one reading, or encoded, has no members: nothing of it is kept. A response without content has
 * nothing to hide and stays as it is, which is what 204 and responses to HEAD need.
 */

import { isEncoded } from './content-coding.js';
import { readJson } from './json.js';
import {
  CLOSE_BRACE,
  CLOSE_BRACKET,
  type Cursor,
  endOfString,
  OPEN_BRACE,
  OPEN_BRACKET,
  skipSpace,
  skipValue,
  stepInto,
  stringValue,
} from './json-lexing.js';
import { type JsonPointer, parsePointer } from './json-pointer.js';
import type { ReplayPolicy } from './rule.js';

type KeepContent = ReplayPolicy['keepContent'];

/** A response's content and flat list of field lines. */
export type Kept = { readonly content: Buffer; readonly fields: readonly string[] };

/** Fields that describe the content or are a digest of it, or that announce what came behind it. */
const CONTENT_FIELDS: ReadonlySet<string> = new Set([
  'content-digest',
  'content-disposition',
  'content-encoding',
  'content-language',
  'content-length',
  'content-md5',
  'content-range',
  'content-type',
  'digest',
  'etag',
  'repr-digest',
  'trailer',
]);

const NOTHING = Buffer.alloc(0);

/** What is kept of a response. Throws when a pointer is none; the configuration refused it. */
export function keptContent(keep: KeepContent, content: Buffer, fields: readonly string[]): Kept {
  if (keep.kind === 'full' || content.length === 0) return { content, fields };
  const kept = keep.kind === 'members' && !isEncoded(fields) ? membersOf(content, keep.pointers.map(pointerOf)) : null;
  const others: string[] = [];
  for (let i = 0; i + 1 < fields.length; i += 2) {
    if (!CONTENT_FIELDS.has(fields[i]!.toLowerCase())) others.push(fields[i]!, fields[i + 1]!);
  }
  if (kept === null) return { content: NOTHING, fields: [...others, 'Content-Length', '0'] };
  return {
    content: kept,
    fields: [...others, 'Content-Type', 'application/json', 'Content-Length', String(kept.length)],
  };
}

function pointerOf(text: string): JsonPointer {
  const pointer = parsePointer(text);
  if (pointer === null) throw new Error(`not a JSON pointer: ${text}`);
  return pointer;
}

/** The document with nothing in it but what the pointers lead to; null when it is no object or array. */
function membersOf(content: Buffer, pointers: readonly JsonPointer[]): Buffer | null {
  if (readJson(content, []).kind === 'malformed') return null;
  const cursor = { bytes: content, at: skipSpace(content, 0) };
  const first = content[cursor.at];
  if (first !== OPEN_BRACE && first !== OPEN_BRACKET) return null;
  const found = project(cursor, 0, pointers);
  return Buffer.from(found ?? (first === OPEN_BRACE ? '{}' : '[]'), 'latin1');
}

/**
 * Moves over the value at the cursor, which lies within `depth` containers; returns, as byte text, what of it the
 * pointers lead to, or null. The content is well-formed and not too deep.
 */
function project(cursor: Cursor, depth: number, pointers: readonly JsonPointer[]): string | null {
  const start = cursor.at;
  const first = cursor.bytes[start];
  const below = pointers.length > 0 && pointers.every((pointer) => pointer.length > depth);
  if (below && first === OPEN_BRACE) return projectObject(cursor, depth, pointers);
  if (below && first === OPEN_BRACKET) return projectArray(cursor, depth, pointers);
  skipValue(cursor);
  return pointers.some((pointer) => pointer.length === depth)
    ? cursor.bytes.toString('latin1', start, cursor.at)
    : null;
}

function projectObject(cursor: Cursor, depth: number, pointers: readonly JsonPointer[]): string | null {
  const { bytes } = cursor;
  const members: string[] = [];
  while (stepInto(cursor, CLOSE_BRACE)) {
    const start = cursor.at;
    const quote = endOfString(bytes, start + 1);
    const name = stringValue(bytes, start + 1, quote);
    cursor.at = skipSpace(bytes, skipSpace(bytes, quote + 1) + 1);
    const found = project(
      cursor,
      depth + 1,
      pointers.filter((pointer) => pointer[depth]?.name === name),
    );
    if (found !== null) members.push(`${bytes.toString('latin1', start, quote + 1)}:${found}`);
  }
  return members.length === 0 ? null : `{${members.join(',')}}`;
}

function projectArray(cursor: Cursor, depth: number, pointers: readonly JsonPointer[]): string | null {
  const elements: string[] = [];
  for (let index = 0; stepInto(cursor, CLOSE_BRACKET); index += 1) {
    const found = project(
      cursor,
      depth + 1,
      pointers.filter((pointer) => pointer[depth]?.index === index),
    );
    if (found === null) continue;
    while (elements.length < index) elements.push('null');
    elements.push(found);
  }
  return elements.length === 0 ? null : `[${elements.join(',')}]`;
}
