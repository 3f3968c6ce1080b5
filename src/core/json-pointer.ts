/** JSON pointers (RFC 6901), parsed once when a rule is loaded. */

export type PointerToken = {
  /** Name of a member. */
  readonly name: string;
  /** The name's UTF-8 bytes: how a member without escapes is spelled. */
  readonly bytes: Buffer;
  /** Index of an array's element, or -1 when the token is none (`-`, leading zeros). */
  readonly index: number;
};

export type JsonPointer = readonly PointerToken[];

/** By code points, so that the halves of a pair are not meant. */
const LONE_SURROGATE = /\p{Surrogate}/u;
/** What no text has in UTF-8. A lone surrogate has no UTF-8, and must not become the replacement character. */
const NO_TEXT = Buffer.from([0xff]);
const INDEX = /^(?:0|[1-9][0-9]*)$/;

/** Parses a pointer; null when it is none: it is neither empty nor begins with `/`, or has a `~` before other than 0, 1. */
export function parsePointer(text: string): JsonPointer | null {
  if (text === '') return [];
  if (!text.startsWith('/') || /~(?![01])/.test(text)) return null;
  return text.slice(1).split('/').map(parseToken);
}

function parseToken(text: string): PointerToken {
  // In this order, or `~01` would become `/` (RFC 6901 section 4).
  const name = text.replaceAll('~1', '/').replaceAll('~0', '~');
  return {
    name,
    bytes: LONE_SURROGATE.test(name) ? NO_TEXT : Buffer.from(name, 'utf8'),
    index: INDEX.test(name) ? Number(name) : -1,
  };
}
