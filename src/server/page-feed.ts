/**
 * What viewers of the live page are sent: one snapshot a second, the same bytes for all.
 *
 * Invariants: nothing is asked of anybody while nobody looks; a viewer who does not read costs no more memory than one
 * snapshot: it is passed over, and in the end dropped; there are few viewers at most. Every snapshot is whole, so that one
 * that is passed over is not missed.
 */

import { setTimeout as delay } from 'node:timers/promises';
import type { TakenKey } from '../core/claim.js';
import type { Extent, Listing, Snapshot } from '../page/snapshot.js';
import { type Store, StoreUnavailable } from '../store/store.js';
import type { Readiness } from './admin.js';
import { PacedLook } from './paced-look.js';
import { figuresOf, type Metric } from './page-figures.js';

/** A response that is a stream of events. */
export type Viewer = {
  write(bytes: Buffer): boolean;
  end(bytes: Buffer): unknown;
  destroy(): unknown;
  once(event: 'close', over: () => void): unknown;
  readonly writableNeedDrain: boolean;
};

export type PageFeedOptions = {
  readonly store: Pick<Store, 'taken'>;
  readonly readiness: () => Promise<Readiness>;
  readonly metrics: () => Promise<readonly Metric[]>;
  /** From one snapshot to the next. Default: a second. */
  readonly periodMs?: number;
};

const PERIOD_MS = 1_000;
/** Each look is a connection to every upstream. */
const HEALTH_EVERY_MS = 3_000;
const MOST_VIEWERS = 16;
/** So many flights of each kind at most, the oldest of so many that are looked at: a store has them in no order. */
const MOST_FLIGHTS = 200;
const MOST_LOOKED_AT = 5_000;
/** Who has read nothing for so many snapshots is gone. */
const MOST_PASSED_OVER = 30;
const FAREWELL = Buffer.from('event: stopped\ndata: {}\n\n');

export class PageFeed {
  readonly #options: PageFeedOptions;
  readonly #periodMs: number;
  /** Viewers, and how many snapshots each was not sent since it last took one. */
  readonly #viewers = new Map<Viewer, number>();
  readonly #health: PacedLook<Readiness>;
  readonly #flights: PacedLook<Listing>;
  #running = false;
  #stopped = false;
  /** For who comes between two snapshots; null: nobody looks. */
  #last: Buffer | null = null;

  constructor(options: PageFeedOptions) {
    this.#options = options;
    this.#periodMs = options.periodMs ?? PERIOD_MS;
    this.#health = new PacedLook({ ask: options.readiness, everyMs: HEALTH_EVERY_MS, restFactor: 1 });
    this.#flights = new PacedLook({
      ask: () => listingOf(options.store),
      everyMs: this.#periodMs / 2,
      // It is a walk through the store.
      restFactor: 10,
    });
  }

  get isFull(): boolean {
    return this.#stopped || this.#viewers.size >= MOST_VIEWERS;
  }

  /** Sends it snapshots until it is closed. */
  add(viewer: Viewer): void {
    this.#viewers.set(viewer, 0);
    viewer.once('close', () => this.#viewers.delete(viewer));
    if (this.#last !== null) viewer.write(this.#last);
    if (!this.#running) void this.#run();
  }

  /** Tells all viewers that it is over. */
  close(): void {
    this.#stopped = true;
    for (const viewer of this.#viewers.keys()) viewer.end(FAREWELL);
    this.#viewers.clear();
  }

  async #run(): Promise<void> {
    this.#running = true;
    while (this.#viewers.size > 0) {
      const beganAtMs = performance.now();
      try {
        this.#last = Buffer.from(`data: ${JSON.stringify(await this.#snapshot())}\n\n`);
        this.#send(this.#last);
      } catch {
        // They ask again, and an operator sees that they have to.
        for (const viewer of this.#viewers.keys()) viewer.destroy();
        this.#viewers.clear();
      }
      if (this.#viewers.size === 0) break;
      // Nobody waits for the process to end because of this.
      await delay(Math.max(0, this.#periodMs - (performance.now() - beganAtMs)), undefined, { ref: false });
    }
    this.#running = false;
    this.#last = null;
    this.#health.forget();
    this.#flights.forget();
  }

  #send(bytes: Buffer): void {
    for (const [viewer, passedOver] of this.#viewers) {
      if (!viewer.writableNeedDrain) {
        this.#viewers.set(viewer, 0);
        viewer.write(bytes);
      } else if (passedOver < MOST_PASSED_OVER) this.#viewers.set(viewer, passedOver + 1);
      else viewer.destroy();
    }
  }

  async #snapshot(): Promise<Snapshot> {
    const [health, flights, metrics] = await Promise.all([
      this.#health.look(),
      this.#flights.look(),
      this.#options.metrics(),
    ]);
    return {
      atMs: Date.now(),
      health: health.value,
      flights: flights.value.kind === 'listed' ? { ...flights.value, agoMs: Math.round(flights.agoMs) } : flights.value,
      figures: figuresOf(metrics),
    };
  }
}

/** A store that does not answer is something to show. */
async function listingOf(store: PageFeedOptions['store']): Promise<Listing> {
  try {
    const [inFlight, unknown] = await Promise.all([
      store.taken({ state: 'in-flight', limit: MOST_LOOKED_AT }),
      store.taken({ state: 'unknown', limit: MOST_LOOKED_AT }),
    ]);
    const extent = { inFlight: extentOf(inFlight), unknown: extentOf(unknown) };
    return { kind: 'listed', inFlight: listed(inFlight), unknown: listed(unknown), extent, agoMs: 0 };
  } catch (error) {
    if (!(error instanceof StoreUnavailable)) throw error;
    return { kind: 'unavailable', error: error.message };
  }
}

function extentOf({ length }: readonly TakenKey[]): Extent {
  if (length <= MOST_FLIGHTS) return 'all';
  return length < MOST_LOOKED_AT ? 'oldest' : 'some';
}

/** The oldest first: what is stuck stands at the top. */
function listed(taken: readonly TakenKey[]) {
  return [...taken]
    .sort((a, b) => b.ageMs - a.ageMs)
    .slice(0, MOST_FLIGHTS)
    .map(({ key, flight, route, leader, ageMs, leftMs, waiting }) => {
      return { key, flight, route, leader, ageMs: Math.round(ageMs), leftMs: Math.round(leftMs), waiting };
    });
}
