import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { MemoryBudget } from '../../src/core/memory-budget.js';
import { MemoryStore } from '../../src/store/memory.js';
import { claim, follow, lead, newKey, responseWith, type StoreFactory, settled, storeContract } from './contract.js';
import { marksContract } from './marks-contract.js';
import { queueContract } from './queue-contract.js';

/** One process is all that this store serves: its "processes" are one and the same. */
const factory: StoreFactory = async (test, count) => {
  const store = new MemoryStore({ budget: new MemoryBudget(64 * 1024 * 1024) });
  await store.open();
  test.teardown(() => store.close());
  return Array.from({ length: count }, () => store);
};

storeContract('memory', factory);
marksContract('memory', factory);
queueContract('memory', factory);

function withClock(maxMemoryBytes: number) {
  const clock = { ms: 1_000 };
  return { clock, store: new MemoryStore({ budget: new MemoryBudget(maxMemoryBytes), now: () => clock.ms }) };
}

async function keep(store: MemoryStore, key: string, bytes: number, keepMs = 10_000): Promise<void> {
  await store.complete(await lead(store, { key }), responseWith(Buffer.alloc(bytes)), keepMs);
}

/** What the store has for each key, without touching the order of use more than once each. */
async function kinds(store: MemoryStore, keys: readonly string[]): Promise<string[]> {
  const kinds = [];
  for (const key of keys) {
    kinds.push((await claim(store, { key, join: false })).kind);
  }
  return kinds;
}

t.test('memory: leases and kept responses end exactly, without the sweep', async (t) => {
  const { clock, store } = withClock(1_000_000);
  const key = newKey();
  const lease = await lead(store, { key, leaseMs: 100 });
  clock.ms += 99;
  t.equal((await claim(store, { key })).kind, 'follower');
  clock.ms += 1;
  t.equal(await store.renew(lease), 'lost');
  await keep(store, key, 10, 50);
  clock.ms += 49;
  t.match(await claim(store, { key }), { kind: 'stored', ageMs: 49, ttlMs: 1 });
  clock.ms += 1;
  t.equal((await claim(store, { key })).kind, 'leader');
});

t.test('memory: the least recently used of the kept responses goes first', async (t) => {
  const { store } = withClock(10_000);
  const [a, b, c] = [newKey(), newKey(), newKey()];
  await keep(store, a, 3_000);
  await keep(store, b, 3_000);
  t.same(await kinds(store, [a]), ['stored'], 'a is used');
  await keep(store, c, 3_000);
  t.same(await kinds(store, [a, b, c]), ['stored', 'leader', 'stored']);
});

t.test('memory: a response larger than the bound is not kept, and evicts nothing', async (t) => {
  const { store } = withClock(10_000);
  const [small, large] = [newKey(), newKey()];
  await keep(store, small, 100);
  await keep(store, large, 20_000);
  t.same(await kinds(store, [small, large]), ['stored', 'leader']);
});

async function keepFor(store: MemoryStore, ask: { key: string; fingerprint?: string; holdMs?: number }, bytes: number) {
  await store.complete(await lead(store, ask), responseWith(Buffer.alloc(bytes)), 10_000);
}

t.test('memory: of a response that stands against a second execution the fact stays', async (t) => {
  const { clock, store } = withClock(10_000);
  const [printed, held, plain, large] = [newKey(), newKey(), newKey(), newKey()];
  await keepFor(store, { key: printed, fingerprint: 'x' }, 3_000);
  await keepFor(store, { key: held, holdMs: 1 }, 3_000);
  await keepFor(store, { key: plain }, 2_000);
  for (let i = 0; i < 5; i += 1) await keep(store, newKey(), 9_000);
  await keepFor(store, { key: large, fingerprint: 'x' }, 20_000);
  clock.ms += 1_000;
  const notKept = { kind: 'stored', ended: { kind: 'not-kept' }, ageMs: 1_000, ttlMs: 9_000 };
  t.match(await claim(store, { key: printed, fingerprint: 'x' }), notKept);
  t.same(await claim(store, { key: printed, fingerprint: 'y' }), { kind: 'mismatch' });
  t.match(await claim(store, { key: held }), notKept);
  t.match(await claim(store, { key: large, fingerprint: 'x' }), notKept, 'also of one larger than the bound');
  t.equal((await claim(store, { key: plain })).kind, 'leader');
  clock.ms += 9_000;
  t.same(await kinds(store, [printed, held, large]), ['leader', 'leader', 'leader']);
});

