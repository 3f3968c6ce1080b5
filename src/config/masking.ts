/**
 * What of a configuration is shown to people and programs that need not know its secrets.
 *
 * Invariants: what came from a file by `${file:…}` is taken for a secret, whatever option it is of; the value of a field
 * that the gateway sends is one too, whatever its name, also where an option is added later.
 */

import type { Origin } from './expansion.js';
import { type FieldPath, SECRET_FIELDS, withoutCredentials } from './fault.js';
import { CREDENTIAL } from './key-doubts.js';

export const MASK = '***';

/** User and password of a URL. */
const USER = /^([a-z][a-z0-9+.-]*:\/\/)[^/?#]*@/i;
/** A query parameter that is named like a credential. A placeholder such as `{key}` is none. */
const SECRET_PARAMETER = /([?&][^=&#]*(?:auth|token|secret|session|credential|passw|key|signature)[^=&#]*=)[^&#{]+/gi;

/** A text as it may be shown: itself, a part of it, or `***`. */
export function shownText(path: FieldPath, text: string, origin: Origin): string {
  // An item of a list is named by the list.
  const names = path.filter((step) => typeof step === 'string');
  const field = names.at(-1) ?? '';
  if (origin === 'file' || SECRET_FIELDS.has(field) || isSent(names)) return MASK;
  if (isFieldOfHttp(names) && (CREDENTIAL.test(field) || /cookie/i.test(field))) return MASK;
  if (/-----BEGIN [A-Z ]*PRIVATE KEY-----/.test(text)) return MASK;
  // A password in it may hold unencoded signs.
  if (field === 'url' && names[0] === 'store') return withoutCredentials(text);
  return text.replace(USER, `$1${MASK}@`).replace(SECRET_PARAMETER, `$1${MASK}`);
}

/** A value of a field that the gateway sends to an API, a health check or whatever else it asks. */
function isSent(names: readonly string[]): boolean {
  return isFieldOfHttp(names) && !isOfRequestsMatched(names) && !isOfResponses(names);
}

/** Below `headers`, or its `set` and `add`. */
function isFieldOfHttp(names: readonly string[]): boolean {
  return names.at(-2) === 'headers' ? !isDirection(names) : isEdit(names);
}

function isOfRequestsMatched(names: readonly string[]): boolean {
  return names[0] === 'routes' && names[1] === 'match';
}

function isOfResponses(names: readonly string[]): boolean {
  return isEdit(names) && names.at(-3) === 'response';
}

/** `upstreams.a.headers.request.remove` names fields, and has no values. */
function isEdit(names: readonly string[]): boolean {
  return names.at(-4) === 'headers' && (names.at(-2) === 'set' || names.at(-2) === 'add');
}

function isDirection(names: readonly string[]): boolean {
  return names[0] === 'upstreams' && names.length === 4 && (names[3] === 'request' || names[3] === 'response');
}
