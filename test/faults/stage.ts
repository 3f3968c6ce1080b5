/**
 * What a schedule is played on: a stub upstream, gateways as processes, each with proxies of its own to the upstream and
 * to each server of its store, and the means to break any of them.
 *
 * Invariants: everything that is broken is noted as trouble, from before it begins until after it is whole again; a
 * gateway or a store that stands still without being told to (a machine that is busy) is noticed by probes and noted
 * too.
 */

import { delay, eventually } from '../support/gate.js';
import { configOf, type Gateway, type Scope, startGateway } from '../support/gateway.js';
import type { RedisServer } from '../support/redis.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { type StubUpstream, startUpstream } from '../support/upstream.js';
import { leftoversOf } from './leftovers.js';
import { type OpenTrouble, Probes } from './probes.js';
import { routesYaml, UPSTREAM_MS } from './routes.js';
import type { Fault, Schedule } from './schedule.js';
import type { Leftover, Trouble } from './seen.js';
import { openPlace, type StorePlace } from './store-place.js';

/** How long a reply that is to be lost is waited for. */
const REPLY_MS = 1_500;
/** An answer that was written so shortly before may not have been read. */
const RECENT_MS = 100;
const EVICT_MS = 60;
const TICK_MS = 10;
/** Longer than any schedule. */
const SURPRISE_MS = 60_000;

export class Stage {
  readonly troubles: Trouble[] = [];
  readonly flushesMs: number[] = [];
  readonly deafMs: number[] = [];
  readonly #gateways: Gateway[] = [];
  readonly #all: Gateway[] = [];
  readonly #toUpstream: TcpProxy[] = [];
  readonly #probes: Probes;

  private constructor(
    readonly upstream: StubUpstream,
    readonly place: StorePlace,
    readonly seed: number,
    readonly scope: Scope,
    readonly program: string | undefined,
  ) {
    this.#probes = new Probes((trouble) => this.troubles.push(trouble), scope);
  }

