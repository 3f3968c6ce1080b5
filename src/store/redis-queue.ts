/**
 * The queues of the store in Redis: its questions. What the server keeps, queue.lua says; how this process waits for its
 * turns, redis-places.ts.
 *
 * Invariant: whoever leaves, or asked without an answer, gives up what it may have, until the server has answered.
 */

import { performance } from 'node:perf_hooks';
import type { Held, Lease, Settlement } from '../core/claim.js';
import type { LeaseHolder, WaitOptions } from './leases.js';
import type { Entered, NoTurn, PlaceRequest, Queue, Turn } from './queue.js';
import type { ScriptedRedis } from './redis-client.js';
import { type Answer, answered, heldOrLost } from './redis-link.js';
import type { RedisNames } from './redis-names.js';
import type { Owed } from './redis-owed.js';
import { type EnteredPlace, type Looked, Places, turnBy } from './redis-places.js';
import type { AskSmall } from './redis-route.js';
import type { Revocations } from './revocations.js';
import { StoreUnavailable } from './store.js';

export type RedisQueueOptions = {
  readonly ask: AskSmall;
  readonly owed: Owed;
  readonly names: RedisNames;
  readonly process: string;
  readonly revocations: Revocations;
};

/** How long a question that was given up may be under way and still be turned away. */
const BAR_MS = 60_000;

export class RedisQueue implements Queue {
  readonly #options: RedisQueueOptions;
  readonly #places: Places;
  #closed = false;

  constructor(options: RedisQueueOptions) {
    this.#options = options;
    this.#places = new Places({
      enter: (request) => this.#enter(request),
      look: (key, leaseMs, places) => this.#look(key, leaseMs, places),
      renew: (lease) => this.renew(lease),
      giveUp: (request) => this.#owe(request, this.#memberOf(request)),
    });
  }

  async enter(request: PlaceRequest): Promise<Entered> {
    this.#options.owed.cancel(request.flight);
    const { entered, endingMs } = await this.#enter(request);
    if (entered.kind === 'queued') this.#places.add(request, endingMs);
    return entered;
  }

  turn(request: PlaceRequest, options: WaitOptions): Promise<Turn | NoTurn> {
    return this.#places.turn(request, options);
  }

  async renew(lease: Lease): Promise<Held> {
    const answer = await this.#options.ask(lease.key, (client) => this.renewBy(client, lease));
    return answered(answer) === 1 ? 'held' : 'lost';
  }

  /** The same question, over a connection of the asker's choice: 1 held. */
  renewBy(client: ScriptedRedis, { key, flight, fence, leaseMs }: Lease): Promise<unknown> {
    return this.#askOver(client, key, '', 'renew', flight, fence, Math.ceil(leaseMs));
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

  watch(lease: Lease, holder: LeaseHolder): void {
    this.#options.revocations.watch(lease, holder);
  }

  unwatch(lease: Lease): void {
    this.#options.revocations.unwatch(lease);
  }

  /** Frees, by an operator's word, the turn of a flight, or with null every turn whose outcome is unknown. */
  async free(key: string, flight: string | null): Promise<'settled' | 'absent' | 'other'> {
    const answer = await this.#ask(key, '', 'free', flight ?? '');
    const freed = answered(answer);
    if (freed !== 1 && answer.kind === 'answered' && answer.repeated) {
      throw new StoreUnavailable('the answer of the store was lost');
    }
    // Led here, it is over before the asker has the answer, whether pushes are heard or not.
    if (freed === 1 && flight !== null) this.#options.revocations.tell(flight);
    return freed === 1 ? 'settled' : freed === 2 ? 'other' : 'absent';
  }

  /** Takes a push; false: it is none of queues. */
  push(message: Buffer): boolean {
    return this.#places.push(message);
  }

  /** Pushes arrive from now on. */
  listening(): void {
    this.#places.listening();
  }

  close(): void {
    this.#closed = true;
    this.#places.close();
  }

  async #enter(request: PlaceRequest): Promise<EnteredPlace> {
    const { key, flight, leaseMs, holdMs, route, concurrency, maxQueue } = request;
    const askedAtMs = performance.now();
    const answer = await this.#ask(
      key,
      flight,
      'enter',
      flight,
      this.#options.process,
      Math.ceil(leaseMs),
      this.#tokenOf(askedAtMs, leaseMs),
      Math.ceil(holdMs),
      route,
      concurrency,
      maxQueue,
    );
    if (answer.kind === 'uncertain') this.#owe(request, this.#memberOf(request));
    const [kind, first, second] = answered(answer) as readonly [Buffer, ...(Buffer | number)[]];
    const endingMs = Number.POSITIVE_INFINITY;
    switch (String(kind)) {
      case 'T':
        return { entered: turnBy(request, String(first), String(second)), endingMs };
      case 'Q':
        return { entered: { kind: 'queued', place: request }, endingMs: first as number };
      case 'N':
        return {
          entered: { kind: 'full', leaseLeftMs: Math.max(0, first as number), ageMs: second as number },
          endingMs,
        };
      case 'U':
        return { entered: { kind: 'unknown', ttlMs: Math.max(0, first as number) }, endingMs };
      default:
        throw new StoreUnavailable('the place was given up after an outage; ask with a new flight id');
    }
  }

  async #look(key: string, leaseMs: number, places: readonly PlaceRequest[]): Promise<Looked | null> {
    const members = places.map((request) => this.#memberOf(request));
    const token = this.#tokenOf(performance.now(), leaseMs);
    const answer = await this.#ask(key, '', 'look', this.#options.process, Math.ceil(leaseMs), token, ...members);
    if (answer.kind !== 'answered') return null;
    const [kind, value, ...each] = answer.value as readonly [Buffer, number, ...Buffer[]];
    if (String(kind) === 'U') return { kind: 'unknown', ttlMs: Math.max(0, value) };
    return {
      kind: 'places',
      endingMs: value < 0 ? Number.POSITIVE_INFINITY : value,
      each: places.map((request, i) => {
        const fence = String(each[2 * i]);
        if (fence === '') return 'gone';
        return fence === 'w' ? 'waiting' : turnBy(request, fence, String(each[2 * i + 1]));
      }),
    };
  }

  #owe({ key, flight }: { readonly key: string; readonly flight: string }, member: string): void {
    if (this.#closed) return;
    this.#options.owed.owe(flight, async () => {
      const answer = await this.#askLeave({ key, flight }, '', member, 0, BAR_MS);
      return answer.kind === 'answered';
    });
  }

  /** The place as it stands on the server. */
  #memberOf({ flight, leaseMs, holdMs, route }: PlaceRequest): string {
    return `${flight} ${this.#options.process}/${Math.ceil(leaseMs)} ${Math.ceil(holdMs)} ${route}`;
  }

  /** Until when (monotonic, ms) a lease that is asked for now may be counted on, by whom. Rounded down: late is lost. */
  #tokenOf(askedAtMs: number, leaseMs: number): string {
    return `${Math.floor(askedAtMs + leaseMs)}@${this.#options.process}`;
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
    return this.#options.ask(key, (client) => this.#askOver(client, key, flight, what, ...rest));
  }

  #askOver(
    client: ScriptedRedis,
    key: string,
    flight: string,
    what: string,
    ...rest: readonly (string | number)[]
  ): Promise<unknown> {
    const { names } = this.#options;
    return client.oneflightQueueBuffer(
      names.turns(key),
      names.places(key),
      flight === '' ? names.record(key) : names.result(key, flight),
      what,
      names.channels,
      key,
      ...rest,
    );
  }
}
