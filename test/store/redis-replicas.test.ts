/** A claim that counts only when a replica has it. */

import { EventEmitter } from 'node:events';
import t, { type Test } from 'tap';
import { RedisStore } from '../../src/store/redis.js';
import type { ScriptedRedis } from '../../src/store/redis-client.js';
import { RedisReplicas } from '../../src/store/redis-replicas.js';
import type { RedisRoute } from '../../src/store/redis-route.js';
import { eventually } from '../support/gate.js';
import { accessTo } from '../support/redis.js';
import { infoOf, startReplicated } from '../support/redis-fleet.js';
import { claim, claimWhenFree, follow, lead, newKey, settled } from './contract.js';
import { enter, giveBack, placeIn, turnAtOnce, turnOf } from './queue-contract.js';

t.setTimeout(120_000);

const UNAVAILABLE = { name: 'StoreUnavailable' };
const { primary, replica, link } = await startReplicated(t);

async function open(t: Test, waitReplicas: number, commandTimeoutMs = 2_000): Promise<RedisStore> {
  const store = new RedisStore({ access: accessTo(primary.url), waitReplicas, commandTimeoutMs });
  t.teardown(() => store.close());
  await store.open();
  return store;
}

async function waits(): Promise<number> {
  return Number(/calls=(\d+)/.exec((await infoOf(primary, 'cmdstat_wait')) ?? '')?.[1] ?? 0);
}

t.test('who leads, or has a turn, has it on the replica as well', async (t) => {
  const store = await open(t, 1);
  for (let i = 0; i < 5; i += 1) {
    const { key } = await lead(store, { key: newKey() });
    t.equal(await replica.command('EXISTS', `oneflight:{${key}}`), 1);
    const turn = await turnAtOnce(store, { key: newKey() });
    const place = await placeIn(store, { key: turn.lease.key });
    await giveBack(store, turn);
    const next = await turnOf(store, place);
    t.equal(await replica.command('HEXISTS', `oneflight:{${next.lease.key}}:q`, `h:${next.lease.flight}`), 1);
  }
});

t.test('many claims at a time share the waiting, and who follows waits for no replica', async (t) => {
  const store = await open(t, 1);
  const keys = Array.from({ length: 200 }, newKey);
  const before = await waits();
  await Promise.all(keys.map((key) => lead(store, { key })));
  const used = (await waits()) - before;
  t.ok(used > 0 && used < keys.length / 2, `${used} for ${keys.length} claims`);
  await Promise.all(keys.map((key) => follow(store, { key })));
  t.equal((await waits()) - before, used);
});

t.test('the replica is cut off: the claim is given back, and the store counts as down', async (t) => {
  const [store, plain] = [await open(t, 1, 250), await open(t, 0)];
  const before = await lead(store, { key: newKey() });
  link.blackHole = true;
  const [key, queued] = [newKey(), newKey()];
  const asked = performance.now();
  const refused = t.rejects(claim(store, { key }), { ...UNAVAILABLE, message: /0 of 1 replicas have the claim/ });
  const told = await eventuallyFollowed(plain, key);
  await refused;
  t.ok(performance.now() - asked < 1_500, 'within its bound');
  t.match(await settled(plain, told), { kind: 'withdrawn' }, 'who joined meanwhile asks again');
  await claimWhenFree(plain, { key });
  t.equal(await store.renew(before), 'held', 'what counts already goes on');

  await t.rejects(enter(store, { key: queued }), UNAVAILABLE);
  const turn = await turnAtOnce(plain, { key: queued });
  const place = await placeIn(store, { key: queued });
  const behind = await placeIn(plain, { key: queued });
  await giveBack(plain, turn);
  await t.rejects(turnOf(store, place), UNAVAILABLE);
  await giveBack(plain, await turnOf(plain, behind));

  link.blackHole = false;
  link.cut();
  await eventually('claims count again', () =>
    claim(store, { key: newKey() }).then(
      () => true,
      () => false,
    ),
  );
});

/** A follower of the flight that is about to be given back. */
async function eventuallyFollowed(store: RedisStore, key: string) {
  for (;;) {
    const result = await claim(store, { key });
    if (result.kind === 'follower') return result.flight;
    if (result.kind === 'leader') await store.release(result.lease, { unlessAwaited: false });
  }
}

t.test('more replicas than there are: no claim counts', async (t) => {
  const store = await open(t, 2, 250);
  await t.rejects(claim(store, { key: newKey() }), { ...UNAVAILABLE, message: /1 of 2 replicas/ });
});

function routeTo(client: ScriptedRedis): Pick<RedisRoute, 'ask'> {
  return { ask: async (_key, run) => ({ kind: 'answered', value: await run(client), repeated: false }) };
}

t.test('WAIT over another connection than that of the renewal says nothing', async (t) => {
  const connection = new EventEmitter();
  const client = Object.assign(connection, {
    wait: async () => {
      connection.emit('close');
      return 5;
    },
  }) as unknown as ScriptedRedis;
  const route = routeTo(client);
  const replicas = new RedisReplicas({ route, wanted: 1, waitMs: 100, budgetMs: 100 });
  await t.rejects(
    replicas.confirm({ key: 'a' }, async () => 1),
    { message: /0 of 1 replicas/ },
  );
});

t.test('a lease that is not held any more does not count, however many replicas know', async (t) => {
  const client = Object.assign(new EventEmitter(), { wait: async () => 5 }) as unknown as ScriptedRedis;
  const route = routeTo(client);
  const replicas = new RedisReplicas({ route, wanted: 1, waitMs: 100, budgetMs: 100 });
  await t.rejects(
    replicas.confirm({ key: 'a' }, async () => 0),
    UNAVAILABLE,
  );
  await replicas.confirm({ key: 'a' }, async () => 1);
});
