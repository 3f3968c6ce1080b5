/**
 * Keys whose response was for one client alone, in this process's memory.
 *
 * Invariants: a mark that has expired is not seen; there are at most `MOST` of them, the oldest go first. One that is
 * forgotten early costs a wait, nothing else.
 */

import type { Expects, Settlement } from '../core/claim.js';

const MOST = 100_000;

export class MemoryMarks {
  /** When each mark ends, the one that was set first in front. */
  readonly #ends = new Map<string, number>();

  /** For the sweep. */
  get all(): ReadonlyMap<string, unknown> {
    return this.#ends;
  }

  expects(key: string, now: number): Expects {
    const end = this.#ends.get(key);
    if (end === undefined) return 'shareable';
    if (now < end) return 'unshareable';
    this.#ends.delete(key);
    return 'shareable';
  }

  /** What the end of a flight means for its key's mark. */
  after(key: string, { kind }: Settlement, keepMs: number, now: number): void {
    if (kind === 'response') this.#ends.delete(key);
    if (kind !== 'unshareable' || keepMs <= 0) return;
    this.#ends.delete(key);
    this.#ends.set(key, now + keepMs);
    if (this.#ends.size > MOST) this.#ends.delete(this.#ends.keys().next().value as string);
  }

  /** Whether there was one. */
  remove(key: string, now: number): boolean {
    return this.expects(key, now) === 'unshareable' && this.#ends.delete(key);
  }

  clear(): void {
    this.#ends.clear();
  }
}
