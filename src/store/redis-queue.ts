/**
 * The queues of the store in Redis, as one process sees them: its places, and how it hears of its turns. What the server
 * keeps, and what is pushed, queue.lua says.
 *
 * Invariants: a place is looked after from the answer that gave it on, by one repeating question for all places of a key
 * in this process: it says that the process lives, finds turns of which no push was heard, and passes over what has
 * expired; a turn is counted on no longer than the promise by which it was given, by this process's own clock; a place
 * that the server lost is taken again under a new flight id, so that nothing said of the old one can be mistaken for it;
 * whoever leaves gives up what it may have, until the server has answered.
 */

import { performance } from 'node:perf_hooks';
import { type Held, type Lease, newFlightId, type Settlement } from '../core/claim.js';
import type { WaitOptions } from './leases.js';
import type { Entered, NoTurn, PlaceRequest, Queue, Turn } from './queue.js';
import { type Answer, answered, heldOrLost, type ScriptedRedis } from './redis-link.js';
import type { Owed } from './redis-owed.js';
import { StoreUnavailable } from './store.js';

export type RedisQueueOptions = {
  readonly ask: <T>(run: (client: ScriptedRedis) => Promise<T>) => Promise<Answer<T>>;
  readonly owed: Owed;
  /** Names of the server's keys and channels. */
  readonly recordOf: (key: string) => string;
  readonly barOf: (key: string, flight: string) => string;
  readonly channels: string;
  readonly process: string;
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
  pollMs: number;
  /** What became of it, when nobody has asked yet. */
  result: Turn | NoTurn | null;
};

