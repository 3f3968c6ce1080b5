/**
 * One part of a key: where its value is found in a request, and as which element it enters the key.
 *
 * Invariants: absent, empty and malformed are three things; a value that cannot be read for certain is malformed and
 * never a value; the element says nothing of where it came from, so that rules with one scope can share a lock between,
 * say, a parameter of a path and a member of content (`/stock/42` and `{"sku":"42"}`); content is parsed once.
 */

import { createHash } from 'node:crypto';
import { utf8ByteText } from './byte-text.js';
import { isEncoded } from './content-coding.js';
import { cookieValues } from './cookie.js';
import { fieldLines } from './field-lines.js';
import { readIdempotencyKey } from './idempotency-key.js';
import { type JsonValues, readJson } from './json.js';
import { type JsonPointer, parsePointer } from './json-pointer.js';
import { textElement, textsElement } from './key-text.js';
import type { RequestView } from './request-view.js';
import type { KeyPart } from './rule.js';
import { urlencodedValues } from './urlencoded.js';

export type PartValue =
  | { readonly kind: 'element'; readonly element: string }
  | { readonly kind: 'absent' }
  /** `why` says what cannot be read, never what was sent. */
  | { readonly kind: 'malformed'; readonly why: string };

const ABSENT: PartValue = { kind: 'absent' };
const NO_FORM: PartValue = {
  kind: 'malformed',
  why: 'Content-Type is not application/x-www-form-urlencoded, once',
};
const ENCODED: PartValue = { kind: 'malformed', why: 'the content has a Content-Encoding' };

const NO_JSON: PartValue = {
  kind: 'malformed',
  why: 'the content is not JSON of one reading (RFC 8259 in UTF-8, no member twice in an object, at most 64 levels)',
};

/** A part made ready: `name` is byte text, `slot` the place of a body part among the pointers of its policy. */
export type CompiledPart = Omit<KeyPart, 'name'> & {
  readonly name: string;
  readonly slot: number;
  /** The part as it is written in the configuration, without any value. */
  readonly label: string;
};

/** The part as it is written in the configuration, without any value. */
export function partLabel({ from, name }: KeyPart): string {
  return `${from === 'idempotency-key' ? 'header' : from}: ${name}`;
}

/** Makes a part ready and appends the pointer of a body part. Throws when that is none; the configuration refused it. */
export function compilePart(part: KeyPart, pointers: JsonPointer[]): CompiledPart {
  const label = partLabel(part);
  if (part.from === 'body') {
    const pointer = parsePointer(part.name);
    if (pointer === null) throw new Error(`not a JSON pointer: ${part.name}`);
    pointers.push(pointer);
  }
  const name = part.from === 'header' ? part.name.toLowerCase() : utf8ByteText(part.name);
  return { from: part.from, name, optional: part.optional, slot: pointers.length - 1, label };
}

/** Whether a part is read from the content. */
export function readsContent(part: KeyPart): boolean {
  return part.from === 'body' || part.from === 'form' || (part.from === 'request' && part.name === 'content');
}

/** Reads the parts of one request. */
export class PartReader {
  readonly #view: RequestView;
  readonly #pointers: readonly JsonPointer[];
  #json: JsonValues | null = null;

  constructor(view: RequestView, pointers: readonly JsonPointer[]) {
    this.#view = view;
    this.#pointers = pointers;
  }

  read(part: CompiledPart): PartValue {
    const { fields, params, target } = this.#view;
    switch (part.from) {
      case 'header':
        return listed(fieldLines(fields, part.name));
      case 'idempotency-key':
        return keyField(fields);
      case 'query':
        return listed(target.query === null ? [] : urlencodedValues(target.query, part.name));
      case 'param':
        return text(params.get(part.name) ?? null);
      case 'cookie':
        return listed(cookieValues(fieldLines(fields, 'cookie'), part.name));
      case 'form':
        return this.#form(part.name);
      case 'body':
        return this.#body(part.slot);
      case 'request':
        return this.#request(part.name);
    }
  }

  #form(name: string): PartValue {
    const content = this.#content();
    if (content.length === 0) return ABSENT;
    if (!isForm(this.#view.fields)) return NO_FORM;
    if (isEncoded(this.#view.fields)) return ENCODED;
    return listed(urlencodedValues(content.toString('latin1'), name));
  }

  /** Content is read as JSON whatever `Content-Type` says: many clients name another type, and servers read it all the same. */
  #body(slot: number): PartValue {
    const content = this.#content();
    if (content.length === 0) return ABSENT;
    if (isEncoded(this.#view.fields)) return ENCODED;
    this.#json ??= readJson(content, this.#pointers);
    if (this.#json.kind === 'malformed') return NO_JSON;
    const element = this.#json.values[slot] ?? null;
    return element === null ? ABSENT : { kind: 'element', element };
  }

  #request(name: string): PartValue {
    const { host, target } = this.#view;
    if (name === 'host') return text(host.toLowerCase());
    if (name === 'path') return text(target.path);
    if (name === 'target') return text(target.raw);
    if (name === 'content') return text(createHash('sha256').update(this.#content()).digest('hex'));
    throw new Error(`no such part of a request: ${name}`);
  }

  #content(): Buffer {
    const { content } = this.#view;
    if (content === null) throw new Error('a key that reads the content was asked for without it');
    return content;
  }
}

function keyField(fields: readonly string[]): PartValue {
  const key = readIdempotencyKey(fieldLines(fields, 'idempotency-key'));
  return key.kind === 'key' ? text(key.value) : key;
}

function listed(values: readonly string[]): PartValue {
  return values.length === 0 ? ABSENT : { kind: 'element', element: textsElement(values) };
}

function text(value: string | null): PartValue {
  return value === null ? ABSENT : { kind: 'element', element: textElement(value) };
}

/** Exactly one content type, and that of a form; its parameters mean nothing (WHATWG URL section 5). */
function isForm(fields: readonly string[]): boolean {
  const [type, ...others] = fieldLines(fields, 'content-type');
  if (type === undefined || others.length > 0) return false;
  return type.split(';', 1)[0]!.trim().toLowerCase() === 'application/x-www-form-urlencoded';
}
