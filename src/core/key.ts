/**
 * The key of a request: what makes two requests duplicates of each other.
 *
 * Invariants: different values never give one key, equal ones always do (the text that is digested can be read back in
 * one way only, key-text.ts); only digests leave this module, of which the material goes to no store and no log, and
 * what they are made of for key health, which hashes it, and the value of the key only where the rule asks the API about it; a request whose parts cannot be read for certain has no key rather than one it shares.
 *
 * A key holds the policy's kind, its scope, what else makes responses differ where they are given to others (method,
 * range, conditions; what reject and queue lock is one whatever the method), the caller's identity and the parts. Names of parts
 * are not in it: rules of one scope share their keys by value. A rule that only observes has keys of its own: what it claims
 * holds nobody up who is protected, and what it leaves behind answers nobody once it protects.
 */

import type { KeyMaterial } from './claim.js';
import { fieldLines } from './field-lines.js';
import type { JsonPointer } from './json-pointer.js';
import { type CompiledPart, compilePart, PartReader, type PartValue, readsContent } from './key-part.js';
import { digestOf, elementText, groupElement, materialOf, textElement, textsElement } from './key-text.js';
import type { RequestView } from './request-view.js';
import type { KeyedPolicy, KeyPart } from './rule.js';

export type { RequestView } from './request-view.js';

/**
 * `part` names the part as the configuration does (`body: /refreshToken`), never a value. `value` (byte text) is there
 * only for rules that ask the API about it, and null where the key is not one text.
 */
export type KeyResult =
  | {
      readonly kind: 'key';
      readonly digest: string;
      /** null without a secret, and where nothing is kept that could be sealed. */
      readonly material: KeyMaterial;
      readonly value: string | null;
      readonly elements: KeyElements;
    }
  | { readonly kind: 'missing'; readonly part: string }
  | { readonly kind: 'malformed'; readonly part: string };

/** The texts that the key is made of, with values in them: for key health, which hashes them at once. */
export type KeyElements = {
  /** What keeps callers, methods and ranges apart, whatever the parts are. */
  readonly apart: readonly string[];
  /** One for each part, in the order of the configuration. */
  readonly parts: readonly string[];
};

/** First in every text, so that these digests meet none made for another purpose; the number changes with the format. */
const DOMAIN = 'oneflight key 1';

const ABSENT_ELEMENT = '-';
const PUBLIC_ELEMENT = 'p';

/** What a GET or HEAD may ask for other than the whole of the current representation (RFC 9110 sections 13.1 and 14.2). */
const SELECTING_FIELDS = [
  'range',
  'if-match',
  'if-none-match',
  'if-modified-since',
  'if-unmodified-since',
  'if-range',
] as const;

/** A policy's parts made ready; null as identity: public. */
type CompiledKey = {
  readonly parts: readonly CompiledPart[];
  readonly identity: readonly CompiledPart[] | null;
  readonly pointers: readonly JsonPointer[];
};

/** Policies are frozen when loaded, so each is compiled once; a replaced one goes with its last request. */
const compiled = new WeakMap<KeyedPolicy, CompiledKey>();

/** Whether the key cannot be had without the whole content of the request. */
export function needsContent(policy: KeyedPolicy): boolean {
  return (
    policy.key.some(readsContent) || (policy.identity.kind === 'parts' && policy.identity.parts.some(readsContent))
  );
}

/** The key of a request by a policy: its digest is base64url of HMAC-SHA-256 with the secret, or of SHA-256 without one. */
export function keyOf(policy: KeyedPolicy, view: RequestView, secret: string | null): KeyResult {
  const { parts, identity, pointers } = compiledKey(policy);
  const reader = new PartReader(view, pointers);
  const elements: string[] = [];
  const callers: string[] = [];
  const lacking = readInto(elements, parts, reader) ?? readInto(callers, identity ?? [], reader);
  if (lacking !== null) return lacking;
  const selection = locksWhateverMethod(policy) ? ABSENT_ELEMENT : selectionElement(view);
  const asking = identity === null ? PUBLIC_ELEMENT : groupElement('i', callers);
  const text = groupElement('k', [
    textElement(DOMAIN),
    textElement(policy.mode === 'observes' ? `observed ${policy.kind}` : policy.kind),
    textElement(policy.scope),
    selection,
    asking,
    groupElement('v', elements),
  ]);
  const material = secret === null || locksWhateverMethod(policy) ? null : materialOf(text, secret);
  return {
    kind: 'key',
    digest: digestOf(text, secret),
    material,
    value: askedValue(policy, elements),
    elements: { apart: [selection, asking], parts: elements },
  };
}

