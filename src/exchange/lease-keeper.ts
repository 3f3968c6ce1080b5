/**
 * Keeps a leader's lease alive while its upstream works.
 *
 * Invariants: the lease is renewed every third of it; it counts as held only until `leaseMs` after the last question
 * that the store answered with "held", measured on this process's monotonic clock from before the question was sent,
 * so that this process never believes in a lease longer than the store does; once lost it is lost for good, by the store's
 * answer or by its word; past the upstream's own deadline nothing is renewed, and the leader is told so that it ends.
 */

import type { Lease } from '../core/claim.js';
import type { LeaseHolder, Leases } from '../store/leases.js';

export type LeaseKeeperOptions = {
  /** Monotonic time (ms) from before the claim was asked for. */
  readonly claimedAtMs: number;
  /** Monotonic time (ms) past which nothing is renewed: the upstream's own deadline. Read at each renewal. */
  readonly until: () => number;
  /**
   * What becomes of a lease that could not be renewed for its whole length because the store is away. `lost`: it is
   * lost. `unconfirmed`: it goes on inside this process until the store answers again (`onStoreDown: local`).
   */
  readonly inOutage: 'lost' | 'unconfirmed';
  readonly onRenewed: () => void;
  /** The store has given the key away, or may have: another leader is possible from now on. */
  readonly onUnsure: () => void;
  /** The lease is lost; nobody may join any more. */
  readonly onLost: () => void;
  /** The upstream's own deadline has passed without a word from it. */
  readonly onOverdue: () => void;
};

/** Shortest delay between two looks, milliseconds. */
const LEAST_DELAY_MS = 10;

export class LeaseKeeper implements LeaseHolder {
  readonly #lease: Lease;
  readonly #store: Leases;
  readonly #options: LeaseKeeperOptions;
  #heldUntilMs: number;
  #state: 'keeping' | 'unconfirmed' | 'lost' | 'stopped' = 'keeping';
  /** The last question was not answered. */
  #failing = false;
  #timer: NodeJS.Timeout | null = null;

  constructor(lease: Lease, store: Leases, options: LeaseKeeperOptions) {
    this.#lease = lease;
    this.#store = store;
    this.#options = options;
    this.#heldUntilMs = options.claimedAtMs + lease.leaseMs;
    this.#schedule(lease.leaseMs / 3);
    store.watch(lease, this);
  }

  /** Whether the lease is held for certain at this moment. */
  get held(): boolean {
    return this.#state !== 'lost' && performance.now() < this.#heldUntilMs;
  }

  /** Whether a duplicate in this process may join: the lease is held, or goes on without the store. */
  get joinable(): boolean {
    if (this.#state === 'unconfirmed' || this.held) return true;
    // The store is away, and the next try will say so: until then the flight goes on as it will after it.
    return this.#state === 'keeping' && this.#failing && this.#options.inOutage === 'unconfirmed';
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
    this.#keepNoMore();
    if (this.#state !== 'lost') this.#state = 'stopped';
  }

  /** No renewal need find it out: somebody else may lead already. */
  revoked(): void {
    if (!this.#settled) this.#lose();
  }

  #keepNoMore(): void {
    this.#store.unwatch(this.#lease);
    if (this.#timer !== null) clearTimeout(this.#timer);
    // A timer that is over still has its callback, and by it this flight, for whoever has the timer.
    this.#timer = null;
  }

  #schedule(delayMs: number): void {
    const untilDeadlineMs = this.#options.until() - performance.now();
    this.#timer = setTimeout(() => void this.#renew(), Math.max(LEAST_DELAY_MS, Math.min(delayMs, untilDeadlineMs)));
  }

  async #renew(): Promise<void> {
    const askedAtMs = performance.now();
    if (askedAtMs >= this.#options.until()) return this.#options.onOverdue();
    const { leaseMs } = this.#lease;
    try {
      const answer = await this.#store.renew(this.#lease);
      if (this.#settled) return;
      if (answer === 'lost') return this.#lose();
      this.#failing = false;
      this.#state = 'keeping';
      this.#heldUntilMs = askedAtMs + leaseMs;
      this.#schedule(leaseMs / 3);
      this.#options.onRenewed();
    } catch {
      // The store cannot be reached. What it said last holds until the lease's own end, so ask more often until then.
      if (this.#settled) return;
      this.#failing = true;
      if (this.#state === 'keeping' && performance.now() >= this.#heldUntilMs) {
        if (this.#options.inOutage === 'lost') return this.#lose();
        this.#state = 'unconfirmed';
        this.#options.onUnsure();
      }
      this.#schedule(Math.min(leaseMs / 10, 1_000));
    }
  }

  /** Nothing is renewed any more, whatever the question under way is answered. */
  get #settled(): boolean {
    return this.#state === 'lost' || this.#state === 'stopped';
  }

  #lose(): void {
    this.#keepNoMore();
    if (this.#state !== 'unconfirmed') this.#options.onUnsure();
    this.#state = 'lost';
    this.#options.onLost();
  }
}
