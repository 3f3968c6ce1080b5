/**
 * Requests that somebody tells of: in JSON, to be explained, or one a line in a log.
 *
 * Invariant: what is read could have been sent. Text becomes bytes as UTF-8; a sentence about a fault names the member and
 * never holds its value.
 */

import { utf8ByteText } from '../core/byte-text.js';
import { isToken } from '../core/token.js';

/** Texts are byte text. */
export type ToldRequest = {
  readonly method: string;
  /** As it would stand in the request line. */
  readonly target: string;
  /** Flat field lines as they would be sent; `Host` and what frames the content may be left out. */
  readonly fields: readonly string[];
  readonly content: Buffer;
};

/** The members that make a request. */
export const TOLD_MEMBERS = ['method', 'target', 'host', 'headers', 'content', 'contentBase64'] as const;

/** As it was parsed, and not looked at yet. */
export type ToldJson = { readonly [member in (typeof TOLD_MEMBERS)[number]]?: unknown };

/** Reads a request from JSON; a sentence when it is none. */
export function readTold(told: ToldJson): ToldRequest | string {
  const { method = 'GET', target, host } = told;
  if (typeof method !== 'string' || !isToken(method)) return 'method must be a token such as POST';
  if (typeof target !== 'string' || !isTarget(target)) return 'target must be a path such as /orders?page=2, or a URL';
  const fields = readFields(told.headers);
  if (typeof fields === 'string') return fields;
  if (host !== undefined && (typeof host !== 'string' || !isFieldValue(host))) return 'host must be a text';
  const hasHost = fields.some((name, i) => i % 2 === 0 && name.toLowerCase() === 'host');
  const content = readContent(told);
  if (typeof content === 'string') return content;
  const all = host === undefined || hasHost ? fields : ['Host', utf8ByteText(host), ...fields];
  return { method, target: utf8ByteText(target), fields: all, content };
}

/** Whether it can stand in a request line: no space, no control character. */
export function isTarget(text: string): boolean {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what must not be there.
  return text !== '' && !/[\x00-\x20\x7f]/.test(text);
}

export function isFieldValue(text: string): boolean {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what must not be there.
  return !/[\x00\r\n]/.test(text);
}

/** A list of pairs, or an object whose values are texts or lists of texts. */
function readFields(headers: unknown): string[] | string {
  if (headers === undefined || headers === null) return [];
  const pairs: unknown = Array.isArray(headers) ? headers : typeof headers === 'object' ? pairsOf(headers) : null;
  const fault = 'headers must be a list of [name, value] pairs, or an object';
  if (!Array.isArray(pairs)) return fault;
  const fields: string[] = [];
  for (const pair of pairs) {
    if (!Array.isArray(pair) || pair.length !== 2) return fault;
    const [name, value] = pair as [unknown, unknown];
    if (typeof name !== 'string' || !isToken(name)) return 'headers: the name of a field must be a token';
    if (typeof value !== 'string' || !isFieldValue(value)) return `headers: ${name} must be a text of one line`;
    fields.push(name, utf8ByteText(value));
  }
  return fields;
}

function pairsOf(headers: object): unknown[] {
  return Object.entries(headers).flatMap(([name, value]: [string, unknown]) =>
    Array.isArray(value) ? value.map((one: unknown) => [name, one]) : [[name, value]],
  );
}

function readContent({ content, contentBase64 }: ToldJson): Buffer | string {
  if (content !== undefined && contentBase64 !== undefined) return 'content or contentBase64, not both';
  if (contentBase64 !== undefined) {
    const isBase64 = typeof contentBase64 === 'string' && /^[A-Za-z0-9+/_-]*={0,2}$/.test(contentBase64);
    return isBase64 ? Buffer.from(contentBase64, 'base64') : 'contentBase64 must be base64';
  }
  if (content === undefined || content === null) return Buffer.alloc(0);
  return typeof content === 'string' ? Buffer.from(content) : 'content must be a text';
}
