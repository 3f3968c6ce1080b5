/** Two gateways that call one key differently, because their lists of secrets differ in order: one of them leads. */

import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { type ClaimResult, newFlightId } from '../../src/core/claim.js';
import type { PlaceRequest } from '../../src/store/queue.js';
import { RedisStore } from '../../src/store/redis.js';
import { claimUnderAllNames, type RotationOptions } from '../../src/store/rotation.js';
import { type ClaimRequest, type Looked, type Store, StoreUnavailable } from '../../src/store/store.js';
import { Gate } from '../support/gate.js';
import { accessTo, startRedis } from '../support/redis.js';
import { asked, claim, lead, materialFor, newKey, responseWith, settle, settled } from './contract.js';
import { ended, enter, giveBack, turnAtOnce, turnOf } from './queue-contract.js';

const redis = await startRedis();
t.teardown(() => redis.stop());
const SECRETS = ['the old secret of this test', 'the new secret of this test'];
const stores = Array.from(
  { length: 4 },
  (_, index) =>
    new RedisStore({
      access: accessTo(redis.url),
      commandTimeoutMs: 2_000,
      secrets: index % 2 === 0 ? SECRETS : SECRETS.toReversed(),
    }),
);
t.teardown(() => Promise.all(stores.map((store) => store.close())));
await Promise.all(stores.map((store) => store.open()));

const nameOf = (key: string, fingerprint = '') => ({ key, material: materialFor(key), fingerprint });

/** The key as the store of that place in the list claims it: even ones by its old name, odd ones by its new one. */
function named(key: string, index: number, change: Partial<ClaimRequest> = {}) {
  const names = [nameOf(`old ${key}`), nameOf(`new ${key}`)] as const;
  const [own, other] = index % 2 === 0 ? names : [names[1], names[0]];
  return { ...own, others: [other], ...change };
}

t.test('of many at once, by both names, one leads, and all others get its response', async (t) => {
  for (let round = 0; round < 60; round += 1) {
    const key = newKey();
    let [leading, led] = [0, 0];
    const ask = async (store: Store, index: number): Promise<string> => {
      const result = await claim(store, named(key, index));
      if (result.kind === 'stored') return contentOf(result);
      if (result.kind === 'leader') {
        led += 1;
        leading += 1;
        if (leading > 1) t.fail(`round ${round}: ${leading} lead at once`);
        await store.renew(result.lease);
        leading -= 1;
        await store.complete(result.lease, responseWith(Buffer.from(`of ${key}`)), 10_000);
        return `of ${key}`;
      }
      if (result.kind !== 'follower') throw new Error(result.kind);
      const end = await settled(store, result.flight);
      if (end.kind === 'response') return String(end.response.content);
      if (end.kind !== 'withdrawn') throw new Error(end.kind);
      return ask(store, index);
    };
    const all = await Promise.all(Array.from({ length: 8 }, (_, i) => ask(stores[i % 4] as Store, i)));
    if (all.some((content) => content !== `of ${key}`)) t.fail(`round ${round}: ${all.join()}`);
    if (led !== 1) t.fail(`round ${round}: ${led} led`);
  }
});

t.test('a look finds what has the key by its other name', async (t) => {
  const [old, next] = stores as unknown as [Store, Store];
  const key = newKey();
  t.strictSame(await next.look(asked(named(key, 1))), { kind: 'free' });
  const lease = await lead(old, named(key, 0));
  t.match(await next.look(asked(named(key, 1))), { kind: 'follower', flight: { flight: lease.flight } });
});

t.test('where nobody waits, two never lead at once, and one does', async (t) => {
  for (let round = 0; round < 60; round += 1) {
    const key = newKey();
    const ask = (i: number) => claim(stores[i % 4] as Store, named(key, i, { join: false }));
    const all = await Promise.all(Array.from({ length: 8 }, (_, i) => ask(i)));
    const leaders = all.filter((result) => result.kind === 'leader');
    if (leaders.length > 1) t.fail(`round ${round}: ${leaders.length} lead`);
    if (all.some(({ kind }) => kind !== 'leader' && kind !== 'follower'))
      t.fail(`round ${round}: ${JSON.stringify(all)}`);
  }
});

const [a, b] = stores as readonly Store[] as readonly [Store, Store];

