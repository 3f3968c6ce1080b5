/** Leases that pass during a flight, because the store is gone or the process was frozen. */

import t from 'tap';
import { burst } from '../support/client.js';
import { allEqual, COLLAPSED, isProblem, LED, tally } from '../support/expect.js';
import { delay, eventually } from '../support/gate.js';
import { configOf, type Gateway, startGateway, startGateways } from '../support/gateway.js';
import { startRedis } from '../support/redis.js';
import { startUpstream } from '../support/upstream.js';

t.setTimeout(90_000);

const LEASE_MS = 2_000;
const upstream = await startUpstream(t);

function configFor(redisUrl: string): string {
  const route = (name: string, policy: string, more = '') => `
  - name: ${name}
    match: { methods: [POST], path: /${name}/* }
    policy: ${policy}
    key: [ { request: path } ]
    lease: ${LEASE_MS}ms
    ${more}`;
  return configOf({
    upstream: upstream.url,
    store: `{ kind: redis, url: "${redisUrl}" }`,
    routes: [
      route('shared', 'coalesce', 'onStoreDown: local\n    wait: { max: 20s, poll: 500ms }\n    keep: 20s'),
      route('lock', 'reject', 'onStoreDown: local'),
      route('strict', 'reject', 'onStoreDown: reject'),
    ].join(''),
  });
}

function post(gateway: Gateway, path: string) {
  return gateway.request({ method: 'POST', path });
}

t.test('onStoreDown local: a flight that outlives its lease and the store is still the only one here', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  const gateway = await startGateway(t, { config: configFor(redis.url) });
  const shared = upstream.holds('/shared/outage');
  const lock = upstream.holds('/lock/outage');
  const leader = post(gateway, '/shared/outage');
  const holder = post(gateway, '/lock/outage');
  await shared.arrived(1);
  await lock.arrived(1);
  const early = burst(2, () => post(gateway, '/shared/outage'));
  await gateway.caughtUp();
  await redis.kill();
  await eventually('both leases have passed', async () => {
    const metrics = await gateway.metrics();
    return ['shared', 'lock'].every((route) => metrics.sum('oneflight_leases_lost_total', { route }) === 1);
  });

  const late = burst(3, () => post(gateway, '/shared/outage'));
  isProblem(t, await post(gateway, '/lock/outage'), 'in-flight', LEASE_MS / 1000);
  await gateway.caughtUp();
  t.equal(upstream.count('/shared/outage'), 1);
  shared.release();
  lock.release();
  const all = [await leader, ...(await early), ...(await late)];
  allEqual(t, all, 200, '{"path":"/shared/outage","call":1}');
  t.same(tally(all.slice(1)), { [COLLAPSED]: 5 });
  t.equal(upstream.count('/shared/outage'), 1);
  t.equal((await holder).status, 200);
  t.equal(upstream.count('/lock/outage'), 1);
  t.equal((await post(gateway, '/lock/outage')).status, 200, 'free again');
});

t.test('a process that was frozen past its lease lets nobody join what it led', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  const [frozen, there] = (await startGateways(t, 2, { config: configFor(redis.url) })) as [Gateway, Gateway];
  const flights = ['shared', 'lock', 'strict'].map((name) => {
    const path = `/${name}/frozen`;
    return { name, path, held: upstream.holds(path), leader: post(frozen, path) };
  });
  for (const { held } of flights) await held.arrived(1);
  frozen.pause();
  await delay(LEASE_MS + 300);
  const seconds = flights.map(({ path }) => post(there, path));
  for (const { held } of flights) await held.arrived(2);
  // They are there when the process wakes up, before it has looked at its leases.
  const newcomers = flights.map(({ path }) => burst(3, () => post(frozen, path)));
  await delay(100);
  frozen.resume();
  await frozen.caughtUp();
  for (const [index, { name, path, held, leader }] of flights.entries()) {
    if (name !== 'shared') {
      for (const answer of await newcomers[index]!) isProblem(t, answer, 'in-flight', LEASE_MS / 1000);
    }
    held.release();
    const own = [await seconds[index]!, ...(name === 'shared' ? await newcomers[index]! : [])];
    allEqual(t, own, 200, `{"path":"${path}","call":2}`);
    t.equal((await leader).text, `{"path":"${path}","call":1}`);
    t.equal(upstream.count(path), 2);
  }
});

t.test('a leader that was frozen past its lease does not say that its response is stored', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  const [frozen, there] = (await startGateways(t, 2, { config: configFor(redis.url) })) as [Gateway, Gateway];
  const path = '/shared/woken';
  const held = upstream.holds(path);
  const leader = post(frozen, path);
  const call = await held.arrived(1);
  frozen.pause();
  await delay(LEASE_MS + 200);
  call.answer({ content: 'too late' });
  frozen.resume();
  const answer = await leader;
  t.equal(answer.text, 'too late');
  t.equal(answer.cacheStatus, 'oneflight; fwd=miss');
  held.release();
  const next = await post(there, path);
  t.equal(next.cacheStatus, LED, 'and it is not');
  t.equal(upstream.count(path), 2);
});
