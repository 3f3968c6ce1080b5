/**
 * Where a request stands in a distributed trace (W3C Trace Context), and how a flight tells of its leader's place there.
 *
 * Invariant: what is malformed is nothing: a `traceparent` that cannot be read in one way only has no parent in it, and a
 * flight's id without a place in a trace, as every gateway that does not trace makes them, has none.
 */

import { randomFillSync } from 'node:crypto';

/** One span of one trace: 32 and 16 hexadecimal digits, lower case. */
export type SpanContext = { readonly traceId: string; readonly spanId: string };

/** The span of whoever sent a request, and whether that one is recorded. */
export type ParentContext = SpanContext & { readonly isSampled: boolean };

const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
const ZEROS = /^0+$/;
const SAMPLED = 0x01;

/** What the lines of `traceparent` say (section 3.2); null: nothing that can be used. */
export function parentOf(lines: readonly string[]): ParentContext | null {
  if (lines.length !== 1) return null;
  const [, version, traceId = '', spanId = '', flags = '', more] = TRACEPARENT.exec(lines[0] as string) ?? [];
  if (version === undefined || version === 'ff' || ZEROS.test(traceId) || ZEROS.test(spanId)) return null;
  // Later versions may say more behind it; this one may not (section 3.2.4).
  if (version === '00' && more !== undefined) return null;
  return { traceId, spanId, isSampled: (Number.parseInt(flags, 16) & SAMPLED) !== 0 };
}

/** The `traceparent` of a request whose sender is this span, which is recorded. */
export function traceparentOf({ traceId, spanId }: SpanContext): string {
  return `00-${traceId}-${spanId}-01`;
}

const TRACE_BYTES = 16;
const SPAN_BYTES = 8;
/** One call of the generator serves many ids. */
const pool = Buffer.alloc(4_096);
let drawn = pool.length;

function randomHex(bytes: number): string {
  if (drawn + bytes > pool.length) {
    randomFillSync(pool);
    drawn = 0;
  }
  drawn += bytes;
  const id = pool.toString('hex', drawn - bytes, drawn);
  // Zeros alone are no id.
  return ZEROS.test(id) ? randomHex(bytes) : id;
}

export function newTraceId(): string {
  return randomHex(TRACE_BYTES);
}

export function newSpanId(): string {
  return randomHex(SPAN_BYTES);
}

/** A flight's id (core/claim.ts), a dot, and the leader's place: trace and span, base64url. */
const FLIGHT_ID_CHARACTERS = 22;
const TRACED_FLIGHT = /^[\w-]{22}\.([\w-]{22})([\w-]{11})$/;

/**
 * The id of a flight whose leader is traced. It tells whoever follows, in any process, which span that is: what has the id
 * has it too, and a store need not know.
 */
export function tracedFlightId(flight: string, { traceId, spanId }: SpanContext): string {
  return `${flight}.${base64urlOf(traceId)}${base64urlOf(spanId)}`;
}

/** The span that a flight's id tells of; null: none. */
export function spanOfFlight(flight: string): SpanContext | null {
  if (flight.length === FLIGHT_ID_CHARACTERS) return null;
  const [, trace, span] = TRACED_FLIGHT.exec(flight) ?? [];
  return trace === undefined || span === undefined ? null : { traceId: hexOf(trace), spanId: hexOf(span) };
}

function base64urlOf(hex: string): string {
  return Buffer.from(hex, 'hex').toString('base64url');
}

function hexOf(base64url: string): string {
  return Buffer.from(base64url, 'base64url').toString('hex');
}
