/**
 * The queue in Redis where a turn counts only when enough replicas have it (redis-replicas.ts).
 *
 * Invariant: a turn that does not count was not used, and goes to whoever is next.
 */

import type { Held, Lease, Settlement } from '../core/claim.js';
import type { LeaseHolder, WaitOptions } from './leases.js';
import type { Entered, NoTurn, PlaceRequest, Queue, Turn } from './queue.js';
import type { RedisQueue } from './redis-queue.js';
import type { RedisReplicas } from './redis-replicas.js';

export class ConfirmedQueue implements Queue {
  readonly #queue: RedisQueue;
  readonly #replicas: RedisReplicas;

  constructor(queue: RedisQueue, replicas: RedisReplicas) {
    this.#queue = queue;
    this.#replicas = replicas;
  }

  async enter(request: PlaceRequest): Promise<Entered> {
    return this.#confirmed(await this.#queue.enter(request));
  }

  async turn(place: PlaceRequest, options: WaitOptions): Promise<Turn | NoTurn> {
    return this.#confirmed(await this.#queue.turn(place, options));
  }

  renew(lease: Lease): Promise<Held> {
    return this.#queue.renew(lease);
  }

  complete(lease: Lease, settlement: Settlement, keepMs: number): Promise<Held> {
    return this.#queue.complete(lease, settlement, keepMs);
  }

  release(lease: Lease): Promise<Held> {
    return this.#queue.release(lease);
  }

  watch(lease: Lease, holder: LeaseHolder): void {
    this.#queue.watch(lease, holder);
  }

  unwatch(lease: Lease): void {
    this.#queue.unwatch(lease);
  }

  async #confirmed<T extends Entered>(result: T): Promise<T> {
    if (result.kind !== 'turn') return result;
    const { lease } = result;
    try {
      await this.#replicas.confirm(lease, (client) => this.#queue.renewBy(client, lease));
    } catch (error) {
      // It is owed when there is no answer.
      this.#queue.release(lease).catch(() => {});
      throw error;
    }
    return result;
  }
}
