/**
 * Upgrades (RFC 9110 section 7.8): which of the protocols that a request offers may be offered on, and which fields of
 * the handshake cross.
 *
 * Invariant: a protocol in which further HTTP requests can be sent is never offered on. They would reach the upstream
 * behind the back of every rule; a request that offers nothing else is an ordinary one, as servers may always treat it.
 */

import { fieldLines } from '../core/field-lines.js';

/**
 * Names of HTTP itself, and TLS, in which it would follow (RFC 2817), in every spelling that a server might take for one of
 * them: those of the drafts of HTTP/2 (`h2c-14`), with parameters, in quotes.
 */
const CARRIES_HTTP = /^"?(h2c?(-\d+)?|h3|http|tls)([/\s;"]|$)/i;

/** Of a 101 these belong to the connection and say nothing about the new protocol. */
const NOT_OF_THE_HANDSHAKE: ReadonlySet<string> = new Set([
  'keep-alive',
  'proxy-connection',
  'te',
  'transfer-encoding',
  'content-length',
]);

/** The names in the lines of `Upgrade`, in order. */
function protocolsOf(fields: readonly string[]): string[] {
  return fieldLines(fields, 'upgrade')
    .flatMap((line) => line.split(','))
    .map((name) => name.trim())
    .filter((name) => name !== '');
}

/** The value of `Upgrade` to be sent on; null: the request offers nothing that may be. */
export function offerOf(fields: readonly string[]): string | null {
  const offered = protocolsOf(fields).filter((name) => !CARRIES_HTTP.test(name));
  return offered.length === 0 ? null : offered.join(', ');
}

/** Whether every protocol that a 101 names was offered: a server may choose nothing else. */
export function isOffered(offering: readonly string[], chosen: readonly string[]): boolean {
  const offered = new Set(protocolsOf(offering).map((name) => name.toLowerCase()));
  const names = protocolsOf(chosen);
  return names.length > 0 && names.every((name) => offered.has(name.toLowerCase()));
}

/** The fields of a request that offers these protocols to the upstream. */
export function offeringFields(fields: readonly string[], offer: string): string[] {
  return [...fields, 'Connection', 'Upgrade', 'Upgrade', offer];
}

/** The field lines of a 101 that cross: as they came, `Connection` and `Upgrade` among them. */
export function switchingFields(fields: readonly string[]): string[] {
  const out: string[] = [];
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const name = fields[i] as string;
    if (!NOT_OF_THE_HANDSHAKE.has(name.toLowerCase())) out.push(name, fields[i + 1] as string);
  }
  return out;
}
