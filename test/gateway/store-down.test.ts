/** Redis away: at start, frozen, killed, emptied, its subscriptions cut, its replies lost. Nothing hangs. */

import t, { type Test } from 'tap';
import { type Answered, burst } from '../support/client.js';
import {
  allEqual,
  BYPASSED,
  COLLAPSED,
  isProblem,
  LED,
  PROMPT_MS,
  problemOf,
  slowestMs,
  tally,
} from '../support/expect.js';
import { delay, eventually } from '../support/gate.js';
import { allCaughtUp, configOf, type Gateway, metricsOf, startGateways } from '../support/gateway.js';
import { startRedis } from '../support/redis.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { answersAfter, type StubUpstream, startUpstream } from '../support/upstream.js';

t.setTimeout(150_000);

/** A dead store costs a request at most 300 ms; the rest is what a busy machine may add. */
const DEAD_STORE_MS = 300 + 1_200;

const route = (name: string, policy: string, more: string) => `
  - name: ${name}
    match: { methods: [POST], path: /${name}/* }
    policy: ${policy}
    key: [ { request: path }, { query: id } ]
    lease: 6s
    ${more}`;
const routes = [
  route('local', 'coalesce', 'keep: 20s\n    wait: { max: 20s, poll: 500ms }'),
  route('pushed', 'coalesce', 'lease: 30s\n    keep: 20s\n    wait: { max: 25s, poll: 500ms }').replace(
    'lease: 6s\n    ',
    '',
  ),
  route('brief', 'coalesce', 'lease: 1s\n    keep: 20s').replace('lease: 6s\n    ', ''),
  route('passing', 'coalesce', 'onStoreDown: pass'),
  route('refusing', 'coalesce', 'onStoreDown: reject'),
  route('lock', 'reject', ''),
  route('lock-local', 'reject', 'onStoreDown: local'),
  route('once', 'replay', ''),
  route('once-local', 'replay', 'onStoreDown: local'),
  route('once-passing', 'replay', 'onStoreDown: pass'),
  route('turns', 'queue', ''),
].join('');

type Setting = { gateways: [Gateway, Gateway]; upstream: StubUpstream; proxy: TcpProxy };

/** Two gateways that reach Redis through a proxy, whose port stays when Redis goes. */
async function settingOf(t: Test, redisPort: number | null): Promise<Setting> {
  const upstream = await startUpstream(t);
  const proxy = await TcpProxy.start(t, redisPort ?? 1);
  if (redisPort === null) await proxy.refuse();
  const store = `{ kind: redis, url: "redis://127.0.0.1:${proxy.port}" }`;
  const gateways = await startGateways(t, 2, { config: configOf({ upstream: upstream.url, store, routes }) });
  return { gateways: gateways as [Gateway, Gateway], upstream, proxy };
}

function post(gateway: Gateway, path: string): Promise<Answered> {
  return gateway.request({ method: 'POST', path: `${path}?id=1` });
}

let round = 0;

