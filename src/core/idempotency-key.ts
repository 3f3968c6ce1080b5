/**
 * The value of `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header): one String of Structured Fields (RFC 9651
 * section 3.3.3), or the same text without its quotes, as most clients send it.
 *
 * Invariants: `"abc"` and `abc` are one key; a key is 1 to 255 characters of printable ASCII, counted after unquoting; a
 * value that could be read as two things is malformed and never a key.
 *
 * A text without quotes may have spaces and backslashes within, which stand for themselves: readers do not differ there.
 * It may not have a quote (a quoted text cut short, or glued), a comma (a list; two lines that a proxy has joined look
 * like that) or a semicolon (parameters). Within quotes they are characters like others.
 */

export type IdempotencyKey =
  | { readonly kind: 'key'; readonly value: string }
  | { readonly kind: 'absent' }
  /** `why` says what is wrong, never what was sent. */
  | { readonly kind: 'malformed'; readonly why: string };

const ABSENT: IdempotencyKey = { kind: 'absent' };
const SEVERAL = malformed('the field has more than one line');
const NOT_ONE_TEXT = malformed(
  'it is not one text (a list, a stray quote, parameters, or a character that is not printable ASCII)',
);
const EMPTY = malformed('it is empty');

const LONGEST = 255;
const TOO_LONG = malformed(`it is longer than ${LONGEST} characters`);
/** Within the quotes: printable ASCII, quote and backslash behind a backslash only. */
const QUOTED = /^"((?:[ !#-[\]-~]|\\["\\])*)"$/;
/** Printable ASCII without `"`, `,` and `;`. */
const BARE = /^[ !#-+\--:<-~]*$/;

/** Reads the key from the lines of its field. */
export function readIdempotencyKey(lines: readonly string[]): IdempotencyKey {
  const [line, ...others] = lines;
  if (line === undefined) return ABSENT;
  if (others.length > 0) return SEVERAL;
  const text = withoutSpaces(line);
  const quoted = QUOTED.exec(text)?.[1];
  if (quoted === undefined && !BARE.test(text)) return NOT_ONE_TEXT;
  const value = quoted === undefined ? text : quoted.replace(/\\(.)/g, '$1');
  if (value === '') return EMPTY;
  return value.length > LONGEST ? TOO_LONG : { kind: 'key', value };
}

function malformed(why: string): IdempotencyKey {
  return { kind: 'malformed', why };
}

/** Without the spaces and tabs around it, which are no part of a field's value (RFC 9110 section 5.5). */
function withoutSpaces(line: string): string {
  return line.replace(/^[ \t]+/, '').replace(/(?<![ \t])[ \t]+$/, '');
}
