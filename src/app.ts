/**
 * The composition root: the only file that constructs adapters and ties them together.
 *
 * Invariants: nothing is accepted before everything behind it is open; closing goes the other way round, so that a
 * request that was accepted finds what it needs until it is over.
 */

import type { Logger } from 'pino';
import type { Config, StoreConfig, UpstreamConfig } from './config/config.js';
import { addressOf } from './config/resolve-upstream.js';
import { newFlightId } from './core/claim.js';
import { compileRules } from './core/match.js';
import { MemoryBudget } from './core/memory-budget.js';
import type { Rule } from './core/rule.js';
import { Flights } from './exchange/flights.js';
import { handle, maySwitch } from './exchange/handle.js';
import { Leaders } from './exchange/leaders.js';
import { Reconciler } from './exchange/reconciler.js';
import { Turns } from './exchange/turns.js';
import { type Figures, Metrics } from './observe/metrics.js';
import { watchExchange, watchUpstream } from './observe/watch.js';
import type { Admin, Readiness } from './server/admin.js';
import type { FlightsApi } from './server/admin-flights.js';
import { type CertificateNews, faultText } from './server/certificate.js';
import { Listener } from './server/listener.js';
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
  /** Who remembers which keys are taken, where that is not for this process to open. Default: as configured. */
  readonly store?: Store;
};

/** A running gateway. */
export type Gateway = {
  /** Where clients are served. */
  readonly url: string;
  readonly adminUrl: string | null;
  /** Reads again what may be read again while it runs: the files of the certificate. */
  reload(): void;
  readiness(): Promise<Readiness>;
  figures(): Promise<Figures>;
  /** Stops accepting, lets flights end within `drain`, settles the rest, and closes everything. */
  close(): Promise<void>;
};

/** Starts a gateway. Rejects when a listener cannot be bound; a store that cannot be reached is no reason not to start. */
export async function startGateway(config: Config, options: GatewayOptions): Promise<Gateway> {
  const { version, log } = options;
  const metrics = new Metrics(version);
  const observer = watchExchange(metrics, log);
  const budget = new MemoryBudget(config.store.maxMemoryBytes);
  const local = new MemoryStore({ budget });
  const store = metrics.watch(options.store ?? (await openableStore(config.store, local, log)));
  const upstreams = upstreamsOf(config, metrics, log);
  const upstreamOf = (name: string): Upstream => required(upstreams, name);
  const elsewhere = askedElsewhere(config);
  const reconciler = new Reconciler({
    observer,
    upstreamOf: (name, origin) => (origin === null ? upstreamOf(name) : required(elsewhere, placeOf(name, origin))),
  });
  const leaders = new Leaders({ upstreamOf, observer, budget });
  const flights = new Flights({ store, local, leaders, upstreamOf, observer, reconciler, newFlightId });
  const turns = new Turns({ store, local, leaders, upstreamOf, observer });
  const handling = {
    rules: compileRules(config.rules),
    unmatched: config.unmatched.kind === 'upstream' ? config.unmatched.name : null,
    secrets: config.store.secrets,
    flights,
    turns,
    upstreamOf,
    observer,
  };
  const listener = new Listener({
    listen: config.listen,
    limits: config.limits,
    onRefused: (reason) => metrics.connectionRefused(reason),
    onCertificate: (news) => tellOfCertificate(news, log),
    peers: new Peers(config.trustedProxies),
    requestIdTrust: config.requestId.trust,
    takesUpgrade: (asking) => maySwitch(asking, handling.rules),
    handle: (caller) => handle(caller, handling),
    over: observer.over,
  });
  metrics.countConnections(() => listener.connectionCount);
  const readiness = (): Promise<Readiness> => look(store, upstreams, listener.draining);
  let admin: Admin | null = null;
  // Loaded when clients are served already: the framework behind it takes a third of the time to start.
  const openAdmin = async (): Promise<string | null> => {
    if (config.admin.kind !== 'on') return null;
    const { Admin } = await import('./server/admin.js');
    admin = new Admin({
      config: config.admin,
      readiness,
      flights: flightsApi(config, store, log),
      metrics: { contentType: metrics.contentType, expose: () => metrics.expose() },
    });
    return admin.listen();
  };

  const closeAdapters = async (): Promise<void> => {
    await admin?.close();
    await Promise.allSettled([...upstreams.values(), ...elsewhere.values()].map((upstream) => upstream.destroy()));
    await Promise.allSettled([store.close(), local.close()]);
  };
  try {
    await Promise.all([store.open(), local.open()]);
    for (const upstream of upstreams.values()) upstream.open();
    const url = await listener.listen();
    const adminUrl = await openAdmin();
    return {
      url,
      adminUrl,
      reload: () => listener.reloadCertificate(),
      readiness,
      figures: () => metrics.figures(),
      close: () => stop(listener, leaders, turns, reconciler, config.drainMs, log).then(closeAdapters),
    };
  } catch (error) {
    await listener.close();
    await closeAdapters();
    throw error;
  }
}

