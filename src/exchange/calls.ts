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
  /** By rule, calls that nobody waits for: each ends at once, and leaves, when it is told to make room. */
  readonly #spare = new Map<string, Set<() => void>>();

  /**
   * Takes a place for a call of the rule; null: it has as many as it may. `makeRoom`: of a call that nobody waits for, which
   * gives way to one that somebody does.
   */
  enter(rule: Rule | null, makeRoom: (() => void) | null = null): CallPlace | null {
    if (rule === null || rule.maxRequests === Number.POSITIVE_INFINITY) return UNCOUNTED;
    const { name, maxRequests } = rule;
    const spare = this.#spare.get(name) ?? new Set();
    if (makeRoom === null) {
      // Each leaves as it ends.
      for (const end of spare) if (this.#countOf(name) >= maxRequests) end();
    }
    const count = this.#countOf(name);
    if (count >= maxRequests) return null;
    this.#counts.set(name, count + 1);
    if (makeRoom !== null) this.#spare.set(name, spare.add(makeRoom));
    let taken = true;
    return {
      leave: () => {
        if (!taken) return;
        taken = false;
        this.#counts.set(name, this.#countOf(name) - 1);
        if (makeRoom !== null) spare.delete(makeRoom);
      },
    };
  }

  #countOf(name: string): number {
    return this.#counts.get(name) ?? 0;
  }
}
