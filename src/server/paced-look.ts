/**
 * A question that is asked again and again, no oftener than its answers can be had cheaply.
 *
 * Invariants: one question at a time; what it takes is a small part of the time, however long an answer takes; who looks is
 * not held up by a slow answer once there is an earlier one.
 */

export type Seen<T> = {
  readonly value: T;
  readonly agoMs: number;
};

export type PacedLookOptions<T> = {
  readonly ask: () => Promise<T>;
  /** Shortest time between two questions. */
  readonly everyMs: number;
  /** Between two questions are at least so many times what the last answer took. */
  readonly restFactor: number;
};

type Answer<T> = { readonly value: T; readonly atMs: number };

/** How long a look waits for a newer answer than the one that is there. */
const PATIENCE_MS = 250;

export class PacedLook<T> {
  readonly #options: PacedLookOptions<T>;
  #asking: Promise<void> | null = null;
  #seen: Answer<T> | null = null;
  #dueAtMs = 0;
  #generation = 0;

  constructor(options: PacedLookOptions<T>) {
    this.#options = options;
  }

  /** The latest answer; waits for the first one. Rejects with that question. */
  async look(): Promise<Seen<T>> {
    if (performance.now() >= this.#dueAtMs) this.#begin();
    // An answer to a question from before it was forgotten is none.
    while (this.#seen === null) await this.#begin();
    if (this.#asking !== null) await orAfter(this.#asking, PATIENCE_MS);
    const { value, atMs } = this.#seen;
    return { value, agoMs: performance.now() - atMs };
  }

  #begin(): Promise<void> {
    if (this.#asking === null) {
      this.#asking = this.#ask();
      // It may fail when nobody waits for it any more.
      this.#asking.catch(() => {});
    }
    return this.#asking;
  }

  /** What was seen is too old to be shown. */
  forget(): void {
    this.#seen = null;
    this.#dueAtMs = 0;
    this.#generation += 1;
  }

  async #ask(): Promise<void> {
    const askedAtMs = performance.now();
    const generation = this.#generation;
    try {
      const value = await this.#options.ask();
      const atMs = performance.now();
      // Whoever looks may be waiting for it; to be shown later it is too old.
      if (generation !== this.#generation) return;
      this.#seen = { value, atMs };
      this.#dueAtMs = Math.max(askedAtMs + this.#options.everyMs, atMs + this.#options.restFactor * (atMs - askedAtMs));
    } finally {
      this.#asking = null;
    }
  }
}

async function orAfter(promise: Promise<void>, ms: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, ms);
  });
  await Promise.race([promise, late]).finally(() => clearTimeout(timer));
}
