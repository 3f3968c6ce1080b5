/**
 * The canonical text of a JSON value, as an element of a key (key-text.ts).
 *
 * Equal values have equal texts and different values different ones, where
 * - numbers are equal when spelled alike: `1`, `1.0` and `1e0` differ, since no one reading of them holds for every
 *   upstream, and large ones must not be rounded into each other; a caller that compares values gives the spelling that
 *   equal ones share (json-number.ts);
 * - strings are equal by value. Well-formed ones are given as UTF-8 byte text; one with a lone surrogate keeps its UTF-16
 *   code units, of which that surrogate is no byte: it meets nothing else, not even U+FFFD;
 * - objects are equal by their members, in whatever order; arrays by their elements, in order.
 */

import { utf8ByteText } from './byte-text.js';
import {
  CLOSE_BRACE,
  CLOSE_BRACKET,
  type Cursor,
  endOfNumber,
  endOfString,
  endOfWord,
  hasEscape,
  OPEN_BRACE,
  OPEN_BRACKET,
  QUOTE,
  skipSpace,
  stepInto,
  stringValue,
} from './json-lexing.js';
import { groupElement, numberElement, textElement } from './key-text.js';

/** By code points, so that the halves of a pair are not meant. */
const LONE_SURROGATE = /\p{Surrogate}/u;

/** Gives the spelling by which a number is compared. */
export type NumberSpelling = (text: string) => string;

export const asSpelled: NumberSpelling = (text) => text;

type Reading = Cursor & { readonly spell: NumberSpelling };

/** The canonical text of the value at `at`, in content that is known to be well-formed and not too deep. */
export function canonicalJson(bytes: Buffer, at: number, spell: NumberSpelling): string {
  return value({ bytes, at, spell });
}

function value(cursor: Reading): string {
  const { bytes, at } = cursor;
  const first = bytes[at]!;
  if (first === QUOTE) return textElement(string(cursor));
  if (first === OPEN_BRACE) return object(cursor);
  if (first === OPEN_BRACKET) return array(cursor);
  if (first < 0x3a) {
    cursor.at = endOfNumber(bytes, at);
    return numberElement(cursor.spell(bytes.toString('latin1', at, cursor.at)));
  }
  cursor.at = endOfWord(bytes, at);
  return String.fromCharCode(first);
}

function string(cursor: Cursor): string {
  const { bytes } = cursor;
  const start = cursor.at + 1;
  const end = endOfString(bytes, start);
  cursor.at = end + 1;
  if (!hasEscape(bytes, start, end)) return bytes.toString('latin1', start, end);
  const text = stringValue(bytes, start, end);
  return LONE_SURROGATE.test(text) ? text : utf8ByteText(text);
}

function array(cursor: Reading): string {
  const elements: string[] = [];
  while (stepInto(cursor, CLOSE_BRACKET)) elements.push(value(cursor));
  return groupElement('a', elements);
}

function object(cursor: Reading): string {
  const members: { readonly name: string; readonly value: string }[] = [];
  while (stepInto(cursor, CLOSE_BRACE)) {
    const name = string(cursor);
    cursor.at = skipSpace(cursor.bytes, skipSpace(cursor.bytes, cursor.at) + 1);
    members.push({ name, value: value(cursor) });
  }
  members.sort((a, b) => (a.name < b.name ? -1 : 1));
  return groupElement(
    'o',
    members.map((member) => textElement(member.name) + member.value),
  );
}
