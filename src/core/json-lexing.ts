/**
 * The tokens of JSON (RFC 8259) on UTF-8 bytes: each function takes the position at which a token begins and returns
 * the one behind it, or `BAD` where the grammar is broken. Reading beyond the end meets no byte and so no token. The
 * last two functions move a cursor over content that is known to be well-formed.
 */

export const BAD = -1;

export const QUOTE = 0x22;
export const COMMA = 0x2c;
export const COLON = 0x3a;
export const OPEN_BRACKET = 0x5b;
export const CLOSE_BRACKET = 0x5d;
export const OPEN_BRACE = 0x7b;
export const CLOSE_BRACE = 0x7d;

export const BACKSLASH = 0x5c;
const MINUS = 0x2d;
const PLUS = 0x2b;
const DOT = 0x2e;
const ZERO = 0x30;
const NINE = 0x39;
const LOWER_E = 0x65;
const LOWER_U = 0x75;

/** 1 for the bytes that end a run of plain ones within a string: quote, backslash, controls. */
const ENDS_RUN = new Uint8Array(256).fill(1, 0, 0x20);
ENDS_RUN[QUOTE] = 1;
ENDS_RUN[BACKSLASH] = 1;

/** 1 for what may follow a backslash, `u` apart. */
const ESCAPES = new Uint8Array(256);
for (const character of '"\\/bfnrt') ESCAPES[character.charCodeAt(0)] = 1;

const WORDS: ReadonlyMap<number, Buffer> = new Map(
  ['true', 'false', 'null'].map((word) => [word.charCodeAt(0), Buffer.from(word)]),
);

/** Skips white space. */
export function skipSpace(bytes: Buffer, at: number): number {
  let i = at;
  for (;;) {
    const byte = bytes[i]!;
    if (byte > 0x20 || (byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09)) return i;
    i += 1;
  }
}

/** Reads a string whose opening quote stands before `at`; returns the position of its closing quote. */
export function endOfString(bytes: Buffer, at: number): number {
  const end = bytes.length;
  let i = at;
  while (i < end) {
    while (i < end && ENDS_RUN[bytes[i]!] === 0) i += 1;
    if (bytes[i] === QUOTE) return i;
    if (bytes[i] !== BACKSLASH) return BAD;
    i = endOfEscape(bytes, i + 1);
    if (i === BAD) return BAD;
  }
  return BAD;
}

function endOfEscape(bytes: Buffer, at: number): number {
  const byte = bytes[at]!;
  if (ESCAPES[byte] === 1) return at + 1;
  if (byte !== LOWER_U) return BAD;
  for (let i = at + 1; i <= at + 4; i += 1) if (!isHexDigit(bytes[i]!)) return BAD;
  return at + 5;
}

function isHexDigit(byte: number): boolean {
  const lower = byte | 0x20;
  return (byte >= ZERO && byte <= NINE) || (lower >= 0x61 && lower <= 0x66);
}

/** Reads a number. */
export function endOfNumber(bytes: Buffer, at: number): number {
  let i = bytes[at] === MINUS ? at + 1 : at;
  const first = i;
  i = endOfDigits(bytes, i);
  if (i === first || (bytes[first] === ZERO && i > first + 1)) return BAD;
  if (bytes[i] === DOT) {
    const fraction = i + 1;
    i = endOfDigits(bytes, fraction);
    if (i === fraction) return BAD;
  }
  if ((bytes[i]! | 0x20) === LOWER_E) {
    const exponent = bytes[i + 1] === PLUS || bytes[i + 1] === MINUS ? i + 2 : i + 1;
    i = endOfDigits(bytes, exponent);
    if (i === exponent) return BAD;
  }
  return i;
}

function endOfDigits(bytes: Buffer, at: number): number {
  let i = at;
  while (bytes[i]! >= ZERO && bytes[i]! <= NINE) i += 1;
  return i;
}

/** Reads `true`, `false` or `null`. */
export function endOfWord(bytes: Buffer, at: number): number {
  const word = WORDS.get(bytes[at]!);
  if (word === undefined) return BAD;
  for (let i = 1; i < word.length; i += 1) if (bytes[at + i] !== word[i]) return BAD;
  return at + word.length;
}

/** The value of the string between two quotes, as UTF-16; lone surrogates stay what they are. */
export function stringValue(bytes: Buffer, start: number, end: number): string {
  return hasEscape(bytes, start, end)
    ? JSON.parse(bytes.toString('utf8', start - 1, end + 1))
    : bytes.toString('utf8', start, end);
}

/** Whether a string has an escape, so that its bytes are not its value. */
export function hasEscape(bytes: Buffer, start: number, end: number): boolean {
  for (let i = start; i < end; i += 1) if (bytes[i] === BACKSLASH) return true;
  return false;
}

/** Where reading stands in well-formed content. */
export type Cursor = { readonly bytes: Buffer; at: number };

/** Moves over the opening bracket or a comma to what follows it, or over the closing bracket: then false. */
export function stepInto(cursor: Cursor, close: number): boolean {
  const { bytes } = cursor;
  let at = skipSpace(bytes, cursor.at);
  const first = bytes[at]!;
  if (first !== close) at = skipSpace(bytes, at + 1);
  const more = bytes[at] !== close;
  cursor.at = more ? at : at + 1;
  return more;
}

/** Moves over one value, however deep. */
export function skipValue(cursor: Cursor): void {
  const { bytes } = cursor;
  let { at } = cursor;
  let open = 0;
  do {
    const first = bytes[at]!;
    if (first === OPEN_BRACE || first === OPEN_BRACKET) open += 1;
    if (first === CLOSE_BRACE || first === CLOSE_BRACKET) open -= 1;
    at = endOfToken(bytes, at);
    if (open > 0) at = skipSpace(bytes, at);
  } while (open > 0);
  cursor.at = at;
}

function endOfToken(bytes: Buffer, at: number): number {
  const first = bytes[at]!;
  if (first === QUOTE) return endOfString(bytes, at + 1) + 1;
  if (first === MINUS || (first >= ZERO && first <= NINE)) return endOfNumber(bytes, at);
  return WORDS.has(first) ? endOfWord(bytes, at) : at + 1;
}
