/**
 * The composition root: it constructs the adapters and ties them together, with its parts in app/; nobody else does.
 *
 * Invariants: nothing is accepted before everything behind it is open; closing goes the other way round, so that a
 * request that was accepted finds what it needs until it is over.
 */

import type { Logger } from 'pino';
import { Generations } from './app/generations.js';
import { auditBy, setLevelByOperator, takeLog } from './app/log-level.js';
import { tellOfCertificate, tellOfReload } from './app/telling.js';
import { openTracing } from './app/tracing.js';
import type { Config, LogLevel, StoreConfig } from './config/config.js';
import { pseudonymOf } from './config/pseudonym.js';
import { type ConfigSource, type ConfigState, Reloading, type ReloadResult } from './config/reloading.js';
import type { Pair } from './config/tls-material.js';
import { newFlightId } from './core/claim.js';
import { MemoryBudget } from './core/memory-budget.js';
import { Flights } from './exchange/flights.js';
import { handle, maySwitch } from './exchange/handle.js';
import { KeyHealth } from './exchange/key-health.js';
import { Leaders } from './exchange/leaders.js';
import { Observing } from './exchange/observing.js';
import type { AskOverload } from './exchange/overload.js';
import { Reconciler } from './exchange/reconciler.js';
import { Turns } from './exchange/turns.js';
import { AccessLog } from './observe/access-log.js';
import { keyHealthOf } from './observe/key-health-metrics.js';
import { type Figures, Metrics } from './observe/metrics.js';
import { watchExchange, watchUpstream } from './observe/watch.js';
import type { Admin, Readiness } from './server/admin.js';
import { Listener } from './server/listener.js';
import { LoopDelay } from './server/loop-delay.js';
import { Peers } from './server/peers.js';
import { MemoryStore } from './store/memory.js';
import type { RedisStore } from './store/redis.js';
import type { Audit } from './store/redis-audit.js';
import type { StoreLog } from './store/redis-link.js';
import type { Store } from './store/store.js';
import { Upstream } from './upstream/upstream.js';

/** Longest time for one of the looks that readiness is made of. */
const PROBE_MS = 1_000;

export type GatewayOptions = {
  readonly version: string;
  readonly log: Logger;
  /** Where the configuration came from, to be read again when it changes; null: it stays as it is. */
  readonly source: ConfigSource | null;
  /** The certificate that the other workers show, for when its files cannot be used just now. */
  readonly pair?: Pair | null;
  /** Who remembers which keys are taken, where that is not for this process to open. Default: as configured. */
  readonly store?: Store;
};

/** A running gateway. */
export type Gateway = {
  /** Where clients are served. */
  readonly url: string;
  readonly adminUrl: string | null;
  /** Reads again what may be read again while it runs: the configuration, and the certificate. Resolves when it is in use, or refused. */
  reload(): Promise<ReloadResult>;
  /** Takes another configuration into use, of which only that has changed which can. Rejects, with nothing changed, when it cannot. */
  take(config: Config): Promise<void>;
  readiness(): Promise<Readiness>;
  figures(): Promise<Figures>;
  setLogLevel(level: LogLevel): void;
  /** Is not ready for `drain.delay`, but where it stops `at-once`; then stops accepting, lets flights end within `drain`, settles the rest, and closes everything. */
  close(how?: 'announced' | 'at-once'): Promise<void>;
};