/** The names of a key's parts, as the configuration writes them. */
export function partLabels(policy: KeyedPolicy): readonly string[] {
  return compiledKey(policy).parts.map(({ label }) => label);
}

/** Appends the values of the parts, those of the caller like those of the key; answers the first that leaves no key, or null. */
function readInto(elements: string[], parts: readonly CompiledPart[], reader: PartReader): KeyResult | null {
  for (const part of parts) {
    const value = reader.read(part);
    if (value.kind === 'malformed') return { kind: 'malformed', part: part.label };
    if (value.kind === 'absent' && !part.optional) return { kind: 'missing', part: part.label };
    elements.push(value.kind === 'absent' ? ABSENT_ELEMENT : value.element);
  }
  return null;
}

/** One part of a key as it was read. */
export type PartTrace = {
  /** As the configuration writes it. */
  readonly label: string;
  /** Whether it is one of the key's own parts or separates callers. */
  readonly of: 'key' | 'identity';
  readonly part: KeyPart;
  readonly value: PartValue;
};

/** What a key is made of, in the order in which `keyOf` reads it; of a key that cannot be had as well. */
export type KeyTrace = {
  readonly parts: readonly PartTrace[];
  /** The method, where it is part of the key; null: it is not. */
  readonly method: string | null;
  /** Of those fields that select what a GET or HEAD gets, the ones that are there; they are part of the key. */
  readonly selecting: readonly string[];
};

/** For people: `keyOf` reads the same by the same reader. */
export function traceKey(policy: KeyedPolicy, view: RequestView): KeyTrace {
  const { parts, identity, pointers } = compiledKey(policy);
  const reader = new PartReader(view, pointers);
  const trace = (of: PartTrace['of']) => (part: CompiledPart) => ({
    label: part.label,
    of,
    part,
    value: reader.read(part),
  });
  const isLock = locksWhateverMethod(policy);
  const selects = !isLock && isSelective(view);
  return {
    parts: [...parts.map(trace('key')), ...(identity ?? []).map(trace('identity'))],
    method: isLock ? null : view.method,
    selecting: selects ? SELECTING_FIELDS.filter((name) => fieldLines(view.fields, name).length > 0) : [],
  };
}

/** The value that the API is asked about. */
function askedValue({ key, reconcile }: KeyedPolicy, [element, ...others]: readonly string[]): string | null {
  if (reconcile?.url.placeholder !== 'key' || element === undefined || others.length > 0) return null;
  const value = elementText(element);
  // A parameter is a piece of the path as it was written, where what is not unreserved is escaped.
  return key[0]?.from === 'param' ? (value?.replace(ESCAPE, byteOf) ?? null) : value;
}

const ESCAPE = /%([0-9A-Fa-f]{2})/g;

function byteOf(_escape: string, hex: string): string {
  return String.fromCharCode(Number.parseInt(hex, 16));
}

function compiledKey(policy: KeyedPolicy): CompiledKey {
  const known = compiled.get(policy);
  if (known !== undefined) return known;
  const pointers: JsonPointer[] = [];
  const compile = (part: KeyedPolicy['key'][number]) => compilePart(part, pointers);
  const fresh: CompiledKey = {
    parts: policy.key.map(compile),
    identity: policy.identity.kind === 'public' ? null : policy.identity.parts.map(compile),
    pointers,
  };
  compiled.set(policy, fresh);
  return fresh;
}

/** A resource is locked; where responses are given to others, what asked for them must be the same. */
function locksWhateverMethod({ kind }: KeyedPolicy): boolean {
  return kind === 'reject' || kind === 'queue';
}

function isSelective({ method }: Pick<RequestView, 'method'>): boolean {
  return method === 'GET' || method === 'HEAD';
}

/** The method and, for GET and HEAD, what they select. */
function selectionElement({ method, fields }: RequestView): string {
  if (!isSelective({ method })) return groupElement('m', [textElement(method)]);
  const selecting = SELECTING_FIELDS.map((name) => textsElement(fieldLines(fields, name)));
  return groupElement('m', [textElement(method), ...selecting]);
}
