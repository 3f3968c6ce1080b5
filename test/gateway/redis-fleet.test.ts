/**
 * A fail-over in the middle of flights: behind sentinels, and in a cluster whose slots move. The store keeps its word
 * here, since what was claimed had reached the replica: then there are never two upstream calls of one key at a time.
 */

import t, { type Test } from 'tap';
import type { Answered, Sent } from '../support/client.js';
import { COLLAPSED, LED, PROMPT_MS, problemOf, tally } from '../support/expect.js';
import { delay, eventually } from '../support/gate.js';
import { allCaughtUp, configOf, type Gateway, metricsOf, startGateways } from '../support/gateway.js';
import { infoOf, RedisCluster, startWatched } from '../support/redis-fleet.js';
import { answers, type StubUpstream, startUpstream } from '../support/upstream.js';

t.setTimeout(170_000);

const RECOVERY_MS = 30_000;

const route = (name: string, policy: string, more = '') => `
  - name: ${name}
    match: { methods: [POST], path: /${name}/* }
    policy: ${policy}
    key: [ { request: path } ]
    lease: 60s
    ${more}`;
// The poll is longer than any wait here: what followers learn in time they learn by a push, or by the look at a new subscription.
const routes = [
  route('shared', 'coalesce', 'onStoreDown: reject\n    keep: 0\n    wait: { max: 60s, poll: 60s }'),
  route('lock', 'reject'),
  route('turns', 'queue', 'wait: { max: 60s, poll: 60s }'),
].join('');

type Setting = { readonly gateways: readonly [Gateway, Gateway]; readonly upstream: StubUpstream };

async function settingOf(t: Test, store: string): Promise<Setting> {
  const upstream = await startUpstream(t);
  const config = configOf({
    upstream: upstream.url,
    store: `{ kind: redis, ${store}, commandTimeout: 300ms }`,
    routes,
  });
  return { gateways: (await startGateways(t, 2, { config })) as [Gateway, Gateway], upstream };
}

function post(gateway: Gateway, path: string): Sent {
  return gateway.send({ method: 'POST', path });
}

const audits = ({ logs }: Gateway) => logs.filter(({ msg }) => msg === 'store audited').length;

/** Followers of every flight are there. `paths`: of which each is in flight when this resolves. */
async function begin({ gateways: [here, there], upstream }: Setting, names: readonly string[]) {
  const held = new Map(names.map((name) => [name, upstream.holds(name)]));
  const leaders = names.map((name) => post(here, name).answer);
  await Promise.all(names.map((name) => held.get(name)!.arrived(1)));
  const followers = names.filter((name) => !name.startsWith('/lock')).map((name) => post(there, name).answer);
  await allCaughtUp([here, there]);
  return {
    release: () => {
      for (const one of held.values()) one.release();
    },
    leaders,
    followers,
  };
}

/** The locks are still held, and said to be: by whoever has taken over. Until then nobody says that they are free. */
async function staysHeld(t: Test, { gateways: [, there], upstream }: Setting, names: readonly string[]) {
  const began = performance.now();
  let slowest = 0;
  for (const name of names) {
    await eventually(
      `${name} is known again`,
      async () => {
        const answer = await post(there, name).answer;
        slowest = Math.max(slowest, answer.elapsedMs);
        const problem = problemOf(answer);
        if (problem !== 'in-flight' && problem !== 'store-unavailable')
          throw new Error(`${name}: ${answer.status} ${answer.text}`);
        return problem === 'in-flight';
      },
      RECOVERY_MS,
    );
    t.equal(upstream.count(name), 1);
  }
  t.ok(slowest < PROMPT_MS, `nothing hangs: slowest ${Math.round(slowest)} ms`);
  t.comment(`known again after ${Math.round(performance.now() - began)} ms`);
}

async function isShared(t: Test, setting: Setting, name: string): Promise<void> {
  for (const gateway of setting.gateways) {
    await eventually('ready', async () => (await gateway.admin('/readyz')).status === 200, RECOVERY_MS);
  }
  const { release, leaders, followers } = await begin(setting, [`/shared/${name}`]);
  const released = performance.now();
  release();
  const all = await Promise.all([...leaders, ...followers]);
  t.ok(performance.now() - released < PROMPT_MS, 'by a push');
  t.same(tally(all), { [LED]: 1, [COLLAPSED]: 1 });
  t.equal(setting.upstream.count(`/shared/${name}`), 1);
}