/** Without the store every rule does what `onStoreDown` says, each request within the time that a dead store may cost. */
async function behavesWithoutStore(t: Test, { gateways, upstream }: Setting): Promise<void> {
  const [here, there] = gateways;
  const name = `without-${++round}`;

  upstream.on(`/local/${name}`, answersAfter(400));
  const local = await burst(10, (index) => post(index < 5 ? here : there, `/local/${name}`));
  t.ok(local.every((answer) => answer.status === 200));
  t.same(tally(local), { [LED]: 2, [COLLAPSED]: 8 }, 'one leader in each process');
  t.equal(upstream.count(`/local/${name}`), 2);
  t.ok(slowestMs(local) < 400 + DEAD_STORE_MS * 2, `slowest ${Math.round(slowestMs(local))} ms`);

  for (const path of [`/passing/${name}`, `/once-passing/${name}`]) {
    const passing = await burst(6, (index) => post(gateways[index % 2]!, path));
    t.equal(upstream.count(path), 6, 'each is forwarded');
    for (const answer of passing) t.match(answer.cacheStatus, BYPASSED);
    t.ok(slowestMs(passing) < DEAD_STORE_MS, `slowest ${Math.round(slowestMs(passing))} ms`);
  }

  for (const path of [`/refusing/${name}`, `/lock/${name}`, `/once/${name}`, `/turns/${name}`]) {
    const refused = await burst(6, (index) => post(gateways[index % 2]!, path));
    for (const answer of refused) isProblem(t, answer, 'store-unavailable', 6);
    t.equal(upstream.count(path), 0);
    t.ok(slowestMs(refused) < DEAD_STORE_MS, `slowest ${Math.round(slowestMs(refused))} ms`);
  }

  const held = upstream.holds(`/lock-local/${name}`);
  const leader = post(here, `/lock-local/${name}`);
  await held.arrived(1);
  isProblem(t, await post(here, `/lock-local/${name}`), 'in-flight', 6);
  held.release();
  t.equal((await leader).status, 200);
  t.equal((await post(here, `/lock-local/${name}`)).status, 200);
  t.equal(upstream.count(`/lock-local/${name}`), 2);

  const once = `/once-local/${name}`;
  t.match((await post(here, once)).cacheStatus, LED);
  t.equal((await post(here, once)).header('idempotent-replayed'), 'true', 'recorded in this process');
  isProblem(t, await here.request({ method: 'POST', path: `${once}?id=1`, body: 'other' }), 'key-reused');
  t.equal(upstream.count(once), 1);

  t.equal((await here.request({ path: '/plain' })).status, 200, 'traffic without a rule does not notice');
}

/** With the store back the processes share their claims again, without a restart. */
async function isShared(t: Test, { gateways, upstream }: Setting): Promise<void> {
  const [here, there] = gateways;
  for (const gateway of gateways) {
    await eventually('ready again', async () => (await gateway.admin('/readyz')).status === 200, 15_000);
  }
  const path = `/refusing/back-${++round}`;
  const held = upstream.holds(path);
  const leader = post(here, path);
  await held.arrived(1);
  const followers = burst(4, (index) => post(index % 2 === 0 ? here : there, path));
  await allCaughtUp(gateways);
  const released = performance.now();
  held.release();
  const all = [await leader, ...(await followers)];
  t.ok(performance.now() - released < PROMPT_MS);
  t.same(tally(all), { [LED]: 1, [COLLAPSED]: 4 });
  allEqual(t, all, 200, `{"path":"${path}","call":1}`);
  t.equal(upstream.count(path), 1);
}

t.test('Redis is not there at start', async (t) => {
  const setting = await settingOf(t, null);
  t.equal((await setting.gateways[0].admin('/livez')).status, 200);
  t.equal((await setting.gateways[0].admin('/readyz')).status, 503);
  await behavesWithoutStore(t, setting);
  const metrics = await metricsOf(setting.gateways);
  t.ok(metrics.sum('oneflight_store_errors_total') > 0);
  t.equal(metrics.sum('oneflight_unprotected_requests_total', { route: 'passing' }), 6);
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  setting.proxy.targetPort = redis.port;
  await setting.proxy.listen();
  await isShared(t, setting);
});

t.test('Redis is frozen in the middle of flights', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  const setting = await settingOf(t, redis.port);
  const { gateways, upstream } = setting;
  const [here, there] = gateways;
  await isShared(t, setting);

  const coalesced = upstream.holds('/local/frozen');
  const locked = upstream.holds('/lock/frozen');
  const flight = [post(here, '/local/frozen'), post(here, '/local/frozen')];
  const lock = post(here, '/lock/frozen');
  await coalesced.arrived(1);
  await locked.arrived(1);
  const far = post(there, '/local/frozen');
  await allCaughtUp(gateways);
  redis.pause();
  coalesced.release();
  locked.release();
  const opened = performance.now();
  allEqual(t, await Promise.all(flight), 200, '{"path":"/local/frozen","call":1}');
  t.equal((await lock).status, 200);
  t.ok(performance.now() - opened < DEAD_STORE_MS * 2, `answered after ${Math.round(performance.now() - opened)} ms`);
  await behavesWithoutStore(t, setting);
  redis.resume();
  const late = await far;
  t.ok(
    late.status === 200 || problemOf(late) === 'leader-failed',
    `the far follower ends: ${late.status} ${late.text}`,
  );
  t.ok(late.elapsedMs < 20_000, `after ${Math.round(late.elapsedMs)} ms`);
  t.equal(upstream.count('/local/frozen'), 1);
  await isShared(t, setting);
  await eventually('the lock free', async () => (await post(there, '/lock/frozen')).status === 200, 8_000);
});

