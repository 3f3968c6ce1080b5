/**
 * Which messages can be read in one way only. What two servers may read differently is refused, never guessed at and never
 * passed on: a request that one of them takes for two is how requests are smuggled past the other (RFC 9112 section 11.2).
 *
 * Invariant: these rules are stricter than those of the parsers in front of them, never looser.
 */

import { fieldLines } from '../core/field-lines.js';
import type { Target } from '../core/target.js';

/** `uri-host [ ":" port ]` (RFC 9110 section 7.2); it may be empty. */
const HOST = /^(?:\[[\w\-.~!$&'()*+,;=:%]+\]|[\w\-.~!$&'()*+,;=%]*)(?::\d*)?$/;

const VERSIONS: ReadonlySet<string> = new Set(['1.0', '1.1', '2.0']);

/** What of a request's head decides where it ends and whom it is for. */
export type RequestHead = {
  readonly httpVersion: string;
  /** Flat field lines as they came. */
  readonly fields: readonly string[];
  readonly target: Target;
};

/** Why a request cannot be read in one way only; null when it can. */
export function requestFault({ httpVersion, fields, target }: RequestHead): string | null {
  // Parsers let other versions and protocols through; nobody knows what their messages mean.
  if (!VERSIONS.has(httpVersion)) return 'The version of HTTP is none that is spoken here.';
  return hostFault(httpVersion, fieldLines(fields, 'host'), target) ?? framingFault(fields, httpVersion);
}

/**
 * Why the end of a message cannot be told in one way only; null when it can. A transfer coding other than `chunked` would
 * be lost on the way, as the field belongs to one connection: what it coded would be taken for the content itself. HTTP/1.0
 * has no transfer codings (RFC 9112 section 6.1).
 */
export function framingFault(fields: readonly string[], httpVersion: string): string | null {
  const codings = fieldLines(fields, 'transfer-encoding');
  const lengths = fieldLines(fields, 'content-length');
  if (codings.length > 0) {
    if (codings.length > 1 || !/^[\t ]*chunked[\t ]*$/i.test(codings[0] ?? ''))
      return 'A transfer coding other than "chunked".';
    if (httpVersion === '1.0') return 'A transfer coding in HTTP/1.0.';
    if (lengths.length > 0) return 'Both a transfer coding and a length.';
  }
  if (lengths.length > 1) return 'More than one Content-Length field.';
  const [length] = lengths;
  return length === undefined || lengthOf(length) !== null ? null : 'A Content-Length that is no length.';
}

/**
 * The length that a field value states; null: it states none. A length beyond what is counted exactly is none: it would be
 * rounded, and stated as another one.
 */
export function lengthOf(value: string): number | null {
  return /^[\t ]*\d+[\t ]*$/.test(value) && Number.isSafeInteger(Number(value)) ? Number(value) : null;
}

/**
 * Rules and keys go by one of the target's host and the field's, the upstream by the other (RFC 9112 section 3.2): they
 * must agree.
 */
function hostFault(httpVersion: string, hosts: readonly string[], target: Target): string | null {
  if (hosts.length > 1) return 'More than one Host field.';
  const [host] = hosts;
  if (host !== undefined && !HOST.test(host)) return 'The Host field names no host.';
  if (/^https?:\/\/(?:[/?#]|$)/i.test(target.raw)) return 'The target names no host.';
  if (host === undefined) return httpVersion === '1.0' ? null : 'No Host field.';
  if (target.host === null || target.host === host.toLowerCase()) return null;
  return 'The Host field is not the host of the target.';
}

/** Fields that say where a message ends, or how and to whom it goes, and so cannot come at its end (RFC 9110 section 6.5.1). */
const NEVER_TRAILING: ReadonlySet<string> = new Set([
  'connection',
  'content-encoding',
  'content-length',
  'content-range',
  'content-type',
  'host',
  'keep-alive',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/** The trailer field lines that can be passed on: a reader that joins them with the head must not find another message. */
export function passableTrailers(trailers: readonly string[]): string[] {
  const out: string[] = [];
  for (let i = 0; i + 1 < trailers.length; i += 2) {
    const name = trailers[i] as string;
    if (!NEVER_TRAILING.has(name.toLowerCase())) out.push(name, trailers[i + 1] as string);
  }
  return out;
}

/** Whether a response of this status may not state a length (RFC 9110 section 8.6), since some would wait for the content. */
export function hasNoLength(status: number): boolean {
  return status < 200 || status === 204;
}
