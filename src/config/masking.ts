/**
 * What of a configuration is shown to people and programs that need not know its secrets.
 *
 * Invariants: what came from a file by `${file:…}` is taken for a secret, whatever field it is in; a field that is sent
 * upstream is one too, whatever its name: how an API is asked is nobody else's business.
 */

import type { Origin } from './expansion.js';
import { type FieldPath, SECRET_FIELDS, withoutCredentials } from './fault.js';
import { CREDENTIAL } from './key-doubts.js';

export const MASK = '***';

/** A query parameter that is named like a credential. A placeholder such as `{key}` is none. */
const SECRET_PARAMETER = /([?&][^=&#]*(?:auth|token|secret|session|credential|passw|key|signature)[^=&#]*=)[^&#{]+/gi;

/** A text as it may be shown: itself, a part of it, or `***`. */
export function shownText(path: FieldPath, text: string, origin: Origin): string {
  // An item of a list is named by the list.
  const names = path.filter((step) => typeof step === 'string');
  const field = names.at(-1) ?? '';
  if (origin === 'file' || SECRET_FIELDS.has(field) || isSentUpstream(names)) return MASK;
  if (names.at(-2) === 'headers' || isEdit(names)) return CREDENTIAL.test(field) || /cookie/i.test(field) ? MASK : text;
  if (/-----BEGIN [A-Z ]*PRIVATE KEY-----/.test(text)) return MASK;
  if (field === 'url' && names[0] === 'store') return withoutCredentials(text);
  return field === 'url' || field === 'path' ? text.replace(SECRET_PARAMETER, `$1${MASK}`) : text;
}

/** Values of fields that go to an API: of requests, of health checks and of questions. */
function isSentUpstream(names: readonly string[]): boolean {
  if (names[0] === 'routes') return names.at(-2) === 'headers' && names.at(-3) === 'reconcile';
  if (names[0] !== 'upstreams') return false;
  return (
    (names[2] === 'health' && names[3] === 'headers') ||
    (names[2] === 'headers' && names[3] === 'request' && isEdit(names))
  );
}

/** A value of `set` or `add`. */
function isEdit(names: readonly string[]): boolean {
  return (
    names[0] === 'upstreams' && names[2] === 'headers' && (names[4] === 'set' || names[4] === 'add') && names.length > 5
  );
}