async function endsWell(t: Test, setting: Setting, flight: Awaited<ReturnType<typeof begin>>): Promise<void> {
  const released = performance.now();
  flight.release();
  const leaders = await Promise.all(flight.leaders);
  const followers = await Promise.all(flight.followers);
  t.ok(performance.now() - released < PROMPT_MS * 2, `told after ${Math.round(performance.now() - released)} ms`);
  for (const answer of [...leaders, ...followers]) t.equal(answer.status, 200, `${answer.text}`);
  t.equal((await metricsOf(setting.gateways)).sum('oneflight_leases_lost_total'), 0);
  for (const { logs } of setting.gateways) t.notOk(logs.some(({ level }) => level === 'error' || level === 50));
}

t.test('sentinels: the primary is cut off in the middle of flights, and comes back when another one is', async (t) => {
  const watched = await startWatched(t);
  const setting = await settingOf(t, `sentinel: ${watched.yaml}`);
  const { gateways, upstream } = setting;
  await isShared(t, setting, 'before');
  for (const gateway of gateways) await eventually('the audit', () => audits(gateway) === 1);
  const paths = ['/shared/a', '/lock/a', '/turns/a'];
  const flight = await begin(setting, paths);
  await watched.replicated();
  watched.link.blackHole = true;
  await staysHeld(t, setting, ['/lock/a']);
  await endsWell(t, setting, flight);
  t.equal(upstream.count('/shared/a'), 1);
  t.equal(upstream.count('/turns/a'), 2, 'the turn went to who waited for it');
  await isShared(t, setting, 'after');
  for (const gateway of gateways) await eventually('the other server is audited', () => audits(gateway) >= 2);
  watched.link.blackHole = false;
  watched.link.cut();
  // It still takes itself for the primary.
  await isShared(t, setting, 'in-the-end');
});

t.test('a cluster: slots move under traffic, and a primary is killed in the middle of flights', async (t) => {
  const cluster = await RedisCluster.start(t);
  const setting = await settingOf(t, `cluster: ${cluster.yaml}`);
  const { gateways, upstream } = setting;
  await isShared(t, setting, 'before');

  await t.test('slots move under their flights, and no key has two', async (t) => {
    const [from, to] = [cluster.primaries[0]!, cluster.primaries[1]!];
    const done = answers({ content: 'done' });
    let moving = true;
    const all: Answered[] = [];
    let running = 0;
    const overlaps: string[] = [];
    for (let key = 0; key < 40; key += 1) {
      const path = `/lock/moving-${key}`;
      let here = 0;
      upstream.on(path, async (call) => {
        here += 1;
        running += 1;
        if (here > 1) overlaps.push(path);
        await delay(5);
        here -= 1;
        await done(call);
      });
    }
    const traffic = Promise.all(
      Array.from({ length: 8 }, async (_, lane) => {
        for (let i = 0; moving; i += 1) {
          const path = `/lock/moving-${(lane + i) % 40}`;
          all.push(await post(gateways[lane % 2]!, path).answer);
        }
      }),
    );
    let moved = 0;
    for (let round = 0; round < 40; round += 1) {
      // A slot of which a flight is up at this moment.
      const [name] = (await from.command('KEYS', 'oneflight:*')) as string[];
      if (name === undefined) continue;
      const { slot } = await cluster.ownerOf(name);
      await cluster.move(slot, from, to);
      moved += 1;
      if (moved === 10) break;
    }
    moving = false;
    await traffic;
    t.same(overlaps, []);
    t.ok(moved > 0, `${moved} slots`);
    const odd = all.filter((answer) => answer.status !== 200 && problemOf(answer) !== 'in-flight');
    t.ok(
      odd.every((answer) => problemOf(answer) === 'store-unavailable'),
      `${odd[0]?.text}`,
    );
    t.ok(odd.length < all.length / 10, `${odd.length} of ${all.length}`);
    t.comment(`${all.length} requests, ${running} calls, ${odd.length} without the store, ${moved} slots moved`);
    await cluster.whole();
  });

  const names = Array.from({ length: 6 }, (_, i) => `-${i}`);
  const locks = names.map((name) => `/lock/killed${name}`);
  const flight = await begin(setting, [...names.map((name) => `/shared/killed${name}`), ...locks]);
  await eventually('the replica has everything', async () => {
    const sent = await infoOf(cluster.primaries[0]!, 'master_repl_offset');
    return sent === (await infoOf(cluster.replica, 'slave_repl_offset'));
  });
  await cluster.primaries[0]!.kill();
  await staysHeld(t, setting, locks);
  await endsWell(t, setting, flight);
  for (const name of names) t.equal(upstream.count(`/shared/killed${name}`), 1);
  await isShared(t, setting, 'after');
});
