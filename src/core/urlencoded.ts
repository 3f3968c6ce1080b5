/**
 * Values of one name in a query or in `application/x-www-form-urlencoded` content, decoded to bytes.
 *
 * Pairs are separated by `&`, a name from its value by the first `=`; without one the value is empty; names and values
 * are decoded alike (`+` is a space). Values are byte text, so that bytes which are no UTF-8 stay apart. A `%` that begins
 * no escape stands for itself but does not meet `%25`: servers disagree on it, so it is a character of its own.
 */

/** The values of all pairs of that name, in order; text and name are byte text. */
export function urlencodedValues(text: string, name: string): string[] {
  const values: string[] = [];
  for (const pair of text.split('&')) {
    if (pair === '') continue;
    const equals = pair.indexOf('=');
    const end = equals === -1 ? pair.length : equals;
    if (decode(pair.slice(0, end)) === name) values.push(decode(pair.slice(end + 1)));
  }
  return values;
}

/** Beyond every byte. */
const STRAY_PERCENT = '\u0125';

function decode(text: string): string {
  if (!/[%+]/.test(text)) return text;
  return text.replace(/\+|%([0-9A-Fa-f]{2})?/g, (found, hex: string | undefined) => {
    if (found === '+') return ' ';
    return hex === undefined ? STRAY_PERCENT : String.fromCharCode(Number.parseInt(hex, 16));
  });
}
