/**
 * A request as a command line tells of it, in curl's spelling.
 *
 * Invariants: what curl would send is what is explained: pieces of data are joined with `&`, `-d` makes POST the method and a
 * form the type, `-d @file` leaves line breaks out and `--data-binary @file` does not; text becomes bytes as UTF-8.
 */

import { readFileSync } from 'node:fs';
import { utf8ByteText } from '../core/byte-text.js';
import { fieldLines } from '../core/field-lines.js';
import { isToken } from '../core/token.js';
import { isFieldValue, isTarget, type ToldRequest } from '../http/told-request.js';

/** What is wrong with the command line: exit code 2. */
export class ArgumentError extends Error {
  override readonly name = 'ArgumentError';
}

/** One `-d`, `--data-raw`, `--data-binary` or `--json`. */
export type DataArgument = { readonly kind: 'data' | 'raw' | 'binary' | 'json'; readonly text: string };

export type ToldArguments = {
  /** `[METHOD] TARGET`. */
  readonly words: readonly string[];
  /** `-X`. */
  readonly method: string | undefined;
  /** `-H`, in order. */
  readonly headers: readonly string[];
  readonly data: readonly DataArgument[];
  /** `--host`: in place of every `Host`. */
  readonly host: string | undefined;
};

/** Reads a request. Throws `ArgumentError`. */
export function toldByArguments({ words, method: asked, headers, data, host }: ToldArguments): ToldRequest {
  if (words.length > 2) throw new ArgumentError(`expected METHOD TARGET, got ${words.length} words`);
  const written = words.at(-1);
  if (written === undefined)
    throw new ArgumentError('expected a target such as /orders, or --request FILE, or --log FILE');
  const first = words.length === 2 ? words[0] : undefined;
  if (first !== undefined && asked !== undefined && first !== asked) {
    throw new ArgumentError(`-X: the method is ${first} already`);
  }
  const method = first ?? asked ?? (data.length > 0 ? 'POST' : 'GET');
  if (!isToken(method)) throw new ArgumentError(`expected a method such as POST, got ${quoted(method)}`);
  const { target, authority } = targetOf(written);
  const fields = headers.flatMap(fieldOf);
  const content = Buffer.concat(data.flatMap((piece, i) => (i === 0 ? [] : [joiner(piece)]).concat(bytesOf(piece))));
  const type = data.some(({ kind }) => kind === 'json') ? 'application/json' : 'application/x-www-form-urlencoded';
  if (data.length > 0 && fieldLines(fields, 'content-type').length === 0) fields.push('Content-Type', type);
  return { method, target: utf8ByteText(target), fields: withHost(fields, host, authority), content };
}

function targetOf(written: string): { readonly target: string; readonly authority: string | null } {
  if (!isTarget(written)) throw new ArgumentError(`expected a target without spaces, got ${quoted(written)}`);
  if (written.startsWith('/') || written === '*') return { target: written, authority: null };
  const [, authority, rest = ''] = /^https?:\/\/([^/?#]+)([^#]*)/i.exec(written) ?? [];
  if (authority === undefined) {
    throw new ArgumentError(`expected a path such as /orders, or an http(s) URL, got ${quoted(written)}`);
  }
  // As clients do: the host goes into its field, and the path into the request line.
  return { target: rest.startsWith('/') ? rest : `/${rest}`, authority };
}

/** `Name: value`, or `Name;` for one without a value; `Name:` leaves a field out, as curl does. */
function fieldOf(line: string): string[] {
  const [, name = '', mark, value = ''] = /^([^:;]+)([:;])[ \t]*(.*?)[ \t]*$/s.exec(line) ?? [];
  if (!isToken(name) || !isFieldValue(value) || (mark === ';' && value !== '')) {
    throw new ArgumentError(`-H: expected 'Name: value', got ${quoted(line.split(':', 1)[0] as string)}`);
  }
  return mark === ':' && value === '' ? [] : [name, utf8ByteText(value)];
}

function withHost(fields: readonly string[], host: string | undefined, authority: string | null): string[] {
  if (host !== undefined && !isFieldValue(host)) throw new ArgumentError('--host: expected one line');
  const named = host ?? (fieldLines(fields, 'host').length === 0 ? authority : null);
  if (named === null) return [...fields];
  const others = fields.filter((_, i) => (fields[i - (i % 2)] as string).toLowerCase() !== 'host');
  return ['Host', utf8ByteText(named), ...others];
}

/** JSON is joined as it is. */
function joiner({ kind }: DataArgument): Buffer {
  return Buffer.from(kind === 'json' ? '' : '&');
}

function bytesOf({ kind, text }: DataArgument): Buffer {
  if (kind === 'raw' || !text.startsWith('@')) return Buffer.from(text);
  const bytes = read(text.slice(1));
  return kind === 'data' ? Buffer.from(bytes.filter((byte) => byte !== 0x0a && byte !== 0x0d && byte !== 0)) : bytes;
}

/** The content of a file, or of standard input (`-`). Throws `ArgumentError`. */
export function read(path: string): Buffer {
  try {
    return readFileSync(path === '-' ? 0 : path);
  } catch (error) {
    throw new ArgumentError((error as Error).message);
  }
}

function quoted(text: string): string {
  return JSON.stringify(text.slice(0, 60));
}
