/**
 * A table of what was seen last, under hashes of 64 bits, in a fixed number of places.
 *
 * Invariants: memory is taken once and never grows; a hash has one of eight places; the one of them that was used longest
 * ago makes room.
 */

import type { Halves } from './likeness.js';

const PLACES = 1_024;
const WAYS = 8;
/** A place begins with its hash. */
const ID_WORDS = 2;

export class DigestTable {
  readonly #words: Int32Array;
  readonly #wordsEach: number;
  /** When it was used last, in whatever its owner counts; nothing was there before all times. */
  readonly #usedAt = new Float64Array(PLACES).fill(Number.NEGATIVE_INFINITY);

  /** `words`: how many integers of 32 bits go with each hash. */
  constructor(words: number) {
    this.#wordsEach = ID_WORDS + words;
    this.#words = new Int32Array(PLACES * this.#wordsEach);
  }

  /** The place of a hash; -1: it is not here. */
  find({ low, high }: Halves): number {
    const first = firstOf(low);
    for (let place = first; place < first + WAYS; place += 1) {
      const at = place * this.#wordsEach;
      const isThis = this.#words[at] === low && this.#words[at + 1] === high;
      if (isThis && this.#usedAt[place] !== Number.NEGATIVE_INFINITY) return place;
    }
    return -1;
  }

  /** Where a hash that is not here goes: the place that was used longest ago. */
  roomFor({ low }: Halves): number {
    const first = firstOf(low);
    let oldest = first;
    for (let place = first + 1; place < first + WAYS; place += 1) {
      if ((this.#usedAt[place] as number) < (this.#usedAt[oldest] as number)) oldest = place;
    }
    return oldest;
  }

  usedAt(place: number): number {
    return this.#usedAt[place] as number;
  }

  word(place: number, index: number): number {
    return this.#words[place * this.#wordsEach + ID_WORDS + index] as number;
  }

  set(place: number, { low, high }: Halves, now: number): void {
    const at = place * this.#wordsEach;
    this.#words[at] = low;
    this.#words[at + 1] = high;
    this.#usedAt[place] = now;
  }

  setWord(place: number, index: number, word: number): void {
    this.#words[place * this.#wordsEach + ID_WORDS + index] = word;
  }
}

function firstOf(low: number): number {
  return (low & (PLACES / WAYS - 1)) * WAYS;
}
