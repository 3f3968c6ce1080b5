/** Health, metrics, logs and the end of a process: what whoever runs the gateway relies on. */

import t from 'tap';
import { burst, request } from '../support/client.js';
import { allEqual, COLLAPSED, isProblem, PROMPT_MS, problemOf, tally } from '../support/expect.js';
import { delay, eventually, within } from '../support/gate.js';
import { configOf, type Gateway, metricsOf, startGateway, startGateways } from '../support/gateway.js';
import { startRedis } from '../support/redis.js';
import { answers, answersAfter, hangsUpAfterReading, startUpstream } from '../support/upstream.js';

t.setTimeout(120_000);

const redis = await startRedis();
t.teardown(() => redis.stop());
const store = `{ kind: redis, url: "${redis.url}", commandTimeout: 2s }`;
const route = (name: string, more: string) => `
  - name: ${name}
    match: { methods: [POST], path: /${name}/* }
    policy: ${more}
    key: [ { request: path }, { query: id } ]`;
const routes = [
  route('calm', 'coalesce\n    keep: 20s'),
  route('hasty', 'coalesce\n    wait: 300ms'),
  route('locked', 'reject'),
  `
  - name: open
    match: { path: /open/* }`,
].join('');

t.test('alive, ready and measured', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startGateway(t, { config: configOf({ upstream: upstream.url, store, routes }) });
  t.equal((await gateway.admin('/livez')).status, 200);
  t.equal((await gateway.admin('/readyz')).status, 200);
  const metrics = await gateway.admin('/metrics');
  t.equal(metrics.status, 200);
  t.match(metrics.header('content-type'), /^text\/plain; version=0\.0\.4/);
  for (const name of [
    'requests_total',
    'upstream_calls_total',
    'flights_in_progress',
    'follower_wait_seconds',
    'store_seconds',
    'store_errors_total',
    'leases_lost_total',
    'unprotected_requests_total',
  ]) {
    t.match(metrics.text, `# TYPE oneflight_${name} `, name);
  }
  t.equal((await gateway.admin('/nothing')).status, 404);
  for (const path of ['/livez', '/metrics']) {
    t.match(
      (await gateway.request({ path })).text,
      `"path":"${path}"`,
      `${path} of the data listener is the upstream's`,
    );
  }
});

t.test('not ready without the store or an upstream, alive all the same', async (t) => {
  const upstream = await startUpstream(t);
  const own = await startRedis();
  t.teardown(() => own.stop());
  const config = configOf({
    upstream: upstream.url,
    store: `{ kind: redis, url: "${own.url}", commandTimeout: 2s }`,
    routes,
  });
  const gateway = await startGateway(t, { config });
  const ready = async () => (await gateway.admin('/readyz')).status;
  t.equal(await ready(), 200);
  own.pause();
  await eventually('not ready', async () => (await ready()) === 503, 5_000);
  t.equal((await gateway.admin('/livez')).status, 200);
  own.resume();
  await eventually('ready again', async () => (await ready()) === 200, 5_000);
  await upstream.refuse();
  await eventually('not ready', async () => (await ready()) === 503, 5_000);
  t.equal((await gateway.admin('/livez')).status, 200);
  await upstream.listen();
  await eventually('ready again', async () => (await ready()) === 200, 5_000);
});

t.test('the admin listener can be switched off', async (t) => {
  const upstream = await startUpstream(t);
  const config = configOf({ upstream: upstream.url, routes }).replace(/^admin: .*$/m, 'admin: false');
  const gateway = await startGateway(t, { config });
  t.equal(gateway.adminUrl, '');
  t.equal((await gateway.request({ path: '/open/a' })).status, 200);
});

