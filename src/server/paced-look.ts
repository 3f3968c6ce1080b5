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
};

type Answer<T> = { readonly value: T; readonly atMs: number };

/** Between two questions are at least so many times what the last answer took. */
const REST_FACTOR = 10;
/** How long a look waits for a newer answer than the one that is there. */
const PATIENCE_MS = 250;

export class PacedLook<T> {
  readonly #options: PacedLookOptions<T>;
  #asking: Promise<void> | null = null;
  #seen: Answer<T> | null = null;
  #dueAtMs = 0;

  constructor(options: PacedLookOptions<T>) {
    this.#options = options;
  }

  /** The latest answer; waits for the first one. Rejects with that question. */
  async look(): Promise<Seen<T>> {
    if (this.#asking === null && performance.now() >= this.#dueAtMs) {
      this.#asking = this.#ask();
      // It may fail when nobody waits for it any more.
      this.#asking.catch(() => {});
    }
    if (this.#seen === null) await this.#asking;
    else if (this.#asking !== null) await orAfter(this.#asking, PATIENCE_MS);
    const { value, atMs } = this.#seen as Answer<T>;
    return { value, agoMs: performance.now() - atMs };
  }

  /** What was seen is too old to be shown. */
  forget(): void {
    this.#seen = null;
    this.#dueAtMs = 0;
  }

  async #ask(): Promise<void> {
    const askedAtMs = performance.now();
    try {
      const value = await this.#options.ask();
      const atMs = performance.now();
      this.#seen = { value, atMs };
      this.#dueAtMs = Math.max(askedAtMs + this.#options.everyMs, atMs + REST_FACTOR * (atMs - askedAtMs));
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
