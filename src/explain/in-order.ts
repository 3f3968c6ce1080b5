/**
 * Puts what comes nearly in order into order, with a bounded memory: access logs are written when requests end, and are
 * replayed by when they began.
 *
 * Invariant: at most `most` are held; what is more out of order than that comes out late, and is counted.
 */

export class InOrder<T extends { readonly atMs: number }> {
  readonly #most: number;
  /** A binary heap: none begins before the one at half its place. */
  readonly #heap: T[] = [];
  #lastMs = Number.NEGATIVE_INFINITY;
  /** How many came out behind one that began later. */
  late = 0;

  constructor(most: number) {
    this.#most = most;
  }

  /** Takes one, and gives the earliest where there are more than are held; null: none yet. */
  put(one: T): T | null {
    this.#heap.push(one);
    this.#rise(this.#heap.length - 1);
    return this.#heap.length > this.#most ? this.take() : null;
  }

  /** The earliest of those that are held; null: there is none. */
  take(): T | null {
    const first = this.#heap[0];
    const last = this.#heap.pop();
    if (first === undefined || last === undefined) return null;
    if (this.#heap.length > 0) {
      this.#heap[0] = last;
      this.#sink();
    }
    if (first.atMs < this.#lastMs) this.late += 1;
    this.#lastMs = Math.max(this.#lastMs, first.atMs);
    return first;
  }

  #rise(from: number): void {
    let at = from;
    while (at > 0) {
      const above = (at - 1) >> 1;
      if (this.#at(above).atMs <= this.#at(at).atMs) return;
      this.#swap(at, above);
      at = above;
    }
  }

  #sink(): void {
    let at = 0;
    for (;;) {
      let least = at;
      for (const below of [2 * at + 1, 2 * at + 2]) {
        if (below < this.#heap.length && this.#at(below).atMs < this.#at(least).atMs) least = below;
      }
      if (least === at) return;
      this.#swap(at, least);
      at = least;
    }
  }

  #at(place: number): T {
    return this.#heap[place] as T;
  }

  #swap(a: number, b: number): void {
    const one = this.#at(a);
    this.#heap[a] = this.#at(b);
    this.#heap[b] = one;
  }
}
