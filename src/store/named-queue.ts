/**
 * Turns of keys that have more than one name while secrets are rotated: whoever is forwarded has the turn under each.
 *
 * Invariants: turns are taken in the order of the names, which is the same whatever the order of the secrets, so that no
 * two requests wait for each other; those that are had already are renewed while another is waited for; what cannot be had
 * whole is given back whole. A key of one name goes straight to the queue itself.
 */

import { createHash } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import type { Held, Lease, Settlement } from '../core/claim.js';
import { Registry } from '../core/roster.js';
import type { LeaseHolder, WaitOptions } from './leases.js';
import type { Entered, NoTurn, PlaceRequest, Queue, Turn } from './queue.js';
import { StoreUnavailable } from './store.js';

const FLIGHT_CHARACTERS = 22;

/** A request that has some of its turns and waits for the next one. */
type Climb = {
  readonly places: readonly PlaceRequest[];
  readonly turns: Turn[];
  lost: boolean;
};

export class NamedQueue implements Queue {
  readonly #queue: Queue;
  /** Those that wait, by the flight's id. */
  readonly #climbs = new Registry<Climb>();
  /** The leases that are one turn together. */
  readonly #parts = new WeakMap<Lease, readonly Lease[]>();

  constructor(queue: Queue) {
    this.#queue = queue;
  }

  async enter(request: PlaceRequest): Promise<Entered> {
    if (request.otherKeys.length === 0) return this.#queue.enter(request);
    const climb: Climb = { places: placesOf(request), turns: [], lost: false };
    const end = await this.#orGiveBack(climb, async () => {
      for (const place of climb.places) {
        const entered = await this.#queue.enter(place);
        if (entered.kind !== 'turn') return entered;
        climb.turns.push(entered);
      }
      return null;
    });
    if (end === null) return this.#whole(request, climb);
    if (end.kind !== 'queued') return end;
    this.#climbs.set(request.flight, climb);
    return { kind: 'queued', place: request };
  }

  async turn(request: PlaceRequest, options: WaitOptions): Promise<Turn | NoTurn> {
    const climb = this.#climbs.get(request.flight);
    if (climb === undefined) return this.#queue.turn(request, options);
    this.#climbs.delete(request.flight);
    const renewals = setInterval(() => this.#renewTurns(climb), request.leaseMs / 3);
    try {
      const end = await this.#orGiveBack(climb, () => this.#climb(climb, options));
      return end ?? this.#whole(request, climb);
    } finally {
      clearInterval(renewals);
    }
  }

  async renew(lease: Lease): Promise<Held> {
    return both(await Promise.all(this.#partsOf(lease).map((part) => this.#queue.renew(part))));
  }

  async complete(lease: Lease, settlement: Settlement, keepMs: number): Promise<Held> {
    const all = this.#partsOf(lease).map((part) => this.#queue.complete(part, settlement, keepMs));
    return both(await Promise.all(all));
  }

  async release(lease: Lease, options: { readonly unlessAwaited: boolean }): Promise<Held> {
    // Nobody waits for a turn's settlement: a queue has nothing that could be awaited.
    const all = this.#partsOf(lease).map((part) => this.#queue.release(part, options));
    return both(await Promise.all(all));
  }

  /** With one of its turns the whole is lost, and that the holder is told for another one says nothing new. */
  watch(lease: Lease, holder: LeaseHolder): void {
    for (const part of this.#partsOf(lease)) this.#queue.watch(part, holder);
  }

  unwatch(lease: Lease): void {
    for (const part of this.#partsOf(lease)) this.#queue.unwatch(part);
  }

  /** The place that is next was taken already; those behind it are entered one after the other. */
  async #climb({ places, turns }: Climb, options: WaitOptions): Promise<NoTurn | null> {
    let isQueued = true;
    for (const place of places.slice(turns.length)) {
      const entered: Entered = isQueued ? { kind: 'queued', place } : await this.#queue.enter(place);
      const end = entered.kind === 'queued' ? await this.#queue.turn(place, options) : entered;
      if (end.kind !== 'turn') return end;
      turns.push(end);
      isQueued = false;
    }
    return null;
  }

  /** Unless every turn is had, those that are had are given back. */
  async #orGiveBack<T extends { readonly kind: string }>(climb: Climb, go: () => Promise<T | null>): Promise<T | null> {
    try {
      const end = await go();
      if (climb.lost) throw new StoreUnavailable('a turn was lost while another one was waited for');
      if (end !== null && end.kind !== 'queued') this.#giveBack(climb);
      return end;
    } catch (error) {
      this.#giveBack(climb);
      throw error;
    }
  }

  #giveBack({ turns }: Climb): void {
    for (const { lease } of turns) this.#queue.release(lease, { unlessAwaited: false }).catch(() => {});
  }

  #renewTurns(climb: Climb): void {
    for (const [index, turn] of [...climb.turns.entries()]) {
      const claimedAtMs = performance.now();
      this.#queue.renew(turn.lease).then(
        (held) => {
          if (held === 'held') climb.turns[index] = { ...turn, claimedAtMs };
          else climb.lost = true;
        },
        // The store is away: the turn is worth what is left of its lease.
        () => {},
      );
    }
  }

  #whole({ key, flight, leaseMs }: PlaceRequest, { turns }: Climb): Turn {
    const fence = Math.max(...turns.map((turn) => turn.lease.fence));
    const lease: Lease = { key, flight, fence, leaseMs, material: null };
    this.#parts.set(
      lease,
      turns.map((turn) => turn.lease),
    );
    return { kind: 'turn', lease, claimedAtMs: Math.min(...turns.map((turn) => turn.claimedAtMs)) };
  }

  #partsOf(lease: Lease): readonly Lease[] {
    return this.#parts.get(lease) ?? [lease];
  }
}

/** One place for each name. Their flights are named apart: a turn that is pushed says only whose it is. */
function placesOf(request: PlaceRequest): PlaceRequest[] {
  return [request.key, ...request.otherKeys].sort().map((key) => {
    const digest = createHash('sha256').update(`${request.flight} ${key}`).digest('base64url');
    return { ...request, key, flight: digest.slice(0, FLIGHT_CHARACTERS), otherKeys: [] };
  });
}

function both(all: readonly (Held | 'awaited')[]): Held {
  return all.every((one) => one === 'held') ? 'held' : 'lost';
}
