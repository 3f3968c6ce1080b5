/**
 * Whether keys fit: equal requests that got different keys soon after each other (too fine), and different requests that got
 * one key (too coarse), with what they differed in.
 *
 * Invariants: names are told and values never; what is compared is held as hashes, for a bounded number of requests.
 */

import { fieldLines } from '../core/field-lines.js';
import type { KeyTrace } from '../core/key.js';
import type { FacetNames, Facets } from './facets.js';
import { hashOf } from './facets.js';
import { Recent } from './recent.js';

export type FitRequest = {
  readonly atMs: number;
  readonly leaseMs: number;
  readonly route: string;
  readonly digest: string;
  /** Equal for the same request (core/likeness.ts). */
  readonly equality: string;
  readonly facets: Facets;
  readonly parts: readonly PartHash[];
};

/** A part of a key: its label, and a hash of what it was. */
export type PartHash = { readonly label: string; readonly of: 'key' | 'identity'; readonly hash: number };

/** Where a key does not fit, and how often. */
export type Misfits = {
  /** Equal requests with different keys, although they came from one caller as far as the rule tells callers apart. */
  readonly tooFine: Counted;
  /** Equal requests of different callers. That is what `identity` is for. */
  readonly byCaller: Counted;
  /** Different requests with one key. */
  readonly tooCoarse: Counted;
};

export type Counted = { pairs: number; readonly differing: Map<string, number> };

type Held = Pick<FitRequest, 'atMs' | 'leaseMs' | 'digest' | 'equality' | 'facets' | 'parts'>;

export function noMisfits(): Misfits {
  const none = (): Counted => ({ pairs: 0, differing: new Map() });
  return { tooFine: none(), byCaller: none(), tooCoarse: none() };
}

export function partHashes({ parts, selecting }: KeyTrace, fields: readonly string[]): PartHash[] {
  const hashes = parts.map(({ label, of, value }) => ({
    label,
    of,
    hash: value.kind === 'element' ? hashOf(value.element) : 0,
  }));
  const selected = selecting.map((name) => `${name}: ${fieldLines(fields, name).join()}`).join('\n');
  return [...hashes, { label: 'Range, If-*', of: 'key', hash: hashOf(selected) }];
}

export class KeyFit {
  readonly #names: FacetNames;
  readonly #byRequest: Recent<Held>;
  readonly #byKey: Recent<Held>;

  constructor(names: FacetNames, most: number) {
    this.#names = names;
    this.#byRequest = new Recent(most);
    this.#byKey = new Recent(most);
  }

  /** How many requests were forgotten while they might have been compared. */
  get forgotten(): number {
    return this.#byRequest.dropped;
  }

  /** Compares a request with the last equal one, and the last one of its key. */
  compare(request: FitRequest, misfits: Misfits): void {
    const { route, equality, digest, atMs } = request;
    const isOver = (old: Held): boolean => old.atMs + old.leaseMs <= atMs;
    const id = `${route} ${equality}`;
    const equal = this.#byRequest.get(id);
    if (equal !== undefined && !isOver(equal) && equal.digest !== digest)
      countParts(equal.parts, request.parts, misfits);
    this.#byRequest.set(id, request, isOver);
    const ofKey = this.#byKey.get(digest);
    if (ofKey !== undefined && !isOver(ofKey) && ofKey.equality !== equality) {
      count(misfits.tooCoarse, this.#names.differing(ofKey.facets, request.facets));
    }
    this.#byKey.set(digest, request, isOver);
  }
}

function countParts(one: readonly PartHash[], other: readonly PartHash[], { tooFine, byCaller }: Misfits): void {
  const differing = one.filter((part, i) => part.hash !== other[i]?.hash);
  const own = differing.filter((part) => part.of === 'key');
  const found = own.length > 0 ? own : differing;
  count(
    own.length > 0 ? tooFine : byCaller,
    found.map((part) => part.label),
  );
}

function count(counted: Counted, names: readonly string[]): void {
  // Spelled differently, and the same: nobody is given what belongs to another.
  if (names.length === 0) return;
  counted.pairs += 1;
  for (const name of new Set(names)) counted.differing.set(name, (counted.differing.get(name) ?? 0) + 1);
}
