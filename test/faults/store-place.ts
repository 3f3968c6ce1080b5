/**
 * Where the store of a schedule is: one server, a primary and its replica behind sentinels, or a cluster; with a way of
 * its own to it for each gateway.
 *
 * Invariants: what is one server belongs to the lane and is used again; fleets are started for the schedule and end with
 * it, for what has failed over once is another fleet. Where a primary is killed a claim counts only when its replica has
 * it (`waitReplicas`), so a fail-over is no reason for the store to forget one.
 */

import { eventually } from '../support/gate.js';
import { type RedisServer, startRedis } from '../support/redis.js';
import { hasAllOf, infoOf, PRIMARIES, RedisCluster, startWatched, type Watched } from '../support/redis-fleet.js';
import type { Schedule } from './schedule.js';
import { addressOf, StoreWay } from './store-way.js';

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
  wayOf(gateway: number): StoreWay;
  /** Those that are written to now. */
  readonly primaries: readonly RedisServer[];
  /** All that hold keys, by their ports. */
  readonly holders: readonly Pick<RedisServer, 'port'>[];
  /** Kills that primary, and resolves when there is another one with a replica. */
  failOver(primary: number): Promise<void>;
  /** Moves slots that have something in them to other nodes. */
  moveSlots(): Promise<void>;
  /** Whether the servers took one of them for dead that was only slow. */
  lostAServer(): Promise<boolean>;
};

export async function openPlace(schedule: Schedule, server: RedisServer, scope: Scope): Promise<StorePlace> {
  switch (schedule.store) {
    case 'single':
      return new SinglePlace(server, await waysTo([server], schedule, scope));
    case 'sentinel': {
      const watched = await startWatched(scope);
      const { primary, replica, link, sentinels } = watched;
      return new WatchedPlace(watched, await waysTo([primary, replica, link, ...sentinels], schedule, scope), scope);
    }
    case 'cluster': {
      const failsOver = schedule.faults.some(({ kind }) => kind === 'fail-over');
      const cluster = await RedisCluster.start(scope, { replicas: failsOver ? PRIMARIES : 1 });
      return new ClusterPlace(
        cluster,
        await waysTo(cluster.all, schedule, scope),
        failsOver ? ', waitReplicas: 1' : '',
      );
    }
  }
}

function waysTo(
  servers: readonly Pick<RedisServer, 'port'>[],
  { processes }: Schedule,
  scope: Scope,
): Promise<StoreWay[]> {
  return Promise.all(Array.from({ length: processes }, (_, gateway) => StoreWay.open(scope, gateway, servers)));
}

/** A place as servers name it, for a gateway. */
function seenFrom(gateway: number, yaml: string): string {
  return yaml.replaceAll('127.0.0.1', addressOf(gateway));
}

/** Asked again and again: a schedule that kills connections may kill this one. */
function toldBy(server: RedisServer, field: string): Promise<string | undefined> {
  return infoOf(server, field).catch(() => undefined);
}

class SinglePlace implements StorePlace {
  readonly healsMs = 10_000;
  readonly primaries: readonly RedisServer[];
  readonly #ways: readonly StoreWay[];

  constructor(server: RedisServer, ways: readonly StoreWay[]) {
    this.primaries = [server];
    this.#ways = ways;
  }

  get holders(): readonly RedisServer[] {
    return this.primaries;
  }

  yaml(gateway: number): string {
    return `url: "${seenFrom(gateway, this.primaries[0]!.url)}"`;
  }

