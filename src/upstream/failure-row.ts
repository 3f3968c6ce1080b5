/**
 * Failures in a row.
 *
 * Invariant: the beginning of an answer ends a row of requests that were not answered, but only the end of one ends a row
 * of answers that broke off: whoever answers and breaks off every time would never be found out.
 */

/** How a request failed: without an answer, or in the midst of it. */
export type Failed = 'unanswered' | 'cut';

export class FailureRow {
  readonly #counts: Record<Failed, number> = { unanswered: 0, cut: 0 };

  /** Answers how long the row is now. */
  failed(how: Failed): number {
    return ++this.#counts[how];
  }

  /** An answer has begun. */
  answered(): void {
    this.#counts.unanswered = 0;
  }

  /** An answer has ended, and was not broken off. */
  ended(): void {
    this.#counts.cut = 0;
  }
}
