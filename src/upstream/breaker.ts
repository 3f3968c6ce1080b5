/**
 * The circuit breaker of an upstream: after failures in a row, whichever its address, nothing is sent for a while, then
 * one request tries it.
 *
 * Invariants: while open, or while its trial runs, no other request is let through; a trial that ends without a verdict,
 * because its client left for one, leaves the next request to try.
 */

import type { BreakerRule } from '../config/config.js';
import { type Failed, FailureRow } from './failure-row.js';

export class Breaker {
  readonly #rule: BreakerRule;
  readonly #row = new FailureRow();
  #state: 'closed' | 'open' | 'trying' = 'closed';
  #openUntilMs = 0;

  constructor(rule: BreakerRule) {
    this.#rule = rule;
  }

  get isClosed(): boolean {
    return this.#state === 'closed';
  }

  /** Whether a request may be sent; `trial`: it is the one that tries. `nowMs`: monotonic. */
  ask(nowMs: number): 'yes' | 'trial' | 'no' {
    if (this.#state === 'closed') return 'yes';
    if (this.#state === 'trying' || nowMs < this.#openUntilMs) return 'no';
    this.#state = 'trying';
    return 'trial';
  }

  /** Answers whether that opened it. What was sent before it opened says nothing about now. */
  failed(nowMs: number, isTrial: boolean, how: Failed = 'unanswered'): boolean {
    const failures = this.#row.failed(how);
    const opens = isTrial || (this.#state === 'closed' && failures >= this.#rule.failures);
    if (!opens) return false;
    this.#state = 'open';
    this.#openUntilMs = nowMs + this.#rule.forMs;
    return true;
  }

  /** Answers whether that closed it. */
  answered(isTrial: boolean): boolean {
    if (this.#state !== 'closed' && !isTrial) return false;
    const closes = this.#state !== 'closed';
    this.#state = 'closed';
    this.#row.answered();
    return closes;
  }

  /** An answer has come to its end. */
  ended(): void {
    this.#row.ended();
  }

  /** The trial is over, and says nothing. */
  trialEnded(): void {
    if (this.#state === 'trying') this.#state = 'open';
  }
}
