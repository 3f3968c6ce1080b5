/**
 * How late the event loop is: a timer that compares when it fires with when it should have. Why not Node's own histogram:
 * docs/decisions.md.
 */

import { Shedding } from '../core/shedding.js';

/** Between two looks, as a part of the limit. */
const LOOKS_IN_LIMIT = 4;
const LEAST_MS = 10;
const MOST_MS = 250;

export class LoopDelay {
  readonly #shedding: Shedding;
  readonly #everyMs: number;
  readonly #timer: NodeJS.Timeout;
  #lookedAtMs = performance.now();

  /** `limitMs`: beyond it requests are refused, when it lasts. */
  constructor(limitMs: number) {
    this.#shedding = new Shedding(limitMs);
    this.#everyMs = Math.max(LEAST_MS, Math.min(MOST_MS, limitMs / LOOKS_IN_LIMIT));
    this.#timer = setInterval(() => this.#look(), this.#everyMs).unref();
  }

  /** The part of the new requests that is refused now. */
  get share(): number {
    return this.#shedding.share;
  }

  /** Whether the next request is refused. Of a turn that is long already nobody waits for the end. */
  refusesNext(): boolean {
    return this.#shedding.refusesNext(performance.now() - this.#lookedAtMs - this.#everyMs);
  }

  close(): void {
    clearInterval(this.#timer);
  }

  #look(): void {
    const nowMs = performance.now();
    const sinceMs = nowMs - this.#lookedAtMs;
    this.#lookedAtMs = nowMs;
    this.#shedding.looked(sinceMs - this.#everyMs, sinceMs);
  }
}
