/**
 * What every store has to do about marks, and when what is kept is purged: see the head of src/store/store.ts.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { newFlightId, type Settlement } from '../../src/core/claim.js';
import { variantKey } from '../../src/core/sharing.js';
import type { Store } from '../../src/store/store.js';
import {
  type Ask,
  anyResponse,
  claim,
  claimWhenFree,
  follow,
  LONG_MS,
  lead,
  newKey,
  responseWith,
  SHORT_MS,
  STATES,
  type StoreFactory,
  settled,
  UNKNOWN_STATES,
} from './contract.js';

export function marksContract(name: string, factory: StoreFactory): void {
  t.test(`${name}: marks`, (test) => marks(test, factory));
  t.test(`${name}: purging`, (test) => purging(test, factory));
}

async function marks(t: Test, factory: StoreFactory): Promise<void> {
  const [a, b] = (await factory(t, 2)) as [Store, Store];
  const unshareable: Settlement = { kind: 'unshareable', reason: 'private' };
  const mark = async (key: string, keepMs = LONG_MS) =>
    t.equal(await a.complete(await lead(a, { key }), unshareable, keepMs), 'held');
  /** What a claim, which must lead or follow, is told to expect. */
  const expects = async (store: Store, ask: Ask) => {
    const result = await claim(store, ask);
    if (result.kind !== 'leader' && result.kind !== 'follower') throw new Error(result.kind);
    return `${result.kind} ${result.expects}`;
  };

  await t.test('the key is free, and leader and follower are told in every process', async (t) => {
    const key = newKey();
    t.equal(await expects(a, { key }), 'leader shareable');
    t.equal(await expects(b, { key }), 'follower shareable');
    const other = newKey();
    await mark(other);
    const ask = { key: other, flight: newFlightId() };
    t.equal(await expects(b, ask), 'leader unshareable');
    t.equal(await expects(a, ask), 'leader unshareable', 'asked again');
    t.equal(await expects(a, { key: other }), 'follower unshareable');
    t.equal(await expects(b, { key: other, join: false }), 'follower unshareable');
    t.equal(await expects(a, { key }), 'follower shareable', 'no other key is marked by it');
  });

  await t.test('followers of the flight that marks are told by a push', async (t) => {
    const key = newKey();
    const lease = await lead(a, { key });
    const wait = settled(b, await follow(b, { key }));
    t.equal(await a.complete(lease, unshareable, LONG_MS), 'held');
    t.same(await wait, unshareable);
  });

  await t.test("it is over after its time, by the store's clock", async (t) => {
    const key = newKey();
    const began = performance.now();
    await mark(key, 400);
    const lease = await lead(b, { key });
    let last = 'follower unshareable';
    while (last === 'follower unshareable') {
      await sleep(10);
      last = await expects(b, { key });
    }
    const took = performance.now() - began;
    t.equal(last, 'follower shareable');
    t.ok(took >= 395 && took < 1_900, `marked for ${took} ms`);
    await b.release(lease, { unlessAwaited: false });
    t.equal(await expects(a, { key }), 'leader shareable');
  });

  await t.test('a later one lasts from its own completion', async (t) => {
    const key = newKey();
    await mark(key, 300);
    await mark(key);
    await sleep(330);
    t.equal(await expects(b, { key }), 'leader unshareable');
  });

  await t.test('a shareable completion takes it away, kept or not', async (t) => {
    for (const keepMs of [0, SHORT_MS]) {
      const key = newKey();
      await mark(key);
      const lease = await lead(a, { key });
      t.equal(await a.complete(lease, responseWith(Buffer.from('x')), keepMs), 'held');
      if (keepMs > 0) {
        t.equal((await claim(b, { key })).kind, 'stored');
        await sleep(keepMs + 30);
      }
      t.equal(await expects(b, { key }), 'leader shareable', `kept for ${keepMs} ms`);
    }
  });

  await t.test('claims and every other end leave it as it is', async (t) => {
    const key = newKey();
    await mark(key);
    await a.release(await lead(a, { key }), { unlessAwaited: false });
    await a.complete(await lead(b, { key }), { kind: 'failed', election: 0 }, 0);
    await a.complete(await lead(b, { key }), { kind: 'unknown', election: 0 }, 0);
    await a.complete(await lead(b, { key }), { kind: 'withdrawn', election: 0 }, 0);
    await a.complete(await lead(b, { key }), unshareable, 0);
    await claimWhenFree(b, { key, leaseMs: 20 });
    t.match(await claimWhenFree(b, { key }), { kind: 'leader', expects: 'unshareable' });
  });

  await t.test('who has lost its lease neither marks nor takes a mark away', async (t) => {
    const key = newKey();
    const lease = await lead(a, { key });
    await a.release(lease, { unlessAwaited: false });
    t.equal(await a.complete(lease, unshareable, LONG_MS), 'lost');
    t.equal(await expects(b, { key }), 'leader shareable');
    const marked = newKey();
    await mark(marked);
    const late = await lead(a, { key: marked });
    await a.release(late, { unlessAwaited: false });
    t.equal(await a.complete(late, responseWith(Buffer.from('late')), 0), 'lost');
    t.equal(await expects(b, { key: marked }), 'leader unshareable');
  });

  await t.test('who is told of a mark joins nothing: the flight is not awaited', async (t) => {
    const key = newKey();
    await mark(key);
    const lease = await lead(a, { key });
    t.equal(await expects(b, { key, join: true }), 'follower unshareable');
    t.equal(await a.release(lease, { unlessAwaited: true }), 'held');
  });
}