t.test('a flight that outlives its lease without the store is still the only one in its process', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  const { gateways, upstream } = await settingOf(t, redis.port);
  const [here] = gateways;
  const path = '/brief/orphan';
  const held = upstream.holds(path);
  const leader = post(here, path);
  await held.arrived(1);
  redis.pause();
  const followers = [post(here, path)];
  // Twice the lease: no renewal can have been answered.
  await delay(2_000);
  followers.push(post(here, path));
  await delay(700);
  t.equal(upstream.count(path), 1, 'onStoreDown: local goes on within the process');
  held.release();
  const all = [await leader, ...(await Promise.all(followers))];
  allEqual(t, all, 200, `{"path":"${path}","call":1}`);
  // Whether the leader's response was stored is another matter: its right to do so has ended.
  t.match(all[0]!.cacheStatus, /^oneflight; fwd=miss(; stored)?$/);
  t.equal(tally(all)[COLLAPSED], 2);
  t.equal(upstream.count(path), 1);
});

t.test('Redis is killed in the middle of flights and comes back empty', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  const setting = await settingOf(t, redis.port);
  const { gateways, upstream, proxy } = setting;
  const [here, there] = gateways;
  await isShared(t, setting);

  const held = upstream.holds('/local/killed');
  const flight = [post(here, '/local/killed'), post(here, '/local/killed')];
  await held.arrived(1);
  const far = post(there, '/local/killed');
  await allCaughtUp(gateways);
  await redis.kill();
  await proxy.refuse();
  await behavesWithoutStore(t, setting);
  held.release();
  const opened = performance.now();
  allEqual(t, await Promise.all(flight), 200, '{"path":"/local/killed","call":1}');
  t.ok(performance.now() - opened < DEAD_STORE_MS * 2, `answered after ${Math.round(performance.now() - opened)} ms`);
  const next = await startRedis();
  t.teardown(() => next.stop());
  proxy.targetPort = next.port;
  await proxy.listen();
  const back = performance.now();
  isProblem(t, await far, 'leader-failed', 6);
  t.ok(
    performance.now() - back < 6_000 + 1_000 + PROMPT_MS,
    `the far follower ends ${Math.round(performance.now() - back)} ms after the return`,
  );
  t.equal(upstream.count('/local/killed'), 1);
  await isShared(t, setting);
});

t.test('Redis swallows everything and the connections stay', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  const setting = await settingOf(t, redis.port);
  await isShared(t, setting);
  setting.proxy.blackHole = true;
  await behavesWithoutStore(t, setting);
  setting.proxy.blackHole = false;
  // Bytes were lost in both directions: what is left of these connections is of no use to anybody.
  setting.proxy.cut();
  await isShared(t, setting);
});

t.test('a lost reply to a claim does not lock its own owner out', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  const setting = await settingOf(t, redis.port);
  const { gateways, upstream, proxy } = setting;
  await isShared(t, setting);
  for (const path of ['/refusing/lost', '/lock/lost', '/local/lost']) {
    const lost = proxy.loseReplyTo('evalsha');
    const answer = await post(gateways[0], path);
    await lost;
    t.ok(answer.elapsedMs < PROMPT_MS, `${path}: ${Math.round(answer.elapsedMs)} ms`);
    if (answer.status !== 200) isProblem(t, answer, 'store-unavailable', 6);
    t.ok(upstream.count(path) <= 1);
    // Whatever became of that claim, it does not hold the key for a lease.
    await eventually(`${path} free`, async () => (await post(gateways[1], path)).status === 200, 3_000);
    t.ok(upstream.count(path) <= 2);
  }
});

