/**
 * The metrics as the live page is told them: by route, by upstream, and the rest. A metric that is added later is in it by
 * its labels, without a line here.
 */

import type { Figures, Histogram, RouteFigures, UpstreamFigures } from '../page/snapshot.js';

/** One metric with its values, as prom-client gives them. */
export type Metric = {
  readonly name: string;
  /** Texts here, numbers in prom-client's own enumeration. */
  readonly type: unknown;
  readonly values: readonly {
    readonly value: number;
    readonly labels: Readonly<Record<string, string | number | undefined>>;
    /** Of a histogram: the name with `_bucket`, `_sum` or `_count` behind it. */
    readonly metricName?: string;
  }[];
};

type Values = Metric['values'];

const PROCESS: ReadonlySet<string> = new Set(['process_resident_memory_bytes', 'process_cpu_seconds_total']);

export function figuresOf(metrics: readonly Metric[]): Figures {
  const own = metrics.filter(({ name }) => name.startsWith('oneflight_'));
  const named = new Map(own.map((metric) => [metric.name, metric.values]));
  const { version = '' } = named.get('oneflight_build_info')?.[0]?.labels ?? {};
  const storeTimes = named.get('oneflight_store_seconds') ?? [];
  return {
    version: String(version),
    routes: grouped(own, 'route').map(([route, its]) => routeFigures(its, route)),
    upstreams: grouped(own, 'upstream').map(([upstream, its]) => upstreamFigures(its, upstream)),
    storeTimes: histogramOf('oneflight_store_seconds', storeTimes),
    storeErrors: sum(named.get('oneflight_store_errors_total') ?? []),
    plain: Object.fromEntries(
      metrics
        .filter(({ name, type }) => type !== 'histogram' && (name.startsWith('oneflight_') || PROCESS.has(name)))
        .flatMap(({ name, values }) => {
          const [only] = values;
          return only !== undefined && Object.keys(only.labels).length === 0 ? [[name, only.value] as const] : [];
        }),
    ),
  };
}

/** By each text of the label, in order, the metrics that have it, with those values. Each value is looked at once, however many routes there are. */
function grouped(metrics: readonly Metric[], label: string): [text: string, its: Metric[]][] {
  const groups = new Map<string, Metric[]>();
  for (const metric of metrics) {
    const byText = new Map<string, Metric['values'][number][]>();
    for (const one of metric.values) {
      const text = one.labels[label];
      if (text !== undefined) added(byText, String(text), one);
    }
    for (const [text, values] of byText) added(groups, text, { ...metric, values });
  }
  return [...groups].sort(([a], [b]) => (a < b ? -1 : 1));
}

function added<T>(groups: Map<string, T[]>, text: string, one: T): void {
  const group = groups.get(text);
  if (group === undefined) groups.set(text, [one]);
  else group.push(one);
}

function routeFigures(metrics: readonly Metric[], route: string): RouteFigures {
  const times: Record<string, Histogram> = {};
  const others: Record<string, number> = {};
  const kinds: Record<string, Readonly<Record<string, number>>> = {};
  let outcomes: Readonly<Record<string, number>> = {};
  let upstreamCalls = 0;
  for (const { name, type, values } of metrics) {
    if (name === 'oneflight_requests_total') outcomes = byLabel(values, 'outcome');
    else if (name === 'oneflight_upstream_calls_total') upstreamCalls = sum(values);
    else if (type === 'histogram') {
      const histogram = histogramOf(name, values);
      if (histogram !== null) times[name] = histogram;
    } else {
      others[name] = sum(values);
      const byKind = kindsOf(values);
      if (byKind !== null) kinds[name] = byKind;
    }
  }
  return { route, outcomes, upstreamCalls, times, others, kinds };
}

function upstreamFigures(metrics: readonly Metric[], upstream: string): UpstreamFigures {
  const others: Record<string, number> = {};
  let usable: Readonly<Record<string, number>> = {};
  let pending: Readonly<Record<string, number>> = {};
  for (const { name, type, values } of metrics) {
    if (name === 'oneflight_upstream_usable') usable = byLabel(values, 'address');
    else if (name === 'oneflight_upstream_pending_requests') pending = byLabel(values, 'address');
    else if (type !== 'histogram') others[name] = sum(values);
  }
  const addresses = Object.entries(usable).map(([address, value]) => ({
    address,
    isUsable: value > 0,
    pending: pending[address] ?? 0,
  }));
  return { upstream, addresses, others };
}

function byLabel(values: Values, label: string): Record<string, number> {
  const sums: Record<string, number> = {};
  for (const { labels, value } of values) {
    const text = String(labels[label] ?? '');
    sums[text] = (sums[text] ?? 0) + value;
  }
  return sums;
}

/** By the further labels of a route's metric, for those that have counted; null: there are none. */
function kindsOf(values: Values): Readonly<Record<string, number>> | null {
  const counted = values
    .filter(({ value }) => value > 0)
    .map(({ labels: { route: _, ...further }, value }) => [Object.values(further).join(', '), value] as const)
    .filter(([kind]) => kind !== '');
  return counted.length === 0 ? null : Object.fromEntries(counted);
}

function sum(values: Values): number {
  return values.reduce((all, { value }) => all + value, 0);
}

/** Over all further labels together; null: nothing was observed. */
function histogramOf(name: string, values: Values): Histogram | null {
  const counts = new Map<number, number>();
  for (const { labels, value, metricName } of values) {
    if (metricName !== `${name}_bucket`) continue;
    const { le: bound } = labels;
    const le = bound === '+Inf' ? Number.POSITIVE_INFINITY : Number(bound);
    counts.set(le, (counts.get(le) ?? 0) + value);
  }
  if (counts.size === 0) return null;
  const sorted = [...counts].sort(([a], [b]) => a - b);
  return {
    boundsS: sorted.map(([le]) => le).filter(Number.isFinite),
    counts: sorted.map(([, count]) => count),
    sumS: sum(values.filter(({ metricName }) => metricName === `${name}_sum`)),
  };
}
