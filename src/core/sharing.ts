/**
 * Whether a response may be given to anybody but the client that caused it, decided at its status and fields.
 *
 * Pure: no I/O and no clock. Until the decision is made no follower gets a byte. Field lines are flat lists
 * everywhere: name, value, name, value …
 */

import { createHash, createHmac, createSecretKey } from 'node:crypto';
import type { KeyMaterial } from './claim.js';
import { fieldLines } from './field-lines.js';
import type { CoalescePolicy } from './rule.js';

/** A whole response as followers and later duplicates get it. */
export type SharedResponse = {
  readonly status: number;
  readonly reason: string;
  /** Field lines in the upstream's order and spelling, latin1, without the connection-specific ones. */
  readonly fields: readonly string[];
  readonly content: Buffer;
  /** Trailer field lines. */
  readonly trailers: readonly string[];
  readonly vary: Vary;
};

/** What `Vary` named (lower case, sorted) and the digest of the leader's values of those request fields. */
export type Vary = { readonly names: readonly string[]; readonly digest: string };

export type UnshareableReason =
  | 'vary-any'
  | 'partial-content'
  | 'not-modified'
  | 'event-stream'
  | 'set-cookie'
  | 'private'
  | 'no-store'
  | 'too-large'
  /** It would have been kept whole, had there been room for it. */
  | 'memory-short';

export type Verdict =
  | { readonly kind: 'shareable'; readonly varyNames: readonly string[] }
  | { readonly kind: 'unshareable'; readonly reason: UnshareableReason };

/** Judges a response at its status and fields. `contentLength` is null when it is not known yet. */
export function judge(
  policy: CoalescePolicy,
  status: number,
  fields: readonly string[],
  contentLength: number | null,
): Verdict {
  const varyNames: string[] = [];
  let reason: UnshareableReason | null = null;
  if (status === 206) reason = 'partial-content';
  if (status === 304) reason = 'not-modified';
  if (contentLength !== null && contentLength > policy.maxSharedBytes) reason = 'too-large';
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const value = fields[i + 1] as string;
    switch ((fields[i] as string).toLowerCase()) {
      case 'vary':
        varyNames.push(...tokensOf(value));
        break;
      case 'content-type':
        // Its end may never come; followers elsewhere that wait for a whole response would wait for nothing.
        if (policy.stream === 'in-process' && /^\s*text\/event-stream\s*(;|$)/i.test(value)) reason ??= 'event-stream';
        break;
      case 'set-cookie':
        if (policy.identity.kind === 'public') reason ??= 'set-cookie';
        break;
      case 'cache-control':
        if (policy.identity.kind === 'public') reason ??= storageRefusal(value);
        break;
    }
  }
  if (varyNames.includes('*')) reason ??= 'vary-any';
  return reason === null
    ? { kind: 'shareable', varyNames: [...new Set(varyNames)].sort() }
    : { kind: 'unshareable', reason };
}

/** `private` and `no-store`, also in their form with field names (RFC 9111 section 5.2.2), which is read strictly. */
function storageRefusal(cacheControl: string): 'private' | 'no-store' | null {
  // A directive inside a quoted argument is text, not a directive.
  const directives = cacheControl.replace(/"(?:[^"\\]|\\.)*"/g, '').split(',');
  for (const directive of directives) {
    const name = (directive.split('=', 1)[0] as string).trim().toLowerCase();
    if (name === 'private' || name === 'no-store') return name;
  }
  return null;
}

function tokensOf(list: string): string[] {
  return list
    .split(',')
    .map((token) => token.trim().toLowerCase())
    .filter((token) => token !== '');
}

/**
 * Digest of a request's values of the fields that `Vary` names: absent differs from empty, two lines from one, and
 * lengths are prefixed so that no two different lists meet.
 */
export function varyDigest(names: readonly string[], requestFields: readonly string[]): string {
  if (names.length === 0) return '';
  const hash = createHash('sha256');
  for (const name of names) {
    hash.update(`${name.length}:${name}`);
    for (const value of fieldLines(requestFields, name)) hash.update(`${value.length}=`).update(value, 'latin1');
    hash.update(';');
  }
  return hash.digest('base64url');
}

/** Whether a response made for one request may answer another one, by the request fields that its `Vary` names. */
export function varyMatches(vary: Vary, requestFields: readonly string[]): boolean {
  return vary.names.length === 0 || varyDigest(vary.names, requestFields) === vary.digest;
}

/** Between a key and what tells its variants apart. No digest has it. */
const VARIANT = '.';

/**
 * Key of the variant that a request selects when a response's `Vary` speaks against sharing it: whoever has the same
 * values of those fields shares among themselves. Keyed by the material where there is one: who knows the key's digest
 * must not be able to try out values. It begins with the key, for whoever removes all that the key is kept with; a variant
 * of a variant is one of the same key.
 */
export function variantKey(key: string, material: KeyMaterial, vary: Vary, requestFields: readonly string[]): string {
  const selected = varyDigest(vary.names, requestFields);
  const hash = material === null ? createHash('sha256') : createHmac('sha256', material);
  const apart = hash.update(`variant ${key.length}:${key} ${selected}`).digest('base64url');
  return variantStart(key.split(VARIANT, 1)[0] as string) + apart;
}

/** What the keys of all variants of a key begin with, and no others. */
export function variantStart(key: string): string {
  return key + VARIANT;
}

/** The variant's own material, derived from that of its key. */
export function variantMaterial(material: KeyMaterial, vary: Vary, requestFields: readonly string[]): KeyMaterial {
  if (material === null) return null;
  const label = `oneflight variant material 1 ${varyDigest(vary.names, requestFields)}`;
  return createSecretKey(createHmac('sha256', material).update(label).digest());
}

/** Objects, map entries and the like, for one response. */
const OVERHEAD_BYTES = 512;

/** What a response takes of memory, about. */
export function sizeOf({ reason, content, fields, trailers, vary }: SharedResponse): number {
  let bytes = OVERHEAD_BYTES + content.length + reason.length + vary.digest.length;
  for (const list of [fields, trailers, vary.names]) {
    for (const text of list) bytes += text.length;
  }
  return bytes;
}
