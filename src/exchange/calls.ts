/**
 * How many upstream calls each rule has in progress in this process: what its `maxRequests` bounds.
 *
 * Invariants: only a call takes a place, never somebody who waits for one or is answered without; whoever takes a place
 * gives it back once.
 */

import type { Rule } from '../core/rule.js';

/** The right to one call, until it is given back. */
export interface CallPlace {
  /** More than once is as good as once. */
  leave(): void;
}

/** Of rules without a bound, which nobody counts. */
const UNCOUNTED: CallPlace = { leave: () => {} };

export class Calls {
  readonly #counts = new Map<string, number>();

  /** Takes a place for a call of the rule; null: it has as many as it may. */
  enter(rule: Rule | null): CallPlace | null {
    if (rule === null || rule.maxRequests === Number.POSITIVE_INFINITY) return UNCOUNTED;
    const { name, maxRequests } = rule;
    const count = this.#counts.get(name) ?? 0;
    if (count >= maxRequests) return null;
    this.#counts.set(name, count + 1);
    let taken = true;
    return {
      leave: () => {
        if (taken) this.#counts.set(name, (this.#counts.get(name) ?? 1) - 1);
        taken = false;
      },
    };
  }
}