/** The places of a key in this process, by the flight id that the server knows, in their order. */
type Group = {
  readonly key: string;
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
/** How long a question that was given up may be under way and still be turned away. */
const BAR_MS = 60_000;
/** The store's expiry and ours do not fall into the same instant. */
const EXPIRY_MARGIN_MS = 20;
const LEAST_DELAY_MS = 10;
const DEFAULT_POLL_MS = 500;

export class RedisQueue implements Queue {
  readonly #options: RedisQueueOptions;
  readonly #groups = new Map<string, Group>();
  /** All places that have not been left or told, by the flight id that their caller knows. */
  readonly #places = new Map<string, Place>();
  /** The groups of those that are looked after, by the flight id that the server knows. */
  readonly #standing = new Map<string, Group>();
  /** Turns of which a push told before the answer that gave the place was read. */
  readonly #early = new Map<string, Told>();
  #closed = false;

  constructor(options: RedisQueueOptions) {
    this.#options = options;
  }

  async enter(request: PlaceRequest): Promise<Entered> {
    this.#options.owed.cancel(request.flight);
    const entered = await this.#enter(request);
    if (entered.kind === 'queued') {
      const place: Place = { id: request.flight, request, waiter: null, pollMs: DEFAULT_POLL_MS, result: null };
      this.#places.set(request.flight, place);
      this.#lookAfter(place);
    }
    return entered;
  }

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

  async renew(lease: Lease): Promise<Held> {
    const answer = await this.#ask(lease.key, '', 'renew', lease.flight, lease.fence, Math.ceil(lease.leaseMs));
    return answered(answer) === 1 ? 'held' : 'lost';
  }

  async complete(lease: Lease, settlement: Settlement, keepMs: number): Promise<Held> {
    const holdMs = settlement.kind === 'unknown' ? Math.max(0, Math.floor(keepMs)) : 0;
    const answer = await this.#askLeave(lease, String(lease.fence), '', holdMs, 0);
    if (answer.kind !== 'answered' && holdMs === 0) this.#owe(lease, '');
    return heldOrLost(answer);
  }

  release(lease: Lease): Promise<Held> {
    return this.complete(lease, { kind: 'failed', election: 0 }, 0);
  }

  /** Frees turns by an operator's word. */
  async free(key: string): Promise<'settled' | 'absent'> {
    const answer = await this.#ask(key, '', 'free');
    const freed = answered(answer);
    if (freed !== 1 && answer.kind === 'answered' && answer.repeated) {
      throw new StoreUnavailable('the answer of the store was lost');
    }
    return freed === 1 ? 'settled' : 'absent';
  }

  /** Takes a push, as queue.lua writes it; false: it is none of its own. */
  push(message: Buffer): boolean {
    const marker = String.fromCharCode(message[0] ?? 0);
    if (marker !== 'g' && marker !== 'b') return false;
    const end = 2 + (message[1] ?? 0);
    const name = message.toString('latin1', 2, end);
    if (marker === 'b') {
      const group = this.#groups.get(name);
      // What was so when it was said need not be so now.
      if (group !== undefined) this.#lookNow(group);
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

  async #enter(request: PlaceRequest): Promise<Entered> {
    const { key, flight, leaseMs, holdMs, route, concurrency, maxQueue } = request;
    const askedAtMs = performance.now();
    const answer = await this.#ask(
      key,
      flight,
      'enter',
      flight,
      this.#options.process,
      Math.ceil(leaseMs),
      tokenOf(askedAtMs, leaseMs),
      Math.ceil(holdMs),
      route,
      concurrency,
      maxQueue,
    );
    if (answer.kind === 'uncertain') this.#owe(request, memberOf(request, this.#options.process));
    const [kind, first, second] = answered(answer) as readonly [Buffer, ...(Buffer | number)[]];
    switch (String(kind)) {
      case 'T':
        return turnOf(request, String(first), String(second));
      case 'Q':
        return { kind: 'queued', place: request };
      case 'N':
        return { kind: 'full', leaseLeftMs: Math.max(0, first as number), ageMs: second as number };
      case 'U':
        return { kind: 'unknown', ttlMs: Math.max(0, first as number) };
      default:
        throw new StoreUnavailable('the place was given up after an outage; ask with a new flight id');
    }
  }

  /** Puts a place among those that are looked after, unless its turn has come already. */
  #lookAfter(place: Place): void {
    const { key, flight } = place.request;
    let group = this.#groups.get(key);
    if (group === undefined) {
      group = {
        key,
        places: new Map(),
        timer: null,
        dueAtMs: Number.POSITIVE_INFINITY,
        looking: false,
        lookAgain: false,
      };
      this.#groups.set(key, group);
    }
    group.places.set(flight, place);
    this.#standing.set(flight, group);
    const early = this.#early.get(flight);
    if (early === undefined) return this.#schedule(group);
    this.#early.delete(flight);
    this.#called(flight, early);
  }

  /** The turn of a flight has come, says a push. */
  #called(flight: string, told: Told): void {
    const group = this.#standing.get(flight);
    const place = group?.places.get(flight);
    if (group !== undefined && place !== undefined) {
      return this.#take(group, place, turnOf(place.request, told.fence, told.token));
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
    this.renew(turn.lease).then(
      (held) => (held === 'held' ? this.#tell(place, { ...turn, claimedAtMs }) : void this.#again([place])),
      () => void this.#again([place]),
    );
  }

  #remove(group: Group, { request }: Place): void {
    group.places.delete(request.flight);
    this.#standing.delete(request.flight);
    if (group.places.size > 0) return;
    if (group.timer !== null) clearTimeout(group.timer);
    this.#groups.delete(group.key);
  }

  #tell(place: Place, result: Turn | NoTurn): void {
    if (place.waiter === null) place.result = result;
    else place.waiter.resolve(result);
  }

  /** Places that the server has lost are taken again, in their order, behind the others. */
  async #again(places: readonly Place[]): Promise<void> {
    await Promise.all(
      places.map(async (place) => {
        this.#giveUp(place.request);
        if (this.#isLeft(place)) return;
        place.request = { ...place.request, flight: newFlightId() };
        const { request } = place;
        let entered: Entered | null = null;
        try {
          entered = await this.#enter(request);
        } catch {
          // Looked after as if it were there: the look finds that it is not, when the server is back.
        }
        if (this.#isLeft(place)) return this.#giveUp(request);
        if (entered === null || entered.kind === 'queued') this.#lookAfter(place);
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
    this.#giveUp(place.request);
  }

  #giveUp(request: PlaceRequest): void {
    if (!this.#closed) this.#owe(request, memberOf(request, this.#options.process));
  }

  #owe({ key, flight }: { readonly key: string; readonly flight: string }, member: string): void {
    this.#options.owed.owe(flight, async () => {
      const answer = await this.#askLeave({ key, flight }, '', member, 0, BAR_MS);
      return answer.kind === 'answered';
    });
  }

  /** Sees to it that the group is looked at in time: by its polls, before its promises end, and when a turn expires. */
  #schedule(group: Group, endingMs = Number.POSITIVE_INFINITY): void {
    if (group.looking) return;
    let ms = endingMs + EXPIRY_MARGIN_MS;
    for (const { pollMs, request } of group.places.values()) ms = Math.min(ms, pollMs, request.leaseMs / 3);
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
    const places = [...group.places.values()];
    const leaseMs = Math.max(...places.map(({ request }) => request.leaseMs));
    const members = places.map(({ request }) => memberOf(request, this.#options.process));
    const token = tokenOf(performance.now(), leaseMs);
    const answer = await this.#ask(group.key, '', 'look', this.#options.process, Math.ceil(leaseMs), token, ...members);
    group.looking = false;
    if (this.#closed || this.#groups.get(group.key) !== group) return;
    let endingMs = Number.POSITIVE_INFINITY;
    if (answer.kind === 'answered') {
      endingMs = this.#looked(group, places, answer.value as readonly (Buffer | number)[]);
    }
    if (this.#groups.get(group.key) !== group) return;
    const again = group.lookAgain;
    group.lookAgain = false;
    if (again) this.#lookNow(group);
    else this.#schedule(group, endingMs);
  }

  /** Carries out what a look has found; time until the next turn expires, ms. */
  #looked(group: Group, places: readonly Place[], [kind, value, ...each]: readonly (Buffer | number)[]): number {
    if (String(kind) === 'U') {
      for (const place of places) {
        if (!this.#isIn(group, place)) continue;
        this.#remove(group, place);
        this.#tell(place, { kind: 'unknown', ttlMs: Math.max(0, value as number) });
      }
      return Number.POSITIVE_INFINITY;
    }
    const lost: Place[] = [];
    for (const [i, place] of places.entries()) {
      const [fence, token] = [String(each[2 * i]), String(each[2 * i + 1])];
      if (fence === 'w' || !this.#isIn(group, place)) continue;
      if (fence !== '') {
        this.#take(group, place, turnOf(place.request, fence, token));
      } else {
        this.#remove(group, place);
        lost.push(place);
      }
    }
    if (lost.length > 0) void this.#again(lost);
    return (value as number) < 0 ? Number.POSITIVE_INFINITY : (value as number);
  }

  #isIn(group: Group, place: Place): boolean {
    return group.places.get(place.request.flight) === place;
  }

  #askLeave(
    { key, flight }: { readonly key: string; readonly flight: string },
    fence: string,
    member: string,
    holdMs: number,
    barMs: number,
  ): Promise<Answer<unknown>> {
    return this.#ask(key, flight, 'leave', flight, fence, member, holdMs, barMs);
  }

  #ask(key: string, flight: string, what: string, ...rest: readonly (string | number)[]): Promise<Answer<unknown>> {
    const { ask, recordOf, barOf, channels } = this.#options;
    const record = recordOf(key);
    return ask((client) =>
      client.oneflightQueueBuffer(
        `${record}:q`,
        `${record}:w`,
        flight === '' ? record : barOf(key, flight),
        what,
        channels,
        key,
        ...rest,
      ),
    );
  }
}

/** Monotonic time (ms) until which a lease that is asked for now may be counted on. Rounded down: late is lost. */
function tokenOf(askedAtMs: number, leaseMs: number): string {
  return String(Math.floor(askedAtMs + leaseMs));
}

function turnOf({ key, flight, leaseMs }: PlaceRequest, fence: string, token: string): Turn {
  const lease = { key, flight, fence: Number(fence), leaseMs };
  return { kind: 'turn', lease, claimedAtMs: Number(token) - leaseMs };
}

/** The place as it stands on the server. */
function memberOf({ flight, holdMs, route }: PlaceRequest, process: string): string {
  return `${flight} ${process} ${Math.ceil(holdMs)} ${route}`;
}