  /** `program`: path of the gateway's; undefined: the one that was built. */
  static async open(schedule: Schedule, server: RedisServer, scope: Scope, program?: string): Promise<Stage> {
    const [upstream, place] = await Promise.all([startUpstream(scope), openPlace(schedule, server, scope)]);
    const stage = new Stage(upstream, place, schedule.seed, scope, program);
    for (let at = 0; at < schedule.processes; at += 1)
      stage.#toUpstream.push(await TcpProxy.start(scope, upstream.port));
    await Promise.all(stage.#toUpstream.map((_, at) => stage.#start(at)));
    stage.#probes.begin(place.holders, stage.#gateways.length, (at) => stage.gateway(at).adminUrl);
    return stage;
  }

  get prefix(): string {
    return `s${this.seed}`;
  }

  gateway(at: number): Gateway {
    return this.#gateways[at]!;
  }

  /**
   * Breaks something, and mends it. `onUpstreamDown`: calls of that gateway that run, and answers that were written since
   * then (monotonic), are lost, or are about to be.
   */
  async play(fault: Fault, onUpstreamDown: (gateway: number | 'all', sinceMs: number) => void): Promise<void> {
    const { kind } = fault;
    switch (kind) {
      case 'kill':
        return this.#during(kind, fault.gateway, async () => {
          await this.gateway(fault.gateway).kill9();
          await delay(fault.forMs);
          await this.#start(fault.gateway);
        });
      case 'stop':
        return this.#during(kind, fault.gateway, async () => {
          this.gateway(fault.gateway).pause();
          await delay(fault.forMs);
          this.gateway(fault.gateway).resume();
        });
      case 'drop-reply':
        return this.#during(kind, fault.gateway, () =>
          this.place.wayOf(fault.gateway).loseReplyTo(`${this.prefix}:{`, REPLY_MS),
        );
      case 'black-hole':
        return this.#during(kind, fault.gateway, () => this.place.wayOf(fault.gateway).blackHole(fault.forMs));
      case 'slow-network':
        return this.#during(kind, fault.gateway, () => this.place.wayOf(fault.gateway).slow(fault.forMs));
      case 'late-packet':
        return this.#during(kind, fault.gateway, () => this.place.wayOf(fault.gateway).late(fault.forMs));
      case 'pause-store':
        return this.#during(kind, 'all', async () => {
          await this.#each('CLIENT', 'PAUSE', fault.forMs, 'ALL');
          await delay(fault.forMs);
        });
      case 'kill-connections':
        // Without its pushes a gateway has to ask, which excuses nothing.
        if (fault.of === 'pubsub') {
          this.deafMs.push(performance.now());
          return this.#each('CLIENT', 'KILL', 'TYPE', fault.of);
        }
        return this.#during(kind, 'all', () => this.#each('CLIENT', 'KILL', 'TYPE', fault.of));
      case 'forget-scripts':
        return this.#each('SCRIPT', 'FLUSH');
      case 'flush':
        return this.#forgetting(() => this.#during(kind, 'all', () => this.#each('FLUSHALL')));
      case 'evict':
        return this.#forgetting(() => this.#during(kind, 'all', () => this.#evict()));
      case 'fail-over':
        return this.#during(kind, 'all', () => this.#unlessLost(this.place.failOver(fault.primary)));
      case 'move-slots':
        return this.#during(kind, 'all', () => this.#unlessLost(this.place.moveSlots()));
      case 'cut-upstream':
        return this.#during(kind, 'upstream', async () => {
          onUpstreamDown(fault.gateway, performance.now() - RECENT_MS);
          this.#toUpstream[fault.gateway]!.cut();
        });
      case 'black-hole-upstream':
        return this.#during(kind, 'upstream', async () => {
          const proxy = this.#toUpstream[fault.gateway]!;
          const sinceMs = performance.now() - RECENT_MS;
          proxy.blackHole = true;
          await delay(fault.forMs);
          onUpstreamDown(fault.gateway, sinceMs);
          proxy.cut();
          proxy.blackHole = false;
        });
      case 'refuse-upstream':
        return this.#during(kind, 'upstream', async () => {
          onUpstreamDown('all', performance.now() - RECENT_MS);
          await this.upstream.refuse();
          await delay(fault.forMs);
          await this.upstream.listen();
        });
    }
  }

  /** Every gateway serves and has its store; what does not when the store has had its time to heal is told. */
  async whole(): Promise<string[]> {
    const told = this.#gateways.map((gateway, at) =>
      eventually(`gateway ${at} being ready again`, () => isReady(gateway), this.place.healsMs).then(
        () => [],
        (error: Error) => [error.message],
      ),
    );
    return (await Promise.all(told)).flat();
  }

  /** What a gateway did that none should. */
  async oddities(): Promise<string[]> {
    const odd: string[] = [];
    const idle = async (gateway: Gateway) => (await gateway.metrics()).sum('oneflight_flights_in_progress') === 0;
    for (const [at, gateway] of this.#gateways.entries()) {
      if (!gateway.running) odd.push(`gateway ${at} ended by itself`);
      else
        await eventually(`gateway ${at}: no flight`, () => idle(gateway), 3_000).catch((error) => odd.push(`${error}`));
    }
    for (const { logs, stderr } of this.#all) {
      if (stderr !== '') odd.push(`a gateway wrote ${stderr.slice(0, 500)}`);
      odd.push(...logs.filter(({ level }) => level === 'error' || level === 50).map((line) => JSON.stringify(line)));
    }
    return odd;
  }

  /** What is in Redis under this schedule's prefix when no lease runs any more, or should; it is removed. */
  leftovers(): Promise<Leftover[]> {
    return leftoversOf(`${this.prefix}:*`, (...words) => this.#replies(...words));
  }

  /** Notes what the store did by itself: a server that was only slow was taken for dead, and nothing is promised. Whether it did. */
  async noteSurprises(): Promise<boolean> {
    if (!(await this.place.lostAServer().catch(() => true))) return false;
    const toMs = performance.now();
    this.flushesMs.push(...Array.from({ length: SURPRISE_MS / 100 }, (_, at) => toMs - at * 100));
    this.troubles.push({ what: 'lost-server', gateway: 'all', fromMs: toMs - SURPRISE_MS, toMs });
    return true;
  }

  /** Ends the probes; what they still wait for is trouble until now. */
  close(): void {
    this.#probes.end();
    const now = performance.now();
    for (const trouble of this.troubles as OpenTrouble[]) trouble.toMs = Math.min(trouble.toMs, now);
  }

  /** Has every primary do it. */
  async #replies(...words: readonly (string | number)[]): Promise<unknown[]> {
    return Promise.all(this.place.primaries.map((server) => server.command(...words)));
  }

  /** The same to break it: one that is gone, or whose connections were just killed, is broken already. */
  async #each(...words: readonly (string | number)[]): Promise<void> {
    await Promise.all(this.place.primaries.map((server) => server.command(...words).catch(() => {})));
  }

  /** At every moment of it the store may forget anything. */
  async #forgetting(run: () => Promise<void>): Promise<void> {
    let atMs = performance.now();
    await run();
    for (const untilMs = performance.now(); atMs < untilMs; atMs += TICK_MS) this.flushesMs.push(atMs);
    this.flushesMs.push(performance.now());
  }

  /** A server that the others have taken for dead does nothing that it is asked for; that it was is told at the end. */
  async #unlessLost(done: Promise<void>): Promise<void> {
    await done.catch(async (error: unknown) => {
      if (!(await this.place.lostAServer().catch(() => true))) throw error;
    });
  }

  /** For a moment there is room for nothing. */
  async #evict(): Promise<void> {
    await this.#each('CONFIG', 'SET', 'maxmemory-policy', 'allkeys-random', 'maxmemory', 1);
    await delay(EVICT_MS);
    await this.#each('CONFIG', 'SET', 'maxmemory', 0, 'maxmemory-policy', 'noeviction');
  }

  async #start(at: number): Promise<void> {
    const secret = secretOf(this.seed, at);
    const store = `{ kind: redis, ${this.place.yaml(at)}, prefix: ${this.prefix}, commandTimeout: 300ms${secret} }`;
    const { connect, headers, body } = UPSTREAM_MS;
    const timeouts = `{ connect: ${connect}ms, headers: ${headers}ms, body: ${body}ms }`;
    const config = configOf({
      upstream: `http://127.0.0.1:${this.#toUpstream[at]!.port}`,
      store,
      timeouts,
      routes: routesYaml(),
    });
    const gateway = await startGateway(this.scope, {
      config,
      ...(this.program === undefined ? {} : { program: this.program }),
    });
    this.#gateways[at] = gateway;
    this.#all.push(gateway);
    // Before it has its store, which on a busy machine takes a while, it says so and promises nothing.
    await eventually('a new gateway being ready', () => isReady(gateway)).catch(() => {});
  }

  async #during(what: string, gateway: Trouble['gateway'], run: () => Promise<unknown>): Promise<void> {
    const trouble: OpenTrouble = { what, gateway, fromMs: performance.now(), toMs: Number.POSITIVE_INFINITY };
    this.troubles.push(trouble);
    await run();
    trouble.toMs = performance.now();
  }
}

async function isReady(gateway: Gateway): Promise<boolean> {
  return (await gateway.admin('/readyz').catch(() => null))?.status === 200;
}

/** Every third schedule has no secret, every third one, and every third is in the middle of its rotation. */
function secretOf(seed: number, at: number): string {
  const secrets = ['the-old-secret-of-schedules', 'the-new-secret-of-schedules'];
  const kind = seed % 3;
  if (kind === 0) return '';
  return `, secret: [${kind === 1 ? secrets[0] : (at % 2 === 0 ? secrets : secrets.toReversed()).join(', ')}]`;
}
