/**
 * The flights that this process leads, whatever rule they are of: to be waited for, or ended, when the process stops, and
 * how long their answers took.
 */

import type { MemoryBudget } from '../core/memory-budget.js';
import { Roster } from '../core/roster.js';
import { Calls } from './calls.js';
import { Leading, type LeadingOptions } from './leading.js';
import type { ExchangeObserver } from './observer.js';

/** Weight of the newest value in the moving average of latencies. */
const LATENCY_WEIGHT = 0.2;

export type LeadersOptions = {
  readonly observer: ExchangeObserver;
  /** Of what passes and is recorded. */
  readonly budget: MemoryBudget;
};

export class Leaders {
  readonly #options: LeadersOptions;
  /** Those that are in progress, forwarded without a flight too. */
  readonly calls = new Calls();
  readonly #all = new Roster<Leading>();
  /** What goes on beyond flights that this process has led. */
  readonly #after = new Set<Promise<void>>();
  /** Moving average of the time for a whole answer, by rule: what `Retry-After` is computed from. Milliseconds. */
  readonly #latencies = new Map<string, number>();
  #onIdle: (() => void) | null = null;

  constructor(options: LeadersOptions) {
    this.#options = options;
  }

  get budget(): MemoryBudget {
    return this.#options.budget;
  }

  /** Number of upstream calls that this process leads. */
  get count(): number {
    return this.#all.size;
  }

  /** Makes the leader of a flight; it is to be started. Null: its rule has as many upstream calls as it may. */
  add(options: Omit<LeadingOptions, 'upstream' | 'observer' | 'budget' | 'onEnded'>): Leading | null {
    const { caller, policy, lease, store, flight, claimedAtMs } = options;
    const { route, upstream } = caller;
    const callPlace = this.calls.enter(caller.rule);
    if (callPlace === null) return null;
    // The call goes on when its client has left.
    upstream.hold();
    const leading: Leading = new Leading({
      caller,
      policy,
      lease,
      store,
      flight,
      claimedAtMs,
      upstream,
      observer: this.#options.observer,
      budget: this.#options.budget,
      onEnded: (latencyMs) => {
        callPlace.leave();
        this.#all.remove(place);
        upstream.letGo();
        this.#tellIfIdle();
        if (latencyMs !== null) this.#learn(route, latencyMs);
      },
    });
    const place = this.#all.add(leading);
    return leading;
  }

  /** Mean time for a whole answer by a rule, ms; null before the first. */
  latencyMsOf(route: string): number | null {
    return this.#latencies.get(route) ?? null;
  }

  /** Forgets the times of rules that are not among these. */
  keepLatenciesOf(routes: ReadonlySet<string>): void {
    for (const route of this.#latencies.keys()) if (!routes.has(route)) this.#latencies.delete(route);
  }

  /** Something of a flight goes on when it is over, for followers elsewhere; it never rejects. */
  goesOn(until: Promise<void>): void {
    this.#after.add(until);
    void until.then(() => {
      this.#after.delete(until);
      this.#tellIfIdle();
    });
  }

  /** Resolves when this process leads no flight: the upstream calls of clients who left are over as well. */
  idle(): Promise<void> {
    if (this.#isIdle()) return Promise.resolve();
    return new Promise((resolve) => {
      this.#onIdle = resolve;
    });
  }

  /** Ends every flight that this process leads, for a stop that can wait no longer. */
  async stop(): Promise<void> {
    await Promise.allSettled([...this.#all].map((leading) => leading.stop()));
  }

  #isIdle(): boolean {
    return this.#all.size === 0 && this.#after.size === 0;
  }

  #tellIfIdle(): void {
    if (this.#isIdle()) this.#onIdle?.();
  }

  #learn(route: string, latencyMs: number): void {
    const known = this.#latencies.get(route);
    this.#latencies.set(route, known === undefined ? latencyMs : known + LATENCY_WEIGHT * (latencyMs - known));
  }
}