async function purging(t: Test, factory: StoreFactory): Promise<void> {
  const [a, b] = (await factory(t, 2)) as [Store, Store];
  const response: Settlement = { kind: 'response', response: anyResponse };

  await t.test('what is kept is gone in every process, and the next request runs', async (t) => {
    for (const ending of [response, { kind: 'not-kept' } as const]) {
      const key = newKey();
      const lease = await lead(a, { key, fingerprint: 'x' });
      await a.complete(lease, ending, LONG_MS);
      t.equal(await b.purge(key), 'purged');
      t.equal(await a.purge(key), 'absent', 'once');
      const next = await claim(b, { key, fingerprint: 'y' });
      t.match(next, { kind: 'leader', expects: 'shareable' });
      t.ok(next.kind === 'leader' && next.lease.fence > lease.fence);
    }
  });

  await t.test('a mark goes as well', async (t) => {
    const key = newKey();
    await a.complete(await lead(a, { key }), { kind: 'unshareable', reason: 'private' }, LONG_MS);
    t.equal(await b.purge(key), 'purged');
    t.match(await claim(b, { key }), { kind: 'leader', expects: 'shareable' });
  });

  await t.test('nothing there, or nothing any more', async (t) => {
    t.equal(await a.purge(newKey()), 'absent');
    const key = newKey();
    await a.complete(await lead(a, { key }), response, SHORT_MS);
    await claimWhenFree(a, { key: `${key}-passed`, leaseMs: 20 });
    await sleep(SHORT_MS + 30);
    t.equal(await a.purge(key), 'absent');
    t.equal(await a.purge(`${key}-passed`), 'absent');
  });

  await t.test('a flight that is up is not touched, nor is its mark', async (t) => {
    const key = newKey();
    await a.complete(await lead(a, { key }), { kind: 'unshareable', reason: 'private' }, LONG_MS);
    const lease = await lead(a, { key });
    t.equal(await b.purge(key), 'taken');
    t.match(await claim(b, { key }), { kind: 'follower', expects: 'unshareable' });
    t.equal(await a.renew(lease), 'held');
    const plain = await lead(a, { key: newKey() });
    const wait = settled(b, await follow(b, { key: plain.key }));
    t.equal(await b.purge(plain.key), 'taken');
    t.equal(await a.complete(plain, response, 0), 'held');
    t.same(await wait, response);
  });

  await t.test('an outcome that nobody knows is not touched', async (t) => {
    for (const state of UNKNOWN_STATES) {
      const lease = await STATES[state]![1](a, { key: newKey(), fingerprint: 'x' });
      t.equal(await b.purge(lease.key), 'taken', state);
      t.equal((await claim(b, { key: lease.key, fingerprint: 'x' })).kind, 'unknown', state);
    }
  });

  await t.test('a turn of a queue is not touched', async (t) => {
    const key = newKey();
    const flight = newFlightId();
    const entered = await a.queue.enter({
      ...{ key, flight, leaseMs: LONG_MS, holdMs: 0, route: 'route', concurrency: 1, maxQueue: 1, otherKeys: [] },
    });
    if (entered.kind !== 'turn') throw new Error(entered.kind);
    t.equal(await b.purge(key), 'taken');
    t.equal(await a.queue.renew(entered.lease), 'held');
  });

  await t.test('the variants of a key go with it, and nobody else', async (t) => {
    const key = newKey();
    const variantOf = (of: string, value: string) =>
      variantKey(of, null, { names: ['accept'], digest: '' }, ['accept', value]);
    const keep = async (key: string, ending: Settlement = response) =>
      a.complete(await lead(a, { key }), ending, LONG_MS);
    const [plain, notKept, marked, up] = [
      variantOf(key, 'a'),
      variantOf(key, 'b'),
      variantOf(key, 'c'),
      variantOf(key, 'd'),
    ];
    const nested = variantOf(plain, 'e');
    const others = [`${key}0`, variantOf(`${key}0`, 'a'), variantOf(newKey(), 'a')];
    for (const one of [key, plain, nested, ...others]) await keep(one);
    await keep(notKept, { kind: 'not-kept' });
    await keep(marked, { kind: 'unshareable', reason: 'private' });
    const lease = await lead(a, { key: up });
    const kind = async (key: string) => (await claim(b, { key, join: false })).kind;

    for (const slip of ['*', '?', '', `${key.slice(0, -1)}*`]) t.equal(await b.purge(slip), 'absent', slip);
    t.equal(await b.purge(key), 'purged');
    for (const one of [key, plain, nested, notKept]) t.equal(await kind(one), 'leader');
    t.match(await claim(b, { key: marked }), { kind: 'leader', expects: 'shareable' });
    t.equal(await a.renew(lease), 'held');
    for (const one of others) t.equal(await kind(one), 'stored');
  });

  await t.test('variants are purged without their key, and not while it is taken', async (t) => {
    const key = newKey();
    const variant = variantKey(key, null, { names: ['accept'], digest: '' }, ['accept', 'a']);
    await a.complete(await lead(a, { key: variant }), response, LONG_MS);
    const lease = await lead(a, { key });
    t.equal(await b.purge(key), 'taken');
    t.equal((await claim(b, { key: variant })).kind, 'stored');
    await a.release(lease, { unlessAwaited: false });
    t.equal(await b.purge(key), 'purged');
    t.equal(await b.purge(key), 'absent');
    t.equal((await claim(b, { key: variant })).kind, 'leader');
  });

  await t.test(
    'a rule: what it keeps goes, whatever it is; what it does not keep, and what others keep, stays',
    async (t) => {
      const route = newKey();
      const kept: string[] = [];
      for (let i = 0; i < 450; i += 1) {
        const key = newKey();
        kept.push(key);
        await a.complete(await lead(a, { key, route }), i % 3 === 0 ? { kind: 'not-kept' } : response, LONG_MS);
      }
      const others = newKey();
      await a.complete(await lead(a, { key: others, route: `${route}-2` }), response, LONG_MS);
      const up = await lead(a, { key: newKey(), route });
      const unknown = await lead(a, { key: newKey(), route });
      await a.complete(unknown, { kind: 'unknown', election: 0 }, LONG_MS);
      t.equal(await b.purgeRoute(route), 450);
      t.equal(await b.purgeRoute(route), 0);
      for (const key of [kept[0], kept[1], kept.at(-1)]) t.equal((await claim(b, { key: key! })).kind, 'leader');
      t.equal((await claim(b, { key: others })).kind, 'stored');
      t.equal((await claim(b, { key: unknown.key })).kind, 'unknown');
      t.equal(await a.renew(up), 'held');
      t.equal(await a.purgeRoute(newKey()), 0);
    },
  );
}
