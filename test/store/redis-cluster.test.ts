/** A real Redis Cluster: the contract of every store, slots that move, and a primary that is killed. */

import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { newFlightId } from '../../src/core/claim.js';
import { RedisStore, type RedisStoreOptions } from '../../src/store/redis.js';
import { pushLink } from '../../src/store/redis-route.js';
import { merged, redirectionOf, slotOf, viewOf } from '../../src/store/redis-slots.js';
import { eventually, Gate, within } from '../support/gate.js';
import { freePort } from '../support/ports.js';
import { RedisCluster } from '../support/redis-fleet.js';
import { claim, follow, lead, newKey, responseWith, type StoreFactory, settled, storeContract } from './contract.js';
import { marksContract } from './marks-contract.js';
import { enter, giveBack, placeIn, queueContract, turnAtOnce, turnOf } from './queue-contract.js';

t.setTimeout(170_000);

const cluster = await RedisCluster.start(t);
const hosts = cluster.primaries.slice(1).map(({ port }) => ({ host: '127.0.0.1', port }));
const access = { servers: { kind: 'cluster', hosts }, username: null, password: null, tls: null, db: 0 } as const;

async function open(t: Test, options: Partial<RedisStoreOptions> = {}): Promise<RedisStore> {
  const store = new RedisStore({ access, commandTimeoutMs: 2_000, ...options });
  t.teardown(() => store.close());
  await store.open();
  return store;
}

let prefixes = 0;
/** What is left of one test is not in the way of the next. */
const factory: StoreFactory = (test, count) => {
  prefixes += 1;
  return Promise.all(Array.from({ length: count }, () => open(test, { prefix: `contract-${prefixes}` })));
};

storeContract('redis cluster', factory);
marksContract('redis cluster', factory);
queueContract('redis cluster', factory);

/** A key that the first, second or third primary has. */
async function keyAt(index: number): Promise<{ key: string; slot: number }> {
  for (;;) {
    const key = newKey();
    const { owner, slot } = await cluster.ownerOf(`{${key}}`);
    if (owner === cluster.primaries[index]) return { key, slot };
  }
}

t.test('slots are those of the servers', async (t) => {
  for (const key of ['a', 'key-1', 'Straße', '0123456789abcdef'.repeat(4), 'x.y-v3']) {
    t.equal(slotOf(key), await cluster.primaries[0]!.command('CLUSTER', 'KEYSLOT', `oneflight:{${key}}:r:x`), key);
  }
});

t.test('of two nodes that claim a slot the one with the larger epoch has it', async (t) => {
  const view = (port: number, epoch: number) => ({
    ranges: [{ from: 0, to: 16_383, primary: { host: 'h', port }, epoch, replicas: [{ host: 'h', port: port + 1 }] }],
  });
  for (const views of [
    [view(1, 7), view(3, 8)],
    [view(3, 8), view(1, 7)],
  ]) {
    const { owners, primaries, nodes } = merged(views);
    t.same(
      [owners[0], owners[16_383], primaries],
      [{ host: 'h', port: 3 }, { host: 'h', port: 3 }, [{ host: 'h', port: 3 }]],
    );
    t.equal(nodes.length, 4);
  }
});

t.test('a node that does not say its own name is where it was asked', async (t) => {
  const asked = { host: '10.0.0.1', port: 1 };
  const moved = (text: string) => redirectionOf(new Error(text), asked);
  t.same(moved('MOVED 5 :7000'), { kind: 'moved', slot: 5, to: { host: '10.0.0.1', port: 7000 } });
  t.same(moved('ASK 16383 ::1:7000'), { kind: 'ask', slot: 16_383, to: { host: '::1', port: 7000 } });
  for (const other of ['MOVED 16384 h:1', 'MOVED x h:1', 'ERR unknown command', '']) t.equal(moved(other), null, other);
  const { ranges } = viewOf([[0, 5, ['', 7000, 'id']]], 'id :7000@17000 myself,master - 0 0 9 connected 0-5', asked);
  t.match(ranges, [{ from: 0, to: 5, primary: { host: '10.0.0.1', port: 7000 }, epoch: 9 }]);
});

