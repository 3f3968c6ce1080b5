/** The first lines of a message, as far as Node's own response does not write them. */

import { STATUS_CODES } from 'node:http';

/** Reason phrases that Node writes. They carry no meaning (RFC 9110 section 15.1): another one is replaced, not refused. */
const WRITABLE_REASON = /^[\t\x20-\x7e\x80-\xff]*$/;

export function isWritableReason(reason: string): boolean {
  return WRITABLE_REASON.test(reason);
}

/** The reason phrase, or the usual one where Node would not write it. Nearly all are Node's own words. */
export function writableReason(status: number, reason: string): string {
  const usual = STATUS_CODES[status] ?? '';
  return reason === usual || WRITABLE_REASON.test(reason) ? reason : usual;
}

/** The head of a message that has no content, whatever its fields say. */
export function interimHead(status: number, reason: string, fields: readonly string[]): string {
  let head = `HTTP/1.1 ${status} ${reason}\r\n`;
  for (let i = 0; i + 1 < fields.length; i += 2) head += `${fields[i]}: ${fields[i + 1]}\r\n`;
  return `${head}\r\n`;
}