/** Starts a gateway. Rejects when a listener cannot be bound; a store that cannot be reached is no reason not to start. */
export async function startGateway(config: Config, options: GatewayOptions): Promise<Gateway> {
  const { version, log, source } = options;
  const metrics = new Metrics(version);
  metrics.useRules(config.rules);
  const peers = new Peers(config.trustedProxies);
  const access = new AccessLog({ log, config: config.log.access, trusts: (address) => peers.trusts(address) });
  const observer = watchExchange(metrics, log, access);
  const tracing = await openTracing(config.tracing, { version, metrics, log });
  const budget = new MemoryBudget(config.store.maxMemoryBytes);
  const local = new MemoryStore({ budget });
  const store = metrics.store.watch(options.store ?? (await openableStore(config.store, local, log)));
  const identity = { pseudonym: pseudonymOf(config) };
  const generations = new Generations(config, {
    makeUpstream: (upstream) => new Upstream(upstream, watchUpstream(upstream.name, metrics, log), identity),
    makeAsked: (upstream) => new Upstream(upstream, () => {}, identity),
  });
  metrics.upstreams.show(() => generations.upstreams);
  const reconciler = new Reconciler({ observer });
  const leaders = new Leaders({ observer, budget });
  const health = new KeyHealth(observer);
  const flights = new Flights({ store, local, leaders, observer, reconciler, health, newFlightId });
  const turns = new Turns({ store, local, leaders, observer });
  const { secrets } = config.store;
  const observing = new Observing({ store, local, observer, calls: leaders.calls, secrets });
  let delay = new LoopDelay(config.limits.eventLoopDelayMs);
  const overload: AskOverload = () => {
    if (listener.requestCount > generations.config.limits.maxRequests) return 'requests';
    return delay.refusesNext() ? 'event-loop' : null;
  };
  const handling = {
    generation: generations.present,
    secrets,
    flights,
    turns,
    observing,
    observer,
    calls: leaders.calls,
    identity,
    overload,
    health,
  };
  const listener = new Listener({
    listen: config.listen,
    pair: options.pair ?? null,
    limits: config.limits,
    onRefused: (reason) => metrics.connectionRefused(reason),
    onCertificate: (news) => tellOfCertificate(news, log),
    peers,
    requestIdTrust: config.requestId.trust,
    takesUpgrade: (asking) => maySwitch(asking, handling.generation.rules),
    handle:
      tracing === null
        ? (caller) => handle(caller, handling)
        : (caller) => {
            caller.trace = tracing.begin(caller);
            handle(caller, handling);
          },
    over: observer.over,
  });
  metrics.countConnections(() => listener.connectionCount);
  metrics.countRequests(() => listener.requestCount);
  metrics.tellShedding(() => delay.share);

  const swap = async (next: Config): Promise<void> => {
    const { limits, log: logBefore } = generations.config;
    // All that can fail comes first; a request sees the one generation or the other.
    generations.swap(next);
    handling.generation = generations.present;
    identity.pseudonym = pseudonymOf(next);
    if (next.limits.eventLoopDelayMs !== limits.eventLoopDelayMs) {
      delay.close();
      delay = new LoopDelay(next.limits.eventLoopDelayMs);
    }
    peers.trust(next.trustedProxies);
    listener.allow(next.limits, next.requestId.trust);
    takeLog(log, logBefore, next.log);
    access.use(next.log.access);
    leaders.keepLatenciesOf(new Set(next.rules.map(({ name }) => name)));
    metrics.useRules(next.rules);
    await metrics.upstreams.forgetGone().catch(observer.failed);
  };
  const reloading =
    source === null
      ? null
      : new Reloading({
          source,
          swap,
          tell: (news) => {
            if (news.result.kind !== 'stopping') metrics.reloaded(news.result.kind === 'refused' ? 'bad' : 'good');
            tellOfReload(news, log);
          },
        });
  const reload = async (): Promise<ReloadResult> => {
    // The certificate for itself: a bad line elsewhere is no reason to let it expire.
    listener.reloadCertificate();
    return reloading === null ? { kind: 'unchanged', needsRestart: [] } : reloading.reload();
  };
  let isStopping = false;
  const readiness = (): Promise<Readiness> => {
    const config = reloading?.state ?? null;
    return look(store, generations.upstreams, { draining: isStopping, shed: delay.share, config });
  };
  let admin: Admin | null = null;
  // Loaded when clients are served already: the framework behind it takes a third of the time to start.
  const openAdmin = async (): Promise<string | null> => {
    if (config.admin.kind !== 'on') return null;
    const { Admin } = await import('./server/admin.js');
    admin = new Admin({
      config: config.admin,
      readiness,
      flights: {
        store,
        keyHealth: async () => keyHealthOf(await metrics.keyHealth.figures()),
        keepMsOf: (route) => generations.rules.keepMsOf(route),
        isRule: (name) => generations.rules.isRule(name),
        audit: (did, entry) => auditBy(log, did, entry),
      },
      // Loaded by who asks.
      explain: async ({ request, values, store: ask }) => {
        const { Explainer } = await import('./explain/explaining.js');
        const explainer = new Explainer(generations.config, { pseudonym: identity.pseudonym });
        return explainer.explain(request, { values, store: ask === 'asked' ? store : null });
      },
      reload,
      logLevel: { level: () => log.level as LogLevel, set: async (level) => setLevelByOperator(log, level) },
      inUse: reloading === null ? null : () => reloading.inUse,
      metrics: {
        contentType: metrics.contentType,
        expose: () => metrics.expose(),
        figures: () => metrics.figures(),
        exposeOpenMetrics: () => metrics.exposeOpenMetrics(),
      },
    });
    return admin.listen();
  };

  const closeAdapters = async (): Promise<void> => {
    delay.close();
    await admin?.close();
    await generations.destroy();
    await Promise.allSettled([store.close(), local.close(), tracing?.close()]);
  };
  try {
    await Promise.all([store.open(), local.open()]);
    generations.open();
    const url = await listener.listen();
    const adminUrl = await openAdmin();
    reloading?.watch();
    return {
      url,
      adminUrl,
      reload,
      take: swap,
      readiness,
      figures: () => metrics.figures(),
      setLogLevel: (level) => {
        log.level = level;
      },
      close: async (how = 'announced') => {
        reloading?.stop();
        isStopping = true;
        const { drainDelayMs, drainMs } = generations.config;
        // Load balancers need a moment to see it; what they still send is served.
        if (how === 'announced' && drainDelayMs > 0) await new Promise((resolve) => setTimeout(resolve, drainDelayMs));
        await stop(listener, leaders, turns, reconciler, drainMs, log);
        // Its requests are over; what it still holds is for nobody.
        await observing.stop();
        await closeAdapters();
      },
    };
  } catch (error) {
    reloading?.stop();
    await listener.close();
    await closeAdapters();
    throw error;
  }
}

