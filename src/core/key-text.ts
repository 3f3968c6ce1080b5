/**
 * The text of which a key is the digest: built of elements that say their kind and their length or count, so that the
 * text of any sequence of elements can be read back in one way only, and different sequences have different texts.
 *
 * `s<length>:<text>` is a text, `d<length>:<text>` a number, `<tag><count>:<element>…` a group of elements; any other
 * element is one fixed character. Lengths count code units. The digest is taken over UTF-16, which keeps every code unit.
 */

import { createHmac, createSecretKey, hash, type KeyObject } from 'node:crypto';

/** The digest of a text: base64url of HMAC-SHA-256 with the secret, or of SHA-256 without one. */
export function digestOf(text: string, secret: string | null): string {
  // At once, without a stream to be made for it: half the time.
  if (secret === null) return hash('sha256', Buffer.from(text, 'utf16le'), 'base64url');
  return createHmac('sha256', secret).update(text, 'utf16le').digest('base64url');
}

/** First in the text of every material, so that it meets no digest. */
const MATERIAL = 'oneflight material 1';

/** What goes with a digest and cannot be had from it: 32 bytes of HMAC-SHA-256 over the same text under another label. */
export function materialOf(text: string, secret: string): KeyObject {
  const labelled = groupElement('m', [textElement(MATERIAL), text]);
  return createSecretKey(createHmac('sha256', secret).update(labelled, 'utf16le').digest());
}

/** One text. */
export function textElement(text: string): string {
  return `s${text.length}:${text}`;
}

/** The text of a text's element; null for elements of another kind. */
export function elementText(element: string): string | null {
  return element.startsWith('s') ? element.slice(element.indexOf(':') + 1) : null;
}

/** A number, by its spelling. */
export function numberElement(text: string): string {
  return `d${text.length}:${text}`;
}

/** A group of elements under a tag (a letter that no other kind of element begins with). */
export function groupElement(tag: string, elements: readonly string[]): string {
  return `${tag}${elements.length}:${elements.join('')}`;
}

/** A list of texts. A list of one is the text itself: a field with one line, a parameter and a JSON string can meet. */
export function textsElement(texts: readonly string[]): string {
  return texts.length === 1 ? textElement(texts[0]!) : groupElement('l', texts.map(textElement));
}
