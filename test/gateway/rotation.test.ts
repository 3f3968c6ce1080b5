/** A new secret in three steps, each next to the one before: at no moment does one operation run twice. */

import t, { type Test } from 'tap';
import { burst } from '../support/client.js';
import { HIT, isProblem, problemOf } from '../support/expect.js';
import { delay, eventually } from '../support/gate.js';
import { allCaughtUp, configOf, type Gateway, startGateways } from '../support/gateway.js';
import { type RedisServer, startRedis } from '../support/redis.js';
import { type StubUpstream, startUpstream } from '../support/upstream.js';

t.setTimeout(170_000);

const OLD = 'the-old-secret-of-the-gateways';
const NEW = 'the-new-secret-of-the-gateways';
/** The lists of all gateways, one roll-out after the other. */
const STEPS = [[OLD], [OLD, NEW], [NEW, OLD], [NEW]] as const;
const KEYS = 40;

const ROUTES = `
  - name: refresh
    match: { path: /refresh/* }
    policy: coalesce
    key: [ { request: path } ]
    keep: 60s
    wait: { max: 20s, poll: 15s }
  - name: orders
    match: { path: /orders/* }
    policy: replay
    wait: { max: 20s, poll: 15s }
  - name: button
    match: { path: /button/* }
    policy: reject
    key: [ { request: path } ]
  - name: stock
    match: { path: /stock/* }
    policy: queue
    key: [ { request: path } ]
    wait: { max: 20s, poll: 15s }`;

async function gatewaysOf(t: Test, redis: RedisServer, upstream: StubUpstream, steps: readonly (readonly string[])[]) {
  const started = steps.map((secrets) => {
    const store = `{ kind: redis, url: "${redis.url}", commandTimeout: 2s, secret: [${secrets.join(', ')}] }`;
    return startGateways(t, 1, { config: configOf({ upstream: upstream.url, store, routes: ROUTES }) });
  });
  const gateways = (await Promise.all(started)).flat();
  // The first question of a process takes longest; no step is to be judged by it.
  await allCaughtUp(gateways);
  return gateways;
}

const post = (gateway: Gateway, path: string) =>
  gateway.request({ method: 'POST', path, headers: ['Idempotency-Key', path], body: '{}' });

for (const [index, before] of STEPS.slice(0, -1).entries()) {
  const after = STEPS[index + 1]!;
  t.test(`step ${index} beside step ${index + 1}: ${before.length} and ${after.length} secrets`, async (t) => {
    const redis = await startRedis();
    t.teardown(() => redis.stop());
    const upstream = await startUpstream(t);
    const gateways = await gatewaysOf(t, redis, upstream, [before, after]);
    const paths = Array.from({ length: KEYS }, (_, i) => i);

    for (const rule of ['refresh', 'orders']) {
      await t.test(`${rule}: requests that reach both at once run once, and get one answer`, async (t) => {
        for (const i of paths) {
          const path = `/${rule}/${i}`;
          upstream.on(path, (call) => call.answer({ content: `${path} ${call.ordinal}` }));
          const all = await burst(8, (n) => post(gateways[(n + i) % 2]!, path));
          const others = all.filter((one) => one.status !== 200 || one.text !== `${path} 1`);
          if (others[0] !== undefined) t.fail(`${path}: ${others[0].status} ${others[0].text}`);
          if (upstream.count(path) !== 1) t.fail(`${path}: ${upstream.count(path)} calls`);
          for (const gateway of gateways) if (!HIT.test((await post(gateway, path)).cacheStatus ?? '')) t.fail(path);
        }
        t.equal(upstream.count(`/${rule}/0`), 1);
      });
    }

    await t.test('stock: requests that reach both go one after the other', async (t) => {
      for (const i of paths.slice(0, 10)) {
        const path = `/stock/${i}`;
        let [now, most] = [0, 0];
        upstream.on(path, async (call) => {
          now += 1;
          most = Math.max(most, now);
          // Long enough for another one to be sent.
          await delay(20);
          now -= 1;
          call.answer({ content: 'done' });
        });
        const all = await burst(8, (n) => post(gateways[(n + i) % 2]!, path));
        if (all.some((one) => one.status !== 200)) t.fail(`${path}: ${all.map((one) => one.status).join()}`);
        if (most !== 1) t.fail(`${path}: ${most} at once`);
        if (upstream.count(path) !== 8) t.fail(`${path}: ${upstream.count(path)} calls`);
      }
      t.equal(upstream.count('/stock/0'), 8);
    });

    await t.test('button: while one is under way, all others are refused', async (t) => {
      for (const i of paths) {
        const path = `/button/${i}`;
        const held = upstream.holds(path);
        let answered = 0;
        const all = burst(6, async (n) => {
          const answer = await post(gateways[(n + i) % 2]!, path);
          answered += 1;
          return answer;
        });
        await eventually('five refusals', async () => answered >= 5);
        held.release();
        const refused = (await all).filter((one) => problemOf(one) === 'in-flight');
        if (upstream.count(path) !== 1) t.fail(`${path}: ${upstream.count(path)} calls`);
        if (refused.length !== 5) t.fail(`${path}: ${refused.length} refused`);
      }
      t.equal(upstream.count('/button/0'), 1);
    });
  });
}

t.test('what was kept, is under way or is unknown in one step is found in the next', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  const upstream = await startUpstream(t);
  const gateways = await gatewaysOf(t, redis, upstream, STEPS.slice(1, 3));
  for (const [first, next] of [gateways, gateways.toReversed()] as [Gateway, Gateway][]) {
    const name = first === gateways[0] ? 'forth' : 'back';
    const kept = `/orders/kept-${name}`;
    upstream.on(kept, (call) => call.answer({ content: 'x'.repeat(50_000) }));
    t.equal((await post(first, kept)).status, 200);
    const again = await post(next, kept);
    t.equal(again.text.length, 50_000);
    t.equal(again.header('idempotent-replayed'), 'true');
    const other = { method: 'POST', path: kept, headers: ['Idempotency-Key', kept], body: '{"other":1}' };
    isProblem(t, await next.request(other), 'key-reused');

    const lost = `/orders/lost-${name}`;
    upstream.on(lost, (call) => call.reset());
    isProblem(t, await post(first, lost), 'outcome-unknown');
    isProblem(t, await post(next, lost), 'outcome-unknown');

    const varies = `/refresh/varies-${name}`;
    upstream.on(varies, (call) => call.answer({ content: call.header('accept') ?? '', fields: ['Vary', 'Accept'] }));
    const accept = (gateway: Gateway, type: string) =>
      gateway.request({ method: 'POST', path: varies, headers: ['Accept', type] });
    for (const type of ['a/a', 'b/b', 'c/c']) {
      t.equal((await accept(first, type)).text, type);
      const hit = await accept(next, type);
      t.equal(hit.text, type);
      t.match(hit.cacheStatus, HIT, `variant ${type}`);
    }
    t.same(
      [kept, lost, varies].map((path) => upstream.count(path)),
      [1, 1, 3],
    );
  }
});
