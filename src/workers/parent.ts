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
import { KnownRules } from '../app/known-rules.js';
import { auditBy, setLevelByOperator, takeLog } from '../app/log-level.js';
import { tellOfReload } from '../app/telling.js';
import { type Gateway, openableStore } from '../app.js';
import type { Config, LogLevel } from '../config/config.js';
import { type ConfigSource, Reloading, type ReloadResult } from '../config/reloading.js';
import { memoryShares } from '../config/worker-shares.js';
import { MemoryBudget } from '../core/memory-budget.js';
import { keyHealthOf, type RouteKeyHealth } from '../observe/key-health-metrics.js';
import type { Figures } from '../observe/metrics.js';
import { WorkerFigures } from '../observe/worker-figures.js';
import type { Admin, Readiness } from '../server/admin.js';
import { Certificate } from '../server/certificate.js';
import { MemoryStore } from '../store/memory.js';
import { MemoryRelay } from '../store/memory-relay.js';
import { newProcessId } from '../store/process-id.js';
import type { Store } from '../store/store.js';
import { StoreServer } from '../store/store-server.js';
import { Crew } from './crew.js';
import type { Asked } from './messages.js';
import { toPortable } from './portable-config.js';
import { readinessOf } from './together.js';
import { Worker } from './worker.js';

const PROGRAM = fileURLToPath(new URL('./worker-process.js', import.meta.url));
/** Longest wait for the readiness and the figures of a worker. */
const LOOK_MS = 1_500;
/** The same for a reload, for which new upstreams may have to be looked at. */
const RELOAD_MS = 10_000;
/** Time beyond the drain in which a worker that can has ended. */
const DRAIN_MARGIN_MS = 10_000;

export type ParentOptions = {
  readonly version: string;
  readonly log: Logger;
  /** Where the configuration came from, to be read again when it changes. */
  readonly source: ConfigSource;
};

/** What a gateway of several workers has in common with one of a single process. */
export type WorkersGateway = Pick<Gateway, 'url' | 'adminUrl' | 'reload' | 'close'>;

/** Starts a gateway of several workers, two at least. Rejects when one of them cannot start, or the admin listener cannot be bound. */
export async function startWorkers(config: Config, count: number, options: ParentOptions): Promise<WorkersGateway> {
  const parent = new Parent(config, count, options);
  try {
    return await parent.start();
  } catch (error) {
    await parent.stop();
    throw error;
  }
}

/** What one worker answered, or why it did not. */
type Said<T> = { readonly worker: Worker; readonly said: T | Error };

class Parent {
  readonly #options: ParentOptions;
  /** What workers that are started from now on serve. */
  #config: Config;
  readonly #crew: Crew;
  readonly #figures = new WorkerFigures();
  readonly #memory: MemoryStore;
  readonly #reloading: Reloading;
  /** What workers show that are started while the files cannot be used. */
  readonly #certificate: Certificate | null;
  readonly #rules: KnownRules;
  /** Where clients were told to come; 0: they were not. */
  #toldPort = 0;
  /** Which port the workers ask for; null: as configured. */
  #port: number | null = null;
  #store: Store | null = null;
  #admin: Admin | null = null;

