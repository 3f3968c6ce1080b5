/**
 * Where a value stands in JSON text, so that it can be replaced without writing the rest anew: parsing and writing
 * JSON again would change the spelling of numbers, and with it keys that have nothing to do with the change.
 *
 * The content must be valid JSON. Offsets are bytes: the text is held as latin1, and only member names are read as the
 * UTF-8 they are. Of duplicate members the last one counts, as for `JSON.parse`.
 */

import { parsePointer } from '../core/json-pointer.js';

export type Span = { readonly start: number; readonly end: number };

const SPACE = /[ \t\r\n]*/y;
const STRING = /"(?:[^"\\]|\\.)*"/y;
const LITERAL = /[^\s,\]}]+/y;

/** The span of the value at a JSON pointer (RFC 6901), or null when there is none. */
export function jsonSpan(content: Buffer, pointer: string): Span | null {
  const parsed = parsePointer(pointer);
  if (parsed === null) return null;
  const text = content.toString('latin1');
  let span = valueSpan(text, after(SPACE, text, 0));
  for (const { name } of parsed) {
    const child = childSpan(text, span.start, name);
    if (child === null) return null;
    span = child;
  }
  return span;
}

function childSpan(text: string, start: number, name: string): Span | null {
  const open = text[start];
  if (open !== '{' && open !== '[') return null;
  let found: Span | null = null;
  let index = 0;
  for (const child of children(text, start)) {
    if (open === '{' ? child.name === name : String(index) === name) found = child.value;
    index += 1;
  }
  return found;
}

/** Members or elements of the object or array that begins at `start`. */
function* children(text: string, start: number): Generator<{ readonly name: string; readonly value: Span }> {
  const close = text[start] === '{' ? '}' : ']';
  let at = after(SPACE, text, start + 1);
  while (text[at] !== close) {
    let name = '';
    if (close === '}') {
      const end = after(STRING, text, at);
      name = String(JSON.parse(Buffer.from(text.slice(at, end), 'latin1').toString('utf8')));
      at = after(SPACE, text, after(SPACE, text, end) + 1);
    }
    const value = valueSpan(text, at);
    yield { name, value };
    at = after(SPACE, text, value.end);
    if (text[at] === ',') at = after(SPACE, text, at + 1);
  }
}

function valueSpan(text: string, start: number): Span {
  if (text[start] === '"') return { start, end: after(STRING, text, start) };
  if (text[start] !== '{' && text[start] !== '[') return { start, end: after(LITERAL, text, start) };
  let end = start + 1;
  for (const child of children(text, start)) end = child.value.end;
  // Only white space stands between the last value (or the opening bracket) and the closing one.
  return { start, end: after(SPACE, text, end) + 1 };
}

/** The position after what `pattern` (sticky) matches at `at`. */
function after(pattern: RegExp, text: string, at: number): number {
  pattern.lastIndex = at;
  if (!pattern.test(text)) throw new SyntaxError(`unexpected text at offset ${at}`);
  return pattern.lastIndex;
}
