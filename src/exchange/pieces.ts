/**
 * What a response under way is in pieces: its head, its content in as many as it takes, and, for one that goes on beyond
 * its flight, how it ended.
 */

import type { Piece } from '../store/relay.js';
import type { ResponseHead } from './recording.js';

/** The last piece: the upstream's end of message, or none will come. */
export type Over = { readonly kind: 'end'; readonly trailers: readonly string[] } | { readonly kind: 'cut' };

export type Read =
  | { readonly kind: 'head'; readonly head: ResponseHead }
  | { readonly kind: 'content'; readonly bytes: Buffer }
  | { readonly kind: 'over'; readonly over: Over };

/** The first byte of a piece that is not the head. */
const CONTENT = 0;
const OVER = 1;

export function encodeHead({ status, reason, fields, vary }: ResponseHead): Buffer {
  return Buffer.from(JSON.stringify({ status, reason, fields, vary }));
}

export function encodeContent(chunks: readonly Buffer[]): Buffer {
  return Buffer.concat([Buffer.of(CONTENT), ...chunks]);
}

export function encodeOver(over: Over): Buffer {
  return Buffer.concat([Buffer.of(OVER), Buffer.from(JSON.stringify(over))]);
}

/** Null for what another version may have written. */
export function readPiece({ index, bytes }: Piece): Read | null {
  try {
    if (index === 0) return asHead(JSON.parse(bytes.toString()));
    if (bytes[0] === CONTENT) return { kind: 'content', bytes: bytes.subarray(1) };
    return bytes[0] === OVER ? asOver(JSON.parse(bytes.toString('utf8', 1))) : null;
  } catch {
    return null;
  }
}

function asHead({ status, reason, fields, vary }: Partial<ResponseHead>): Read | null {
  const sound =
    Number.isInteger(status) &&
    typeof reason === 'string' &&
    Array.isArray(fields) &&
    Array.isArray(vary?.names) &&
    typeof vary.digest === 'string';
  return sound ? { kind: 'head', head: { status, reason, fields, vary } as ResponseHead } : null;
}

function asOver(over: Partial<Over>): Read | null {
  if (over.kind === 'cut') return { kind: 'over', over: { kind: 'cut' } };
  return over.kind === 'end' && Array.isArray(over.trailers) ? { kind: 'over', over: over as Over } : null;
}
