/**
 * How many requests an upstream has at once, and who waits for a place.
 *
 * Invariants: never more than `max` have a place; of those that wait, calls of rules with a key come first, and each kind
 * in order; a quarter of the places is kept for calls with a key, so that slow pass-through traffic cannot take all; who
 * is given a place, gives it back once, maybe in the same moment.
 */

import type { ConnectionLimits } from '../config/config.js';

/** A request that waits. */
export interface Waiting {
  /** `spare`: nobody waits for it. It has a place only while half of them are free, and never waits for one. */
  readonly kind: 'keyed' | 'open' | 'spare';
  /** There is a place now, and it is its own. */
  admitted(): void;
  /** It has waited as long as it may. */
  overdue(): void;
}

const KEPT_FOR_KEYED = 1 / 4;

export class Admission {
  readonly #limits: ConnectionLimits;
  readonly #maxOpen: number;
  /** With the timer of each, in order. */
  readonly #waiting: Readonly<Record<Waiting['kind'], Map<Waiting, NodeJS.Timeout>>>;
  readonly #placed: Record<Waiting['kind'], number> = { keyed: 0, open: 0, spare: 0 };
  #isAdmitting = false;

  constructor(limits: ConnectionLimits) {
    this.#limits = limits;
    this.#maxOpen = Math.max(1, limits.max - Math.ceil(limits.max * KEPT_FOR_KEYED));
    this.#waiting = { keyed: new Map(), open: new Map(), spare: new Map() };
  }

  get waiting(): number {
    return this.#waiting.keyed.size + this.#waiting.open.size;
  }

  /** Asks for a place. */
  enter(request: Waiting): 'placed' | 'waits' | 'full' {
    const { kind } = request;
    if (this.#waiting[kind].size === 0 && this.#hasPlace(kind)) {
      this.#placed[kind]++;
      return 'placed';
    }
    if (kind === 'spare' || this.waiting >= this.#limits.queue) return 'full';
    const overdue = () => {
      this.#waiting[kind].delete(request);
      request.overdue();
    };
    this.#waiting[kind].set(request, setTimeout(overdue, this.#limits.waitMs));
    return 'waits';
  }

  /** It waits no longer. */
  giveUp(request: Waiting): void {
    clearTimeout(this.#waiting[request.kind].get(request));
    this.#waiting[request.kind].delete(request);
  }

  /** Gives a place back. */
  leave(kind: Waiting['kind']): void {
    this.#placed[kind]--;
    // Who is refused by an open breaker gives the place back at once. Each of them within the one before, they would
    // outgrow the stack.
    if (this.#isAdmitting) return;
    this.#isAdmitting = true;
    try {
      for (let request = this.#next(); request !== null; request = this.#next()) {
        this.giveUp(request);
        this.#placed[request.kind]++;
        request.admitted();
      }
    } finally {
      this.#isAdmitting = false;
    }
  }

  /** Who gets the next place; null: there is none, or nobody waits. */
  #next(): Waiting | null {
    for (const kind of ['keyed', 'open'] as const) {
      const [request] = this.#waiting[kind].keys();
      if (request !== undefined && this.#hasPlace(kind)) return request;
    }
    return null;
  }

  #hasPlace(kind: Waiting['kind']): boolean {
    const { keyed, open, spare } = this.#placed;
    const all = keyed + open + spare;
    if (kind === 'spare') return this.waiting === 0 && 2 * (all + 1) <= this.#limits.max;
    return all < this.#limits.max && (kind === 'keyed' || open + spare < this.#maxOpen);
  }
}
