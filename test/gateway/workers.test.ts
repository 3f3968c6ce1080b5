/** `workers: n`: several processes behind one port, who share what a gateway of one process has once. */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { type Answered, burst, request, Watching } from '../support/client.js';
import { allEqual, COLLAPSED, isProblem, LED, problemOf, tally } from '../support/expect.js';
import { delay, eventually, Gate } from '../support/gate.js';
import { type ConfigParts, configOf, type Gateway, startGateway } from '../support/gateway.js';
import { startRedis } from '../support/redis.js';
import { chunkedInParts, resetsAfterReading, type StubUpstream, startUpstream } from '../support/upstream.js';
import {
  allGone,
  isAlive,
  linesOf,
  type Pinned,
  pin,
  pinEach,
  signalAll,
  startedPids,
  watchOver,
} from '../support/workers.js';

t.setTimeout(170_000);

const LEASE_MS = 20_000;
/** Much sooner than the lease would tell. */
const AT_ONCE_MS = 3_000;

const route = (name: string, policy: string, more = '') => `
  - name: ${name}
    match: { methods: [POST], path: "/${name}/*" }
    upstream: api
    policy: ${policy}
    lease: ${LEASE_MS}ms
    ${more}`;
const KEY = 'key: [ { request: path } ]';
const WAIT = 'wait: { max: 30s, poll: 15s }';
const ROUTES = [
  route('shared', 'coalesce', `${KEY}\n    ${WAIT}\n    keep: 20s`),
  route('lock', 'reject', KEY),
  route('line', 'queue', `${KEY}\n    ${WAIT}`),
  route('kept', 'replay', 'wait: 10s'),
  route('told', 'replay'),
  route('stream', 'coalesce', `${KEY}\n    ${WAIT}\n    stream: true\n    keep: 0\n    maxShared: 1MiB`),
].join('');

async function startWorkers(
  t: Test,
  upstream: StubUpstream,
  workers: number,
  { more = '', port = 0, ...parts }: Partial<ConfigParts> & { readonly port?: number } = {},
): Promise<Gateway> {
  const config = configOf({
    upstream: upstream.url,
    routes: ROUTES,
    ...parts,
    more: `workers: ${workers}\n${more}`,
  });
  const gateway = await startGateway(t, { config: config.replace('port: 0', `port: ${port}`) });
  watchOver(gateway);
  return gateway;
}

type Taken = { readonly state: string; readonly waiting: number; readonly route: string; readonly key: string };

async function taken(gateway: Gateway, route: string): Promise<Taken[]> {
  const { flights } = (await gateway.admin('/flights')).json() as { flights: Taken[] };
  return flights.filter((one) => one.route === route);
}

async function waiting(gateway: Gateway, route: string, count: number): Promise<void> {
  await eventually(`${count} wait`, async () => (await taken(gateway, route))[0]?.waiting === count);
}

const post = (client: Pick<Pinned, 'request'>, path: string, more: readonly string[] = [], body = 'A') =>
  client.request({ method: 'POST', path, headers: more, body });
const keyed = (client: Pick<Pinned, 'request'>, path: string, body = 'A') =>
  post(client, path, ['Idempotency-Key', path], body);

