/**
 * Keeps a leader's lease alive while its upstream works.
 *
 * Invariants: the lease is renewed every third of it; it counts as held only until `leaseMs` after the last question
 * that the store answered with "held", measured on this process's monotonic clock from before the question was sent,
 * so that this process never believes in a lease longer than the store does; once lost it is lost for good.
 */

import type { Lease } from '../core/claim.js';
import type { Store } from '../store/store.js';

export type LeaseKeeperOptions = {
  /** Monotonic time (ms) from before the claim was asked for. */
  readonly claimedAtMs: number;
  /** Monotonic time (ms) past which nothing is renewed: the upstream's own deadline. Read at each renewal. */
  readonly until: () => number;
  readonly onLost: () => void;
};

export class LeaseKeeper {
  readonly lease: Lease;
  readonly #store: Store;
  readonly #options: LeaseKeeperOptions;
  #heldUntilMs: number;
  #state: 'keeping' | 'lost' | 'stopped' = 'keeping';
  #timer: NodeJS.Timeout | null = null;

  constructor(lease: Lease, store: Store, options: LeaseKeeperOptions) {
    this.lease = lease;
    this.#store = store;
    this.#options = options;
    this.#heldUntilMs = options.claimedAtMs + lease.leaseMs;
    this.#schedule(lease.leaseMs / 3);
  }

  /** Whether the lease is held for certain at this moment. */
  get held(): boolean {
    return this.#state !== 'lost' && performance.now() < this.#heldUntilMs;
  }

  get lost(): boolean {
    return this.#state === 'lost';
  }

  /** Monotonic time (ms) until which the lease is held for certain. */
  get heldUntilMs(): number {
    return this.#heldUntilMs;
  }

  /** Ends the renewals; the lease is about to be settled. */
  stop(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    if (this.#state === 'keeping') this.#state = 'stopped';
  }

  #schedule(delayMs: number): void {
    this.#timer = setTimeout(() => void this.#renew(), delayMs);
  }

  async #renew(): Promise<void> {
    const askedAtMs = performance.now();
    if (askedAtMs >= this.#options.until()) return;
    const { leaseMs } = this.lease;
    try {
      const answer = await this.#store.renew(this.lease);
      if (this.#state !== 'keeping') return;
      if (answer === 'lost') return this.#lose();
      this.#heldUntilMs = askedAtMs + leaseMs;
      this.#schedule(leaseMs / 3);
    } catch {
      // The store cannot be reached. What it said last holds until the lease's own end, so ask more often until then.
      if (this.#state !== 'keeping') return;
      if (performance.now() >= this.#heldUntilMs) return this.#lose();
      this.#schedule(Math.min(leaseMs / 10, 1_000));
    }
  }

  #lose(): void {
    this.#state = 'lost';
    this.#options.onLost();
  }
}
