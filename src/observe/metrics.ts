/**
 * The metrics of one gateway, in Prometheus' practice: seconds, `_total` counters, no key and no value of a request in
 * a label. Every request is counted once, when it is over, by the label of its outcome.
 */

import { Counter, collectDefaultMetrics, Gauge, Registry } from 'prom-client';
import { type BypassReason, labelOf, type OverloadReason } from '../core/outcome.js';
import type { Reconciled, ReconcileVerdict } from '../core/reconcile.js';
import type { UnshareableReason } from '../core/sharing.js';
import type { UpstreamEvent, UpstreamState } from '../core/upstream-event.js';
import type { ExchangeObserver } from '../exchange/observer.js';
import { type Store, StoreUnavailable } from '../store/store.js';
import { Level, Tally } from './tally.js';
import { Timings } from './timings.js';

/** All metrics of one process as numbers. */
export type Figures = Awaited<ReturnType<Registry['getMetricsAsJSON']>>;

type Report = Parameters<ExchangeObserver['over']>[0];

/** An upstream as it is shown. */
type Shown = { readonly name: string; readonly state: UpstreamState };

const WAIT_BUCKETS_S = [0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];
const STORE_BUCKETS_S = [0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.2, 0.3];

export class Metrics {
  readonly #registry = new Registry();
  readonly #requests = new Tally(this.#registry, 'requests_total', 'Requests that are over, by outcome.', [
    'route',
    'outcome',
  ]);
  readonly #sent = new Tally(
    this.#registry,
    'upstream_calls_total',
    'Requests handed to a connected upstream socket.',
    ['route'],
  );
  readonly #lost = this.#counter('leases_lost_total', 'Leases lost before their flight was settled.', ['route']);
  readonly #unsettled = this.#counter(
    'unsettled_flights_total',
    'Flights whose settlement the store did not take within the lease.',
    ['route'],
  );
  readonly #unprotected = this.#counter(
    'unprotected_requests_total',
    'Requests of a rule with a policy that were forwarded without it, by reason.',
    ['route', 'reason'],
  );
  readonly #overloaded = this.#counter(
    'overloaded_requests_total',
    'Requests that were refused as one too many, by what there was too much of.',
    ['route', 'reason'],
  );
  readonly #unshareable = this.#counter(
    'unshareable_responses_total',
    'Responses of coalesce rules that could be given to nobody else, by reason.',
    ['route', 'reason'],
  );
  readonly #asked = this.#counter(
    'reconcile_questions_total',
    'Questions to the API about outcomes that nobody knows, by what the answer said.',
    ['route', 'verdict'],
  );
  readonly #reconciled = this.#counter(
    'reconciled_total',
    "Outcomes that nobody knew and that the API's answer settled, by what became of the key.",
    ['route', 'as'],
  );
  readonly #storeErrors = this.#counter('store_errors_total', 'Questions the store did not answer.', ['operation']);
  readonly #flights = new Level(this.#registry, 'flights_in_progress', 'Flights that this process leads now.', 'route');
  readonly #waits = new Timings(
    this.#registry,
    'follower_wait_seconds',
    'Time a follower waited for its answer.',
    'route',
    WAIT_BUCKETS_S,
  );
  readonly #queued = new Gauge({
    name: 'oneflight_queued_requests',
    help: 'Requests that wait for their turn in this process now.',
    labelNames: ['route'],
    registers: [this.#registry],
  });
  readonly #upgrades = new Gauge({
    name: 'oneflight_open_upgrades',
    help: 'Connections that speak another protocol now, after an upgrade.',
    labelNames: ['route'],
    registers: [this.#registry],
  });
  readonly #turns = new Timings(
    this.#registry,
    'queue_wait_seconds',
    'Time a request waited for its turn, or until it was refused.',
    'route',
    WAIT_BUCKETS_S,
  );
  readonly #retries = this.#counter(
    'upstream_retries_total',
    'Further attempts of requests that were certainly not executed, or are safe, by why the one before failed.',
    ['upstream', 'cause'],
  );
  readonly #ejections = this.#counter('upstream_ejections_total', 'Times that an address was left out.', [
    'upstream',
    'address',
  ]);
  readonly #opened = this.#counter('upstream_breaker_opened_total', 'Times that the circuit breaker opened.', [
    'upstream',
  ]);
  readonly #store = new Timings(
    this.#registry,
    'store_seconds',
    'Time the store took to answer.',
    'operation',
    STORE_BUCKETS_S,
  );

  readonly #refused = this.#counter(
    'connections_refused_total',
    'Connections of clients that were closed before a request was read, by reason.',
    ['reason'],
  );

  readonly #reloadSuccess = new Gauge({
    name: 'oneflight_config_reload_success',
    help: 'Whether the configuration was good when it was last read: 1, or 0.',
    // Of several workers the parent tells it, which reads the files.
    aggregator: 'omit',
    registers: [this.#registry],
  });
  readonly #reloadedAt = new Gauge({
    name: 'oneflight_config_reload_success_timestamp_seconds',
    help: 'When the configuration was last read and good.',
    aggregator: 'omit',
    registers: [this.#registry],
  });
  #shown: () => readonly Shown[] = () => [];

  constructor(version: string) {
    this.reloaded('good');
    collectDefaultMetrics({ register: this.#registry });
    new Gauge({
      name: 'oneflight_build_info',
      help: 'Always 1; the label tells the version.',
      labelNames: ['version'],
      aggregator: 'first',
      registers: [this.#registry],
    }).set({ version }, 1);
  }

  get contentType(): string {
    return this.#registry.contentType;
  }

  /** All metrics in the text exposition format. */
  expose(): Promise<string> {
    return this.#registry.metrics();
  }

  /** The same as numbers, to be put together with those of other processes (worker-figures.ts). */
  figures(): Promise<Figures> {
    return this.#registry.getMetricsAsJSON();
  }

  connectionRefused(reason: 'limit' | 'handshake' | 'proxy-protocol'): void {
    this.#refused.inc({ reason });
  }

  /** `count` is asked when the metrics are. */
  countConnections(count: () => number): void {
    this.#gaugeOf('connections', 'Connections of clients that are open now.', count);
  }

  countRequests(count: () => number): void {
    this.#gaugeOf('requests_in_progress', 'Requests that are under way now, those that wait among them.', count);
  }

  tellShedding(share: () => number): void {
    this.#gaugeOf(
      'shed_share',
      'Part of the new requests that is refused as the event loop is late: 0 to 1.',
      share,
      'average',
    );
  }

  #gaugeOf(name: string, help: string, value: () => number, overWorkers: 'sum' | 'average' = 'sum'): void {
    new Gauge({
      name: `oneflight_${name}`,
      help,
      aggregator: overWorkers,
      registers: [this.#registry],
      collect() {
        this.set(value());
      },
    });
  }

  over({ route, policy, outcome, waitedMs }: Report): void {
    this.#requests.count(route, labelOf(outcome));
    if (waitedMs !== null) (policy === 'queue' ? this.#turns : this.#waits).observe(route, waitedMs);
  }

  queued(route: string, change: 1 | -1): void {
    this.#queued.inc({ route }, change);
  }

  upgrades(route: string, change: 1 | -1): void {
    this.#upgrades.inc({ route }, change);
  }

  unprotected(route: string, reason: BypassReason): void {
    this.#unprotected.inc({ route, reason });
  }

  overloaded(route: string, reason: OverloadReason): void {
    this.#overloaded.inc({ route, reason });
  }

  unshareable(route: string, reason: UnshareableReason): void {
    this.#unshareable.inc({ route, reason });
  }

  sent(route: string): void {
    this.#sent.count(route);
  }

  flights(route: string, change: 1 | -1): void {
    this.#flights.change(route, change);
  }

  leaseLost(route: string): void {
    this.#lost.inc({ route });
  }

  unsettled(route: string): void {
    this.#unsettled.inc({ route });
  }

  asked(route: string, verdict: ReconcileVerdict): void {
    this.#asked.inc({ route, verdict });
  }

  reconciled(route: string, as: Reconciled['kind']): void {
    this.#reconciled.inc({ route, as });
  }

  upstreamEvent(upstream: string, event: UpstreamEvent): void {
    // Of one that is gone, what its last requests do would bring its counters back.
    if (!this.#isShown(upstream, 'address' in event ? event.address : null)) return;
    if (event.kind === 'retried') this.#retries.inc({ upstream, cause: event.cause });
    if (event.kind === 'ejected') this.#ejections.inc({ upstream, address: event.address });
    if (event.kind === 'opened') this.#opened.inc({ upstream });
  }

  /** Has the state of the upstreams that there are then read whenever the metrics are. */
  show(upstreams: () => readonly Shown[]): void {
    this.#shown = upstreams;
    this.#upstreamGauge(
      'usable',
      'Whether an address gets requests: 1, or 0 while it is down or left out.',
      ['address'],
      'min',
      (gauge) => {
        for (const { name, state } of upstreams()) {
          for (const address of state.addresses) {
            gauge.set({ upstream: name, address: address.name }, Number(address.isUsable));
          }
        }
      },
    );
    const pending = 'Requests that an address has in progress now.';
    this.#upstreamGauge('pending_requests', pending, ['address'], 'sum', (gauge) => {
      for (const { name, state } of upstreams()) {
        for (const address of state.addresses) gauge.set({ upstream: name, address: address.name }, address.pending);
      }
    });
    this.#upstreamGauge('waiting_requests', 'Requests that wait for a connection now.', [], 'sum', (gauge) => {
      for (const { name, state } of upstreams()) gauge.set({ upstream: name }, state.waiting);
    });
    this.#upstreamGauge('breaker_open', 'Whether the circuit breaker is open: 1, or 0.', [], 'max', (gauge) => {
      for (const { name, state } of upstreams()) gauge.set({ upstream: name }, Number(state.isOpen));
    });
  }

  #isShown(upstream: string, address: string | null): boolean {
    const { state } = this.#shown().find(({ name }) => name === upstream) ?? {};
    return state !== undefined && (address === null || state.addresses.some(({ name }) => name === address));
  }

  /** Lets go of what was counted for upstreams and addresses that are not shown any more. */
  async forgetUpstreams(): Promise<void> {
    for (const counter of [this.#retries, this.#ejections, this.#opened] as Counter<string>[]) {
      for (const { labels } of (await counter.get()).values) {
        const { upstream, address = null } = labels as { readonly upstream: string; readonly address?: string };
        if (!this.#isShown(upstream, address)) counter.remove(labels);
      }
    }
  }

  /** The configuration was read again. */
  reloaded(result: 'good' | 'bad'): void {
    this.#reloadSuccess.set(result === 'good' ? 1 : 0);
    if (result === 'good') this.#reloadedAt.setToCurrentTime();
  }

  /** `overWorkers`: what the values of several workers become together. */
  #upstreamGauge(
    name: string,
    help: string,
    more: string[],
    overWorkers: 'sum' | 'min' | 'max',
    read: (gauge: Gauge<string>) => void,
  ): void {
    new Gauge({
      name: `oneflight_upstream_${name}`,
      help,
      labelNames: ['upstream', ...more],
      aggregator: overWorkers,
      registers: [this.#registry],
      collect() {
        // Of those that are gone nothing is shown.
        this.reset();
        read(this);
      },
    });
  }

  /** The same store, measured. Waiting for a settlement or a turn is not a question to the store and is not timed. */
  watch(store: Store): Store {
    const timed = <T>(operation: string, ask: () => Promise<T>): Promise<T> => {
      const askedAtMs = performance.now();
      return ask().then(
        (answer) => {
          this.#store.observe(operation, performance.now() - askedAtMs);
          return answer;
        },
        (error) => {
          this.#store.observe(operation, performance.now() - askedAtMs);
          if (error instanceof StoreUnavailable) this.#storeErrors.inc({ operation });
          throw error;
        },
      );
    };
    return {
      claim: (request) => timed('claim', () => store.claim(request)),
      renew: (lease) => timed('renew', () => store.renew(lease)),
      complete: (lease, settlement, keepMs) => timed('complete', () => store.complete(lease, settlement, keepMs)),
      release: (lease, options) => timed('release', () => store.release(lease, options)),
      settled: (flight, options) => store.settled(flight, options),
      relay: (lease, piece) => timed('relay', () => store.relay(lease, piece)),
      relayOn: (lease, piece, dropBefore) => timed('relay', () => store.relayOn(lease, piece, dropBefore)),
      relayed: (flight, reader, options) => store.relayed(flight, reader, options),
      queue: {
        enter: (request) => timed('enter', () => store.queue.enter(request)),
        turn: (place, options) => store.queue.turn(place, options),
        renew: (lease) => timed('renew', () => store.queue.renew(lease)),
        complete: (lease, settlement, keepMs) =>
          timed('complete', () => store.queue.complete(lease, settlement, keepMs)),
        release: (lease, options) => timed('release', () => store.queue.release(lease, options)),
      },
      settle: (key, as, flight) => timed('settle', () => store.settle(key, as, flight)),
      settleUnknown: (key, flight, as, material) =>
        timed('settle', () => store.settleUnknown(key, flight, as, material)),
      standing: (key, flight) => timed('standing', () => store.standing(key, flight)),
      taken: (options) => timed('taken', () => store.taken(options)),
      purge: (key) => timed('purge', () => store.purge(key)),
      purgeRoute: (route) => timed('purge', () => store.purgeRoute(route)),
      ping: () => timed('ping', () => store.ping()),
      open: () => store.open(),
      close: () => store.close(),
    };
  }

  #counter<L extends string>(name: string, help: string, labelNames: L[]): Counter<L> {
    return new Counter({ name: `oneflight_${name}`, help, labelNames, registers: [this.#registry] });
  }
}
