/** What the page makes of what it is told: rates, percentiles, words. */

import t from 'tap';
import { eventsOf } from '../../src/page/event-stream.js';
import { allTotals, History, savedOf, totalsOf } from '../../src/page/history.js';
import { quantileOf, since, together } from '../../src/page/quantile.js';
import type { Figures, Histogram, Snapshot } from '../../src/page/snapshot.js';
import { bytesText, countText, durationText, quantileText, rateText, shareText } from '../../src/page/wording.js';
import { yamlText } from '../../src/page/yaml-text.js';
import { figuresOf } from '../../src/server/page-figures.js';

const histogram = (counts: readonly number[]): Histogram => ({ boundsS: [0.1, 0.5, 1], counts, sumS: 0 });

t.test('events come whole, however the bytes come', async (t) => {
  const bytes = Buffer.from(
    ': hello\n\ndata: {"a":"ü"}\n\nevent: stopped\ndata: {}\n\ndata: 1\ndata: 2\n\ndata: cut off',
  );
  for (const size of [1, 3, 7, bytes.length]) {
    async function* pieces() {
      for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
    }
    const events = [];
    for await (const event of eventsOf(pieces())) events.push(event);
    t.same(
      events,
      [
        { name: 'message', data: '{"a":"ü"}' },
        { name: 'stopped', data: '{}' },
        { name: 'message', data: '1\n2' },
      ],
      `pieces of ${size}`,
    );
  }
});

t.test('percentiles', async (t) => {
  t.equal(quantileOf(histogram([0, 0, 0, 0]), 0.5), null);
  t.same(quantileOf(histogram([10, 10, 10, 10]), 0.5), { kind: 'at', seconds: 0.05 });
  t.same(quantileOf(histogram([0, 10, 20, 20]), 0.75), { kind: 'at', seconds: 0.75 });
  t.same(quantileOf(histogram([0, 0, 1, 10]), 0.99), { kind: 'above', seconds: 1 });
  t.same(since(histogram([1, 2, 3, 4]), histogram([1, 3, 5, 7])).counts, [0, 1, 2, 3]);
  t.same(since(histogram([5, 5, 5, 5]), histogram([1, 1, 1, 1])).counts, [1, 1, 1, 1], 'counted anew');
  t.same(together([histogram([1, 1, 1, 1]), histogram([0, 2, 2, 2])])?.counts, [1, 3, 3, 3]);
  t.equal(together([]), null);
});

const figures = (outcomes: Record<string, number>, upstreamCalls: number, wait: Histogram | null = null): Figures => ({
  version: '1',
  routes: [{ route: 'a', outcomes, upstreamCalls, times: wait === null ? {} : { wait }, others: {}, kinds: {} }],
  upstreams: [],
  storeTimes: null,
  storeErrors: 0,
  plain: {},
});
const snapshot = (atS: number, of: Figures): Snapshot => ({
  atMs: atS * 1_000,
  health: { ready: true, checks: {}, config: null },
  flights: { kind: 'listed', inFlight: [], unknown: [], extent: { inFlight: 'all', unknown: 'all' }, agoMs: 0 },
  figures: of,
});

t.test('outcomes come to totals, each in one of them', async (t) => {
  const outcomes = { led: 5, collapsed: 4, hit: 3, 'in-flight': 2, 'wait-timeout': 1, passed: 7, observed: 2, left: 1 };
  const totals = totalsOf(outcomes, 12);
  t.same(totals, { requests: 25, upstreamCalls: 12, coalesced: 4, replayed: 3, rejected: 2, failed: 1 });
  t.equal(savedOf(totals), 7);
  t.same(allTotals(figures({ led: 1 }, 1)).requests, 1);
});

t.test('the history is of rates, and of the last minutes alone', async (t) => {
  const history = new History();
  history.add(snapshot(100, figures({ led: 10 }, 10, histogram([1, 1, 1, 1]))));
  t.same(history.points, [], 'one look is no rate');
  t.same(history.recent(waits)?.counts, [0, 0, 0, 0], 'and what was before is not of now');
  history.add(snapshot(102, figures({ led: 12, collapsed: 8 }, 12, histogram([1, 2, 2, 2]))));
  t.match(history.points.at(-1), { atS: 102, requests: 5, coalesced: 4, upstreamCalls: 1 });
  t.same(history.recent(waits)?.counts, [0, 1, 1, 1]);
  history.add(snapshot(102, figures({ led: 99 }, 99)));
  t.equal(history.points.length, 1, 'the same moment again');
  history.add(snapshot(103, figures({ led: 3 }, 3)));
  t.match(history.points.at(-1), { requests: 3, coalesced: 0 }, 'counted anew by another process');
  for (let atS = 104; atS < 900; atS += 1) history.add(snapshot(atS, figures({ led: 3 }, 3)));
  t.equal(history.points.length, 301);
  t.equal(history.windowS, 60);
});

