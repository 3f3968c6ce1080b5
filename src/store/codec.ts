/**
 * A settlement as bytes, for stores that hold bytes.
 *
 * Frame: version (1 byte), kind (1 byte), length of the meta (4 bytes, big endian), meta (JSON, UTF-8), content.
 * Invariants: content is never re-encoded; what `encode` wrote `decode` gives back equal, field values of any byte
 * included (latin1 strings are code points to JSON); whatever else comes, a frame of another version or no frame at
 * all, is an `UnreadableFrame` and never half a settlement.
 */

import type { Settlement } from '../core/claim.js';
import type { SharedResponse } from '../core/sharing.js';

const VERSION = 1;
const HEAD_BYTES = 6;

/** A kind's place is its byte: new ones go to the end. */
const KINDS = [
  'response',
  'failed',
  'unknown',
  'unshareable',
  'not-kept',
  'withdrawn',
] as const satisfies readonly Settlement['kind'][];

const NOTHING = Buffer.alloc(0);

/** The bytes are not a frame that this version can read. A follower takes the outcome as unknown then. */
export class UnreadableFrame extends Error {
  override readonly name = 'UnreadableFrame';
}

export function encodeSettlement(settlement: Settlement): Buffer {
  const meta = Buffer.from(JSON.stringify(metaOf(settlement)));
  const content = settlement.kind === 'response' ? settlement.response.content : NOTHING;
  const frame = Buffer.allocUnsafe(HEAD_BYTES + meta.length + content.length);
  frame[0] = VERSION;
  frame[1] = KINDS.indexOf(settlement.kind);
  frame.writeUInt32BE(meta.length, 2);
  meta.copy(frame, HEAD_BYTES);
  content.copy(frame, HEAD_BYTES + meta.length);
  return frame;
}

/** Reads a frame; the content is a view of it, not a copy. Throws `UnreadableFrame`. */
export function decodeSettlement(frame: Buffer): Settlement {
  if (frame.length < HEAD_BYTES) throw new UnreadableFrame(`a frame of ${frame.length} bytes has no head`);
  if (frame[0] !== VERSION) throw new UnreadableFrame(`frame version ${frame[0]}, expected ${VERSION}`);
  const kind = KINDS[frame[1] as number];
  if (kind === undefined) throw new UnreadableFrame(`frame kind ${frame[1]} is not known`);
  const end = HEAD_BYTES + frame.readUInt32BE(2);
  if (end > frame.length) throw new UnreadableFrame(`the meta of a frame of ${frame.length} bytes ends at ${end}`);
  const meta = parse(frame.toString('utf8', HEAD_BYTES, end));
  return settlementOf(kind, meta, frame.subarray(end));
}

function metaOf(settlement: Settlement): object {
  switch (settlement.kind) {
    case 'response': {
      const { status, reason, fields, trailers, vary, content } = settlement.response;
      // The length of the content stands in the meta so that a cut frame is seen.
      return {
        status,
        reason,
        fields,
        trailers,
        vary: { names: vary.names, digest: vary.digest },
        bytes: content.length,
      };
    }
    case 'failed':
    case 'withdrawn':
    case 'unknown':
      return { election: settlement.election };
    case 'unshareable':
      return { reason: settlement.reason };
    case 'not-kept':
      return {};
  }
}

type MetaName = 'status' | 'reason' | 'fields' | 'trailers' | 'vary' | 'bytes' | 'names' | 'digest' | 'election';
type Meta = { readonly [name in MetaName]?: unknown };

function parse(text: string): Meta {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new UnreadableFrame('the meta of the frame is not JSON', { cause });
  }
  if (typeof value !== 'object' || value === null) throw new UnreadableFrame('the meta of the frame is not an object');
  return value as Meta;
}

function settlementOf(kind: Settlement['kind'], meta: Meta, content: Buffer): Settlement {
  switch (kind) {
    case 'response':
      return { kind, response: responseOf(meta, content) };
    case 'failed':
    case 'withdrawn':
    case 'unknown':
      return { kind, election: integer(meta, 'election') };
    case 'unshareable':
      return { kind, reason: text(meta, 'reason') };
    case 'not-kept':
      return { kind };
  }
}

function responseOf(meta: Meta, content: Buffer): SharedResponse {
  const bytes = integer(meta, 'bytes');
  if (bytes !== content.length) throw new UnreadableFrame(`the frame has ${content.length} bytes of ${bytes}`);
  const vary = meta.vary;
  if (typeof vary !== 'object' || vary === null) throw new UnreadableFrame('the frame has no "vary"');
  return {
    status: integer(meta, 'status'),
    reason: text(meta, 'reason'),
    fields: texts(meta, 'fields'),
    content,
    trailers: texts(meta, 'trailers'),
    vary: { names: texts(vary as Meta, 'names'), digest: text(vary as Meta, 'digest') },
  };
}

function integer(meta: Meta, name: MetaName): number {
  const value = meta[name];
  if (!Number.isInteger(value)) throw new UnreadableFrame(`"${name}" of the frame is not an integer`);
  return value as number;
}

function text(meta: Meta, name: MetaName): string {
  const value = meta[name];
  if (typeof value !== 'string') throw new UnreadableFrame(`"${name}" of the frame is not a text`);
  return value;
}

function texts(meta: Meta, name: MetaName): readonly string[] {
  const value = meta[name];
  if (!Array.isArray(value) || !value.every((item) => typeof item === 'string')) {
    throw new UnreadableFrame(`"${name}" of the frame is not a list of texts`);
  }
  return value;
}
