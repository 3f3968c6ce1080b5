/**
 * Requests in `.http` form: request line, field lines, an empty line, content; `###` separates several.
 *
 * Invariants: text is handled as latin1, so that every byte of the file goes out as it is; the line breaks at the end of
 * a request's content are the file's, not the content's; the fields that frame the content are left out, whoever sends
 * it computes them. `{{$uuid}}`, `{{$timestamp}}`, `{{$isoTimestamp}}` and `{{$randomInt}}` stand for what a client
 * makes anew for every attempt, and have a new value in every rendering.
 */

import { randomInt, randomUUID } from 'node:crypto';
import { isToken } from '../core/token.js';
import type { Outgoing } from './send.js';

/** What is wrong with a request file, with its line. */
export class HttpFileError extends Error {
  override readonly name = 'HttpFileError';
}

type Numbered = { readonly text: string; readonly line: number };

const REQUEST_LINE = /^(\S+)[ \t]+(\S+)(?:[ \t]+HTTP\/\d(?:\.\d)?)?[ \t]*$/;
const FIELD_LINE = /^([^:]+):[ \t]*(.*?)[ \t]*$/;
const FRAMING: ReadonlySet<string> = new Set(['content-length', 'transfer-encoding', 'connection', 'expect']);
const FRESH: Readonly<Record<string, () => string>> = {
  uuid: () => randomUUID(),
  guid: () => randomUUID(),
  timestamp: () => String(Date.now()),
  isoTimestamp: () => new Date().toISOString(),
  randomInt: () => String(randomInt(1_000_000_000)),
};

/** The requests of a file, each rendered once: call it again for the next attempt. */
export function parseHttpFile(bytes: Buffer): Outgoing[] {
  const parts: Numbered[][] = [[]];
  for (const [index, text] of bytes.toString('latin1').split('\n').entries()) {
    if (text.startsWith('###')) parts.push([]);
    else parts.at(-1)?.push({ text, line: index + 1 });
  }
  const requests = parts.filter((lines) => lines.some(({ text }) => !isFiller(text))).map(parseRequest);
  if (requests.length === 0) throw new HttpFileError('no request in it: expected a line like `POST /orders`');
  return requests;
}

function parseRequest(lines: readonly Numbered[]): Outgoing {
  const start = lines.findIndex(({ text }) => !isFiller(text));
  const first = lines[start] ?? { text: '', line: 1 };
  const parsed = REQUEST_LINE.exec(render(first).trimEnd());
  if (parsed === null || !isToken(parsed[1] ?? '')) {
    throw new HttpFileError(
      `line ${first.line}: expected a request line like \`POST /orders\`, got ${quoted(first.text)}`,
    );
  }
  const blank = lines.findIndex(({ text }, index) => index > start && text.trim() === '');
  const end = blank === -1 ? lines.length : blank;
  const fields = lines.slice(start + 1, end).flatMap(parseField);
  const content = lines
    .slice(end + 1)
    .map(render)
    .join('\n')
    .replace(/[\r\n]+$/, '');
  const { target, host } = splitTarget(parsed[2] ?? '/', first.line);
  return {
    method: parsed[1] ?? 'GET',
    target,
    fields:
      host === null || fields.some((name, at) => at % 2 === 0 && /^host$/i.test(name))
        ? fields
        : ['Host', host, ...fields],
    content: Buffer.from(content, 'latin1'),
  };
}

function parseField(at: Numbered): string[] {
  if (at.text.startsWith('#') || at.text.startsWith('//')) return [];
  const parsed = FIELD_LINE.exec(render(at).trimEnd());
  const [, name = '', value = ''] = parsed ?? [];
  if (!isToken(name)) {
    throw new HttpFileError(`line ${at.line}: expected a field like \`Name: value\`, got ${quoted(at.text)}`);
  }
  return FRAMING.has(name.toLowerCase()) ? [] : [name, value];
}

/** A whole URL in the request line names the host of the API; the request still goes to the gateway. */
function splitTarget(target: string, line: number): { target: string; host: string | null } {
  if (target.startsWith('/') || target === '*') return { target, host: null };
  const absolute = /^https?:\/\/([^/?#]+)([^#]*)/i.exec(target);
  if (absolute === null) {
    throw new HttpFileError(`line ${line}: expected a path or an http(s) URL, got ${quoted(target)}`);
  }
  const rest = absolute[2] ?? '';
  return { target: rest.startsWith('/') ? rest : `/${rest}`, host: absolute[1] ?? null };
}

function render({ text, line }: Numbered): string {
  return text.replace(/\{\{\$(\w*)\}\}/g, (whole, name: string) => {
    const fresh = Object.hasOwn(FRESH, name) ? FRESH[name] : undefined;
    if (fresh !== undefined) return fresh();
    const known = Object.keys(FRESH).map((each) => `{{$${each}}}`);
    throw new HttpFileError(`line ${line}: expected one of ${known.join(', ')}, got ${quoted(whole)}`);
  });
}

function isFiller(text: string): boolean {
  return text.trim() === '' || text.startsWith('#') || text.startsWith('//');
}

function quoted(text: string): string {
  return JSON.stringify(text.trim().slice(0, 60));
}
