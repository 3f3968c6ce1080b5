/**
 * The metrics of one gateway, in Prometheus' practice: seconds, `_total` counters, no key and no value of a request in
 * a label. Every request is counted once, when it is over, by the label of its outcome.
 */

import { Counter, Gauge, Registry } from 'prom-client';
import { BYPASS_REASONS, type BypassReason, labelOf, type OverloadReason } from '../core/outcome.js';
import type { Reconciled, ReconcileVerdict } from '../core/reconcile.js';
import type { KeyedPolicy, Rule } from '../core/rule.js';
import type { UnshareableReason } from '../core/sharing.js';
import type { CallPurpose, ExchangeObserver } from '../exchange/observer.js';
import { KeyHealthMetrics } from './key-health-metrics.js';
import { ObservedMetrics, VerifiedMetrics } from './observed-metrics.js';
import { openMetricsText } from './open-metrics.js';
import { collectProcessMetrics } from './process-metrics.js';
import { StoreMetrics } from './store-metrics.js';
import { Level, Tally } from './tally.js';
import { Timings } from './timings.js';
import { UpstreamMetrics } from './upstream-metrics.js';

/** All metrics of one process as numbers. */
export type Figures = Awaited<ReturnType<Registry['getMetricsAsJSON']>>;

type Report = Parameters<ExchangeObserver['over']>[0];

const REFUSALS = ['limit', 'handshake', 'proxy-protocol'] as const;
const WAIT_BUCKETS_S = [0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];
const EXCHANGE_BUCKETS_S = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

export class Metrics {
  readonly #registry = new Registry();
  readonly store = new StoreMetrics(this.#registry);
  readonly upstreams = new UpstreamMetrics(this.#registry);
  readonly keyHealth = new KeyHealthMetrics(this.#registry);
  readonly observed = new ObservedMetrics(this.#registry);
  readonly verified = new VerifiedMetrics(this.#registry);
  readonly #requests = new Tally(this.#registry, 'requests_total', 'Requests that are over, by outcome.', [
    'route',
    'outcome',
  ]);
  readonly #sent = new Tally(
    this.#registry,
    'upstream_calls_total',
    'Requests of clients handed to a connected upstream socket.',
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
  readonly #flights = new Level(this.#registry, 'flights_in_progress', 'Flights that this process leads now.', 'route');
  readonly #waits = new Timings(
    this.#registry,
    'follower_wait_seconds',
    'Time a follower waited for its answer.',
    'route',
    WAIT_BUCKETS_S,
  );
  readonly #durations = new Timings(
    this.#registry,
    'request_duration_seconds',
    'Time from the arrival of a request until its answer was out, or its client gone; upgraded connections are not counted.',
    'route',
    EXCHANGE_BUCKETS_S,
  );
  readonly #latencies = new Timings(
    this.#registry,
    'upstream_latency_seconds',
    'Time from handing a request to its upstream until the fields of the response, the upload included.',
    'route',
    EXCHANGE_BUCKETS_S,
  );
  readonly #waitLimits = new Gauge({
    name: 'oneflight_wait_limit_seconds',
    help: 'How long a request of the route may wait at most, as configured.',
    labelNames: ['route'],
    aggregator: 'max',
    registers: [this.#registry],
  });
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
  constructor(version: string) {
    this.reloaded('good');
    for (const reason of REFUSALS) this.#refused.inc({ reason }, 0);
    collectProcessMetrics(this.#registry);
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

  /** The same in the format that has exemplars. */
  async exposeOpenMetrics(): Promise<string> {
    return openMetricsText(await this.figures());
  }

  /** The same as numbers, to be put together with those of other processes (worker-figures.ts). */
  figures(): Promise<Figures> {
    return this.#registry.getMetricsAsJSON();
  }

  connectionRefused(reason: (typeof REFUSALS)[number]): void {
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

  /**
   * These rules are in use. Their counters of what should never happen stand at 0 from now on: an increase can only be seen
   * of a counter that was there before, and the first lost lease would raise no alarm.
   */
  useRules(rules: readonly Rule[]): void {
    this.#waitLimits.reset();
    for (const { name: route, policy } of rules) {
      if (policy.kind === 'pass') continue;
      const waitMs = waitMsOf(policy);
      if (waitMs !== null) {
        this.#waitLimits.set({ route }, waitMs / 1000);
        this.#requests.expect(route, 'wait-timeout');
      }
      this.#lost.inc({ route }, 0);
      this.#unsettled.inc({ route }, 0);
      this.#requests.expect(route, 'outcome-unknown');
      for (const reason of BYPASS_REASONS) this.#unprotected.inc({ route, reason }, 0);
    }
  }

  over({ route, policy, outcome, waitedMs, durationMs, trace }: Report): void {
    this.#requests.count(route, labelOf(outcome));
    // How long a conversation lasts in another protocol says nothing of how long requests take.
    if (outcome.kind !== 'upgraded') this.#durations.observe(route, durationMs);
    if (waitedMs === null) return;
    (policy === 'queue' ? this.#turns : this.#waits).observe(route, waitedMs, traceIdOf(trace));
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

  sent(route: string, purpose: CallPurpose): void {
    if (purpose === 'client') this.#sent.count(route);
    else this.verified.sent(route);
  }

  answered(route: string, afterMs: number, trace: Report['trace']): void {
    this.#latencies.observe(route, afterMs, traceIdOf(trace));
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

  /** The configuration was read again. */
  reloaded(result: 'good' | 'bad'): void {
    this.#reloadSuccess.set(result === 'good' ? 1 : 0);
    if (result === 'good') this.#reloadedAt.setToCurrentTime();
  }

  /** What became of the spans of requests. Only a gateway that traces has it. */
  countSpans(): (result: 'exported' | 'dropped', spans: number) => void {
    const spans = this.#counter('trace_spans_total', 'Spans of traced requests, by what became of them.', ['result']);
    for (const result of ['exported', 'dropped']) spans.inc({ result }, 0);
    return (result, count) => spans.inc({ result }, count);
  }

  #counter<L extends string>(name: string, help: string, labelNames: L[]): Counter<L> {
    return new Counter({ name: `oneflight_${name}`, help, labelNames, registers: [this.#registry] });
  }
}

/** Milliseconds; null: its requests wait for nobody. */
function waitMsOf(policy: KeyedPolicy): number | null {
  if (policy.kind === 'reject') return null;
  if (policy.kind === 'replay') return policy.wait.kind === 'none' ? null : policy.wait.waitMs;
  return policy.waitMs;
}

function traceIdOf(trace: Report['trace']): string | null {
  return trace === null ? null : trace.context.traceId;
}