/** The store of a configuration, still to be opened: of one in memory `local`, which is that. */
export async function openableStore(config: StoreConfig, local: MemoryStore, log: Logger): Promise<Store> {
  if (config.kind === 'memory') return local;
  return redisOf(config, (level, message, fields) => log[level](fields, message));
}

async function redisOf(config: Extract<StoreConfig, { kind: 'redis' }>, log: StoreLog): Promise<RedisStore> {
  // Its client is loaded by who uses it.
  const { RedisStore } = await import('./store/redis.js');
  const { access, prefix, commandTimeoutMs, waitReplicas, secrets } = config;
  return new RedisStore({ access, prefix, commandTimeoutMs, waitReplicas, secrets, log });
}

/** Opens the store of a configuration for as long as it is used. */
export async function withStore<T>(config: StoreConfig, use: (store: Store) => Promise<T>): Promise<T> {
  const store =
    config.kind === 'memory'
      ? new MemoryStore({ budget: new MemoryBudget(config.maxMemoryBytes) })
      : await redisOf(config, () => {});
  try {
    await store.open();
    return await use(store);
  } finally {
    await store.close();
  }
}

export type StoreCheck =
  | { readonly kind: 'looked'; readonly audit: Audit }
  /** What was said meanwhile, the reason last. */
  | { readonly kind: 'unreachable'; readonly reasons: readonly string[] };

/** Connects to the store of a configuration, looks at it as a gateway does at its start, and leaves. Null: nothing to connect to. */
export async function checkStore(config: StoreConfig): Promise<StoreCheck | null> {
  if (config.kind === 'memory') return null;
  const reasons: string[] = [];
  const store = await redisOf(config, (_level, _message, { error }) => {
    if (typeof error === 'string' && !reasons.includes(error)) reasons.push(error);
  });
  try {
    await store.open();
    return { kind: 'looked', audit: await store.audit() };
  } catch (error) {
    return { kind: 'unreachable', reasons: [...reasons, (error as Error).message] };
  } finally {
    await store.close();
  }
}

/**
 * Ready: not stopping, the store answers, every upstream has an address to send to, and not every new request is refused.
 * While some are served it is ready: what they need least is one gateway less.
 */
async function look(
  store: Store,
  upstreams: readonly Upstream[],
  {
    draining,
    shed,
    config,
  }: { readonly draining: boolean; readonly shed: number; readonly config: ConfigState | null },
): Promise<Readiness> {
  const storeCheck = store.ping().then(
    () => 'ok',
    (error: Error) => error.message,
  );
  const checks = await Promise.all(
    [
      ['draining', Promise.resolve(draining ? 'yes' : 'ok')] as const,
      ['store', storeCheck] as const,
      ['event loop', Promise.resolve(shed < 1 ? 'ok' : 'late: every new request is refused')] as const,
      ...upstreams.map((upstream) => [`upstream ${upstream.name}`, upstream.probe(PROBE_MS)] as const),
    ].map(async ([name, check]) => [name, await check] as const),
  );
  const ready = checks.every(([, result]) => result === 'ok');
  const told = Object.fromEntries(checks);
  if (shed > 0 && shed < 1) told['event loop'] = `late: ${Math.round(shed * 100)} % of new requests are refused`;
  return { ready, checks: told, config };
}

/** Drains; what is not over in time is settled as it stands, so that followers elsewhere need not wait for the lease. */
async function stop(
  listener: Listener,
  leaders: Leaders,
  turns: Turns,
  reconciler: Reconciler,
  drainMs: number,
  log: Logger,
): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const overdue = new Promise<'overdue'>((resolve) => {
    timer = setTimeout(resolve, drainMs, 'overdue');
  });
  // The flights last: a request that was accepted may still begin one.
  const drained = listener
    .drain()
    .then(() => leaders.idle())
    .then(() => 'drained' as const);
  const how = await Promise.race([drained, overdue]);
  clearTimeout(timer);
  // Before what is left becomes unknown: nobody would be there to ask about it.
  reconciler.stop();
  if (how === 'overdue') {
    log.warn({ flights: leaders.count }, 'drain ended before every request did');
    turns.stop();
    await leaders.stop();
  }
  await listener.close();
}
