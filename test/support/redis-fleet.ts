/**
 * Several real servers that are one store: a primary with a replica behind sentinels, and a Redis Cluster. They end with
 * the test.
 */

import { eventually } from './gate.js';
import { freePort } from './ports.js';
import { type RedisOptions, type RedisServer, startRedis } from './redis.js';
import { TcpProxy } from './tcp-proxy.js';

type Scope = { teardown(end: () => Promise<void>): void };

const PROMPT_MS = 30_000;

/** A replica is served at once, not in company with others a few seconds later. */
const AT_ONCE = ['--repl-diskless-sync-delay', '0'];

async function started(t: Scope, options: RedisOptions = {}): Promise<RedisServer> {
  const settings = options.sentinel === undefined ? [...AT_ONCE, ...(options.settings ?? [])] : [];
  const server = await startRedis({ ...options, settings });
  t.teardown(() => server.stop());
  return server;
}

/** The value of a field of INFO. */
export async function infoOf(server: RedisServer, field: string): Promise<string | undefined> {
  return new RegExp(`^${field}:(.*?)\r?$`, 'm').exec(String(await server.command('INFO', 'all')))?.[1];
}

export type Replicated = {
  readonly primary: RedisServer;
  readonly replica: RedisServer;
  /** The way from the replica to its primary. */
  readonly link: TcpProxy;
};

/** A primary and a replica that is in step. */
export async function startReplicated(t: Scope, { tls = false } = {}): Promise<Replicated> {
  const primary = await started(t, { tls });
  const link = await TcpProxy.start(t, tls ? primary.tlsPort : primary.port);
  const replica = await started(t, { tls, settings: ['--replicaof', '127.0.0.1', String(link.port)] });
  const inStep = async () => (await infoOf(replica, 'master_link_status')) === 'up';
  await eventually('the replica is in step', inStep, PROMPT_MS);
  return { primary, replica, link };
}

export type Watched = Replicated & {
  readonly sentinels: readonly RedisServer[];
  /** As `store.sentinel` of a configuration. */
  readonly yaml: string;
  /** Resolves when the replica has all that the primary has. */
  replicated(): Promise<void>;
};

/** Three sentinels that take the primary for gone after a second of silence. The link is the only way to it, for them and for clients too. */
export async function startWatched(t: Scope, { tls = false } = {}): Promise<Watched> {
  const { primary, replica, link } = await startReplicated(t, { tls });
  const config = `sentinel monitor main 127.0.0.1 ${link.port} 2
sentinel down-after-milliseconds main 1000
sentinel failover-timeout main 4000
`;
  const sentinels = await Promise.all([1, 2, 3].map(() => started(t, { tls, sentinel: config })));
  for (const sentinel of sentinels) {
    await eventually(
      'the sentinels know each other and the replica',
      async () => /status=ok,.*,slaves=1,sentinels=3/.test((await infoOf(sentinel, 'master0')) ?? ''),
      PROMPT_MS,
    );
  }
  const hosts = sentinels.map(({ port, tlsPort }) => `"127.0.0.1:${tls ? tlsPort : port}"`).join(', ');
  return {
    primary,
    replica,
    link,
    sentinels,
    yaml: `{ name: main, hosts: [${hosts}] }`,
    replicated: () => hasAllOf(replica, primary),
  };
}

/** Resolves when the replica has all that its primary has at this moment. */
export async function hasAllOf(replica: RedisServer, primary: RedisServer): Promise<void> {
  const sent = Number(await infoOf(primary, 'master_repl_offset'));
  await eventually('the replica has everything', async () => {
    return Number(await infoOf(replica, 'slave_repl_offset')) >= sent;
  });
}

export const PRIMARIES = 3;
const SLOTS = 16_384;

type ClusterNode = { readonly bus: number; readonly server: RedisServer; readonly settings: readonly string[] };

export class RedisCluster {
  /** As they were at the beginning. */
  readonly primaries: readonly RedisServer[];
  /** In the order of their primaries. */
  readonly replicas: readonly RedisServer[];
  readonly #scope: Scope;
  readonly #settings: ReadonlyMap<number, readonly string[]>;

  private constructor(t: Scope, nodes: readonly ClusterNode[]) {
    const servers = nodes.map(({ server }) => server);
    this.primaries = servers.slice(0, PRIMARIES);
    this.replicas = servers.slice(PRIMARIES);
    this.#scope = t;
    this.#settings = new Map(nodes.map(({ server, settings }) => [server.port, settings]));
  }

  /** Three primaries that have a third of the slots each, and a replica of each of the first ones. */
  static async start(t: Scope, { tls = false, replicas = 1 } = {}): Promise<RedisCluster> {
    const each = Array.from({ length: PRIMARIES + replicas }, async () => {
      const bus = await freePort();
      const settings = ['--cluster-enabled', 'yes', '--cluster-port', String(bus), '--cluster-node-timeout', '1500'];
      if (tls) settings.push('--tls-cluster', 'yes');
      return { bus, settings, server: await started(t, { tls, settings }) };
    });
    const nodes = await Promise.all(each);
    const [first, ...others] = nodes as [(typeof nodes)[number], ...typeof nodes];
    for (const { bus, server } of others) {
      await first.server.command('CLUSTER', 'MEET', '127.0.0.1', tls ? server.tlsPort : server.port, bus);
    }
    const primaries = nodes.slice(0, PRIMARIES).map(({ server }) => server);
    const width = Math.ceil(SLOTS / PRIMARIES);
    for (const [i, server] of primaries.entries()) {
      await server.command('CLUSTER', 'ADDSLOTSRANGE', i * width, Math.min(SLOTS, (i + 1) * width) - 1);
    }
    const cluster = new RedisCluster(t, nodes);
    await Promise.all(
      cluster.replicas.map(async (replica, at) => {
        const id = String(await primaries[at]!.command('CLUSTER', 'MYID'));
        const isTaken = async () => {
          return replica.command('CLUSTER', 'REPLICATE', id).then(
            () => true,
            () => false,
          );
        };
        await eventually('the replica knows its primary', isTaken, PROMPT_MS);
      }),
    );
    await cluster.whole();
    for (const replica of cluster.replicas) {
      const inStep = async () => (await infoOf(replica, 'master_link_status')) === 'up';
      await eventually('the replica is in step', inStep, PROMPT_MS);
    }
    return cluster;
  }