t.test('what is taken is found on every primary, and so is what is to be purged', async (t) => {
  const prefix = 'walked';
  const [store, other] = [await open(t, { prefix }), await open(t, { prefix })];
  const keys = await Promise.all([0, 1, 2, 0, 1, 2].map(async (index) => (await keyAt(index)).key));
  for (const key of keys)
    await store.complete(await lead(store, { key, route: 'kept' }), responseWith(Buffer.from('x')), 9_000);
  const up = await lead(store, { key: newKey(), route: 'kept' });
  const found = await other.taken({ state: 'kept', limit: 100 });
  t.same(found.map(({ key }) => key).sort(), [...keys].sort());
  t.equal((await other.taken({ state: 'any', limit: 100 })).length, keys.length + 1);
  t.equal(await other.purgeRoute('kept'), keys.length);
  t.match(await other.taken({ state: 'any', limit: 100 }), [{ key: up.key, state: 'in-flight' }]);
});

t.test('a slot that has moved is followed, by whoever was told of the flight before', async (t) => {
  const [leader, follower, late] = [await open(t), await open(t), await open(t)];
  const { key, slot } = await keyAt(1);
  const lease = await lead(leader, { key });
  const wait = settled(follower, await follow(follower, { key }));
  await cluster.move(slot, cluster.primaries[1]!, cluster.primaries[2]!);
  t.equal(await leader.renew(lease), 'held');
  t.equal((await follow(late, { key })).flight, lease.flight);
  t.equal(await leader.complete(lease, responseWith(Buffer.from('x')), 9_000), 'held');
  t.equal((await wait).kind, 'response', 'the push comes from the new owner');
  t.equal((await claim(follower, { key })).kind, 'stored');
  t.ok((await late.taken({ state: 'kept', limit: 1_000 })).some((taken) => taken.key === key));
});

t.test('while a slot moves its flights have one leader: it is asked for, or nobody can say for a moment', async (t) => {
  const [leader, other] = [await open(t), await open(t, { commandTimeoutMs: 100 })];
  const { key, slot } = await keyAt(2);
  const [from, to] = [cluster.primaries[2]!, cluster.primaries[0]!];
  const lease = await lead(leader, { key });
  await cluster.beginMove(slot, from, to);
  await cluster.moveNames(slot, from, to);
  t.equal(await leader.renew(lease), 'held', 'a script with one name follows ASK');
  t.equal((await leader.standing(key, lease.flight)).kind, 'in-flight');
  const began = performance.now();
  await t.rejects(claim(other, { key }), { name: 'StoreUnavailable', message: /TRYAGAIN|ASK/ });
  t.ok(performance.now() - began < 1_000);
  const waited = follow(leader, { key });
  // Longer than a few redirections take.
  await sleep(300);
  await cluster.endMove(slot, from, to);
  t.equal((await waited).flight, lease.flight, 'a question that waits is answered as soon as it has moved');
  t.equal(await leader.complete(lease, responseWith(Buffer.from('x')), 0), 'held');
});

t.test(
  'a node that has forgotten the scripts is asked while a slot moves to it: each question is executed once',
  async (t) => {
    const store = await open(t, { commandTimeoutMs: 400 });
    const [from, to] = [cluster.primaries[1]!, cluster.primaries[0]!];
    // The connection to it takes the scripts for known there.
    const known = await lead(store, { key: (await keyAt(0)).key });
    t.equal(await store.renew(known), 'held');
    t.equal(await store.complete(known, responseWith(Buffer.from('x')), 0), 'held');
    const { key, slot } = await keyAt(1);
    const lease = await lead(store, { key });
    await cluster.beginMove(slot, from, to);
    await cluster.moveNames(slot, from, to);
    await to.command('SCRIPT', 'FLUSH');
    const writes = async () =>
      Number(/cmdstat_pexpire:calls=(\d+)/.exec(String(await to.command('INFO', 'commandstats')))?.[1] ?? 0);
    const before = await writes();
    t.equal(await store.renew(lease), 'held');
    t.equal(await writes(), before + 1);
    t.equal((await store.standing(key, lease.flight)).kind, 'in-flight');
    // Several names, of which some are nowhere: they wait for the end of the move.
    await to.command('SCRIPT', 'FLUSH');
    const waited = follow(store, { key });
    await sleep(100);
    await cluster.endMove(slot, from, to);
    t.equal((await waited).flight, lease.flight);
    await to.command('SCRIPT', 'FLUSH');
    t.equal(await store.complete(lease, responseWith(Buffer.from('x')), 9_000), 'held');
    t.equal((await claim(store, { key })).kind, 'stored');
  },
);

