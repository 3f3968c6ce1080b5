/**
 * The requests that take turns (`policy: queue`): each has a place in the queue of its key, in all processes together,
 * and is forwarded on its own when its turn has come.
 *
 * Invariants: nothing is sent without the turn; whoever stops waiting, by its leaving, its deadline or the end of the
 * process, gives up its place at once; a turn that comes for somebody who is gone is given back unused; content is read
 * ahead as far as `maxKeyBody`, because a client of whom nothing is read cannot be seen to leave.
 */

import { newFlightId } from '../core/claim.js';
import { retryAfterSeconds } from '../core/policy.js';
import { Roster } from '../core/roster.js';
import type { QueuePolicy } from '../core/rule.js';
import type { Entered, NoTurn, PlaceRequest, Turn } from '../store/queue.js';
import { type Store, StoreUnavailable } from '../store/store.js';
import type { Caller } from './caller.js';
import type { Leaders } from './leaders.js';
import type { LedFlight } from './leading.js';
import type { ExchangeObserver } from './observer.js';
import { refuseOverloaded } from './overload.js';
import { bypass } from './passing.js';
import { ReadAhead, ReadAheadBudget } from './read-ahead.js';

export type TurnsOptions = {
  readonly store: Store;
  /** The in-process store that `onStoreDown: local` falls back to. */
  readonly local: Store;
  readonly leaders: Leaders;
  readonly observer: ExchangeObserver;
};

/** Its leader has it alone: nobody joins, and nobody is told how it ended. */
const ALONE: LedFlight = {
  election: 0,
  isAwaited: () => false,
  close: () => {},
  conclude: () => {},
  stream: () => {},
  unknown: () => {},
};

/** Of the content of all who wait, what is read before their turn. */
const READ_AHEAD_BYTES = 64 * 1_048_576;

export class Turns {
  readonly #options: TurnsOptions;
  /** Those who wait, and what ends their wait. */
  readonly #waiting = new Roster<{ readonly caller: Caller; readonly wait: AbortController }>();
  readonly #ahead = new ReadAheadBudget(READ_AHEAD_BYTES);

  constructor(options: TurnsOptions) {
    this.#options = options;
  }

  /** Takes a request whose key is known: it leads at once, waits for its turn, or is refused. */
  async arrive(caller: Caller, policy: QueuePolicy, key: string): Promise<void> {
    const { store, local } = this.#options;
    const arrivedAtMs = performance.now();
    const { leaseMs, unknownForMs: holdMs, concurrency, maxQueue } = policy;
    const otherKeys = caller.names.others.map((other) => other.key);
    const flight = newFlightId();
    const request = { key, otherKeys, flight, route: caller.route, leaseMs, holdMs, concurrency, maxQueue };
    let { queue } = store;
    const answered = caller.trace?.claiming();
    let entered: Entered;
    try {
      entered = await queue.enter(request);
      answered?.(entered.kind);
    } catch (error) {
      answered?.('unavailable');
      if (!(error instanceof StoreUnavailable)) throw error;
      if (policy.onStoreDown === 'pass') return this.#bypass(caller);
      if (policy.onStoreDown === 'reject') return caller.refuse('store-unavailable');
      queue = local.queue;
      entered = await queue.enter(request);
    }
    const result =
      entered.kind === 'queued' ? await this.#wait(caller, policy, queue, entered.place, arrivedAtMs) : entered;
    if (result === null) return;
    if (result.kind === 'turn') this.#lead(caller, policy, queue, result);
    else this.#refuse(caller, policy, result);
  }

  /** Ends every wait, for a stop that can wait no longer. */
  stop(): void {
    for (const { caller, wait } of this.#waiting) {
      wait.abort();
      caller.refuse('draining');
    }
  }

  /** Waits for the turn of a place; null when the request is over without one. */
  async #wait(
    caller: Caller,
    policy: QueuePolicy,
    queue: Store['queue'],
    place: PlaceRequest,
    arrivedAtMs: number,
  ): Promise<Turn | NoTurn | null> {
    const { observer } = this.#options;
    const wait = new AbortController();
    const ahead = readAhead(caller, policy, this.#ahead);
    caller.role = 'queued';
    caller.waitingSinceMs = arrivedAtMs;
    caller.whenLeft(() => wait.abort());
    if (caller.gone) wait.abort();
    const leftMs = arrivedAtMs + policy.waitMs - performance.now();
    const timer = setTimeout(
      () => {
        wait.abort();
        caller.refuse('wait-timeout');
      },
      Math.max(0, leftMs),
    );
    const waits = this.#waiting.add({ caller, wait });
    observer.queued(caller.route, 1);
    try {
      return await queue.turn(place, { pollMs: policy.pollMs, signal: wait.signal });
    } catch (error) {
      // Given up by the signal, or the store was closed under the wait: no turn will come.
      if (!wait.signal.aborted && !(error instanceof StoreUnavailable)) throw error;
      if (!caller.begun) caller.refuse('store-unavailable');
      return null;
    } finally {
      caller.content ??= ahead?.finish() ?? null;
      clearTimeout(timer);
      this.#waiting.remove(waits);
      observer.queued(caller.route, -1);
    }
  }

  #lead(caller: Caller, policy: QueuePolicy, store: Store['queue'], { lease, claimedAtMs }: Turn): void {
    if (caller.gone || caller.begun) {
      // Nothing was sent: the turn is the next one's at once.
      store.release(lease, { unlessAwaited: false }).catch(() => {});
      return;
    }
    const leading = this.#options.leaders.add({ caller, policy, lease, claimedAtMs, store, flight: ALONE });
    if (leading === null) {
      store.release(lease, { unlessAwaited: false }).catch(() => {});
      return refuseOverloaded(caller, 'route', this.#options.observer);
    }
    caller.hasTurn();
    leading.start();
  }

  #refuse(caller: Caller, policy: QueuePolicy, result: NoTurn): void {
    if (result.kind === 'unknown') return caller.refuse('outcome-unknown', { status: 409 });
    const latencyMs = this.#options.leaders.latencyMsOf(caller.route);
    caller.refuse('queue-full', { retryAfterSeconds: retryAfterSeconds(policy.leaseMs, result, latencyMs) });
  }

  #bypass(caller: Caller): void {
    const { observer, leaders } = this.#options;
    bypass(caller, caller.upstream, 'store-unavailable', { observer, calls: leaders.calls });
  }
}

/** Null where there is nothing to be read, or it is here already. */
function readAhead(caller: Caller, { maxKeyBodyBytes }: QueuePolicy, budget: ReadAheadBudget): ReadAhead | null {
  if (caller.content !== null || !caller.announcesContent) return null;
  return new ReadAhead(caller.req, Math.min(maxKeyBodyBytes, caller.maxContentBytes), budget);
}
