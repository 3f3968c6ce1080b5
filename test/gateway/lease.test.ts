/** Leaders that die or freeze: what a lease promises, and what a leader that lost it can no longer do. */

import t, { type Test } from 'tap';
import { type Answered, burst } from '../support/client.js';
import { allEqual, COLLAPSED, HIT, isProblem, LED, PROMPT_MS, tally } from '../support/expect.js';
import { delay, eventually } from '../support/gate.js';
import { allCaughtUp, configOf, type Gateway, startGateways } from '../support/gateway.js';
import { startRedis } from '../support/redis.js';
import { type Call, type Held, startUnconnectable, startUpstream } from '../support/upstream.js';

t.setTimeout(150_000);

const LEASE_MS = 2_000;
const redis = await startRedis();
t.teardown(() => redis.stop());
const upstream = await startUpstream(t);
const route = (name: string, policy: string, more = '', to = 'api') => `
  - name: ${name}
    match: { methods: [POST], path: /${name}/* }
    upstream: ${to}
    policy: ${policy}
    key: [ { request: path }, { query: id } ]
    lease: ${LEASE_MS}ms
    ${more}`;
const WAIT = 'wait: { max: 25s, poll: 500ms }';
const unconnectable = await startUnconnectable(t);
const config = configOf({
  upstream: upstream.url,
  upstreams: `
  unconnectable: { url: "${unconnectable.url}", timeouts: { connect: 30s, headers: 5s, body: 5s } }`,
  store: `{ kind: redis, url: "${redis.url}", commandTimeout: 2s }`,
  routes: [
    route('once', 'coalesce', `${WAIT}\n    keep: 20s`),
    route('elects', 'coalesce', `${WAIT}\n    onLeaderFailure: elect\n    keep: 20s`),
    route('lock', 'reject'),
    route('unsent', 'reject', '', 'unconnectable'),
  ].join(''),
});
const two = () => startGateways(t, 2, { config }) as Promise<[Gateway, Gateway]>;
const three = () => startGateways(t, 3, { config }) as Promise<[Gateway, Gateway, Gateway]>;

function post(gateway: Gateway, path: string): Promise<Answered> {
  return gateway.request({ method: 'POST', path: `${path}?id=1` });
}

/** The gateway leads a flight, whose call and those that follow it are held. */
async function leads(gateway: Gateway, path: string): Promise<{ held: Held; leader: Promise<Answered> }> {
  const held = upstream.holds(path);
  const leader = post(gateway, path);
  await held.arrived(1);
  return { held, leader };
}

/** The leader's process is killed when three followers have joined in each of two others. */
async function isKilled(t: Test, path: string) {
  const [leading, here, there] = await three();
  const { held, leader } = await leads(leading, path);
  const gone = t.rejects(leader);
  const followers = burst(6, (index) => post(index % 2 === 0 ? here : there, path));
  await allCaughtUp([here, there]);
  await leading.kill9();
  const killed = performance.now();
  await gone;
  return { here, there, held, followers, killed };
}

/**
 * While the leader's process is frozen past its lease the key goes to a second flight, and the first call is answered.
 * Then the process wakes up, and its client gets that answer.
 */
async function isOvertaken(
  t: Test,
  { path, frozen, there, leader }: { path: string; frozen: Gateway; there: Gateway; leader: Promise<Answered> },
): Promise<{ second: Promise<Answered>; call: Call }> {
  const second = post(there, path);
  await upstream.arrived(2, path);
  const [first, call] = upstream.callsOf(path);
  first!.answer({ content: 'of the first' });
  frozen.resume();
  allEqual(t, [await leader], 200, 'of the first');
  return { second, call: call! };
}

t.test("kill -9 of the leader's process: followers elsewhere end within the lease and a second", async (t) => {
  const path = '/once/killed';
  const { there, held, followers, killed } = await isKilled(t, path);
  const all = await followers;
  const latency = performance.now() - killed;
  t.ok(latency < LEASE_MS + 1_000 + 500, `after ${Math.round(latency)} ms`);
  for (const answer of all) isProblem(t, answer, 'leader-failed', LEASE_MS / 1000);
  t.equal(upstream.count(path), 1, 'nobody was promoted');
  held.release();
  const next = await post(there, path);
  allEqual(t, [next], 200, `{"path":"${path}","call":2}`);
  t.equal(next.cacheStatus, LED, 'the next request leads');
});

t.test("kill -9 of the leader's process, with elect: exactly one follower takes over", async (t) => {
  const path = '/elects/killed';
  const { here, there, held, followers, killed } = await isKilled(t, path);
  await held.arrived(2);
  t.ok(performance.now() - killed < LEASE_MS + 1_500, `taken over after ${Math.round(performance.now() - killed)} ms`);
  await allCaughtUp([here, there]);
  held.release();
  const all = await followers;
  allEqual(t, all, 200, `{"path":"${path}","call":2}`);
  t.same(tally(all), { [LED]: 1, [COLLAPSED]: 5 });
  t.equal(upstream.count(path), 2);
});

t.test('kill -9 of the holder of a lock: the key is free when the lease is over, not before', async (t) => {
  const [holding, there] = await two();
  const path = '/lock/killed';
  const { held, leader } = await leads(holding, path);
  const gone = t.rejects(leader);
  await holding.kill9();
  await gone;
  const killed = performance.now();
  isProblem(t, await post(there, path), 'in-flight', LEASE_MS / 1000);
  held.release();
  let answer = await post(there, path);
  while (answer.status === 409) {
    isProblem(t, answer, 'in-flight', LEASE_MS / 1000);
    if (performance.now() - killed > 10_000) break;
    await delay(100);
    answer = await post(there, path);
  }
  t.equal(answer.status, 200);
  t.ok(performance.now() - killed < LEASE_MS + 1_500, `free after ${Math.round(performance.now() - killed)} ms`);
  t.equal(upstream.count(path), 2);
});