function upstreamsOf({ upstreams }: Config, metrics: Metrics, log: Logger): Map<string, Upstream> {
  const made = [...upstreams.values()].map((config) => new Upstream(config, watchUpstream(config.name, metrics, log)));
  metrics.show(made);
  return new Map(made.map((upstream) => [upstream.name, upstream]));
}

function tellOfCertificate(news: CertificateNews, log: Logger): void {
  if (news.kind === 'renewed') log.info({ subject: news.subject, validTo: news.validTo }, 'certificate renewed');
  else log.error({ reason: faultText(news.faults) }, 'certificate not renewed: the one in use stays');
}

function required(upstreams: ReadonlyMap<string, Upstream>, name: string): Upstream {
  const upstream = upstreams.get(name);
  if (upstream === undefined) throw new Error(`no upstream is named ${name}`);
  return upstream;
}

/** Where rules ask about unknown outcomes at a URL of its own, under the deadlines of the rule's upstream. */
function askedElsewhere({ rules, upstreams }: Config): Map<string, Upstream> {
  const elsewhere = new Map<string, Upstream>();
  for (const { upstream, policy } of rules) {
    const origin = policy.kind === 'pass' ? null : (policy.reconcile?.url.origin ?? null);
    const like = upstreams.get(upstream);
    if (origin === null || like === undefined) continue;
    const name = placeOf(upstream, origin);
    if (!elsewhere.has(name)) elsewhere.set(name, new Upstream(elsewhereLike(like, name, origin)));
  }
  return elsewhere;
}

/** Another API: what the upstream's own is given, and what is known of it, is not for that one. */
function elsewhereLike(like: UpstreamConfig, name: string, origin: string): UpstreamConfig {
  return {
    ...like,
    name,
    addresses: [addressOf(origin)],
    protocol: 'http/1.1',
    ...{ eject: null, breaker: null, health: null, connections: null, stripPrefix: null },
    tls: { ...like.tls, cert: null, key: null, serverName: null },
    preserveHost: false,
    edits: { request: null, response: null },
  };
}

function placeOf(upstream: string, origin: string): string {
  return `${upstream} ${origin}`;
}

/** What operators see and do of the keys that are taken. */
export function flightsApi(config: Config, store: Store, log: Logger): FlightsApi {
  return {
    store,
    keepMsOf: (route) => keepMsOfRule(config.rules.find((rule) => rule.name === route)),
    isRule: (name) => config.rules.some((rule) => rule.name === name),
    audit: (did, entry) => log.warn(entry, `${did} by an operator`),
  };
}

/** How long a rule keeps a response that an operator gives for it; null when it keeps none. */
function keepMsOfRule(rule: Rule | undefined): number | null {
  if (rule?.policy.kind === 'replay') return rule.policy.keepMs;
  return rule?.policy.kind === 'coalesce' && rule.policy.keep.kind === 'fixed' ? rule.policy.keep.keepMs : null;
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

/** Ready: not stopping, the store answers, and every upstream has an address to send to. */
async function look(store: Store, upstreams: ReadonlyMap<string, Upstream>, draining: boolean): Promise<Readiness> {
  const storeCheck = store.ping().then(
    () => 'ok',
    (error: Error) => error.message,
  );
  const checks = await Promise.all(
    [
      ['draining', Promise.resolve(draining ? 'yes' : 'ok')] as const,
      ['store', storeCheck] as const,
      ...[...upstreams].map(([name, upstream]) => [`upstream ${name}`, upstream.probe(PROBE_MS)] as const),
    ].map(async ([name, check]) => [name, await check] as const),
  );
  return { ready: checks.every(([, result]) => result === 'ok'), checks: Object.fromEntries(checks) };
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
