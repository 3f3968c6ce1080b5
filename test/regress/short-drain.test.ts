/** The end of a drain that was too short for what was running. */

import t from 'tap';
import { send } from '../support/client.js';
import { isProblem, LED, PROMPT_MS } from '../support/expect.js';
import { eventually, Gate } from '../support/gate.js';
import { allCaughtUp, configOf, type Gateway, startGateway, startGateways } from '../support/gateway.js';
import { startRedis } from '../support/redis.js';
import { chunkedInParts, startUpstream } from '../support/upstream.js';

t.setTimeout(120_000);

const DRAIN_MS = 1_500;

t.test('whoever has no answer yet is told that the gateway is stopping; whose answer began is cut', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  const upstream = await startUpstream(t);
  const [stopping, there] = (await startGateways(t, 2, {
    config: configOf({
      upstream: upstream.url,
      store: `{ kind: redis, url: "${redis.url}" }`,
      routes: `
  - name: shared
    match: { methods: [POST], path: /shared/* }
    policy: coalesce
    key: [ { request: path } ]
    lease: 20s
    wait: { max: 25s, poll: 10s }
    keep: 0
  - name: lock
    match: { methods: [POST], path: /lock/* }
    policy: reject
    key: [ { request: path } ]
    lease: 20s`,
      more: `drain: ${DRAIN_MS}ms`,
    }),
  })) as [Gateway, Gateway];
  const post = (gateway: Gateway, path: string) => gateway.request({ method: 'POST', path });

  const paths = ['/plain', '/shared/here', '/shared/there', '/lock/here'] as const;
  const held = paths.map((path) => upstream.holds(path));
  const begun = new Gate();
  upstream.on('/begun', chunkedInParts([Buffer.from('first'), Buffer.from('last')], begun));

  const plain = stopping.request({ path: '/plain' });
  const uploading = send(stopping.url, {
    method: 'POST',
    path: '/plain',
    headers: ['Transfer-Encoding', 'chunked'],
    body: 'x',
  }).answer;
  const leader = post(stopping, '/shared/here');
  const foreign = post(there, '/shared/there');
  const lock = post(stopping, '/lock/here');
  const download = send(stopping.url, { path: '/begun' });
  await Promise.all([held[0]!.arrived(2), ...held.slice(1).map((calls) => calls.arrived(1)), download.started]);
  const near = post(stopping, '/shared/here');
  const far = post(there, '/shared/here');
  const following = post(stopping, '/shared/there');
  await allCaughtUp([stopping, there]);

  const began = performance.now();
  stopping.signal('SIGTERM');
  for (const answer of [plain, uploading, following]) isProblem(t, await answer, 'draining');
  t.ok(performance.now() - began >= DRAIN_MS - 100, 'not before the drain is over');
  isProblem(t, await leader, 'outcome-unknown');
  isProblem(t, await lock, 'outcome-unknown');
  for (const answer of [near, far]) isProblem(t, await answer, 'leader-failed');
  const cut = await download.answer;
  t.same([cut.status, cut.text, cut.cut], [200, 'first', true], 'what began is cut, not ended');
  t.same(await stopping.exited, { code: 0, signal: null });
  t.ok(performance.now() - began < DRAIN_MS + 2 * PROMPT_MS, `ended after ${Math.round(performance.now() - began)} ms`);

  // The other process goes on, and the keys of the one that stopped are free there.
  for (const calls of held) calls.release();
  begun.open();
  t.equal((await foreign).cacheStatus, LED);
  for (const path of ['/shared/here', '/lock/here']) {
    t.equal((await post(there, path)).status, 200, `${path}: free`);
    t.equal(upstream.count(path), 2);
  }
});

t.test('what was never sent is free at once; what was sent is unknown, and held where its rule says so', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  const upstream = await startUpstream(t);
  const config = (connections: string) =>
    configOf({
      upstream: upstream.url,
      store: `{ kind: redis, url: "${redis.url}" }`,
      routes: `
  - name: order
    match: { methods: [POST], path: /order/* }
    policy: replay
    lease: 20s`,
      more: `drain: ${DRAIN_MS}ms`,
    }).replace(/^ {2}api: \{/m, `  api: { ${connections}`);
  // A replay call has a place of its own beside those of other traffic: one is on its way, the next waits for a place.
  const stopping = await startGateway(t, { config: config('connections: { max: 1, queue: 10, wait: 30s }, ') });
  const there = await startGateway(t, { config: config('') });
  const order = (gateway: Gateway, key: string) =>
    gateway.request({ method: 'POST', path: `/order/${key}`, headers: ['Idempotency-Key', key] });
  const held = upstream.holds('/order/sent');
  const sent = order(stopping, 'sent');
  await held.arrived(1);
  const waiting = order(stopping, 'waiting');
  await eventually('it waits', async () => (await stopping.metrics()).sum('oneflight_upstream_waiting_requests') === 1);
  isProblem(t, await order(there, 'waiting'), 'in-flight', 20);
  stopping.signal('SIGTERM');
  isProblem(t, await sent, 'outcome-unknown');
  t.ok((await waiting).status >= 500);
  t.same(await stopping.exited, { code: 0, signal: null });
  t.equal((await order(there, 'waiting')).status, 200, 'free');
  t.equal(upstream.count('/order/waiting'), 1, 'it was sent once in all');
  isProblem(t, await order(there, 'sent'), 'outcome-unknown');
  t.equal(upstream.count('/order/sent'), 1);
});
