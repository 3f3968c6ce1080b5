/** Content codings (RFC 9110 section 8.4). */

import { fieldLines } from './field-lines.js';

/** Whether the content has a coding: its bytes are not what its reader will read. */
export function isEncoded(fields: readonly string[]): boolean {
  const codings = fieldLines(fields, 'content-encoding').flatMap((line) => line.split(','));
  return codings.some((coding) => !['', 'identity'].includes(coding.trim().toLowerCase()));
}
