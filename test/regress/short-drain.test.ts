/** The end of a drain that was too short for what was running. */

import t from 'tap';
import { send } from '../support/client.js';
import { isProblem, LED, PROMPT_MS } from '../support/expect.js';
import { Gate } from '../support/gate.js';
import { allCaughtUp, configOf, type Gateway, startGateways } from '../support/gateway.js';
import { startRedis } from '../support/redis.js';
import { chunkedInParts, startUpstream } from '../support/upstream.js';

t.setTimeout(60_000);

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