t.test('three workers and one store in memory', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startWorkers(t, upstream, 3);
  const [a, b, c] = (await pinEach(t, gateway, 3)) as [Pinned, Pinned, Pinned];

  await t.test('each listener is told of once, and every worker is known by its number and process', async (t) => {
    const listening = linesOf(gateway, 'listening');
    t.same(listening.map(({ listener }) => listener).sort(), ['admin', 'http']);
    t.ok(
      listening.every(({ pid }) => pid === gateway.pid),
      'by the parent',
    );
    t.same(
      linesOf(gateway, 'worker started').map(({ worker }) => worker),
      [1, 2, 3],
    );
    t.same([a.pid, b.pid, c.pid], startedPids(gateway));
    t.same(gateway.noise, [], 'lines do not run into each other');
  });

  await t.test('a burst over many connections is one call, whoever accepted them', async (t) => {
    const seen = new Set<unknown>();
    let rounds = 0;
    while (seen.size < 3 && rounds < 20) {
      rounds += 1;
      const path = `/shared/burst-${rounds}`;
      const held = upstream.holds(path);
      const all = burst(150, () => post(gateway, path));
      await held.arrived(1);
      await eventually('all are here', async () => (await gateway.metrics()).sum('oneflight_connections') >= 150);
      held.release();
      const answered = await all;
      allEqual(t, answered, 200, JSON.stringify({ path, call: 1 }));
      const { [LED]: led, [COLLAPSED]: collapsed = 0, ...rest } = tally(answered);
      t.equal(led, 1);
      const hits = Object.values(rest).reduce((sum, count) => sum + count, 0);
      t.equal(collapsed + hits, 149, 'late ones get what is kept');
      t.equal(upstream.count(path), 1);
      for (const line of linesOf(gateway, 'exchange')) if (line.route === 'shared') seen.add(line.worker);
    }
    t.equal(seen.size, 3, 'every worker took part');
  });

  await t.test('what the workers count adds up', async (t) => {
    const before = await gateway.metrics();
    const paths = Array.from({ length: 60 }, (_, i) => `/shared/sum-${i % 20}`);
    await Promise.all(paths.map((path) => post(gateway, path)));
    await burst(30, () => gateway.request({ path: '/unmatched' }));
    const after = await gateway.metrics();
    const grown = (name: string, labels: Record<string, string>) => after.sum(name, labels) - before.sum(name, labels);
    t.equal(grown('oneflight_requests_total', { route: 'shared' }), 60);
    t.equal(grown('oneflight_requests_total', { route: 'shared', outcome: 'led' }), 20);
    t.equal(grown('oneflight_upstream_calls_total', { route: 'shared' }), 20);
    t.equal(after.sum('oneflight_workers'), 3);
    t.equal(after.sum('oneflight_build_info'), 1, 'one gateway');
    t.equal(after.sum('oneflight_upstream_usable'), 1);
    t.equal(after.sum('oneflight_flights_in_progress'), 0);
    t.equal(after.text.match(/^# TYPE oneflight_requests_total/gm)?.length, 1);
    t.match(after.text, /^process_start_time_seconds \d+/m);
  });

  await t.test('a duplicate is rejected by another worker until the flight has ended', async (t) => {
    const held = upstream.holds('/lock/1');
    const first = post(a, '/lock/1');
    await held.arrived(1);
    isProblem(t, await post(b, '/lock/1'), 'in-flight', 20);
    isProblem(t, await post(c, '/lock/1'), 'in-flight', 20);
    held.release();
    t.equal((await first).status, 200);
    t.equal((await post(b, '/lock/1')).status, 200);
    t.equal(upstream.count('/lock/1'), 2);
  });

  await t.test('a queue goes over all workers, first come first', async (t) => {
    const held = upstream.holds('/line/1');
    const order: number[] = [];
    const all: Promise<unknown>[] = [];
    for (const [index, client] of [a, b, c].entries()) {
      all.push(post(client, '/line/1').then(() => order.push(index)));
      await (index === 0 ? held.arrived(1) : waiting(gateway, 'line', index));
    }
    t.equal(upstream.count('/line/1'), 1, 'one at a time');
    held.release();
    await Promise.all(all);
    t.same(order, [0, 1, 2]);
    t.same(await taken(gateway, 'line'), []);
  });

  await t.test('what is kept is replayed by another worker, and a key is one key', async (t) => {
    const first = await keyed(a, '/kept/1');
    const again = await keyed(b, '/kept/1');
    t.equal(again.text, first.text);
    t.equal(again.header('idempotent-replayed'), 'true');
    t.equal(problemOf(await keyed(c, '/kept/1', 'B')), 'key-reused');
    t.equal(upstream.count('/kept/1'), 1);
  });

  await t.test('an operator settles at the parent what a worker left unknown', async (t) => {
    upstream.on('/told/1', resetsAfterReading);
    await keyed(a, '/told/1');
    isProblem(t, await keyed(b, '/told/1'), 'outcome-unknown', 1e6);
    const [unknown] = await taken(gateway, 'told');
    t.equal(unknown?.state, 'unknown');
    const { settled } = (
      await gatewayAdmin(gateway, `/flights/${unknown?.key}/settle`, { as: 'response', status: 201, content: 'done' })
    ).json() as { settled: string };
    t.equal(settled, unknown?.key);
    t.match(await keyed(c, '/told/1'), { status: 201, text: 'done' });
    t.equal(upstream.count('/told/1'), 1);
  });

  await t.test('a response is read in another worker as it comes, byte for byte', async (t) => {
    const parts = [Buffer.alloc(200_000, 'first'), Buffer.alloc(500_000, 'second')];
    const gate = new Gate();
    upstream.on('/stream/1', chunkedInParts(parts, gate));
    const watch = ({ agent }: Pinned) => new Watching(gateway.url, { method: 'POST', path: '/stream/1', agent });
    const leader = watch(a);
    await leader.received(parts[0]!.length);
    const followers = [watch(b), watch(c)];
    for (const follower of followers) await follower.received(parts[0]!.length);
    gate.open();
    for (const client of [leader, ...followers]) {
      const { body, cut } = await client.answer;
      t.ok(body.equals(Buffer.concat(parts)));
      t.notOk(cut);
    }
    t.equal(upstream.count('/stream/1'), 1);
  });

  await t.test('so is one that turns out larger than what may be shared', async (t) => {
    const parts = [
      Buffer.alloc(400_000, 'first'),
      ...Array.from({ length: 24 }, (_, i) => Buffer.alloc(400_000, `${i} `)),
    ];
    const gate = new Gate();
    upstream.on('/stream/large', chunkedInParts(parts, gate));
    const watch = ({ agent }: Pinned) => new Watching(gateway.url, { method: 'POST', path: '/stream/large', agent });
    const clients = [watch(a)];
    await clients[0]!.received(parts[0]!.length);
    clients.push(watch(b), watch(c));
    for (const client of clients) await client.received(parts[0]!.length);
    gate.open();
    for (const client of clients) {
      const { body, cut } = await client.answer;
      t.ok(body.equals(Buffer.concat(parts)), `${body.length} bytes`);
      t.notOk(cut);
    }
    t.equal(upstream.count('/stream/large'), 1);
  });

  await t.test('a hang-up is forwarded, and ends nothing', async (t) => {
    gateway.signal('SIGHUP');
    await eventually('it is logged', () => linesOf(gateway, 'reloading').length === 1);
    t.equal((await a.request({ path: '/still' })).status, 200);
    t.equal((await gateway.admin('/readyz')).status, 200);
  });

  await t.test(
    'drain: running flights end, with their followers in other workers, and the exit code is 0',
    async (t) => {
      const held = upstream.holds('/shared/drain');
      const leader = post(a, '/shared/drain');
      await held.arrived(1);
      const follower = post(b, '/shared/drain');
      await waiting(gateway, 'shared', 1);
      // A terminal, or a service manager, tells every process.
      signalAll(startedPids(gateway), 'SIGTERM');
      gateway.signal('SIGTERM');
      await eventually('it is not ready', async () => (await gateway.admin('/readyz')).status === 503);
      t.match((await gateway.admin('/readyz')).json(), { ready: false, checks: { draining: 'yes' } });
      signalAll(startedPids(gateway), 'SIGINT');
      t.ok(startedPids(gateway).filter(isAlive).length > 0, 'who has something to end is there');
      held.release();
      t.equal((await leader).status, 200);
      t.equal((await follower).text, (await leader).text);
      t.same(await gateway.exited, { code: 0, signal: null });
      await allGone(startedPids(gateway));
    },
  );
});

async function gatewayAdmin(gateway: Gateway, path: string, content: unknown): Promise<Answered> {
  const headers = ['Content-Type', 'application/json'];
  return request(gateway.adminUrl, { method: 'POST', path, headers, body: JSON.stringify(content) });
}

t.test('a worker that is killed', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startWorkers(t, upstream, 2);

  await t.test('its followers elsewhere are told at once, what it led is unknown, and it is replaced', async (t) => {
    const [a, b] = (await pinEach(t, gateway, 2)) as [Pinned, Pinned];
    const [shared, kept] = [upstream.holds('/shared/kill'), upstream.holds('/kept/kill')];
    const line = upstream.holds('/line/kill');
    // Connections of their own to the worker that will be killed.
    const more: Pinned[] = [];
    while (more.length < 3) {
      const one = await pin(t, gateway);
      if (one.worker === b.worker) more.push(one);
    }
    const led = [post(b, '/shared/kill'), keyed(more[0]!, '/kept/kill'), post(more[1]!, '/line/kill')];
    const gone = Promise.all(led.map((answer) => t.rejects(answer)));
    await Promise.all([shared, kept, line].map((held) => held.arrived(1)));
    const places: Pinned[] = [];
    while (places.length < 2) {
      const one = await pin(t, gateway);
      if (one.worker === a.worker) places.push(one);
    }
    const follower = post(a, '/shared/kill');
    const repeat = keyed(places[0]!, '/kept/kill');
    const queued = post(places[1]!, '/line/kill');
    await waiting(gateway, 'shared', 1);
    await waiting(gateway, 'kept', 1);
    await waiting(gateway, 'line', 1);
    const counted = (await gateway.metrics()).sum('oneflight_requests_total');

    const killedAtMs = performance.now();
    process.kill(b.pid, 'SIGKILL');
    isProblem(t, await follower, 'leader-failed');
    const told = await repeat;
    const tookMs = performance.now() - killedAtMs;
    t.ok(tookMs < AT_ONCE_MS, `told after ${tookMs} ms`);
    isProblem(t, told, 'outcome-unknown', 1e6);
    await gone;
    line.release();
    t.equal((await queued).status, 200, 'the turn went on');
    t.equal(upstream.count('/line/kill'), 2);
    t.match(await taken(gateway, 'kept'), [{ state: 'unknown' }]);
    t.match(linesOf(gateway, 'flights of a worker ended as unknown'), [{ workerPid: b.pid, flights: 3 }]);

    const [, next] = (await pinEach(t, gateway, 2)) as [Pinned, Pinned];
    t.equal(next.worker, b.worker);
    t.not(next.pid, b.pid);
    watchOver(gateway);
    shared.release();
    t.equal((await post(next, '/shared/kill')).status, 200, 'the next may run');
    t.equal(upstream.count('/shared/kill'), 2);
    isProblem(t, await keyed(next, '/kept/kill'), 'outcome-unknown', 1e6);
    t.equal(upstream.count('/kept/kill'), 1, 'what is held is not executed again');
    const after = await gateway.metrics();
    t.ok(after.sum('oneflight_requests_total') >= counted, 'what it had counted is not lost');
    t.equal(after.sum('oneflight_workers_ended_total'), 1);
    t.equal(after.sum('oneflight_flights_in_progress'), 0);
  });

  await t.test('whoever reads along what it was leading is cut, and does not take it for whole', async (t) => {
    const [a, b] = (await pinEach(t, gateway, 2)) as [Pinned, Pinned];
    const first = Buffer.alloc(100_000, 'first');
    upstream.on('/stream/kill', chunkedInParts([first], new Gate()));
    const watch = ({ agent }: Pinned) => new Watching(gateway.url, { method: 'POST', path: '/stream/kill', agent });
    const leader = watch(b);
    await leader.received(first.length);
    const follower = watch(a);
    await follower.received(first.length);
    const killedAtMs = performance.now();
    process.kill(b.pid, 'SIGKILL');
    t.ok((await follower.answer).cut);
    t.ok(performance.now() - killedAtMs < AT_ONCE_MS);
    await eventually('every worker serves', async () => (await gateway.admin('/readyz')).status === 200, 20_000);
    watchOver(gateway);
  });

  await t.test('workers that die young are started again after ever longer pauses', async (t) => {
    const pauses = () =>
      linesOf(gateway, 'worker ended: another one takes its place').filter(({ worker }) => worker === 1);
    for (let i = 0; i < 4; i += 1) {
      const started = linesOf(gateway, 'worker started').filter(({ worker }) => worker === 1);
      process.kill(Number(started.at(-1)?.workerPid), 'SIGKILL');
      const next = () => linesOf(gateway, 'worker started').filter(({ worker }) => worker === 1).length;
      await eventually('the next one', () => next() === started.length + 1);
      watchOver(gateway);
    }
    // The first of them had lived longer, or not, as the machine was fast.
    const lengths = pauses().map(({ pauseMs }) => Number(pauseMs));
    t.equal(lengths.length, 4);
    t.ok(lengths.at(-1)! >= 400);
    for (const [index, length] of lengths.entries()) if (index > 1) t.equal(length, 2 * lengths[index - 1]!);
    await eventually('all serve again', async () => (await gateway.admin('/readyz')).status === 200);
    t.equal((await gateway.request({ path: '/served' })).status, 200);
  });

  await t.test('all at once: those after them are where clients were told, on port 0 too', async (t) => {
    const running = startedPids(gateway).filter(isAlive);
    t.equal(running.length, 2);
    signalAll(running, 'SIGKILL');
    await eventually('they are replaced', () => startedPids(gateway).filter(isAlive).length === 2, 20_000);
    watchOver(gateway);
    await eventually('they are ready', async () => (await gateway.admin('/readyz')).status === 200, 20_000);
    t.equal((await gateway.request({ path: '/served' })).status, 200);
  });

  await t.test('a second signal ends all of them at once', async (t) => {
    const held = upstream.holds('/shared/cut');
    const cut = t.rejects(post(gateway, '/shared/cut'));
    await held.arrived(1);
    gateway.signal('SIGTERM');
    await eventually('it is stopping', () => linesOf(gateway, 'stopping').length === 1);
    gateway.signal('SIGTERM');
    t.same(await gateway.exited, { code: 1, signal: null });
    await cut;
    await allGone(startedPids(gateway));
  });
});