t.test("a follower's process that is killed harms nobody else", async (t) => {
  const [leading, dying, there] = await three();
  const path = '/once/follower';
  const { held, leader } = await leads(leading, path);
  const gone = t.rejects(post(dying, path));
  const other = post(there, path);
  await allCaughtUp([dying, there]);
  await dying.kill9();
  await gone;
  held.release();
  const released = performance.now();
  allEqual(t, await Promise.all([leader, other]), 200, `{"path":"${path}","call":1}`);
  t.ok(performance.now() - released < PROMPT_MS);
  t.equal(upstream.count(path), 1);
});

t.test('a leader that is frozen past its lease can no longer publish, renew or free', async (t) => {
  const [frozen, there] = await two();
  const path = '/once/frozen';
  const { leader } = await leads(frozen, path);
  const near = post(frozen, path);
  const far = post(there, path);
  await allCaughtUp([frozen, there]);
  frozen.pause();
  const paused = performance.now();
  isProblem(t, await far, 'leader-failed', LEASE_MS / 1000);
  t.ok(
    performance.now() - paused < LEASE_MS + 1_500,
    `the follower knows after ${Math.round(performance.now() - paused)} ms`,
  );

  const { second, call } = await isOvertaken(t, { path, frozen, there, leader });
  const nearAnswer = await near;
  t.ok(nearAnswer.status === 200 || nearAnswer.status === 503, `the follower beside it: ${nearAnswer.status}`);
  await delay(LEASE_MS / 3 + 200);
  t.equal((await frozen.metrics()).sum('oneflight_leases_lost_total', { route: 'once' }), 1);

  // The second flight still has the key, and its followers get its answer, in both processes.
  const joined = [post(frozen, path), post(there, path)];
  await allCaughtUp([frozen, there]);
  t.equal(upstream.count(path), 2, 'not freed');
  call.answer({ content: 'of the second' });
  const all = [await second, ...(await Promise.all(joined))];
  allEqual(t, all, 200, 'of the second');
  t.same(tally(all), { [LED]: 1, [COLLAPSED]: 2 });
  const kept = await post(frozen, path);
  t.match(kept.cacheStatus, HIT);
  t.equal(kept.text, 'of the second', 'not overwritten');
  t.equal(upstream.count(path), 2);
});

t.test('a holder that is frozen past its lease cannot free the lock of the next one', async (t) => {
  const [frozen, there] = await two();
  const path = '/lock/frozen';
  const { held, leader } = await leads(frozen, path);
  frozen.pause();
  await delay(LEASE_MS + 300);
  const { second, call } = await isOvertaken(t, { path, frozen, there, leader });
  await frozen.caughtUp();
  for (const gateway of [frozen, there]) isProblem(t, await post(gateway, path), 'in-flight', LEASE_MS / 1000);
  t.equal(upstream.count(path), 2);
  call.answer({ content: 'of the second' });
  allEqual(t, [await second], 200, 'of the second');
  held.release();
  t.equal((await post(frozen, path)).status, 200, 'freed by its own holder');
});

t.test('a leader that is frozen for less than its lease keeps it', async (t) => {
  const [frozen, there] = await two();
  for (let attempt = 0; ; attempt += 1) {
    const path = `/once/napping-${attempt}`;
    const { held, leader } = await leads(frozen, path);
    const far = post(there, path);
    await there.caughtUp();
    const lost = (await frozen.metrics()).sum('oneflight_leases_lost_total');
    let longestMs = 0;
    for (let nap = 0; nap < 3; nap += 1) {
      const began = performance.now();
      frozen.pause();
      await delay(LEASE_MS / 3);
      frozen.resume();
      await frozen.caughtUp();
      longestMs = Math.max(longestMs, performance.now() - began);
      await delay(LEASE_MS / 3);
    }
    held.release();
    const answers = await Promise.all([leader, far]);
    // A machine that stands still makes a longer nap of it, which is another test's.
    if (longestMs > LEASE_MS / 2 && attempt < 5) continue;
    allEqual(t, answers, 200, `{"path":"${path}","call":1}`);
    t.equal(upstream.count(path), 1);
    t.equal((await frozen.metrics()).sum('oneflight_leases_lost_total'), lost);
    return;
  }
});

t.test('a leader that wakes up after its lease, before it had sent anything, sends nothing', async (t) => {
  const [frozen, there] = await two();
  const path = '/unsent/late';
  const leader = post(frozen, path);
  await frozen.caughtUp();
  isProblem(t, await post(there, path), 'in-flight', LEASE_MS / 1000);
  frozen.pause();
  await delay(LEASE_MS + 300);
  const second = post(there, path);
  // The kernel goes on: while the leader sleeps its connection is made, and the key belongs to another request by now.
  unconnectable.open();
  await eventually('the request of the second holder', () => unconnectable.received().includes(path));
  await delay(1_500);
  frozen.resume();
  const answer = await leader;
  t.ok(answer.status >= 500, `${answer.status} ${answer.text}`);
  isProblem(t, await second, 'outcome-unknown');
  t.equal(unconnectable.received().split(path).length - 1, 1, 'one request arrived, that of the second holder');
  t.equal((await frozen.metrics()).sum('oneflight_upstream_calls_total', { route: 'unsent' }), 0);
});
