/**
 * The names of the members of the objects being read, to refuse a name that comes twice.
 *
 * Names compare by value, escapes resolved. An object of few members keeps their hashes on a stack shared by all open
 * objects and compares those, the names themselves only where hashes meet; one of many keeps a set of its own, so
 * that the work stays linear whatever names a client chooses.
 */

import { BACKSLASH, stringValue } from './json-lexing.js';

const FEW = 12;

/** The members of one open object: where its hashes begin on the stack, and the set it has once they are many. */
export type Members = { readonly base: number; set: Set<string> | null };

export class MemberNames {
  readonly #bytes: Buffer;
  readonly #hashes: number[] = [];
  readonly #starts: number[] = [];
  readonly #ends: number[] = [];
  #top = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  open(): Members {
    return { base: this.#top, set: null };
  }

  close(members: Members): void {
    this.#top = members.base;
  }

  /** Adds the name between two quotes; false when the object has it already. */
  add(members: Members, start: number, end: number): boolean {
    if (members.set === null && this.#top - members.base < FEW) return this.#addHash(members.base, start, end);
    members.set ??= new Set(this.#namesFrom(members.base));
    const before = members.set.size;
    members.set.add(stringValue(this.#bytes, start, end));
    return members.set.size > before;
  }

  #addHash(base: number, start: number, end: number): boolean {
    const hash = hashOf(this.#bytes, start, end);
    for (let i = base; i < this.#top; i += 1) {
      if (this.#hashes[i] === hash && this.#nameAt(i) === stringValue(this.#bytes, start, end)) return false;
    }
    this.#hashes[this.#top] = hash;
    this.#starts[this.#top] = start;
    this.#ends[this.#top] = end;
    this.#top += 1;
    return true;
  }

  #nameAt(i: number): string {
    return stringValue(this.#bytes, this.#starts[i]!, this.#ends[i]!);
  }

  #namesFrom(base: number): string[] {
    const names: string[] = [];
    for (let i = base; i < this.#top; i += 1) names.push(this.#nameAt(i));
    return names;
  }
}

/** Equal names have equal hashes, however they are spelled. */
function hashOf(bytes: Buffer, start: number, end: number): number {
  let hash = 0;
  for (let i = start; i < end; i += 1) {
    const byte = bytes[i]!;
    if (byte === BACKSLASH) return hashOfValue(stringValue(bytes, start, end));
    hash = (Math.imul(hash, 31) + byte) | 0;
  }
  return hash;
}

function hashOfValue(name: string): number {
  let hash = 0;
  for (const byte of Buffer.from(name, 'utf8')) hash = (Math.imul(hash, 31) + byte) | 0;
  return hash;
}
