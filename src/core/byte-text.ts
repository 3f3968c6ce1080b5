/**
 * Byte text: a string each of whose code units is one byte (Node's latin1), the form in which request fields and the
 * request target arrive.
 *
 * Text that comes from elsewhere (a rule, a pointer) is Unicode and becomes byte text by its UTF-8 bytes, so that `é`
 * in the configuration meets `%C3%A9` on the wire.
 */

/** The UTF-8 bytes of a Unicode string, as byte text. */
export function utf8ByteText(text: string): string {
  return Buffer.from(text, 'utf8').toString('latin1');
}

/** Whether every code unit is a byte. */
export function isByteText(text: string): boolean {
  return !BEYOND_A_BYTE.test(text);
}

const BEYOND_A_BYTE = /[\u0100-\uffff]/;