t.test('memory: what only spares a call goes before what stands against a second execution', async (t) => {
  const { store } = withClock(10_000);
  const [promised, spare, next] = [newKey(), newKey(), newKey()];
  await keepFor(store, { key: promised, holdMs: 1 }, 3_000);
  await keepFor(store, { key: spare }, 3_000);
  await keepFor(store, { key: next }, 4_000);
  const kept = { kind: 'stored', ended: { kind: 'response' } };
  t.match(await claim(store, { key: promised }), kept);
  t.match(await claim(store, { key: next }), kept);
  t.equal((await claim(store, { key: spare })).kind, 'leader');
});

t.test('memory: facts are never evicted', async (t) => {
  const { clock, store } = withClock(2_000);
  const [unknown, notKept, passed] = [newKey(), newKey(), newKey()];
  await store.complete(await lead(store, { key: unknown }), { kind: 'unknown', election: 0 }, 60_000);
  await store.complete(await lead(store, { key: notKept }), { kind: 'not-kept' }, 60_000);
  await lead(store, { key: passed, leaseMs: 1, holdMs: 60_000 });
  clock.ms += 1;
  for (let i = 0; i < 50; i += 1) await keep(store, newKey(), 1_000);
  t.same(await kinds(store, [unknown, notKept, passed]), ['unknown', 'stored', 'unknown']);
});

t.test('memory: the sweep turns a lease that has passed into a hold, and gives the hold back', async (t) => {
  const { clock, store } = withClock(1_000);
  await store.open();
  t.teardown(() => store.close());
  const key = newKey();
  await lead(store, { key, leaseMs: 100, holdMs: 100 });
  const wait = settled(store, await follow(store, { key }));
  clock.ms += 100;
  t.same(await wait, { kind: 'unknown', election: 0 });
  clock.ms += 99;
  t.match(await claim(store, { key }), { kind: 'unknown', ttlMs: 1 });
  clock.ms += 1;
  t.equal((await claim(store, { key })).kind, 'leader');
});

t.test('memory: followers of a response larger than the bound get it all the same', async (t) => {
  const { store } = withClock(1_000);
  const key = newKey();
  const lease = await lead(store, { key });
  const flight = await follow(store, { key });
  await store.complete(lease, responseWith(Buffer.alloc(50_000)), 1_000);
  t.equal((await settled(store, flight)).kind, 'response');
  t.equal((await settled(store, flight)).kind, 'unknown', 'once collected it is not held against the bound');
});

t.test('memory: claims are never evicted', async (t) => {
  const { store } = withClock(2_000);
  const held = Array.from({ length: 100 }, newKey);
  for (const key of held) await lead(store, { key });
  for (let i = 0; i < 50; i += 1) await keep(store, newKey(), 1_000);
  t.same(
    await kinds(store, held),
    held.map(() => 'follower'),
  );
});

t.test('memory: the sweep tells followers of a flight whose lease has passed', async (t) => {
  const { clock, store } = withClock(1_000);
  await store.open();
  t.teardown(() => store.close());
  const key = newKey();
  await lead(store, { key, leaseMs: 100 });
  const flight = await follow(store, { key });
  const wait = settled(store, flight);
  clock.ms += 100;
  t.same(await wait, { kind: 'unknown', election: 0 });
});

t.test('memory: the sweep gives back what has expired, so that it evicts nothing', async (t) => {
  const { clock, store } = withClock(10_000);
  await store.open();
  t.teardown(() => store.close());
  const [stays, goes, comes] = [newKey(), newKey(), newKey()];
  await keep(store, stays, 3_000, 100_000);
  await keep(store, goes, 3_000, 50);
  clock.ms += 50;
  await sleep(600);
  await keep(store, comes, 4_000);
  t.same(await kinds(store, [stays, goes, comes]), ['stored', 'leader', 'stored']);
});
