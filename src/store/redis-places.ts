/**
 * The places of one process in the queues of the store in Redis, and how it hears of its turns. What is pushed, queue.lua
 * says.
 *
 * Invariants: a place is looked after from the answer that gave it on, by one repeating question for all places of a key
 * in this process: it says that the process lives, finds turns of which no push was heard, and passes over what has
 * expired; a turn is counted on no longer than the promise by which it was given, by this process's own clock; a place
 * that the server lost is taken again under a new flight id, so that nothing said of the old one can be mistaken for it.
 */

import { performance } from 'node:perf_hooks';
import { type Held, type Lease, newFlightId } from '../core/claim.js';
import { Registry } from '../core/roster.js';
import type { WaitOptions } from './leases.js';
import type { Entered, NoTurn, PlaceRequest, Turn } from './queue.js';
import { StoreUnavailable } from './store.js';

/** What a look says of the places that it asked for, in their order. */
export type Looked =
  | { readonly kind: 'unknown'; readonly ttlMs: number }
  /** `endingMs`: time until the next turn of the key expires, infinite without one. */
  | { readonly kind: 'places'; readonly endingMs: number; readonly each: readonly ('waiting' | 'gone' | Turn)[] };

/** `endingMs`: time until the next turn of the key expires, for who has to wait; infinite otherwise. */
export type EnteredPlace = { readonly entered: Entered; readonly endingMs: number };

export type PlacesOptions = {
  readonly enter: (request: PlaceRequest) => Promise<EnteredPlace>;
  /** Asks for these places, and says that all of the process stand that have this lease. Null: no answer. */
  readonly look: (key: string, leaseMs: number, places: readonly PlaceRequest[]) => Promise<Looked | null>;
  readonly renew: (lease: Lease) => Promise<Held>;
  /** Gives up the place, or the turn, of a flight. */
  readonly giveUp: (request: PlaceRequest) => void;
};

type Waiter = {
  readonly resolve: (result: Turn | NoTurn) => void;
  readonly reject: (reason: unknown) => void;
};

type Place = {
  /** The flight id that its caller knows. */
  readonly id: string;
  /** As the server knows it: when it lost the place, with another flight id. */
  request: PlaceRequest;
  waiter: Waiter | null;
  /** As whoever waits wants it; infinite until then. */
  pollMs: number;
  /** What became of it, when nobody has asked yet. */
  result: Turn | NoTurn | null;
};

/** The places of a key and a lease in this process, by the flight id that the server knows, in their order. */
type Group = {
  readonly key: string;
  readonly leaseMs: number;
  readonly places: Map<string, Place>;
  timer: NodeJS.Timeout | null;
  /** Monotonic time (ms) of the timer; infinite without one. */
  dueAtMs: number;
  looking: boolean;
  /** Something happened during a look that its answer may not contain. */
  lookAgain: boolean;
};

type Told = { readonly fence: string; readonly token: string; readonly at: number };

const REMEMBER_MS = 5_000;
const REMEMBER_MOST = 1_024;
/** The store's expiry and ours do not fall into the same instant. */
const EXPIRY_MARGIN_MS = 20;
const LEAST_DELAY_MS = 10;
/** How many places one look asks for: the first ones, since those have their turns first and are lost with the others. */
const LOOK_MOST = 64;

export class Places {
  readonly #options: PlacesOptions;
  readonly #groups = new Registry<Group>();
  /** All places that have not been left or told, by the flight id that their caller knows. */
  readonly #places = new Registry<Place>();
  /** The groups of those that are looked after, by the flight id that the server knows. */
  readonly #standing = new Registry<Group>();
  /** Turns of which a push told before the answer that gave the place was read. */
  readonly #early = new Registry<Told>();
  #closed = false;

  constructor(options: PlacesOptions) {
    this.#options = options;
  }

  /** Looks after a place that was just given. */
  add(request: PlaceRequest, endingMs: number): void {
    const place: Place = { id: request.flight, request, waiter: null, pollMs: Number.POSITIVE_INFINITY, result: null };
    this.#places.set(request.flight, place);
    this.#lookAfter(place, endingMs);
  }