t.test('what has the key under its other name answers by that name', async (t) => {
  const key = newKey();
  const [old, fresh] = [named(key, 0), named(key, 1)];
  const lease = await lead(a, { ...old, fingerprint: 'x', others: [] });
  const same = { ...fresh, fingerprint: 'y', others: [nameOf(old.key, 'x')] };
  t.match(await claim(b, { ...same, others: [nameOf(old.key, 'z')] }), { kind: 'mismatch' });
  const followed = await claim(b, same);
  t.match(followed, { kind: 'follower', flight: { key: old.key, flight: lease.flight } });
  const end = followed.kind === 'follower' ? settled(b, followed.flight) : null;
  await a.complete(lease, responseWith(Buffer.from('small')), 60_000);
  t.match(await end, { kind: 'response', response: { content: Buffer.from('small') } });
  t.equal(contentOf(await claim(b, same)), 'small');
  t.equal((await claim(b, { ...fresh, others: [] })).kind, 'leader', 'its own name was given back');
});

t.test('large responses and unknown outcomes are found under the other name as well', async (t) => {
  const [large, lost] = [newKey(), newKey()];
  const content = Buffer.alloc(100_000, 'x');
  await a.complete(await lead(a, named(large, 0)), responseWith(content), 60_000);
  t.equal(contentOf(await claim(b, named(large, 1))), String(content));
  const lease = await lead(a, named(lost, 0));
  await a.complete(lease, { kind: 'unknown', election: 0 }, 60_000);
  const { key } = named(lost, 0);
  t.match(await claim(b, named(lost, 1)), { kind: 'unknown', key, flight: lease.flight });
});

t.test('who is elected after a flight is so under every name', async (t) => {
  const key = newKey();
  const after = newFlightId();
  const lease = await lead(a, named(key, 0, { after, election: 1 }));
  await a.complete(lease, { kind: 'failed', election: 1 }, 0);
  t.equal((await claim(b, named(key, 1, { after, election: 1 }))).kind, 'late');
  t.equal((await claim(b, named(key, 1))).kind, 'leader', 'and its own name was given back');
});

t.test('a turn that was lost while the other one was waited for is no turn', async (t) => {
  const key = newKey();
  const other = await turnAtOnce(a, { key: `old ${key}` });
  const entered = await enterBy(b, key, 1, { leaseMs: 300 });
  if (entered.kind !== 'queued') throw new Error(entered.kind);
  const wait = ended(b, entered.place, 5_000);
  wait.catch(() => {});
  t.equal(await settle(a, `new ${key}`, { kind: 'free' }), 'settled');
  await sleep(500);
  await giveBack(a, other);
  await t.rejects(wait, StoreUnavailable);
  for (const name of ['old', 'new']) await turnAtOnce(a, { key: `${name} ${key}` });
});

function contentOf(result: ClaimResult): string {
  if (result.kind !== 'stored' || result.ended.kind !== 'response') throw new Error(result.kind);
  return String(result.ended.response.content);
}

/** A store of names, in which the test says when looks are answered. */
function table() {
  const held = new Map<string, string>();
  const looks = new Gate();
  const options: RotationOptions = {
    claim: async ({ key, flight, leaseMs, material }) => {
      if (held.has(key)) throw new Error(`${key} is held`);
      held.set(key, flight);
      return { kind: 'leader', lease: { key, flight, fence: 1, leaseMs, material }, expects: 'shareable' };
    },
    look: async (asked) => {
      await looks.opened;
      return lookAt(asked);
    },
    giveBack: async ({ key, flight }) => {
      if (held.get(key) === flight) held.delete(key);
    },
  };
  const lookAt = ({ key, material }: ClaimRequest): Looked => {
    const flight = held.get(key);
    if (flight === undefined) return { kind: 'free' };
    const known = { key, flight, material, leaseLeftMs: 1_000, ageMs: 0, election: 0 };
    return { kind: 'follower', flight: known, expects: 'shareable' };
  };
  return { held, looks, options };
}

function request(key: string, other: string): ClaimRequest {
  const rest = { leaseMs: 1_000, election: 0, after: '', holdMs: 0, route: 'r', join: true };
  return { ...nameOf(key), flight: newFlightId(), others: [nameOf(other)], ...rest };
}

t.test('both claim before either looks: the larger name leads, the other one follows it', async (t) => {
  for (const [first, second] of [
    ['a', 'b'],
    ['b', 'a'],
  ] as const) {
    const { held, looks, options } = table();
    const all = Promise.all([
      claimUnderAllNames(request(first, second), options),
      claimUnderAllNames(request(second, first), options),
    ]);
    looks.open();
    const results = await all;
    t.same(results.map(({ kind }) => kind).sort(), ['follower', 'leader']);
    t.same([...held.keys()], ['b']);
    t.match(
      results.find(({ kind }) => kind === 'follower'),
      { flight: { key: 'b' } },
    );
  }
});

