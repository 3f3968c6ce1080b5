/**
 * What makes one request the same as another, whatever their keys: method, host, target and content. Key health and
 * `explain --log` go by it.
 *
 * Fields are not in it. Attempts at one operation differ in them by nature (ids, traces, dates, cookies), what a response
 * depends on is said by `Vary`, and what callers and ranges are told apart by is in the key: it is compared there.
 *
 * Invariants: hashes are held, and no value; they are salted anew in each process and mean nothing in another; each of the
 * four has a hash of its own, so that no byte that moves from one to another makes two requests alike.
 */

import { hash, randomInt } from 'node:crypto';
import { saysMoreThanKey } from './fingerprint.js';
import type { RequestView } from './request-view.js';

/** Hashes, 32 bits each, as signed integers: V8 keeps them in place. */
export type Likeness = {
  readonly method: number;
  readonly host: number;
  readonly target: number;
  readonly content: number;
  /** 32 more bits over all four. */
  readonly more: number;
  /**
   * What stands for the content: its bytes; the fingerprint that the rule compares requests by; or, of content that was
   * not read, its announced length. Of two different kinds the contents are not compared.
   */
  readonly by: 'bytes' | 'fingerprint' | 'length';
};

/** How much of two requests was compared: `head` is all but the content, of which only the length is known. */
export type Compared = 'whole' | 'head';

export type Difference = 'method' | 'host' | 'target' | 'content';

/** Two halves of a hash. The last one that was made: an object for each would cost more than the hash. */
const halves = { low: 0, high: 0 };

/** What takes a loop in JavaScript longer than a digest by OpenSSL. */
const LONG = 256;
const NOTHING = Buffer.alloc(0);
const SALT_LOW = randomInt(2 ** 32);
const SALT_HIGH = randomInt(2 ** 32);

/** `announcedBytes`: length of content that was not read; -1: in chunks. It is used only where there is no content in the view. */
export function likenessOf(view: RequestView, fingerprint: string, announcedBytes: number): Likeness {
  const { method, host, target, content } = view;
  let more = 0;
  const hashed = (text: string | Buffer): number => {
    hashInto(text);
    more = mixed(more, halves.high);
    return halves.low;
  };
  const by = saysMoreThanKey(fingerprint)
    ? 'fingerprint'
    : content === null && announcedBytes !== 0
      ? 'length'
      : 'bytes';
  const stands = by === 'fingerprint' ? fingerprint : by === 'length' ? String(announcedBytes) : (content ?? NOTHING);
  // One after the other: `more` depends on all of them in their order.
  const ofMethod = hashed(method);
  if (host !== lastHost.host) lastHost = hostHash(host);
  more = mixed(more, lastHost.high);
  const ofTarget = hashed(target.raw);
  const ofContent = hashed(stands);
  return { method: ofMethod, host: lastHost.low, target: ofTarget, content: ofContent, more, by };
}

/** The first of what two requests differ in; null: they are the same, as far as it is known. */
export function differenceOf(one: Omit<Likeness, 'more'>, other: Likeness): Difference | null {
  if (one.method !== other.method) return 'method';
  if (one.host !== other.host) return 'host';
  if (one.target !== other.target) return 'target';
  return one.by === other.by && one.content !== other.content ? 'content' : null;
}

export function comparedOf({ by }: Likeness): Compared {
  return by === 'length' ? 'head' : 'whole';
}

/** A likeness as a text: equal for what is alike. */
export function likenessText({ method, host, target, content, more }: Likeness): string {
  return `${method} ${host} ${target} ${content} ${more}`;
}

/** A number of 64 bits in two signed halves. */
export type Halves = { readonly low: number; readonly high: number };

/** Of a request that `apart`, the texts of who asks and for which part of a representation, belong to. */
export function requestHalves({ method, host, target, content, more }: Likeness, apart: readonly string[]): Halves {
  let low = mixed(mixed(mixed(method, host), target), content);
  let high = more;
  for (const text of apart) {
    hashInto(text);
    low = mixed(low, halves.low);
    high = mixed(high, halves.high);
  }
  return { low, high };
}

/** 32 bits of a text. */
export function textHash(text: string): number {
  hashInto(text);
  return halves.low;
}

/** Characters of a digest that are as good as all of them: 96 bits. */
const DIGEST_CHARACTERS = 16;

/** Of what is a digest already. */
export function digestHalves(digest: string): Halves {
  hashInto(digest.slice(0, DIGEST_CHARACTERS));
  return { low: halves.low, high: halves.high };
}

/** Most requests are for the host that the one before was for. */
let lastHost = hostHash('');

function hostHash(host: string): Halves & { readonly host: string } {
  hashInto(host.toLowerCase());
  return { host, low: halves.low, high: halves.high };
}

/** Bytes of content and code units of a text. Not for secrets: who knows the salt can make two that meet. */
function hashInto(value: string | Buffer): void {
  const text =
    value.length > LONG
      ? hash('sha256', value, 'base64')
      : typeof value === 'string'
        ? value
        : value.toString('latin1');
  let low = SALT_LOW ^ value.length;
  let high = SALT_HIGH ^ value.length;
  for (let i = 0; i < text.length; i += 1) {
    const unit = text.charCodeAt(i);
    low = Math.imul(low ^ unit, 0x9e3779b1);
    low ^= low >>> 15;
    high = Math.imul(high ^ unit, 0x85ebca6b);
    high ^= high >>> 13;
  }
  halves.low = finished(low);
  halves.high = finished(high);
}

function mixed(one: number, other: number): number {
  const mixed = Math.imul(one ^ other, 0xc2b2ae35) + 0x27d4eb2f;
  return (mixed ^ (mixed >>> 16)) | 0;
}

/** Every bit depends on every bit (the last steps of MurmurHash3). */
function finished(value: number): number {
  let bits = Math.imul(value ^ (value >>> 16), 0x85ebca6b);
  bits = Math.imul(bits ^ (bits >>> 13), 0xc2b2ae35);
  return (bits ^ (bits >>> 16)) | 0;
}