function waits({ routes }: Figures): ReadonlyMap<string, Histogram> {
  return new Map(routes.flatMap(({ route, times: { wait } }) => (wait === undefined ? [] : [[route, wait]])));
}

t.test('numbers as they are read', async (t) => {
  t.same([0, 0.05, 12.34, 999.9, 12_345].map(rateText), ['0', '0.1', '12.3', '1,000', '12,345']);
  t.same([7, 999_999, 1_234_567].map(countText), ['7', '999,999', '1.2M']);
  t.same([-5, 0.123, 12.6, 1_234, 61_000, 3_700_000, 86_340_000, 200_000_000].map(durationText), [
    '0 ms',
    '0.12 ms',
    '13 ms',
    '1.2 s',
    '1 min 1 s',
    '1 h 1 min',
    '23 h 59 min',
    '2 d 7 h',
  ]);
  t.same([shareText(0, 0), shareText(0, 9), shareText(1, 3)], ['–', '0 %', '33.3 %']);
  t.same(quantileText({ kind: 'above', seconds: 30 }), '> 30.0 s');
  t.equal(bytesText(104_857_600), '100 MiB');
});

t.test('a configuration is shown as it could be written', async (t) => {
  const { parse } = await import('yaml');
  const value = {
    listen: { host: '0.0.0.0', port: 8080, tls: null },
    routes: [
      {
        name: 'a',
        match: { methods: ['POST'], path: '/a/:b/*' },
        key: [{ body: '/c' }, { header: 'x', optional: true }],
        keep: '5s',
      },
      {
        name: 'on',
        scope: '12',
        words: 'two: words # and more',
        empty: '',
        list: [],
        mapping: {},
        deep: [['a'], [{ b: 1 }]],
      },
    ],
    'odd name:': '- x',
    missing: undefined,
  };
  t.same(parse(yamlText(value)), JSON.parse(JSON.stringify(value)));
  t.match(yamlText(value), /^ {2}- name: a\n {4}match:\n {6}methods:\n {8}- POST\n {6}path: \/a\/:b\/\*$/m);
});

t.test('metrics come to figures, those that nobody knows here as well', async (t) => {
  const value = (labels: Record<string, string | number>, number: number, metricName?: string) => {
    return { labels, value: number, ...(metricName === undefined ? {} : { metricName }) };
  };
  const store = 'oneflight_store_seconds';
  const of = figuresOf([
    { name: 'nodejs_version_info', type: 'gauge', values: [value({ version: 'v1' }, 1)] },
    { name: 'oneflight_build_info', type: 'gauge', values: [value({ version: '1.2.3' }, 1)] },
    { name: 'oneflight_connections', type: 'gauge', values: [value({}, 4)] },
    { name: 'oneflight_requests_total', type: 'counter', values: [value({ route: 'a', outcome: 'led' }, 2)] },
    { name: 'oneflight_upstream_calls_total', type: 'counter', values: [value({ route: 'a' }, 2)] },
    {
      name: 'oneflight_keys_too_fine_total',
      type: 'counter',
      values: [
        value({ route: 'a', part: 'header x', compared: 'content' }, 3),
        value({ route: 'a', part: 'b', compared: 'c' }, 0),
      ],
    },
    { name: 'oneflight_leases_lost_total', type: 'counter', values: [value({ route: 'b' }, 1)] },
    {
      name: store,
      type: 'histogram',
      values: ['claim', 'renew'].flatMap((operation) => [
        value({ le: 0.1, operation }, 1, `${store}_bucket`),
        value({ le: '+Inf', operation }, 2, `${store}_bucket`),
        value({ operation }, 5, `${store}_sum`),
        value({ operation }, 2, `${store}_count`),
      ]),
    },
    { name: 'oneflight_upstream_usable', type: 'gauge', values: [value({ upstream: 'api', address: 'x:1' }, 0)] },
    {
      name: 'oneflight_upstream_pending_requests',
      type: 'gauge',
      values: [value({ upstream: 'api', address: 'x:1' }, 6)],
    },
    {
      name: 'oneflight_upstream_retries_total',
      type: 'counter',
      values: [value({ upstream: 'api', cause: 'reset' }, 2)],
    },
  ]);
  t.same(of, {
    version: '1.2.3',
    routes: [
      {
        route: 'a',
        outcomes: { led: 2 },
        upstreamCalls: 2,
        times: {},
        others: { oneflight_keys_too_fine_total: 3 },
        kinds: { oneflight_keys_too_fine_total: { 'header x, content': 3 } },
      },
      { route: 'b', outcomes: {}, upstreamCalls: 0, times: {}, others: { oneflight_leases_lost_total: 1 }, kinds: {} },
    ],
    upstreams: [
      {
        upstream: 'api',
        addresses: [{ address: 'x:1', isUsable: false, pending: 6 }],
        others: { oneflight_upstream_retries_total: 2 },
      },
    ],
    storeTimes: { boundsS: [0.1], counts: [2, 4], sumS: 10 },
    storeErrors: 0,
    plain: { oneflight_connections: 4 },
  });
});
