/**
 * What one worker has in the store of its parent: flights that it leads, turns and places in queues, and waits that it
 * owes. When the worker is gone they are given up, as its leases' end would, but at once.
 *
 * Invariants: nothing is held here that the store does not give to that worker, and nothing longer than the worker has it
 * or learns that it has lost it; what a worker that is gone was leading has an outcome that nobody knows.
 */

import type { ClaimResult, FlightRef, Lease } from '../core/claim.js';
import { Registry } from '../core/roster.js';
import type { Leases } from './leases.js';
import type { Entered, NoTurn, PlaceRequest, Turn } from './queue.js';
import type { ClaimRequest, Store } from './store.js';

/** The right to a key, or a turn, and how long its unknown outcome holds it, ms. */
type Led = { readonly lease: Lease; readonly election: number; readonly holdMs: number };
type Joined = { readonly flight: FlightRef; times: number };

const LEFT: AbortSignal = AbortSignal.abort(new Error('the worker is gone'));
/** Nobody polls for what is left. */
const LEAVING = { pollMs: 0, signal: LEFT } as const;

export class Holdings {
  /** All by the id of the flight. */
  readonly #led = new Registry<Led>();
  readonly #turns = new Registry<Led>();
  readonly #places = new Registry<PlaceRequest>();
  readonly #joined = new Registry<Joined>();

  claimed(request: ClaimRequest, result: ClaimResult): void {
    const { election, holdMs, join } = request;
    if (result.kind === 'leader') this.#led.set(request.flight, { lease: result.lease, election, holdMs });
    // Of a marked key no wait is owed.
    if (result.kind !== 'follower' || !join || result.expects === 'unshareable') return;
    const { flight } = result;
    const joined = this.#joined.get(flight.flight);
    if (joined === undefined) this.#joined.set(flight.flight, { flight, times: 1 });
    else joined.times += 1;
  }

  /** A wait that was owed has begun. */
  waits({ flight }: FlightRef): void {
    const joined = this.#joined.get(flight);
    if (joined === undefined) return;
    joined.times -= 1;
    if (joined.times === 0) this.#joined.delete(flight);
  }

  /** A lease was given back, or is lost. */
  ended({ flight }: Lease): void {
    this.#led.delete(flight);
    this.#turns.delete(flight);
  }

  queued(request: PlaceRequest, result: Entered): void {
    if (result.kind === 'queued') this.#places.set(request.flight, request);
    else this.told(request, result);
  }

  /** What became of a place; null: it was left. */
  told({ flight, holdMs }: PlaceRequest, result: Turn | NoTurn | null): void {
    this.#places.delete(flight);
    if (result?.kind === 'turn') this.#turns.set(flight, { lease: result.lease, election: 0, holdMs });
  }

  /** The worker is gone: everything is given up. Answers how many flights and turns it was leading; never rejects. */
  async giveUp(store: Store): Promise<number> {
    const { queue } = store;
    // Who waits leaves first, so that nothing that is given up comes back here.
    const left: Promise<unknown>[] = [...this.#places.values()].map((place) => queue.turn(place, LEAVING));
    for (const { flight, times } of this.#joined.values()) {
      for (let i = 0; i < times; i += 1) left.push(store.settled(flight, LEAVING));
    }
    await Promise.allSettled(left);
    const end = ({ lease, election, holdMs }: Led, leases: Leases) => {
      leases.unwatch(lease);
      return leases.complete(lease, { kind: 'unknown', election }, holdMs);
    };
    const ends = [
      ...[...this.#led.values()].map((led) => end(led, store)),
      ...[...this.#turns.values()].map((led) => end(led, queue)),
    ];
    await Promise.allSettled(ends);
    for (const all of [this.#led, this.#turns, this.#places, this.#joined]) all.clear();
    return ends.length;
  }
}
