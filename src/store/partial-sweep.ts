/**
 * Walks through a large map in parts: there may be hundreds of thousands in it, and what waits in the event loop is not to
 * wait for all of them.
 */

/** How many one part has. */
const PART = 1_000;

/** Whatever has keys that can be walked through while it changes. */
export type Keyed = { keys(): IterableIterator<string> };

/** Looks at the keys of a map again and again, a part at each step. */
export class PartialSweep {
  readonly #map: Keyed;
  readonly #visit: (key: string, now: number) => void;
  #left: Iterator<string> | null = null;

  constructor(map: Keyed, visit: (key: string, now: number) => void) {
    this.#map = map;
    this.#visit = visit;
  }

  step(now: number): void {
    this.#left ??= this.#map.keys();
    for (let i = 0; i < PART; i += 1) {
      const next = this.#left.next();
      if (next.done) {
        this.#left = null;
        return;
      }
      this.#visit(next.value, now);
    }
  }
}

/** All of them once, with a turn of the event loop after each part. */
export async function inParts<T>(all: Iterable<T>, visit: (one: T) => void): Promise<void> {
  let looked = 0;
  for (const one of all) {
    visit(one);
    looked += 1;
    if (looked % PART === 0) await new Promise((resolve) => setImmediate(resolve));
  }
}