  constructor(config: Config, count: number, options: ParentOptions) {
    const { log, source } = options;
    this.#config = config;
    this.#rules = new KnownRules(config.rules);
    this.#options = options;
    this.#certificate = config.listen.tls === null ? null : new Certificate(config.listen.tls);
    const budget = new MemoryBudget(memoryShares(config, count).storeBytes);
    this.#memory = new MemoryStore({ budget, relay: new MemoryRelay(budget) });
    this.#crew = new Crew({
      count,
      log,
      start: (number) => this.#startWorker(number),
      onEnded: (worker, how) => this.#figures.over(idOf(worker), how),
    });
    this.#reloading = new Reloading({
      source,
      swap: (next) => this.#swap(next),
      tell: (news) => {
        if (news.result.kind !== 'stopping') this.#figures.reloaded(news.result.kind === 'refused' ? 'bad' : 'good');
        tellOfReload(news, log);
      },
    });
  }

  async start(): Promise<WorkersGateway> {
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
    // The workers tell of it.
    this.#certificate?.watch(
      () => {},
      () => {},
    );
    const url = await this.#crew.start();
    this.#toldPort = Number(new URL(url).port);
    const adminUrl = await this.#openAdmin();
    this.#reloading.watch();
    return { url, adminUrl, reload: () => this.#reload(), close: () => this.#close() };
  }

  /** Ends everything at once. */
  async stop(): Promise<void> {
    this.#reloading.stop();
    this.#crew.kill();
    await this.#closeAdapters();
  }

  #startWorker(number: number): Worker {
    const { version, log } = this.#options;
    const { count } = this.#crew;
    const worker = new Worker(number, cluster.fork(), (figures) => this.#figures.told(idOf(worker), figures));
    this.#figures.began(idOf(worker));
    const stream = worker.storeStream;
    if (stream !== null) {
      const { closed } = new StoreServer(this.#memory, stream, newProcessId(worker.pid));
      void closed.then((flights) => {
        if (flights > 0)
          log.warn({ worker: number, workerPid: worker.pid, flights }, 'flights of a worker ended as unknown');
      });
    }
    const pair = this.#certificate?.pair ?? null;
    // On port 0 they all have the port of the first. Were all gone at once, the next ones would have another than clients
    // were told; while one is there, that one cannot be asked for.
    if (this.#crew.workers.length === 0 && this.#toldPort > 0) this.#port = this.#toldPort;
    const config = {
      ...this.#config,
      listen: { ...this.#config.listen, port: this.#port ?? this.#config.listen.port },
    };
    worker.order({
      kind: 'begin',
      worker: number,
      count,
      version,
      config: toPortable(config),
      pair,
      logLevel: log.level as LogLevel,
    });
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
    const asked = async <T>(tell: () => Promise<T>): Promise<T> => {
      await this.#askAll<Figures>({ kind: 'figures' }, LOOK_MS);
      return tell();
    };
    const keyHealth = async (): Promise<readonly RouteKeyHealth[]> => {
      await this.#askAll<Figures>({ kind: 'figures' }, LOOK_MS);
      return keyHealthOf(await this.#figures.counted());
    };
    this.#admin = new Admin({
      config,
      readiness: () => this.#readiness(),
      flights: {
        store,
        keyHealth,
        keepMsOf: (route) => this.#rules.keepMsOf(route),
        isRule: (name) => this.#rules.isRule(name),
        audit: (did, entry) => auditBy(log, did, entry),
      },
      explain: async ({ request, values, store: ask }) => {
        const { Explainer } = await import('../explain/explaining.js');
        return new Explainer(this.#config).explain(request, { values, store: ask === 'asked' ? store : null });
      },
      reload: () => this.#reload(),
      logLevel: { level: () => log.level as LogLevel, set: (level) => this.#setLogLevel(level) },
      inUse: () => this.#reloading.inUse,
      metrics: {
        contentType: this.#figures.contentType,
        expose: () => asked(() => this.#figures.expose()),
        exposeOpenMetrics: () => asked(() => this.#figures.exposeOpenMetrics()),
        figures: () => asked(() => this.#figures.figures()),
      },
    });
    return this.#admin.listen();
  }

  #askAll<T>(asked: Asked, timeoutMs: number): Promise<Said<T>[]> {
    return Promise.all(
      this.#crew.workers.map(async (worker) => {
        const said = await worker.ask<T>(asked, timeoutMs).catch((error: Error) => error);
        if (asked.kind === 'figures' && !(said instanceof Error)) this.#figures.told(idOf(worker), said as Figures);
        return { worker, said };
      }),
    );
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
    return readinessOf(
      this.#crew.count,
      all.map(({ worker, said }) => ({ worker: worker.number, said })),
      { checks: own, config: this.#reloading.state },
    );
  }

  async #reload(): Promise<ReloadResult> {
    this.#certificate?.reload();
    // At the same time, or the watch of the files has done it meanwhile and there is nothing to be told.
    const result = this.#reloading.reload();
    // What each reads for itself: a bad line elsewhere is no reason to let a certificate expire.
    await this.#askAll({ kind: 'reload' }, LOOK_MS);
    return result;
  }

  async #setLogLevel(level: LogLevel): Promise<void> {
    setLevelByOperator(this.#options.log, level);
    const all = await this.#askAll<void>({ kind: 'log-level', level }, LOOK_MS);
    const deaf = all.filter(({ said }) => said instanceof Error).map(({ worker }) => worker.number);
    if (deaf.length > 0) throw new Error(`worker ${deaf.join(', ')} did not answer, and may log as before`);
  }

  /** All workers serve the same: one that cannot take what others have taken gives its place to another. */
  async #swap(next: Config): Promise<void> {
    const { log } = this.#options;
    const before = this.#config;
    this.#config = next;
    const all = await this.#askAll<void>({ kind: 'take', config: toPortable(next) }, RELOAD_MS);
    const failed = all.filter(({ said }) => said instanceof Error);
    if (failed.length > 0 && failed.length === all.length) {
      this.#config = before;
      throw failed[0]?.said;
    }
    for (const { worker, said } of failed) {
      log.error(
        { worker: worker.number, workerPid: worker.pid, err: said },
        'a worker could not reload: it is replaced',
      );
      worker.kill();
    }
    this.#rules.replace(next.rules);
    takeLog(log, before.log, next.log);
  }

  async #close(): Promise<void> {
    this.#reloading.stop();
    const kill = (): void => this.#crew.kill();
    // A second signal ends this process, and all workers are to end with it.
    process.once('exit', kill);
    const killed = await this.#crew.drain(this.#config.drainDelayMs + this.#config.drainMs + DRAIN_MARGIN_MS);
    process.off('exit', kill);
    await this.#closeAdapters();
    if (killed > 0) throw new Error(`${killed} workers did not end by themselves`);
  }

  async #closeAdapters(): Promise<void> {
    this.#certificate?.close();
    await this.#admin?.close();
    await Promise.allSettled([this.#store?.close(), this.#memory.close()]);
  }
}

/** One worker's, and never another's: process ids come again. */
function idOf({ number, startedAtMs }: Worker): string {
  return `${number} ${startedAtMs}`;
}
