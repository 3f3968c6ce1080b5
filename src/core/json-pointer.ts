/** JSON pointers (RFC 6901), parsed once when a rule is loaded. */

export type PointerToken = {
  /** Name of a member. */
  readonly name: string;
  /** The name's UTF-8 bytes. */
  readonly bytes: Buffer;
  /** Index of an array's element, or -1 when the token is none (`-`, leading zeros). */
  readonly index: number;
};

export type JsonPointer = readonly PointerToken[];

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
  return { name, bytes: Buffer.from(name, 'utf8'), index: INDEX.test(name) ? Number(name) : -1 };
}
