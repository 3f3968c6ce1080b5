/**
 * Numbers of JSON by value: `1`, `1.0`, `10e-1` are one, `-0` is `0`, and no digit is ever lost, which reading them into
 * a double would do (12345678901234567890 and …891 are one double).
 */

/** Beyond it a power of ten cannot be moved by the number of digits for certain. */
const LARGEST_POWER = 1e15;

/**
 * The spelling that all spellings of a number share: a number of JSON itself, of that value. One whose exponent has more
 * than 15 digits keeps its own: equal ones may then have different texts, different ones never have the same.
 */
export function normalNumber(text: string): string {
  const mark = text.search(/e/i);
  const mantissa = mark === -1 ? text : text.slice(0, mark);
  const sign = mantissa.startsWith('-') ? '-' : '';
  const [whole = '', fraction = ''] = mantissa.slice(sign.length).split('.');
  const digits = whole + fraction;
  let start = 0;
  while (digits[start] === '0') start += 1;
  if (start === digits.length) return '0';
  let end = digits.length;
  while (digits[end - 1] === '0') end -= 1;
  const power = mark === -1 ? 0 : Number(text.slice(mark + 1));
  if (Math.abs(power) > LARGEST_POWER) return text;
  return `${sign}${digits.slice(start, end)}e${power - fraction.length + digits.length - end}`;
}
