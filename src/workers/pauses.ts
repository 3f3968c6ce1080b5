/** How long to wait before a worker is started again, so that workers that cannot live do not take the machine. */

/** A worker that has lived so long is none that cannot. */
const STEADY_MS = 10_000;
const FIRST_MS = 100;
const MOST_MS = 30_000;

export class Pauses {
  #young = 0;

  /** Milliseconds until the next one, after one that lived so long. None after one that had proved itself, then ever longer. */
  after(livedMs: number): number {
    if (livedMs >= STEADY_MS) {
      this.#young = 0;
      return 0;
    }
    this.#young += 1;
    return Math.min(MOST_MS, FIRST_MS * 2 ** (this.#young - 1));
  }
}