t.test('workers whose parent is killed end what is in progress, accept nothing more, and go', async (t) => {
  const upstream = await startUpstream(t);
  // The delay is for load balancers that see somebody go; who takes the parent's place needs the port.
  const gateway = await startWorkers(t, upstream, 2, { more: 'drain: { delay: 1m, timeout: 30s }' });
  const held = upstream.holds('/unmatched');
  const running = gateway.request({ path: '/unmatched' });
  await held.arrived(1);
  const pids = startedPids(gateway);
  process.kill(gateway.pid, 'SIGKILL');
  await eventually('one of them is left, with a request', () => pids.filter(isAlive).length === 1);
  await t.rejects(gateway.request({ path: '/more' }));
  held.release();
  t.equal((await running).status, 200);
  await allGone(pids);
});

t.test('limits are the whole of the gateway', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startWorkers(t, upstream, 2, { more: 'limits: { maxConnections: 5 }' });
  const held = upstream.holds('/slow');
  const all = Array.from({ length: 20 }, () => gateway.request({ path: '/slow' }).catch(() => null));
  const answered: (Answered | null)[] = [];
  for (const one of all) void one.then((answer) => answered.push(answer));
  await eventually('the others are refused', () => answered.length >= 15);
  t.ok(upstream.count('/slow') <= 5, `${upstream.count('/slow')} calls`);
  held.release();
  const statuses = (await Promise.all(all)).map((answer) => answer?.status ?? 0);
  t.equal(statuses.filter((status) => status === 200).length, upstream.count('/slow'));
});

