/** A gateway's data path in this process, around a store that the test controls; no configuration, no admin listener. */

import { DEFAULT_LIMITS } from '../../src/config/resolve-listener.js';
import { newFlightId } from '../../src/core/claim.js';
import { compileRules } from '../../src/core/match.js';
import { MemoryBudget } from '../../src/core/memory-budget.js';
import type { Rule } from '../../src/core/rule.js';
import type { Report } from '../../src/exchange/caller.js';
import { Flights } from '../../src/exchange/flights.js';
import { handle } from '../../src/exchange/handle.js';
import { KeyHealth } from '../../src/exchange/key-health.js';
import { Leaders } from '../../src/exchange/leaders.js';
import type { ExchangeObserver, ObservedReport, VerifiedReport } from '../../src/exchange/observer.js';
import { Observing } from '../../src/exchange/observing.js';
import type { RequestTrace, TracedRequest } from '../../src/exchange/trace.js';
import { Turns } from '../../src/exchange/turns.js';
import { Listener } from '../../src/server/listener.js';
import { Peers } from '../../src/server/peers.js';
import { MemoryStore } from '../../src/store/memory.js';
import type { Store } from '../../src/store/store.js';
import { Upstream } from '../../src/upstream/upstream.js';
import { eventually } from './gate.js';
import { upstreamConfig } from './upstreams.js';

export type InProcess = {
  readonly url: string;
  readonly flights: Flights;
  /** Reports of the requests that are over. */
  readonly reports: Report[];
  /** What would have become of requests whose rule only observes. */
  readonly observed: ObservedReport[];
  readonly verified: VerifiedReport[];
  readonly sent: () => number;
  readonly lost: () => number;
  readonly unsettled: () => number;
  /** Flights in progress by the observer's account. */
  readonly inProgress: () => number;
  /** Requests that arrived and are not over. */
  readonly waiting: () => number;
  /** Resolves when that many requests are over. */
  over(count: number): Promise<void>;
};

/** Starts it; it ends with the test, and must have seen no internal error. */
export async function startInProcess(
  t: { teardown(end: () => Promise<void>): void },
  options: {
    readonly upstreamUrl: string;
    readonly rules: readonly Rule[];
    readonly store: Store;
    /** Begins the trace of a request. Default: none is traced. */
    readonly traced?: (request: TracedRequest) => RequestTrace | null;
    /** What all recordings may have together. Default: more than any test records. */
    readonly budget?: MemoryBudget;
    /** Who is told of internal errors that the test means to bring about. Default: they fail it. */
    readonly onFailure?: (error: unknown) => void;
  },
): Promise<InProcess> {
  const upstream = new Upstream(upstreamConfig({ url: options.upstreamUrl }));
  const reports: Report[] = [];
  const observed: ObservedReport[] = [];
  const verified: VerifiedReport[] = [];
  const counts = { arrived: 0, sent: 0, lost: 0, unsettled: 0, inProgress: 0 };
  const failures: unknown[] = [];
  const observer: ExchangeObserver = {
    sent: () => counts.sent++,
    answered: () => {},
    verified: (report) => verified.push(report),
    unprotected: () => {},
    overloaded: () => {},
    unshareable: () => {},
    flights: (_route, change) => {
      counts.inProgress += change;
    },
    queued: () => {},
    upgrades: () => {},
    keyFound: () => {},
    leaseLost: () => counts.lost++,
    unsettled: () => counts.unsettled++,
    asked: () => {},
    reconciled: () => {},
    observed: (report) => observed.push(report),
    over: (report) => {
      reports.push(report);
      report.trace?.over(report);
    },
    failed: options.onFailure ?? ((error) => failures.push(error)),
  };
  const local = new MemoryStore({ budget: new MemoryBudget(1_048_576) });
  const leaders = new Leaders({ observer, budget: options.budget ?? new MemoryBudget(64 * 1_048_576) });
  const health = new KeyHealth(observer);
  const flights = new Flights({
    store: options.store,
    local,
    leaders,
    observer,
    reconciler: { unknown: () => {} },
    health,
    newFlightId,
  });
  const turns = new Turns({ store: options.store, local, leaders, observer });
  const observing = new Observing({ store: options.store, local, observer, calls: leaders.calls, secrets: [] });
  const generation = {
    rules: compileRules(options.rules),
    unmatched: null,
    upstreamOf: () => upstream,
    askedAt: () => upstream,
  };
  const handling = { generation, secrets: [], identity: { pseudonym: 'oneflight-test' }, overload: () => null };
  const listener = new Listener({
    pair: null,
    listen: { host: '127.0.0.1', port: 0, tls: null, http2: false, proxyProtocol: false },
    limits: DEFAULT_LIMITS,
    onRefused: () => {},
    onCertificate: () => {},
    peers: new Peers([]),
    requestIdTrust: 'always',
    takesUpgrade: () => false,
    handle: (caller) => {
      counts.arrived++;
      caller.trace = options.traced?.(caller) ?? null;
      handle(caller, { ...handling, flights, turns, observing, observer, health, calls: leaders.calls });
    },
    over: observer.over,
  });
  await Promise.all([options.store.open(), local.open()]);
  const url = await listener.listen();
  t.teardown(async () => {
    await listener.close();
    await observing.stop();
    await upstream.destroy();
    await Promise.all([options.store.close(), local.close()]);
    if (failures.length > 0) throw failures[0];
  });
  return {
    url,
    flights,
    reports,
    observed,
    verified,
    sent: () => counts.sent,
    lost: () => counts.lost,
    unsettled: () => counts.unsettled,
    inProgress: () => counts.inProgress,
    waiting: () => counts.arrived - reports.length,
    over: (count) => eventually(`${count} requests are over`, () => reports.length >= count),
  };
}

/** A store whose operations the test may replace one by one; the rest is the memory store's. */
export function storeWith(changes: (real: MemoryStore) => Partial<Store>): Store {
  const real = new MemoryStore({ budget: new MemoryBudget(16 * 1_048_576) });
  const plain: Store = {
    claim: (request) => real.claim(request),
    look: (request) => real.look(request),
    renew: (lease) => real.renew(lease),
    complete: (lease, settlement, keepMs) => real.complete(lease, settlement, keepMs),
    release: (lease, options) => real.release(lease, options),
    watch: (lease, holder) => real.watch(lease, holder),
    unwatch: (lease) => real.unwatch(lease),
    settled: (flight, options) => real.settled(flight, options),
    relay: (lease, piece) => real.relay(lease, piece),
    relayOn: (lease, piece, dropBefore) => real.relayOn(lease, piece, dropBefore),
    relayed: (flight, reader, options) => real.relayed(flight, reader, options),
    queue: real.queue,
    settle: (key, as, flight) => real.settle(key, as, flight),
    settleUnknown: (key, flight, as) => real.settleUnknown(key, flight, as),
    standing: (key, flight) => real.standing(key, flight),
    taken: (options) => real.taken(options),
    purge: (key) => real.purge(key),
    purgeRoute: (route) => real.purgeRoute(route),
    ping: () => real.ping(),
    open: () => real.open(),
    close: () => real.close(),
  };
  return { ...plain, ...changes(real) };
}