  /** Of the first primary. */
  get replica(): RedisServer {
    return this.replicas[0]!;
  }

  /** Starts a node that was killed, with what it knew of the others and none of its keys. */
  restart({ port, dir }: RedisServer): Promise<RedisServer> {
    return started(this.#scope, { port, dir, settings: this.#settings.get(port)! });
  }

  /** As `store.cluster` of a configuration: one of its nodes, which knows the others. */
  get yaml(): string {
    const at = ({ port, tlsPort }: RedisServer) => `"127.0.0.1:${tlsPort === 0 ? port : tlsPort}"`;
    return `[${at(this.primaries[1]!)}, ${at(this.primaries[2]!)}]`;
  }

  get all(): readonly RedisServer[] {
    return [...this.primaries, ...this.replicas];
  }

  /** Resolves when every node that runs says that all slots are served, and by the same nodes. */
  async whole(nodes = this.all): Promise<void> {
    await eventually(
      'the cluster is whole',
      async () => {
        const views = new Set<string>();
        for (const node of nodes) {
          const info = String(await node.command('CLUSTER', 'INFO'));
          if (!info.includes('cluster_state:ok') || !info.includes(`cluster_known_nodes:${this.all.length}`))
            return false;
          const slots = (await node.command('CLUSTER', 'SLOTS')) as [number, number, [string, number]][];
          views.add(JSON.stringify(slots.map(([from, to, [, port]]) => [from, to, port]).sort()));
        }
        return views.size === 1;
      },
      PROMPT_MS,
    );
  }

  /** The primary that has the slot of this name. */
  async ownerOf(name: string): Promise<{ readonly owner: RedisServer; readonly slot: number }> {
    const asked = this.primaries[1]!;
    const slot = Number(await asked.command('CLUSTER', 'KEYSLOT', name));
    const slots = (await asked.command('CLUSTER', 'SLOTS')) as [number, number, [string, number]][];
    const port = slots.find(([from, to]) => from <= slot && slot <= to)?.[2][1];
    return { owner: this.all.find((server) => server.port === port)!, slot };
  }

  /** Begins to move a slot: from now on the old owner sends to the new one for what it does not have. */
  async beginMove(slot: number, from: RedisServer, to: RedisServer): Promise<void> {
    await to.command('CLUSTER', 'SETSLOT', slot, 'IMPORTING', String(await from.command('CLUSTER', 'MYID')));
    await from.command('CLUSTER', 'SETSLOT', slot, 'MIGRATING', String(await to.command('CLUSTER', 'MYID')));
  }

  /** Moves what there is of a slot; a copy that an interrupted move has left is not what clients were given. */
  async moveNames(slot: number, from: RedisServer, to: RedisServer): Promise<void> {
    for (;;) {
      const names = (await from.command('CLUSTER', 'GETKEYSINSLOT', slot, 100)) as string[];
      if (names.length === 0) return;
      await from.command('MIGRATE', '127.0.0.1', to.port, '', 0, 5_000, 'REPLACE', 'KEYS', ...names);
    }
  }

  /** Resolves when every node has heard of it. */
  async endMove(slot: number, from: RedisServer, to: RedisServer): Promise<void> {
    const id = String(await to.command('CLUSTER', 'MYID'));
    await to.command('CLUSTER', 'SETSLOT', slot, 'NODE', id);
    await from.command('CLUSTER', 'SETSLOT', slot, 'NODE', id);
    // A node that gets a slot back takes a new epoch only when it knows of a larger one than its own: moved back before
    // that was heard, an older message of the other takes the slot away from it, and then nobody has it for good.
    await eventually('the move is known to all', () => this.#sameEpochs(), PROMPT_MS);
  }

  /** Whether all nodes that run say the same epochs, each primary's its own. */
  async #sameEpochs(): Promise<boolean> {
    const views = new Set<string>();
    for (const node of this.all) {
      const lines = String(await node.command('CLUSTER', 'NODES'))
        .trim()
        .split('\n');
      const primaries = lines.map((line) => line.split(' ')).filter(([, , flags]) => flags?.includes('master'));
      const epochs = primaries.map(([id, , , , , , epoch]) => [id, epoch]);
      if (new Set(epochs.map(([, epoch]) => epoch)).size < epochs.length) return false;
      views.add(JSON.stringify(epochs.sort()));
    }
    return views.size === 1;
  }

  /** One that was interrupted, wherever, is ended by the next. */
  async move(slot: number, from: RedisServer, to: RedisServer): Promise<void> {
    // Who has the slot already would refuse to begin.
    if (!(await hasSlot(to, slot))) await this.beginMove(slot, from, to);
    await this.moveNames(slot, from, to);
    await this.endMove(slot, from, to);
  }
}

/** Whether the node says so of itself. */
async function hasSlot(node: RedisServer, slot: number): Promise<boolean> {
  const slots = (await node.command('CLUSTER', 'SLOTS')) as [number, number, [string, number]][];
  return slots.some(([from, to, [, port]]) => from <= slot && slot <= to && port === node.port);
}
