/**
 * The parts of a request that a key can be made of, read and changed from the outside, as a client would.
 *
 * Invariants: a change touches nothing but the named part; a changed value differs from the old one and, as it carries a
 * salt, from that of every earlier run; what is read is for comparing two requests only and is never shown.
 */

import { fieldLines } from '../core/field-lines.js';
import { parsePointer } from '../core/json-pointer.js';
import { paramNames } from '../core/path-pattern.js';
import { KEY_SOURCES, type KeyPart, REQUEST_PROPERTIES } from '../core/rule.js';
import { jsonSpan } from './json-span.js';
import type { Outgoing } from './send.js';

/** Why a part cannot be changed in this request. */
export class PartError extends Error {
  override readonly name = 'PartError';
}

/** A part as it is written in a rule, such as `body: /refreshToken`; null when it is none. */
export function parsePart(text: string): KeyPart | null {
  const parsed = /^\{?\s*(\w+)\s*:\s*(.*?)\s*\}?$/.exec(text.trim());
  const from = KEY_SOURCES.find((source) => source === parsed?.[1]);
  const name = (parsed?.[2] ?? '').replace(/^(["'])(.*)\1$/, '$2');
  if (from === undefined || (name === '' && from !== 'body')) return null;
  if (from === 'request' && !REQUEST_PROPERTIES.some((property) => property === name)) return null;
  if (from === 'body' && parsePointer(name) === null) return null;
  return { from, name: from === 'header' ? name.toLowerCase() : name, optional: false };
}

/** A part as it is written in a rule. */
export function partText(part: KeyPart): string {
  return `${part.from}: ${part.name}`;
}

/** The part's value for comparison, or null when the request has none. `pathPattern` is the rule's `match.path`. */
export function readPart(request: Outgoing, part: KeyPart, pathPattern: string): string | null {
  const { path, query } = splitTarget(request.target);
  switch (part.from) {
    case 'idempotency-key':
    case 'header':
      return joined(fieldLines(request.fields, part.name));
    case 'query':
      return joined(pairsOf(query).flatMap(([name, value]) => (name === part.name ? [value] : [])));
    case 'form':
      return joined(pairsOf(textOf(request)).flatMap(([name, value]) => (name === part.name ? [value] : [])));
    case 'cookie':
      return joined(cookiesOf(request).flatMap(([name, value]) => (name === part.name ? [value] : [])));
    case 'param':
      return path.split('/')[segmentOf(part.name, pathPattern)] ?? null;
    case 'body': {
      const span = spanIn(request, part.name);
      return span === null ? null : textOf(request).slice(span.start, span.end);
    }
    case 'request':
      return (
        { host: joined(fieldLines(request.fields, 'host')), path, target: request.target, content: textOf(request) }[
          part.name
        ] ?? null
      );
  }
}

/** The same request with another value of one part; throws `PartError` where that cannot be done. */
export function changePart(request: Outgoing, part: KeyPart, pathPattern: string, salt: string): Outgoing {
  const { path, query } = splitTarget(request.target);
  switch (part.from) {
    case 'idempotency-key':
      // A quoted key stays one: what is added goes inside.
      return withField(request, part.name, (value) => value.replace(/("?)\s*$/, `-${salt}$1`));
    case 'header':
      return withField(request, part.name, (value) => other(value, salt));
    case 'query':
      return { ...request, target: `${path}?${changedPair(query, part.name, salt)}` };
    case 'form':
      return withText(request, changedPair(textOf(request), part.name, salt));
    case 'cookie':
      return withField(request, 'cookie', () => changedCookies(request, part.name, salt));
    case 'param':
      return {
        ...request,
        target: `${changedSegment(path, part.name, pathPattern, salt)}${query === '' ? '' : `?${query}`}`,
      };
    case 'body': {
      const span = spanIn(request, part.name);
      if (span === null) throw new PartError(`the request has no \`${partText(part)}\` to change`);
      const text = textOf(request);
      const value = otherJson(text.slice(span.start, span.end), salt);
      return withText(request, text.slice(0, span.start) + value + text.slice(span.end));
    }
    case 'request':
      return changeWhole(request, part, pathPattern, salt);
  }
}

function changeWhole(request: Outgoing, part: KeyPart, pathPattern: string, salt: string): Outgoing {
  const { path, query } = splitTarget(request.target);
  if (part.name === 'host') return withField(request, 'host', (value) => `${salt}.${value || 'example'}`);
  if (part.name === 'target') return { ...request, target: `${path}?${changedPair(query, 'smoke', salt)}` };
  if (part.name === 'content') {
    const text = textOf(request);
    const members = /^\s*\{/.test(text) ? text.indexOf('{') : -1;
    if (members === -1) return withText(request, text + salt);
    const comma = /^\s*\}/.test(text.slice(members + 1)) ? '' : ',';
    return withText(request, `${text.slice(0, members + 1)}"smoke":"${salt}"${comma}${text.slice(members + 1)}`);
  }
  const rest = query === '' ? '' : `?${query}`;
  if (pathPattern.endsWith('*')) return { ...request, target: `${path.replace(/\/$/, '')}/${salt}${rest}` };
  const last = paramNames(pathPattern).at(-1);
  if (last === undefined) throw new PartError('the rule has one path only, there is no other one: vary another part');
  return { ...request, target: changedSegment(path, last, pathPattern, salt) + rest };
}

function splitTarget(target: string): { path: string; query: string } {
  const at = target.indexOf('?');
  return at === -1 ? { path: target, query: '' } : { path: target.slice(0, at), query: target.slice(at + 1) };
}

function textOf(request: Outgoing): string {
  return request.content.toString('latin1');
}

function withText(request: Outgoing, text: string): Outgoing {
  return { ...request, content: Buffer.from(text, 'latin1') };
}

function joined(values: readonly string[]): string | null {
  return values.length === 0 ? null : values.join('\n');
}

/** Another value, of the same length where that is possible without cutting an escape or a character in two. */
function other(value: string, salt: string): string {
  const isPlain = /^[ -~]*$/.test(value) && !/[%\\]/.test(value);
  return isPlain && value.length >= 2 * salt.length ? value.slice(0, -salt.length) + salt : value + salt;
}

function otherJson(source: string, salt: string): string {
  if (source.startsWith('"')) return `"${other(source.slice(1, -1), salt)}"`;
  if (/^-?\d/.test(source)) return String(Number.parseInt(salt, 36));
  if (source === 'true') return 'false';
  if (source === 'false') return 'true';
  return `"${salt}"`;
}

/** Replaces the value of the field's lines; a request without the field gets it. */
function withField(request: Outgoing, name: string, change: (value: string) => string): Outgoing {
  const fields = request.fields.map((text, at) => {
    const isValue = at % 2 === 1 && request.fields[at - 1]?.toLowerCase() === name;
    return isValue ? change(text) : text;
  });
  const absent = fieldLines(request.fields, name).length === 0;
  return { ...request, fields: absent ? [...fields, name, change('')] : fields };
}

function pairsOf(encoded: string): [string, string][] {
  return [...new URLSearchParams(Buffer.from(encoded, 'latin1').toString('utf8'))];
}

/** The encoded pairs with another value for `name`; where it is absent it is added. */
function changedPair(encoded: string, name: string, salt: string): string {
  const pairs = encoded === '' ? [] : encoded.split('&');
  const isNamed = (pair: string): boolean => pairsOf(pair)[0]?.[0] === name;
  if (!pairs.some(isNamed)) return [...pairs, `${encodeURIComponent(name)}=${salt}`].join('&');
  return pairs
    .map((pair) => (isNamed(pair) ? `${pair.split('=')[0]}=${other(pair.split('=').slice(1).join('='), salt)}` : pair))
    .join('&');
}

function cookiesOf(request: Outgoing): [string, string][] {
  return fieldLines(request.fields, 'cookie')
    .flatMap((line) => line.split(';'))
    .map((pair) => {
      const at = pair.indexOf('=');
      return [pair.slice(0, at).trim(), pair.slice(at + 1).trim()];
    });
}

function changedCookies(request: Outgoing, name: string, salt: string): string {
  const cookies = cookiesOf(request);
  const changed = cookies.map(([each, value]) => `${each}=${each === name ? other(value, salt) : value}`);
  return (cookies.some(([each]) => each === name) ? changed : [...changed, `${name}=${salt}`]).join('; ');
}

function segmentOf(param: string, pathPattern: string): number {
  return pathPattern.split('/').indexOf(`:${param}`);
}

function changedSegment(path: string, param: string, pathPattern: string, salt: string): string {
  const segments = path.split('/');
  const at = segmentOf(param, pathPattern);
  const value = segments[at];
  if (value === undefined) throw new PartError(`\`${pathPattern}\` has no \`:${param}\` that ${path} would fill`);
  segments[at] = other(value, salt);
  return segments.join('/');
}

function spanIn(request: Outgoing, pointer: string): ReturnType<typeof jsonSpan> {
  try {
    JSON.parse(request.content.toString('utf8'));
  } catch {
    return null;
  }
  return jsonSpan(request.content, pointer);
}