t.test('two nodes send to each other: the question waits until they agree', async (t) => {
  const store = await open(t);
  const { key, slot } = await keyAt(1);
  const [from, to] = [cluster.primaries[1]!, cluster.primaries[2]!];
  const id = String(await to.command('CLUSTER', 'MYID'));
  await from.command('CLUSTER', 'SETSLOT', slot, 'NODE', id);
  const waited = lead(store, { key });
  await sleep(300);
  await to.command('CLUSTER', 'SETSLOT', slot, 'NODE', id);
  t.equal((await waited).key, key);
});

t.test('queues take turns while their slot moves to and fro', async (t) => {
  const [a, b] = [await open(t), await open(t)];
  const { key, slot } = await keyAt(0);
  let [from, to] = [cluster.primaries[0]!, cluster.primaries[1]!];
  let turn = await turnAtOnce(a, { key });
  for (let i = 0; i < 4; i += 1) {
    const place = await placeIn(i % 2 === 0 ? b : a, { key });
    await cluster.move(slot, from, to);
    [from, to] = [to, from];
    await giveBack(i % 2 === 0 ? a : b, turn);
    turn = await turnOf(i % 2 === 0 ? b : a, place);
  }
  await giveBack(a, turn);
  t.equal((await enter(b, { key })).kind, 'turn');
});

t.test('the node that brings the pushes is gone: another one does', async (t) => {
  const [leader, follower] = [await open(t), await open(t)];
  for (let i = 0; i < 3; i += 1) {
    const lease = await lead(leader, { key: newKey() });
    const wait = settled(follower, await follow(follower, { key: lease.key }), 5_000);
    for (const node of cluster.all) await node.command('CLIENT', 'KILL', 'TYPE', 'pubsub');
    t.equal(await leader.complete(lease, responseWith(Buffer.from('x')), 0), 'held');
    t.equal((await wait).kind, 'response');
  }
});

t.test('pushes are looked for at one node after the other, until one brings them', async (t) => {
  const dead = { host: '127.0.0.1', port: await freePort() };
  const nodes = [dead, dead, dead, ...hosts];
  const listening = new Gate();
  const link = pushLink(
    { access, commandTimeoutMs: 250, log: () => {} },
    () => nodes,
    () => listening.open(),
    () => {},
  );
  t.teardown(() => link.close());
  await link.open();
  await within(10_000, 'a connection', listening.opened);
});

t.test('a primary is killed: its flights go on with its replica, those of the others do not notice', async (t) => {
  const [victim] = cluster.primaries as [(typeof cluster.primaries)[number]];
  const leader = await open(t, { commandTimeoutMs: 250 });
  // Knows no other node at first, so that its pushes come from this one.
  const only = { kind: 'cluster', hosts: [{ host: '127.0.0.1', port: victim.port }] } as const;
  const follower = await open(t, { commandTimeoutMs: 250, access: { ...access, servers: only } });
  const { key } = await keyAt(0);
  const lease = await lead(leader, { key });
  const wait = settled(follower, await follow(follower, { key }), 60_000, 500);
  await eventually('the replica has the flight', async () => {
    return ((await cluster.replica.command('KEYS', `*{${key}}*`)) as string[]).length > 0;
  });
  await sleep(100);
  await victim.kill();
  const began = performance.now();
  await t.rejects(claim(follower, { key }), { name: 'StoreUnavailable' });
  t.ok(performance.now() - began < 1_000, 'nothing hangs');
  const lost = { key, flight: newFlightId() };
  await t.rejects(claim(follower, lost), { name: 'StoreUnavailable' });
  await eventually(
    'the flight is known again',
    async () => {
      const told = await claim(follower, { key, join: false }).catch(() => null);
      if (told !== null && told.kind !== 'follower') throw new Error(`a second leader: ${told.kind}`);
      return told?.kind === 'follower';
    },
    30_000,
  );
  await eventually(
    'ready',
    () =>
      leader.ping().then(
        () => true,
        () => false,
      ),
    30_000,
  );
  t.equal(await leader.renew(lease), 'held');
  t.equal(await leader.complete(lease, responseWith(Buffer.from('x')), 0), 'held');
  t.equal((await wait).kind, 'response');
  const next = await lead(leader, { key });
  const pushed = settled(follower, await follow(follower, { key }));
  await leader.complete(next, responseWith(Buffer.from('x')), 0);
  t.equal((await pushed).kind, 'response');
});
