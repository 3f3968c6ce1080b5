/**
 * What one address has shown of itself, and whether it is to be used: active checks say that it is down or up, failures of
 * requests in a row eject it for a while, and so do answers in a row that broke off.
 *
 * Invariants: a check's `down` stands until checks say otherwise; an ejection ends by itself, is doubled when the next
 * request fails as well, and is forgotten at the first answer.
 */

import type { EjectRule } from '../config/config.js';
import { type Failed, FailureRow } from './failure-row.js';

/** The longest ejection, in lengths of the first. */
const MAX_DOUBLED = 8;

export class Standing {
  readonly #rule: EjectRule | null;
  #isDown = false;
  #checks = 0;
  readonly #row = new FailureRow();
  /** Length of the next ejection, in lengths of the first. */
  #times = 1;
  #ejectedUntilMs = 0;
  #wasEjected = false;

  constructor(rule: EjectRule | null) {
    this.#rule = rule;
  }

  /** Whether checks have found it down. */
  get isDown(): boolean {
    return this.#isDown;
  }

  /** Whether it is ejected. `nowMs`: monotonic. */
  isEjected(nowMs: number): boolean {
    return nowMs < this.#ejectedUntilMs;
  }

  /** A request has failed there. Answers for how long it is ejected now, milliseconds; null: that is as it was. */
  failed(nowMs: number, how: Failed = 'unanswered'): number | null {
    const failures = this.#row.failed(how);
    if (this.#rule === null || failures < this.#rule.failures || this.isEjected(nowMs)) return null;
    const ejectMs = this.#rule.forMs * this.#times;
    this.#times = Math.min(this.#times * 2, MAX_DOUBLED);
    this.#ejectedUntilMs = nowMs + ejectMs;
    this.#wasEjected = true;
    return ejectMs;
  }

  /** It has answered a request. Answers whether that ends an ejection. */
  answered(): boolean {
    const wasEjected = this.#wasEjected;
    this.#row.answered();
    this.#times = 1;
    this.#ejectedUntilMs = 0;
    this.#wasEjected = false;
    return wasEjected;
  }

  /** An answer of its has come to its end. */
  ended(): void {
    this.#row.ended();
  }

  /** A check has ended. `needed`: how many in a row it takes to change. Answers whether that changed anything. */
  checked(passed: boolean, needed: number): boolean {
    this.#checks = passed === this.#isDown ? this.#checks + 1 : 0;
    if (this.#checks < needed) return false;
    this.#checks = 0;
    this.#isDown = !passed;
    return true;
  }
}