t.test("every request is counted once and logged once, and every call is the stub's", async (t) => {
  const upstream = await startUpstream(t);
  const gateways = await startGateways(t, 2, { config: configOf({ upstream: upstream.url, store, routes }) });
  const to = (index: number) => gateways[index % 2]!;
  let sent = 0;
  const post = (index: number, path: string) => {
    sent += 1;
    return to(index).request({ method: 'POST', path });
  };

  upstream.on('/calm/a', answersAfter(300));
  upstream.on('/calm/500', answers({ status: 500 }));
  upstream.on('/calm/gone', hangsUpAfterReading);
  const held = upstream.holds('/hasty/a');
  const lock = upstream.holds('/locked/a');
  const slow = post(0, '/hasty/a?id=1');
  const locked = post(1, '/locked/a?id=1');
  await held.arrived(1);
  await lock.arrived(1);
  const all = [
    ...(await burst(20, (index) => post(index, '/calm/a?id=1'))),
    ...(await burst(10, (index) => post(index, '/calm/a?id=1'))),
    ...(await burst(10, (index) => post(index, `/calm/b?id=${index}`))),
    ...(await burst(3, (index) => post(index, '/calm/c'))),
    ...(await burst(2, (index) => post(index, '/calm/500?id=2'))),
    await post(0, '/calm/gone?id=3'),
    ...(await burst(4, (index) => post(index, '/hasty/a?id=1'))),
    ...(await burst(4, (index) => post(index, '/locked/a?id=1'))),
    ...(await burst(5, (index) => post(index, '/open/a'))),
    ...(await burst(5, (index) => post(index, '/elsewhere'))),
  ];
  held.release();
  lock.release();
  all.push(await slow, await locked);
  upstream.on('/calm/left', answersAfter(300));
  const leaving = to(0).send({ method: 'POST', path: '/calm/left?id=4' });
  sent += 1;
  await upstream.arrived(1, '/calm/left');
  leaving.leave();
  await t.rejects(leaving.answer);
  await upstream.callsOf('/calm/left')[0]!.over;
  t.equal(all.length + 1, sent);

  const requests = async () => (await metricsOf(gateways)).sum('oneflight_requests_total');
  await eventually('every request counted', async () => (await requests()) >= sent);
  const metrics = await metricsOf(gateways);
  t.equal(metrics.sum('oneflight_requests_total'), sent);
  t.equal(metrics.sum('oneflight_upstream_calls_total'), upstream.count());
  t.equal(metrics.sum('oneflight_flights_in_progress'), 0);
  t.same(metrics.outcomes('hasty'), { led: 1, 'wait-timeout': 4 });
  t.same(metrics.outcomes('locked'), { led: 1, 'in-flight': 4 });
  t.same(metrics.outcomes('open'), { passed: 5 });
  t.same(metrics.outcomes('unmatched'), { passed: 5 });
  t.equal(metrics.sum('oneflight_unprotected_requests_total', { route: 'calm', reason: 'key-missing' }), 3);
  t.equal(metrics.sum('oneflight_unprotected_requests_total'), 3);
  const { led = 0, collapsed = 0, ...others } = metrics.outcomes('calm');
  t.equal(led + collapsed, 20 + 10 + 2, 'the burst, the distinct ones, and the errors');
  t.same(others, { hit: 10, bypassed: 3, 'outcome-unknown': 1, left: 1 });
  t.equal(upstream.count('/calm/a'), 1);

  const exchanges = () => gateways.flatMap((gateway) => gateway.logs).filter((line) => line.outcome !== undefined);
  await eventually('every request logged', () => exchanges().length >= sent);
  const counted: Record<string, number> = {};
  for (const line of exchanges()) {
    const name = `${String(line.route)} ${String(line.outcome)}`;
    counted[name] = (counted[name] ?? 0) + 1;
  }
  const wanted: Record<string, number> = {};
  for (const name of ['calm', 'hasty', 'locked', 'open', 'unmatched']) {
    for (const [outcome, count] of Object.entries(metrics.outcomes(name))) wanted[`${name} ${outcome}`] = count;
  }
  t.same(counted, wanted, 'log and metrics say the same');
  for (const gateway of gateways) {
    t.same(gateway.noise, [], 'every line is JSON');
    t.equal(gateway.stderr, '');
    t.ok(
      gateway.logs.every((line) => line.level !== 'error' && line.level !== 50),
      'no error was logged',
    );
  }
});