  /** As `Queue.turn` says. */
  turn(request: PlaceRequest, { pollMs, signal }: WaitOptions): Promise<Turn | NoTurn> {
    const place = this.#places.get(request.flight);
    if (this.#closed || place === undefined) return Promise.reject(new StoreUnavailable('there is no such place'));
    if (signal.aborted) {
      this.#leave(place);
      return Promise.reject(signal.reason);
    }
    if (place.result !== null) {
      this.#places.delete(request.flight);
      return Promise.resolve(place.result);
    }
    place.pollMs = pollMs;
    return new Promise((resolve, reject) => {
      const onAbort = () => {
        this.#leave(place);
        reject(signal.reason);
      };
      const over = () => {
        this.#places.delete(request.flight);
        signal.removeEventListener('abort', onAbort);
      };
      place.waiter = {
        resolve: (result) => {
          over();
          resolve(result);
        },
        reject: (reason) => {
          over();
          reject(reason);
        },
      };
      signal.addEventListener('abort', onAbort, { once: true });
      const group = this.#standing.get(place.request.flight);
      if (group !== undefined) this.#schedule(group);
    });
  }

  /** Takes a push, as queue.lua writes it; false: it is none of its own. */
  push(message: Buffer): boolean {
    const marker = String.fromCharCode(message[0] ?? 0);
    if (marker !== 'g' && marker !== 'b') return false;
    const end = 2 + (message[1] ?? 0);
    const name = message.toString('latin1', 2, end);
    if (marker === 'b') {
      // What was so when it was said need not be so now.
      for (const group of this.#groups.values()) if (group.key === name) this.#lookNow(group);
    } else {
      const [fence = '', token = ''] = message.toString('latin1', end).split(' ');
      this.#called(name, { fence, token, at: performance.now() });
    }
    return true;
  }

  /** Pushes arrive from now on. Whoever has a place may have been called unheard. */
  listening(): void {
    for (const group of this.#groups.values()) this.#lookNow(group);
  }

  close(): void {
    this.#closed = true;
    for (const { timer } of this.#groups.values()) if (timer !== null) clearTimeout(timer);
    this.#groups.clear();
    this.#standing.clear();
    const reason = new StoreUnavailable('the store is closed');
    for (const { waiter } of [...this.#places.values()]) waiter?.reject(reason);
    this.#places.clear();
  }

  /** Puts a place among those that are looked after, unless its turn has come already. */
  #lookAfter(place: Place, endingMs: number): void {
    const { key, flight, leaseMs } = place.request;
    let group = this.#groups.get(nameOf(place.request));
    if (group === undefined) {
      group = {
        key,
        leaseMs,
        places: new Map(),
        timer: null,
        dueAtMs: Number.POSITIVE_INFINITY,
        looking: false,
        lookAgain: false,
      };
      this.#groups.set(nameOf(group), group);
    }
    group.places.set(flight, place);
    this.#standing.set(flight, group);
    const early = this.#early.get(flight);
    if (early === undefined) return this.#schedule(group, endingMs);
    this.#early.delete(flight);
    this.#called(flight, early);
  }

  /** The turn of a flight has come, says a push. */
  #called(flight: string, told: Told): void {
    const group = this.#standing.get(flight);
    const place = group?.places.get(flight);
    if (group !== undefined && place !== undefined) {
      return this.#take(group, place, turnBy(place.request, told.fence, told.token));
    }
    for (const [old, { at }] of this.#early) {
      if (this.#early.size < REMEMBER_MOST && told.at - at < REMEMBER_MS) break;
      this.#early.delete(old);
    }
    this.#early.set(flight, told);
  }

  /** A turn that holds its key when it ends unknown is taken before it is used: until then it is an offer. */
  #take(group: Group, place: Place, turn: Turn): void {
    this.#remove(group, place);
    if (turn.claimedAtMs + turn.lease.leaseMs <= performance.now()) return void this.#again([place]);
    if (place.request.holdMs === 0) return this.#tell(place, turn);
    const claimedAtMs = performance.now();
    this.#options.renew(turn.lease).then(
      (held) => (held === 'held' ? this.#tell(place, { ...turn, claimedAtMs }) : void this.#again([place])),
      () => void this.#again([place]),
    );
  }

  #remove(group: Group, { request }: Place): void {
    group.places.delete(request.flight);
    this.#standing.delete(request.flight);
    if (group.places.size > 0) return;
    if (group.timer !== null) clearTimeout(group.timer);
    this.#groups.delete(nameOf(group));
  }

  #tell(place: Place, result: Turn | NoTurn): void {
    if (place.waiter === null) place.result = result;
    else place.waiter.resolve(result);
  }

  /** Places that the server has lost are taken again, in their order, behind the others. */
  async #again(places: readonly Place[]): Promise<void> {
    await Promise.all(
      places.map(async (place) => {
        this.#options.giveUp(place.request);
        if (this.#isLeft(place)) return;
        place.request = { ...place.request, flight: newFlightId() };
        const { request } = place;
        let entered: Entered | null = null;
        let endingMs = Number.POSITIVE_INFINITY;
        try {
          ({ entered, endingMs } = await this.#options.enter(request));
        } catch {
          // Looked after as if it were there: the look finds that it is not, when the server is back.
        }
        if (this.#isLeft(place)) return this.#options.giveUp(request);
        if (entered === null || entered.kind === 'queued') this.#lookAfter(place, endingMs);
        else this.#tell(place, entered);
      }),
    );
  }

  /** Whether the caller has left while the server was asked on its behalf. */
  #isLeft(place: Place): boolean {
    return this.#places.get(place.id) !== place;
  }

  #leave(place: Place): void {
    this.#places.delete(place.id);
    const group = this.#standing.get(place.request.flight);
    if (group !== undefined) this.#remove(group, place);
    this.#options.giveUp(place.request);
  }

  /** Sees to it that the group is looked at in time: by its polls, before its promises end, and when a turn expires. */
  #schedule(group: Group, endingMs = Number.POSITIVE_INFINITY): void {
    if (group.looking) return;
    let ms = Math.min(endingMs + EXPIRY_MARGIN_MS, group.leaseMs / 3);
    for (const { pollMs } of group.places.values()) ms = Math.min(ms, pollMs);
    const dueAtMs = performance.now() + Math.max(LEAST_DELAY_MS, ms);
    if (dueAtMs >= group.dueAtMs) return;
    if (group.timer !== null) clearTimeout(group.timer);
    group.dueAtMs = dueAtMs;
    group.timer = setTimeout(() => this.#lookNow(group), dueAtMs - performance.now());
  }

  #lookNow(group: Group): void {
    if (group.looking) {
      group.lookAgain = true;
      return;
    }
    if (group.timer !== null) clearTimeout(group.timer);
    group.timer = null;
    group.dueAtMs = Number.POSITIVE_INFINITY;
    group.looking = true;
    void this.#look(group);
  }

  async #look(group: Group): Promise<void> {
    const places: Place[] = [];
    for (const place of group.places.values()) if (places.push(place) === LOOK_MOST) break;
    const looked = await this.#options.look(
      group.key,
      group.leaseMs,
      places.map(({ request }) => request),
    );
    group.looking = false;
    if (this.#closed || !this.#isUp(group)) return;
    if (looked !== null) this.#carryOut(group, places, looked);
    if (!this.#isUp(group)) return;
    const again = group.lookAgain;
    group.lookAgain = false;
    if (again) this.#lookNow(group);
    else this.#schedule(group, looked?.kind === 'places' ? looked.endingMs : Number.POSITIVE_INFINITY);
  }

  /** Carries out what a look has found of those places that still stand. */
  #carryOut(group: Group, places: readonly Place[], looked: Looked): void {
    if (looked.kind === 'unknown') return this.#tellAll(group, looked);
    const lost: Place[] = [];
    for (const [i, place] of places.entries()) {
      if (group.places.get(place.request.flight) !== place) continue;
      const found = looked.each[i];
      if (found === 'waiting') continue;
      if (typeof found === 'object') {
        this.#take(group, place, found);
      } else {
        this.#remove(group, place);
        lost.push(place);
      }
    }
    if (lost.length === 0) return;
    // Those behind them are lost as well, probably.
    group.lookAgain = true;
    void this.#again(lost);
  }

  #tellAll(group: Group, result: NoTurn): void {
    for (const place of [...group.places.values()]) {
      this.#remove(group, place);
      this.#tell(place, result);
    }
  }

  #isUp(group: Group): boolean {
    return this.#groups.get(nameOf(group)) === group;
  }
}

function nameOf({ key, leaseMs }: { readonly key: string; readonly leaseMs: number }): string {
  return `${leaseMs} ${key}`;
}

/** The turn that a promise has become: the token begins with this process's own note of until when it may count on it. */
export function turnBy({ key, flight, leaseMs }: PlaceRequest, fence: string, token: string): Turn {
  const lease = { key, flight, fence: Number(fence), leaseMs, material: null };
  return { kind: 'turn', lease, claimedAtMs: Number.parseInt(token, 10) - leaseMs };
}
