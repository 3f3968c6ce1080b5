/**
 * Where the store of a schedule is: one server with a proxy before it for each gateway, a primary and its replica behind
 * sentinels, or a cluster.
 *
 * Invariants: what is one server belongs to the lane and is used again; fleets are started for the schedule and end with
 * it, for what has failed over once is another fleet. With sentinels a claim counts only when the replica has it
 * (`waitReplicas`), so a fail-over is no reason for the store to forget one.
 */

import { eventually } from '../support/gate.js';
import { type RedisServer, startRedis } from '../support/redis.js';
import { infoOf, RedisCluster, startWatched, type Watched } from '../support/redis-fleet.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import type { Schedule } from './schedule.js';

type Scope = { teardown(end: () => void | Promise<void>): void };

const FAIL_OVER_MS = 40_000;
/** Sentinels take some ten seconds to make a replica of a primary that they have given up. */
const FLEET_HEALS_MS = 40_000;
/** How many slots change their place at a time, as far as there is something in them. */
const SLOTS = 6;

export type StorePlace = {
  /** How long it may take, and the gateways after it, to be whole again. */
  readonly healsMs: number;
  /** YAML fields of `store`, for a gateway. */
  yaml(gateway: number): string;
  /** The way of a gateway to the store; null: there is none of its own. */
  proxyOf(gateway: number): TcpProxy | null;
  /** Those that are written to now. */
  readonly primaries: readonly RedisServer[];
  /** Kills the primary, and resolves when there is another one with a replica. */
  failOver(): Promise<void>;
  /** Moves slots that have something in them to other nodes. */
  moveSlots(): Promise<void>;
  /** Whether the servers took one of them for dead that was only slow. */
  lostAServer(): Promise<boolean>;
};

export async function openPlace(
  { store, processes }: Pick<Schedule, 'store' | 'processes'>,
  server: RedisServer,
  scope: Scope,
): Promise<StorePlace> {
  switch (store) {
    case 'single':
      return SinglePlace.open(server, processes, scope);
    case 'sentinel':
      return new WatchedPlace(await startWatched(scope), scope);
    case 'cluster':
      return new ClusterPlace(await RedisCluster.start(scope));
  }
}

class SinglePlace implements StorePlace {
  readonly healsMs = 10_000;
  readonly primaries: readonly RedisServer[];
  readonly #proxies: readonly TcpProxy[];

  private constructor(server: RedisServer, proxies: readonly TcpProxy[]) {
    this.primaries = [server];
    this.#proxies = proxies;
  }

  static async open(server: RedisServer, processes: number, scope: Scope): Promise<SinglePlace> {
    const proxies = Array.from({ length: processes }, () => TcpProxy.start(scope, server.port));
    return new SinglePlace(server, await Promise.all(proxies));
  }

  yaml(gateway: number): string {
    return `url: "redis://127.0.0.1:${this.#proxies[gateway]!.port}"`;
  }

  proxyOf(gateway: number): TcpProxy {
    return this.#proxies[gateway]!;
  }

  failOver(): Promise<void> {
    throw new Error('one server cannot fail over');
  }

  moveSlots(): Promise<void> {
    throw new Error('one server has no slots');
  }

  async lostAServer(): Promise<boolean> {
    return false;
  }
}

/** Asked again and again: a schedule that kills connections may kill this one. */
function toldBy(server: RedisServer, field: string): Promise<string | undefined> {
  return infoOf(server, field).catch(() => undefined);
}

class WatchedPlace implements StorePlace {
  readonly healsMs = FLEET_HEALS_MS;
  primaries: readonly RedisServer[];
  readonly #watched: Watched;
  readonly #scope: Scope;

  constructor(watched: Watched, scope: Scope) {
    this.#watched = watched;
    this.#scope = scope;
    this.primaries = [watched.primary];
  }

  yaml(): string {
    return `sentinel: ${this.#watched.yaml}, waitReplicas: 1`;
  }

  proxyOf(): null {
    return null;
  }

  async failOver(): Promise<void> {
    const { primary, replica } = this.#watched;
    await primary.kill();
    // One that comes back while a sentinel still takes it for the primary is a second reason to fail over.
    const isTold = async () => (await this.#isPrimary(replica.port)) && (await toldBy(replica, 'role')) === 'master';
    await eventually('the replica being the primary', isTold, FAIL_OVER_MS);
    this.primaries = [replica];
    const settings = ['--replicaof', '127.0.0.1', String(replica.port), '--repl-diskless-sync-delay', '0'];
    const next = await startRedis({ port: primary.port, settings });
    this.#scope.teardown(() => next.stop());
    const inStep = async () => (await toldBy(next, 'master_link_status')) === 'up';
    await eventually('the old primary being a replica', inStep, FAIL_OVER_MS);
  }

  moveSlots(): Promise<void> {
    throw new Error('behind sentinels there are no slots');
  }

  async lostAServer(): Promise<boolean> {
    const { replica, link } = this.#watched;
    return !(await this.#isPrimary(this.primaries[0] === replica ? replica.port : link.port));
  }

  /** Whether all sentinels take this for the primary's port. */
  async #isPrimary(port: number): Promise<boolean> {
    const ask = async (sentinel: RedisServer) => {
      const told = await sentinel.command('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', 'main').catch(() => []);
      return Number((told as string[])[1]);
    };
    return (await Promise.all(this.#watched.sentinels.map(ask))).every((one) => one === port);
  }
}

class ClusterPlace implements StorePlace {
  readonly healsMs = FLEET_HEALS_MS;
  readonly primaries: readonly RedisServer[];
  readonly #cluster: RedisCluster;

  constructor(cluster: RedisCluster) {
    this.#cluster = cluster;
    this.primaries = cluster.primaries;
  }

  yaml(): string {
    return `cluster: ${this.#cluster.yaml}`;
  }

  proxyOf(): null {
    return null;
  }

  failOver(): Promise<void> {
    throw new Error('in a cluster claims are not confirmed by replicas here');
  }

  async moveSlots(): Promise<void> {
    const { primaries } = this.#cluster;
    for (const [at, from] of primaries.entries()) {
      const to = primaries[(at + 1) % primaries.length]!;
      const names = ((await from.command('KEYS', '*').catch(() => [])) as string[]).slice(0, SLOTS);
      const slots = await Promise.all(names.map((name) => this.#cluster.ownerOf(name))).catch(() => []);
      for (const slot of new Set(slots.map(({ slot }) => slot))) await this.#move(slot, from, to);
    }
  }

  /** A slot that has been moved by half holds its keys up: what was interrupted is done again. */
  async #move(slot: number, from: RedisServer, to: RedisServer): Promise<void> {
    const moved = () =>
      this.#cluster.move(slot, from, to).then(
        () => true,
        () => false,
      );
    await eventually(`slot ${slot} having moved`, moved);
  }

  async lostAServer(): Promise<boolean> {
    return (await infoOf(this.#cluster.replica, 'role')) !== 'slave';
  }
}