  wayOf(gateway: number): StoreWay {
    return this.#ways[gateway]!;
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

class WatchedPlace implements StorePlace {
  readonly healsMs = FLEET_HEALS_MS;
  primaries: readonly RedisServer[];
  readonly holders: readonly RedisServer[];
  readonly #watched: Watched;
  readonly #ways: readonly StoreWay[];
  readonly #scope: Scope;

  constructor(watched: Watched, ways: readonly StoreWay[], scope: Scope) {
    this.#watched = watched;
    this.#ways = ways;
    this.#scope = scope;
    this.primaries = [watched.primary];
    this.holders = [watched.primary, watched.replica];
  }

  yaml(gateway: number): string {
    return `sentinel: ${seenFrom(gateway, this.#watched.yaml)}, waitReplicas: 1`;
  }

  wayOf(gateway: number): StoreWay {
    return this.#ways[gateway]!;
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
  readonly #cluster: RedisCluster;
  readonly #ways: readonly StoreWay[];
  readonly #waits: string;
  /** By their beginnings: the primary of those slots now, and its replica. */
  readonly #primaries: RedisServer[];
  readonly #replicas: RedisServer[];
  /** A slot does not move while a primary fails over, nor the other way round. */
  #before: Promise<unknown> = Promise.resolve();

  constructor(cluster: RedisCluster, ways: readonly StoreWay[], waits: string) {
    this.#cluster = cluster;
    this.#ways = ways;
    this.#waits = waits;
    this.#primaries = [...cluster.primaries];
    this.#replicas = [...cluster.replicas];
  }

  get primaries(): readonly RedisServer[] {
    return this.#primaries;
  }

  get holders(): readonly RedisServer[] {
    return this.#cluster.all;
  }

  yaml(gateway: number): string {
    return `cluster: ${seenFrom(gateway, this.#cluster.yaml)}${this.#waits}`;
  }

  wayOf(gateway: number): StoreWay {
    return this.#ways[gateway]!;
  }

  failOver(primary: number): Promise<void> {
    return this.#inTurn(async () => {
      const [killed, next] = [this.#primaries[primary]!, this.#replicas[primary]!];
      await killed.kill();
      const isPrimary = async () => (await toldBy(next, 'role')) === 'master';
      await eventually('the replica being a primary', isPrimary, FAIL_OVER_MS);
      this.#primaries[primary] = next;
      // It has forgotten all keys, and takes part again only when it has heard that another one has its slots.
      const back = await this.#cluster.restart(killed);
      this.#replicas[primary] = back;
      const inStep = async () => (await toldBy(back, 'master_link_status')) === 'up';
      await eventually('the old primary being a replica', inStep, FAIL_OVER_MS);
      await this.#cluster.whole();
    });
  }

  moveSlots(): Promise<void> {
    return this.#inTurn(() => this.#moveSome());
  }

  async #moveSome(): Promise<void> {
    for (const [at, from] of this.#primaries.entries()) {
      const to = this.#primaries[(at + 1) % PRIMARIES]!;
      const names = ((await from.command('KEYS', '*').catch(() => [])) as string[]).slice(0, SLOTS);
      const slots = await Promise.all(names.map((name) => this.#cluster.ownerOf(name))).catch(() => []);
      for (const slot of new Set(slots.map(({ slot }) => slot))) await this.#move(slot, from, to);
    }
    // Nobody waits for replicas to have what moved: a primary that is killed just then forgets it.
    for (const [at, replica] of this.#replicas.entries()) {
      const hasAll = () =>
        hasAllOf(replica, this.#primaries[at]!).then(
          () => true,
          () => false,
        );
      await eventually('the replica having what moved', hasAll, FAIL_OVER_MS);
    }
  }

  /** A slot that has been moved by half holds its keys up: what was interrupted is done again. */
  async #move(slot: number, from: RedisServer, to: RedisServer): Promise<void> {
    const moved = () =>
      this.#cluster.move(slot, from, to).then(
        () => true,
        () => false,
      );
    await eventually(`slot ${slot} having moved`, moved, FAIL_OVER_MS);
  }

  async lostAServer(): Promise<boolean> {
    const roles = await Promise.all(this.#replicas.map((replica) => infoOf(replica, 'role')));
    return roles.some((role) => role !== 'slave');
  }

  #inTurn(run: () => Promise<void>): Promise<void> {
    const done = this.#before.then(run, run);
    this.#before = done.catch(() => {});
    return done;
  }
}
