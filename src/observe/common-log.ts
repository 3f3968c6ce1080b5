/**
 * Access lines in the Common Log Format, and the combined one: what tools have read since the first web servers.
 *
 * Invariant: whatever a client sends stays within its place in its line. Quotes, backslashes and bytes that cannot be seen
 * are written as `\xHH`, as nginx does.
 */

export type CommonLine = {
  readonly client: string;
  readonly method: string;
  readonly target: string;
  readonly httpVersion: string;
  readonly status: number;
  readonly contentBytes: number;
};

const NOTHING = '-';
const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];

/** One line without its end. `more`: what the combined format has besides; null: the common one. */
export function commonLine(line: CommonLine, more: readonly (string | undefined)[] | null, now: Date): string {
  const { client, method, target, httpVersion, status, contentBytes } = line;
  const version = /^\d$/.test(httpVersion) ? `${httpVersion}.0` : httpVersion;
  const request = `${escaped(method)} ${escaped(target)} HTTP/${version}`;
  const bytes = contentBytes === 0 ? NOTHING : String(contentBytes);
  // A request that was never answered has no status.
  const common = `${escaped(client).replaceAll(' ', '')} - - [${timeText(now)}] "${request}" ${status === 0 ? NOTHING : status} ${bytes}`;
  return more === null ? common : `${common}${more.map((value) => ` "${escaped(value ?? NOTHING)}"`).join('')}`;
}

/** `30/Nov/2026:15:50:01 +0000`. */
function timeText(now: Date): string {
  const two = (number: number): string => String(number).padStart(2, '0');
  const day = `${two(now.getUTCDate())}/${MONTHS[now.getUTCMonth()]}/${now.getUTCFullYear()}`;
  return `${day}:${two(now.getUTCHours())}:${two(now.getUTCMinutes())}:${two(now.getUTCSeconds())} +0000`;
}

/** Byte text, or text: a character beyond Latin-1 is written as its bytes. */
function escaped(text: string): string {
  return text.replace(/["\\]|[^ -~]/g, (odd) => {
    const bytes = odd.charCodeAt(0) <= 0xff ? [odd.charCodeAt(0)] : [...Buffer.from(odd)];
    return bytes.map((byte) => `\\x${byte.toString(16).toUpperCase().padStart(2, '0')}`).join('');
  });
}