t.test('labels do not grow with what clients send', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startGateway(t, { config: configOf({ upstream: upstream.url, routes }) });
  const series = async () => {
    const lines = (await gateway.metrics()).text.split('\n').filter((line) => line.startsWith('oneflight_'));
    return lines.map((line) => line.slice(0, line.lastIndexOf(' ')));
  };
  await gateway.request({ method: 'POST', path: '/calm/0?id=0' });
  await gateway.request({ method: 'POST', path: '/odd/0' });
  await eventually('both counted', async () => (await gateway.metrics()).sum('oneflight_requests_total') === 2);
  const before = await series();
  await burst(60, (index) => gateway.request({ method: 'POST', path: `/calm/${index}?id=${index + 1}` }));
  await burst(60, (index) => gateway.request({ method: ['PURGE', 'POST', 'LINK'][index % 3]!, path: `/odd/${index}` }));
  t.same(await series(), before);
});

t.test('SIGTERM: what is in flight ends as it should, new connections are refused, exit code 0', async (t) => {
  const upstream = await startUpstream(t);
  const [here, there] = (await startGateways(t, 2, {
    config: configOf({ upstream: upstream.url, store, routes }),
  })) as [Gateway, Gateway];
  const held = upstream.holds('/calm/drain');
  const plain = upstream.holds('/open/drain');
  const ask = (gateway: Gateway) => gateway.request({ method: 'POST', path: '/calm/drain?id=drain' });
  const led = ask(here);
  const passed = here.request({ path: '/open/drain' });
  await held.arrived(1);
  await plain.arrived(1);
  const followers = [ask(here), ask(there)];
  await here.caughtUp();
  await there.caughtUp();
  const stopped = here.stop();
  await eventually(
    'not ready',
    async () => {
      const answer = await here.admin('/readyz').catch(() => null);
      return answer === null || answer.status === 503;
    },
    5_000,
  );
  await eventually('refusing', () =>
    request(here.url, { path: '/open/late' }).then(
      (answer) => problemOf(answer) === 'draining',
      () => true,
    ),
  );
  t.equal(upstream.count('/open/late'), 0);
  t.equal(here.running, true, 'it waits for what is in flight');
  held.release();
  plain.release();
  const all = [await led, ...(await Promise.all(followers))];
  allEqual(t, all, 200, '{"path":"/calm/drain","call":1}');
  t.equal(tally(all)[COLLAPSED], 2);
  t.equal((await passed).status, 200);
  await within(8_000, 'the end of the process', stopped);
  t.equal(upstream.count('/calm/drain'), 1);
});

t.test('SIGTERM: what does not end in time is ended, and followers elsewhere learn it at once', async (t) => {
  const upstream = await startUpstream(t);
  const config = configOf({ upstream: upstream.url, store, routes, more: 'drain: 1s' });
  const [here, there] = (await startGateways(t, 2, { config })) as [Gateway, Gateway];
  upstream.holds('/calm/never');
  const ask = (gateway: Gateway) => gateway.request({ method: 'POST', path: '/calm/never?id=never' });
  const led = ask(here).catch(() => null);
  await upstream.arrived(1, '/calm/never');
  const follower = ask(there);
  await there.caughtUp();
  const began = performance.now();
  await here.stop();
  t.ok(performance.now() - began < 1_000 + PROMPT_MS, `ended after ${Math.round(performance.now() - began)} ms`);
  isProblem(t, await follower, 'leader-failed');
  const told = await led;
  if (told !== null) isProblem(t, told, 'outcome-unknown');
  t.equal(upstream.count('/calm/never'), 1);
});

t.test('SIGTERM ends an idle process at once, keep-alive connections or not', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startGateway(t, { config: configOf({ upstream: upstream.url, routes }) });
  const { Agent } = await import('node:http');
  const agent = new Agent({ keepAlive: true });
  t.teardown(() => agent.destroy());
  await gateway.request({ path: '/open/a', agent });
  await delay(10);
  await within(3_000, 'the end of the process', gateway.stop());
  t.pass('ended');
});