t.test('a changed configuration is in use in every worker, and in those that come after', async (t) => {
  const upstream = await startUpstream(t);
  const file = join(t.testdir({}), 'gateway.yaml');
  const put = (more: string, workers = 2): string => {
    const text = configOf({ upstream: upstream.url, routes: ROUTES + more, more: `workers: ${workers}` });
    writeFileSync(file, text);
    return text;
  };
  const fresh = route('fresh', 'coalesce', KEY);
  const gateway = await startGateway(t, { config: put(''), file });
  watchOver(gateway);
  const reload = () => gatewayAdmin(gateway, '/reload', {});
  const serveIt = async (path: string, pins: readonly Pinned[]) => {
    for (const [index, one] of pins.entries()) t.equal((await post(one, `/fresh/${path}-${index}`)).cacheStatus, LED);
  };
  const pins = await pinEach(t, gateway, 2);
  t.equal((await post(pins[0]!, '/fresh/before')).cacheStatus, null);

  put(fresh);
  const reloaded = await reload();
  t.equal(reloaded.status, 200);
  await serveIt('after', pins);

  put(`${fresh}${fresh}`);
  t.equal((await reload()).status, 422);
  t.match((await gateway.admin('/readyz')).json(), { ready: true, config: { errors: [/fresh/] } });
  t.equal((await gateway.metrics()).sum('oneflight_config_reload_success'), 0);
  process.kill(pins[1]!.pid, 'SIGKILL');
  await eventually('it is replaced', () => startedPids(gateway).length === 3);
  watchOver(gateway);
  await serveIt('replaced', await pinEach(t, gateway, 2));

  const [slow] = startedPids(gateway).filter(isAlive);
  process.kill(slow!, 'SIGSTOP');
  put(fresh + route('newer', 'coalesce', KEY));
  const answer = reload();
  // The files are looked at by themselves meanwhile, and a worker does not answer.
  await delay(2_500);
  process.kill(slow!, 'SIGCONT');
  t.match((await answer).json(), { reloaded: true, changed: ['routes.newer'] });

  put(fresh, 3);
  t.match((await reload()).json(), { needsRestart: ['workers'] });
  t.equal((await gateway.metrics()).sum('oneflight_config_reload_success'), 1);
  t.equal((await gateway.metrics()).sum('oneflight_workers'), 2);
  await gateway.stop();
});

t.test('with Redis the workers are so many gateways', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  const upstream = await startUpstream(t);
  const store = `{ kind: redis, url: "${redis.url}", commandTimeout: 2s }`;
  const gateway = await startWorkers(t, upstream, 2, { store });
  const [a, b] = (await pinEach(t, gateway, 2)) as [Pinned, Pinned];
  const held = upstream.holds('/shared/redis');
  const both = [post(a, '/shared/redis'), post(b, '/shared/redis')];
  await held.arrived(1);
  await waiting(gateway, 'shared', 1);
  held.release();
  allEqual(t, await Promise.all(both), 200, JSON.stringify({ path: '/shared/redis', call: 1 }));
  t.equal(upstream.count('/shared/redis'), 1);
  t.match((await gateway.admin('/readyz')).json(), { ready: true, checks: { store: 'ok', workers: 'ok' } });
  await gateway.stop();
});

t.test('a port that is taken: nothing is left behind', async (t) => {
  const upstream = await startUpstream(t);
  await t.rejects(startWorkers(t, upstream, 2, { port: upstream.port }), { message: /EADDRINUSE/ });
});
