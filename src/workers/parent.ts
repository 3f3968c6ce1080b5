/**
 * The parent of several workers: a composition root like app.ts. It serves no client; it has what there is once: the
 * store in memory, the admin listener, the metrics of all, and the workers themselves.
 *
 * Invariants: nobody is told where it listens before every worker does; a worker that is gone has its flights ended at
 * once; no worker outlives the parent but to end what is in progress.
 */

import cluster from 'node:cluster';
import { fileURLToPath } from 'node:url';
import type { Logger } from 'pino';
import { keepMsOfRule } from '../app/generations.js';
import { flightsApi, type KnownRules } from '../app/operators.js';
import { tellOfReload } from '../app/telling.js';
import { type Gateway, openableStore } from '../app.js';
import type { Config } from '../config/config.js';
import { type ConfigSource, Reloading, type ReloadNews, type ReloadResult } from '../config/reloading.js';
import { memoryShares, workerShare } from '../config/worker-shares.js';
import { MemoryBudget } from '../core/memory-budget.js';
import type { Rule } from '../core/rule.js';
import type { Figures } from '../observe/metrics.js';
import { WorkerFigures } from '../observe/worker-figures.js';
import type { Admin, Readiness } from '../server/admin.js';
import { MemoryStore } from '../store/memory.js';
import { MemoryRelay } from '../store/memory-relay.js';
import type { Store } from '../store/store.js';
import { StoreServer } from '../store/store-server.js';
import { Crew } from './crew.js';
import type { Asked } from './messages.js';
import { toPortable } from './portable-config.js';
import { readinessOf, type Said } from './together.js';
import { Worker } from './worker.js';

const PROGRAM = fileURLToPath(new URL('./worker-process.js', import.meta.url));
/** Longest wait for the readiness and the figures of a worker. */
const LOOK_MS = 1_500;
/** The same for another configuration. */
const RELOAD_MS = 30_000;
/** Time beyond the drain in which a worker that can has ended. */
const DRAIN_MARGIN_MS = 10_000;

export type ParentOptions = {
  readonly version: string;
  readonly log: Logger;
  /** How many workers; at least two. */
  readonly count: number;
  /** Where the configuration came from, to be read again when it changes; null: it stays as it is. */
  readonly source: ConfigSource | null;
};

/** Starts a gateway of several workers. Rejects when one of them cannot start, or the admin listener cannot be bound. */
export async function startWorkers(config: Config, options: ParentOptions): Promise<Gateway> {
  const parent = new Parent(config, options);
  try {
    return await parent.start();
  } catch (error) {
    await parent.stop();
    throw error;
  }
}

