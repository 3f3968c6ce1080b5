/**
 * The fingerprint of a request: what a repeat must equal to be answered with the first one's response.
 *
 * Invariants: different requests never have one fingerprint, equal ones always do (the text that is digested can be read
 * back in one way only, key-text.ts); it meets no key and no other digest (DOMAIN); only the digest leaves this module.
 *
 * `exact` takes the content's bytes. `canonical` takes JSON content by its value in the sense of RFC 8785, whatever
 * `Content-Type` says (as keys do): white space, the order of members and the spelling of strings and numbers do not
 * count. Numbers are compared by all their digits, not as doubles. Content that is no JSON of one reading (malformed,
 * a member twice, too deep, encoded) is taken by its bytes.
 */

import { createHash } from 'node:crypto';
import { isEncoded } from './content-coding.js';
import { readJson } from './json.js';
import { normalNumber } from './json-number.js';
import { digestOf, groupElement, textElement } from './key-text.js';
import type { RequestView } from './request-view.js';
import type { ReplayPolicy } from './rule.js';

/** First in every text; the number changes with the format. */
const DOMAIN = 'oneflight fingerprint 1';

/** Whether the fingerprint cannot be had without the whole content of the request. */
export function fingerprintNeedsContent(policy: ReplayPolicy): boolean {
  return policy.fingerprint !== 'none';
}

/**
 * Of `fingerprint: none`: all requests of a key are the same. Not empty, since a store gives up what has no fingerprint when
 * its memory is short, and the record of a replay is more than its response.
 */
const ANY = 'any';

/** Whether a fingerprint tells requests of one key apart. */
export function saysMoreThanKey(fingerprint: string): boolean {
  return fingerprint !== '' && fingerprint !== ANY;
}

/** base64url of HMAC-SHA-256 with the secret, or of SHA-256 without one; the same for all where the policy wants none. */
export function fingerprintOf(policy: ReplayPolicy, view: RequestView, secret: string | null): string {
  if (policy.fingerprint === 'none') return ANY;
  const { method, target, content, fields } = view;
  if (content === null) throw new Error('a fingerprint was asked for without the content');
  const value = policy.fingerprint === 'canonical' && !isEncoded(fields) ? valueElement(content) : null;
  const text = groupElement('f', [
    textElement(DOMAIN),
    textElement(method),
    textElement(target.raw),
    value ?? bytesElement(content),
  ]);
  return digestOf(text, secret);
}

/** JSON content by value; null when it is none. */
function valueElement(content: Buffer): string | null {
  const json = readJson(content, WHOLE, normalNumber);
  const value = json.kind === 'values' ? json.values[0] : undefined;
  return value === undefined || value === null ? null : groupElement('j', [value]);
}

/** The pointer to the whole document. */
const WHOLE = [[]] as const;

function bytesElement(content: Buffer): string {
  return groupElement('b', [textElement(createHash('sha256').update(content).digest('hex'))]);
}
