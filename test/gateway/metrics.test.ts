/** What `/metrics` shows, as Prometheus reads it: good names, times in seconds, and counters that are there before they count. */

import t, { type Test } from 'tap';
import { burst } from '../support/client.js';
import { eventually } from '../support/gate.js';
import { configOf, type Gateway, startGateway } from '../support/gateway.js';
import { promtool } from '../support/promtool.js';
import { answersAfter, startUpstream } from '../support/upstream.js';

t.setTimeout(120_000);

const ANSWER_MS = 300;
const routes = `
  - name: calm
    match: { methods: [POST], path: /calm/* }
    policy: coalesce
    wait: 3s
    key: [ { request: path } ]
  - name: lock
    match: { methods: [POST], path: /lock }
    policy: reject
    key: [ { request: path } ]
  - name: stock
    match: { methods: [POST], path: /stock }
    policy: queue
    key: [ { request: path } ]
  - name: orders
    match: { methods: [POST], path: /orders }
    policy: replay
    wait: 2s
  - name: open
    match: { path: /open/* }`;

async function start(t: Test, more = '') {
  const upstream = await startUpstream(t);
  upstream.on('/calm/slow', answersAfter(ANSWER_MS));
  return startGateway(t, { config: configOf({ upstream: upstream.url, routes, more }) });
}

/** Some of everything. */
async function traffic(gateway: Gateway): Promise<void> {
  await burst(3, () => gateway.request({ method: 'POST', path: '/calm/slow' }));
  await burst(2, () => gateway.request({ method: 'POST', path: '/lock' }));
  await burst(2, () => gateway.request({ method: 'POST', path: '/stock' }));
  await gateway.request({ method: 'POST', path: '/orders', headers: ['Idempotency-Key', 'one'] });
  await gateway.request({ path: '/open/one' });
}

const OVER = 9;

t.test('every name and type is as Prometheus would have it, with one process and with several', async (t) => {
  for (const workers of [1, 2]) {
    const gateway = await start(t, `workers: ${workers}`);
    await traffic(gateway);
    await eventually('counted', async () => (await gateway.metrics()).sum('oneflight_requests_total') === OVER);
    const { text } = await gateway.admin('/metrics');
    t.same(await promtool(['check', 'metrics'], text), { code: 0, said: '' }, `${workers}`);
  }
  const bad = await promtool(['check', 'metrics'], '# HELP x_total X.\n# TYPE x_total gauge\nx_total 1\n');
  t.match(bad, { code: 3, said: /_total/ }, 'a planted name');
});

t.test('times are counted in seconds: of each request, and of each call until its answer begins', async (t) => {
  const gateway = await start(t);
  await traffic(gateway);
  await eventually('counted', async () => (await gateway.metrics()).sum('oneflight_requests_total') === OVER);
  const metrics = await gateway.metrics();
  const countOf = (name: string, route: string) => metrics.sum(`oneflight_${name}_seconds_count`, { route });
  const meanOf = (name: string, route: string) =>
    metrics.sum(`oneflight_${name}_seconds_sum`, { route }) / countOf(name, route);
  for (const route of ['calm', 'lock', 'stock', 'orders', 'open']) {
    t.equal(countOf('request_duration', route), metrics.sum('oneflight_requests_total', { route }), route);
    t.equal(countOf('upstream_latency', route), metrics.sum('oneflight_upstream_calls_total', { route }), route);
  }
  t.equal(countOf('upstream_latency', 'calm'), 1, 'three requests, one call');
  for (const name of ['request_duration', 'upstream_latency']) {
    const mean = meanOf(name, 'calm');
    // A timer may fire a millisecond early.
    t.ok(mean >= (ANSWER_MS - 10) / 1000 && mean < 20, `${name}: ${mean}`);
  }
  t.ok(meanOf('upstream_latency', 'open') < ANSWER_MS / 1000);
});

t.test('what should never happen is counted as 0 before it does, and limits are told as configured', async (t) => {
  const gateway = await start(t);
  const { text } = await gateway.admin('/metrics');
  const lines = text.split('\n');
  for (const line of [
    'leases_lost_total{route="lock"} 0',
    'unsettled_flights_total{route="stock"} 0',
    'unprotected_requests_total{route="orders",reason="store-unavailable"} 0',
    'requests_total{route="orders",outcome="outcome-unknown"} 0',
    'requests_total{route="calm",outcome="wait-timeout"} 0',
    'store_errors_total{operation="claim"} 0',
    'wait_limit_seconds{route="calm"} 3',
    'wait_limit_seconds{route="orders"} 2',
    'wait_limit_seconds{route="stock"} 10',
  ]) {
    t.ok(lines.includes(`oneflight_${line}`), line);
  }
  t.notMatch(text, /^oneflight_\w+\{route="open"/m, 'a rule without a policy');
  t.notMatch(text, /^oneflight_wait_limit_seconds\{route="lock"/m, 'a rule under which nobody waits');
});