t.test('a process that stalls does not take its own stall for a dead store', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  const setting = await settingOf(t, redis.port);
  const { gateways, upstream, proxy } = setting;
  const [here] = gateways;
  await isShared(t, setting);
  proxy.delayMs = 40;
  for (let turn = 0; turn < 5; turn += 1) {
    const path = `/refusing/stall-${turn}`;
    const answer = post(here, path);
    // By now the claim is under way. Its reply arrives while the process stands still, and waits in the socket.
    await delay(40);
    here.pause();
    await delay(400);
    here.resume();
    const { status, text } = await answer;
    t.equal(status, 200, text);
    t.equal(upstream.count(path), 1);
  }
  proxy.delayMs = 0;
  t.equal((await here.metrics()).sum('oneflight_store_errors_total', { operation: 'claim' }), 0);
});

t.test('subscriptions are cut exactly at publication: the poll finds what the push did not bring', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  const setting = await settingOf(t, redis.port);
  const { gateways, upstream } = setting;
  const [here, there] = gateways;
  for (let turn = 0; turn < 12; turn += 1) {
    const path = `/pushed/${turn}`;
    const held = upstream.holds(path);
    const leader = post(here, path);
    const call = await held.arrived(1);
    const followers = [post(there, path), post(there, path), post(here, path)];
    await allCaughtUp(gateways);
    const cut =
      turn % 2 === 0
        ? redis.command('CLIENT', 'KILL', 'TYPE', 'pubsub')
        : call.over.then(() => redis.command('CLIENT', 'KILL', 'TYPE', 'pubsub'));
    held.release();
    const released = performance.now();
    const all = await Promise.all([leader, ...followers]);
    await cut;
    const latency = performance.now() - released;
    allEqual(t, all, 200, `{"path":"${path}","call":1}`);
    t.ok(latency < 500 + PROMPT_MS, `${Math.round(latency)} ms`);
    t.equal(upstream.count(path), 1);
  }
  await isShared(t, setting);
});

t.test('FLUSHALL in the middle of a flight: everybody gets an answer, and the old leader frees nothing', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  const setting = await settingOf(t, redis.port);
  const { gateways, upstream } = setting;
  const [here, there] = gateways;
  const held = upstream.holds('/local/flushed');
  const leader = post(here, '/local/flushed');
  await held.arrived(1);
  const near = post(here, '/local/flushed');
  const far = post(there, '/local/flushed');
  await allCaughtUp(gateways);
  await redis.command('FLUSHALL');
  const flushed = performance.now();
  isProblem(t, await far, 'leader-failed', 6);
  t.ok(
    performance.now() - flushed < 6_000 + 1_000 + PROMPT_MS,
    `${Math.round(performance.now() - flushed)} ms after FLUSHALL`,
  );

  // The key is free for the store: a second leader takes it. What the first one does now must not touch it.
  const second = post(there, '/local/flushed');
  await held.arrived(2);
  const path = '/local/flushed';
  const joined = post(there, path);
  await there.caughtUp();
  held.release();
  allEqual(t, await Promise.all([leader, near]), 200, `{"path":"${path}","call":1}`);
  allEqual(t, await Promise.all([second, joined]), 200, `{"path":"${path}","call":2}`);
  t.equal(upstream.count(path), 2);
  t.equal((await here.metrics()).sum('oneflight_leases_lost_total', { route: 'local' }), 1);
  const later = await post(here, path);
  allEqual(t, [later], 200, `{"path":"${path}","call":2}`);
  t.equal(upstream.count(path), 2);
});

t.test('FLUSHALL while a lock is held: the lock is taken anew, and its new holder keeps it', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  const { gateways, upstream } = await settingOf(t, redis.port);
  const [here, there] = gateways;
  const path = '/lock/flushed';
  const held = upstream.holds(path);
  const first = post(here, path);
  await held.arrived(1);
  isProblem(t, await post(there, path), 'in-flight', 6);
  await redis.command('FLUSHALL');
  const second = post(there, path);
  await held.arrived(2);
  const [old, young] = upstream.callsOf(path);
  t.ok(old !== undefined && young !== undefined);
  old!.answer({ content: 'old' });
  allEqual(t, [await first], 200, 'old');
  await here.caughtUp();
  isProblem(t, await post(here, path), 'in-flight', 6);
  young!.answer({ content: 'young' });
  allEqual(t, [await second], 200, 'young');
  t.equal(upstream.count(path), 2);
});
