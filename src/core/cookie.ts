/**
 * Values of one cookie in the lines of `Cookie` (RFC 6265 section 5.4).
 *
 * A name may come more than once, in one line or over several (HTTP/2 splits them): all its values count, in order.
 * Names and values are taken as sent, without the white space around them; double quotes are part of a value (RFC 6265
 * section 4.1.1). A pair without `=` has no name and is no cookie of any.
 */

/** The values of all cookies of that name, in order. */
export function cookieValues(lines: readonly string[], name: string): string[] {
  const values: string[] = [];
  for (const pair of lines.flatMap((line) => line.split(';'))) {
    const equals = pair.indexOf('=');
    if (equals !== -1 && trim(pair.slice(0, equals)) === name) values.push(trim(pair.slice(equals + 1)));
  }
  return values;
}

/** Without the spaces and tabs around it; `trim` of strings would take bytes such as 0xA0 too. */
function trim(text: string): string {
  let start = 0;
  let end = text.length;
  while (start < end && isSpace(text, start)) start += 1;
  while (end > start && isSpace(text, end - 1)) end -= 1;
  return text.slice(start, end);
}

function isSpace(text: string, at: number): boolean {
  return text[at] === ' ' || text[at] === '\t';
}