class Parent {
  readonly #options: ParentOptions;
  /** What workers that are started from now on serve. */
  #config: Config;
  readonly #crew: Crew;
  readonly #figures = new WorkerFigures();
  readonly #memory: MemoryStore;
  #store: Store | null = null;
  #admin: Admin | null = null;
  readonly #reloading: Reloading | null;
  readonly #rules: KnownRules = {
    keepMsOf: (route) => {
      const rule = this.#ruleOf(route);
      return rule === undefined ? null : keepMsOfRule(rule);
    },
    isRule: (name) => this.#ruleOf(name) !== undefined,
  };

  constructor(config: Config, options: ParentOptions) {
    const { count, log, source } = options;
    this.#config = config;
    this.#options = options;
    const budget = new MemoryBudget(memoryShares(config, count).storeBytes);
    this.#memory = new MemoryStore({ budget, relay: new MemoryRelay(budget) });
    this.#crew = new Crew({
      count,
      log,
      start: (number) => this.#startWorker(number),
      onEnded: (worker, how) => this.#figures.over(idOf(worker), how),
    });
    const tell = (news: ReloadNews): void => {
      tellOfReload(news, log);
      // What was taken into use was told to them already.
      if (news.result.kind === 'refused') void this.#askAll({ kind: 'adopt', config: null }, LOOK_MS);
    };
    this.#reloading = source === null ? null : new Reloading({ source, swap: (next) => this.#adopt(next), tell });
  }

  async start(): Promise<Gateway> {
    await this.#memory.open();
    const inMemory = this.#config.store.kind === 'memory';
    // The workers accept by themselves: less work a connection, and none is lost with a worker that has not accepted it.
    cluster.schedulingPolicy = cluster.SCHED_NONE;
    cluster.setupPrimary({
      exec: PROGRAM,
      args: [],
      serialization: 'advanced',
      stdio: ['ignore', 'inherit', 'inherit', 'ipc', ...(inMemory ? (['pipe'] as const) : [])],
    });
    const url = await this.#crew.start();
    const adminUrl = await this.#openAdmin();
    this.#reloading?.watch();
    return {
      url,
      adminUrl,
      reload: () => this.#reload(),
      readiness: () => this.#readiness(),
      figures: () => this.#latestFigures(),
      adopt: (next) => this.#adopt(next),
      close: () => this.#close(),
    };
  }

  /** Ends everything at once. */
  async stop(): Promise<void> {
    this.#reloading?.stop();
    this.#crew.kill();
    await this.#closeAdapters();
  }

  #startWorker(number: number): Worker {
    const { version, count, log } = this.#options;
    const worker = new Worker(number, cluster.fork(), (figures) => this.#figures.told(idOf(worker), figures));
    this.#figures.began(idOf(worker));
    const stream = worker.storeStream;
    if (stream !== null) {
      const { closed } = new StoreServer(this.#memory, stream);
      void closed.then((flights) => {
        if (flights > 0)
          log.warn({ worker: number, workerPid: worker.pid, flights }, 'flights of a worker ended as unknown');
      });
    }
    const config = toPortable(workerShare(this.#config, number - 1, count));
    worker.order({ kind: 'begin', worker: number, version, config });
    return worker;
  }

  /** Loaded when clients are served already, as in a gateway of one process. */
  async #openAdmin(): Promise<string | null> {
    const { admin: config } = this.#config;
    if (config.kind !== 'on') return null;
    const { log } = this.#options;
    const store = await openableStore(this.#config.store, this.#memory, log);
    this.#store = store;
    await store.open();
    const { Admin } = await import('../server/admin.js');
    const expose = async (): Promise<string> => {
      await this.#latestFigures();
      return this.#figures.expose();
    };
    this.#admin = new Admin({
      config,
      readiness: () => this.#readiness(),
      flights: flightsApi(this.#rules, store, log),
      reload: () => this.#reload(),
      metrics: { contentType: this.#figures.contentType, expose },
    });
    return this.#admin.listen();
  }

  #askAll<T>(asked: Asked, timeoutMs: number): Promise<Said<T>[]> {
    return Promise.all(
      this.#crew.workers.map(async (worker) => {
        const said = await worker.ask<T>(asked, timeoutMs).catch((error: Error) => error);
        if (asked.kind === 'figures' && !(said instanceof Error)) this.#figures.told(idOf(worker), said as Figures);
        return { worker: worker.number, said };
      }),
    );
  }

  async #latestFigures(): Promise<Figures> {
    await this.#askAll<Figures>({ kind: 'figures' }, LOOK_MS);
    return this.#figures.all();
  }

  async #readiness(): Promise<Readiness> {
    const own = {
      draining: this.#crew.ending ? 'yes' : 'ok',
      store: await (this.#store ?? this.#memory).ping().then(
        () => 'ok',
        (error: Error) => error.message,
      ),
    };
    const all = await this.#askAll<Readiness>({ kind: 'readiness' }, LOOK_MS);
    return readinessOf(this.#crew.count, all, own, this.#reloading?.state ?? null);
  }

  async #reload(): Promise<ReloadResult> {
    // Each has the certificate for itself.
    await this.#askAll({ kind: 'reload' }, LOOK_MS);
    return this.#reloading === null ? { kind: 'unchanged', needsRestart: [] } : this.#reloading.reload();
  }

  /** Has all workers take it into use. One that does not serves by other rules: it is replaced by one that does. */
  async #adopt(next: Config | null): Promise<void> {
    if (next === null) return void (await this.#askAll({ kind: 'adopt', config: null }, RELOAD_MS));
    const { count, log } = this.#options;
    this.#config = next;
    await Promise.all(
      this.#crew.workers.map(async (worker) => {
        const config = toPortable(workerShare(next, worker.number - 1, count));
        try {
          await worker.ask({ kind: 'adopt', config }, RELOAD_MS);
        } catch (error) {
          log.error({ worker: worker.number, err: error }, 'worker has not reloaded: another one takes its place');
          worker.kill();
        }
      }),
    );
  }

  #ruleOf(name: string): Rule | undefined {
    return this.#config.rules.find((rule) => rule.name === name);
  }

  async #close(): Promise<void> {
    const kill = (): void => this.#crew.kill();
    // A second signal ends this process, and all workers are to end with it.
    process.once('exit', kill);
    this.#reloading?.stop();
    const { drainDelayMs, drainMs } = this.#config;
    const killed = await this.#crew.drain(drainDelayMs + drainMs + DRAIN_MARGIN_MS);
    process.off('exit', kill);
    await this.#closeAdapters();
    if (killed > 0) throw new Error(`${killed} workers did not end by themselves`);
  }

  async #closeAdapters(): Promise<void> {
    await this.#admin?.close();
    await Promise.allSettled([this.#store?.close(), this.#memory.close()]);
  }
}

/** One worker's, and never another's: process ids come again. */
function idOf({ number, startedAtMs }: Worker): string {
  return `${number} ${startedAtMs}`;
}