t.test('both give way, for giving back takes long: of two that do not wait one leads all the same', async (t) => {
  const { held, looks, options } = table();
  const given = new Gate();
  const began = new Map<string, number>();
  const slow: RotationOptions = {
    ...options,
    claim: async (asked) => {
      began.set(asked.flight, performance.now());
      return options.claim(asked);
    },
    look: async (asked) => {
      const looked = await options.look(asked);
      if (looked.kind !== 'follower') return looked;
      const ageMs = performance.now() - began.get(looked.flight.flight)!;
      return { ...looked, flight: { ...looked.flight, ageMs } };
    },
    giveBack: async (lease, election) => {
      // The smaller one's takes until the larger one gives up waiting for it.
      if (lease.key === 'a') await given.opened;
      else given.open();
      await options.giveBack(lease, election);
    },
  };
  const all = Promise.all([
    claimUnderAllNames({ ...request('a', 'b'), join: false }, slow),
    claimUnderAllNames({ ...request('b', 'a'), join: false }, slow),
  ]);
  looks.open();
  t.same((await all).map(({ kind }) => kind).sort(), ['follower', 'leader']);
  t.equal(held.size, 1);
});

t.test('later flights under the smaller name do not keep the larger one waiting', async (t) => {
  const { held, looks, options } = table();
  held.set('a', 'flight 1');
  const look: RotationOptions['look'] = async (asked) => {
    const looked = await options.look(asked);
    held.set('a', `${held.get('a')}+`);
    return looked;
  };
  looks.open();
  t.equal((await claimUnderAllNames(request('b', 'a'), { ...options, look })).kind, 'leader');
});

t.test('a claim after which nobody could look is given back', async (t) => {
  const { held, options } = table();
  const look = () => Promise.reject(new StoreUnavailable('away'));
  await t.rejects(claimUnderAllNames(request('a', 'b'), { ...options, look }), StoreUnavailable);
  t.equal(held.size, 0);
});

const enterBy = (store: Store, key: string, index: number, change: Partial<PlaceRequest> = {}) => {
  const { key: own, others } = named(key, index);
  return enter(store, { key: own, otherKeys: others.map((other) => other.key), ...change });
};

t.test('a turn is had under both names, and handed on by either order', async (t) => {
  const key = newKey();
  const first = await enterBy(a, key, 0);
  if (first.kind !== 'turn') throw new Error(first.kind);
  for (const name of ['old', 'new']) t.equal((await enter(b, { key: `${name} ${key}`, maxQueue: 0 })).kind, 'full');
  const entered = await enterBy(b, key, 1);
  if (entered.kind !== 'queued') throw new Error(entered.kind);
  const next = turnOf(b, entered.place);
  t.equal(await a.queue.renew(first.lease), 'held');
  t.equal(await a.queue.release(first.lease, { unlessAwaited: false }), 'held');
  const { lease } = await next;
  t.ok(lease.fence > first.lease.fence, 'the fence grows');
  t.equal(await a.queue.renew(first.lease), 'lost');
  t.equal(await b.queue.complete(lease, { kind: 'unknown', election: 0 }, 60_000), 'held');
  t.equal((await enterBy(a, key, 0)).kind, 'unknown', 'what is held is so under both');
});

t.test('what is had already is renewed while the other one is waited for, and given back by who leaves', async (t) => {
  const key = newKey();
  // Names are taken in their order: the first is had at once, the second is somebody's who knows no other.
  const other = await turnAtOnce(a, { key: `old ${key}` });
  const entered = await enterBy(b, key, 1, { leaseMs: 600 });
  if (entered.kind !== 'queued') throw new Error(entered.kind);
  const wait = turnOf(b, entered.place, 5_000);
  await sleep(1_500);
  t.equal((await enter(a, { key: `new ${key}`, maxQueue: 0 })).kind, 'full', 'held beyond its first lease');
  await giveBack(a, other);
  const { lease } = await wait;
  t.equal(await b.queue.release(lease, { unlessAwaited: false }), 'held');

  const again = await turnAtOnce(a, { key: `old ${key}` });
  const left = await enterBy(b, key, 1);
  if (left.kind !== 'queued') throw new Error(left.kind);
  await t.rejects(ended(b, left.place, 50), /no turn/);
  t.equal((await enter(a, { key: `new ${key}` })).kind, 'turn');
  await giveBack(a, again);
  t.equal((await enter(a, { key: `old ${key}` })).kind, 'turn', 'and no place is left behind');
});
