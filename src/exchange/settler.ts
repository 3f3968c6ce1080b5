/**
 * Tells the store how a flight ended, and the observer what became of its lease.
 *
 * Invariants: the settlement is asked for once, and again only when the store was away, within the lease; that a lease
 * may have been somebody else's is one event a flight, however often it is noticed.
 */

import type { Held, Lease, Settlement } from '../core/claim.js';
import { sharesResponses } from '../core/policy.js';
import type { KeyedPolicy } from '../core/rule.js';
import type { Leases } from '../store/leases.js';
import type { ExchangeObserver } from './observer.js';

/** Interval at which a settlement that the store did not take is tried again, within the lease. */
const RETRY_MS = 200;

export type SettlerOptions = {
  readonly policy: KeyedPolicy;
  readonly lease: Lease;
  readonly store: Leases;
  readonly route: string;
  readonly observer: Pick<ExchangeObserver, 'leaseLost' | 'unsettled'>;
};

export class Settler {
  readonly #options: SettlerOptions;
  #told = false;
  #lossTold = false;

  constructor(options: SettlerOptions) {
    this.#options = options;
  }

  /** Whether the store took the settlement when it was first asked to. */
  get told(): boolean {
    return this.#told;
  }

  /**
   * Resolves when the store has answered or is known to be away. In that case it goes on to be tried until `untilMs`
   * (monotonic): nobody here waits for it, but followers elsewhere and the next request do.
   */
  async settle(settlement: Settlement, keepMs: number, untilMs: number): Promise<void> {
    try {
      const answer = await this.#ask(settlement, keepMs);
      this.#told = answer === 'held';
      if (answer === 'lost') this.tellLoss();
    } catch {
      void this.#settleLater(settlement, keepMs, untilMs);
    }
  }

  /** Another leader may have run, or may run, beside this one. */
  tellLoss(): void {
    const { observer, route, lease } = this.#options;
    if (!this.#lossTold) observer.leaseLost(route, lease.key);
    this.#lossTold = true;
  }

  #ask(settlement: Settlement, keepMs: number): Promise<Held | 'awaited'> {
    const { policy, store, lease } = this.#options;
    // What nobody waits for and nothing is kept of needs no more than its key to be freed.
    const plain = !sharesResponses(policy) && (settlement.kind !== 'unknown' || keepMs === 0);
    return plain ? store.release(lease, { unlessAwaited: false }) : store.complete(lease, settlement, keepMs);
  }

  async #settleLater(settlement: Settlement, keepMs: number, untilMs: number): Promise<void> {
    const { observer, route, lease } = this.#options;
    while (performance.now() < untilMs) {
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      try {
        // "Lost" says nothing here: the try whose answer did not come may have settled it.
        await this.#ask(settlement, keepMs);
        return;
      } catch {
        // Still away.
      }
    }
    observer.unsettled(route, lease.key);
  }
}
