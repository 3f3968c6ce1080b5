/**
 * What every store has to do for requests that take turns: the guarantees in the head of src/store/queue.ts, one after
 * the other. Bounds as in contract.ts: a hand-over has 2 s, with a poll of 10 s and leases of 30 s.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { newFlightId } from '../../src/core/claim.js';
import type { Entered, NoTurn, PlaceRequest, Turn } from '../../src/store/queue.js';
import { type Store, StoreUnavailable } from '../../src/store/store.js';
import { newKey, type StoreFactory, tellsLeaders } from './contract.js';

const LONG_MS = 30_000;
const POLL_MS = 10_000;
const PROMPT_MS = 2_000;
const FAILED = { kind: 'failed', election: 0 } as const;
const UNKNOWN = { kind: 'unknown', election: 0 } as const;

type Ask = Partial<PlaceRequest> & { readonly key: string };

export function enter(store: Store, ask: Ask): Promise<Entered> {
  return store.queue.enter({
    flight: newFlightId(),
    leaseMs: LONG_MS,
    holdMs: 0,
    route: 'route',
    otherKeys: [],
    concurrency: 1,
    maxQueue: 100,
    ...ask,
  });
}

/** Enters where the turn is free. */
export async function turnAtOnce(store: Store, ask: Ask): Promise<Turn> {
  const entered = await enter(store, ask);
  if (entered.kind !== 'turn') throw new Error(`expected the turn, was ${entered.kind}`);
  return entered;
}

/** Enters where it is taken. */
export async function placeIn(store: Store, ask: Ask): Promise<PlaceRequest> {
  const entered = await enter(store, ask);
  if (entered.kind !== 'queued') throw new Error(`expected a place, was ${entered.kind}`);
  return entered.place;
}

/** What the wait ends with, or a rejection when it takes longer than a push may. */
export async function ended(
  store: Store,
  place: PlaceRequest,
  ms = PROMPT_MS,
  pollMs = POLL_MS,
): Promise<Turn | NoTurn> {
  const tooLate = new AbortController();
  const timer = setTimeout(() => tooLate.abort(new Error(`no turn within ${ms} ms`)), ms);
  try {
    return await store.queue.turn(place, { pollMs, signal: tooLate.signal });
  } finally {
    clearTimeout(timer);
  }
}

export async function turnOf(store: Store, place: PlaceRequest, ms = PROMPT_MS, pollMs = POLL_MS): Promise<Turn> {
  const result = await ended(store, place, ms, pollMs);
  if (result.kind !== 'turn') throw new Error(`expected the turn, was ${result.kind}`);
  return result;
}

export async function giveBack(store: Store, { lease }: Turn): Promise<string> {
  return store.queue.release(lease, { unlessAwaited: false });
}

async function leave(store: Store, place: PlaceRequest): Promise<void> {
  const gone = new AbortController();
  gone.abort(new Error('left'));
  await store.queue.turn(place, { pollMs: POLL_MS, signal: gone.signal }).catch(() => {});
}

/** How many turns and places a key has, as operators see it. */
async function seen(store: Store, key: string): Promise<{ turns: number; waiting: number }> {
  const all = (await store.taken({ state: 'any', limit: 100_000 })).filter((taken) => taken.key === key);
  return { turns: all.length, waiting: all[0]?.waiting ?? 0 };
}

async function until(what: string, test: () => Promise<boolean>): Promise<void> {
  const end = performance.now() + 5_000;
  while (!(await test())) {
    if (performance.now() > end) throw new Error(`never: ${what}`);
    await sleep(10);
  }
}

export function queueContract(name: string, factory: StoreFactory): void {
  t.test(`${name}: turns`, (test) => turns(test, factory));
  t.test(`${name}: places`, (test) => places(test, factory));
  t.test(`${name}: leases of turns`, (test) => leases(test, factory));
  t.test(`${name}: turns whose outcome nobody knows`, (test) => unknowns(test, factory));
  t.test(`${name}: a queue's operator and end`, (test) => operators(test, factory));
}

async function turns(t: Test, factory: StoreFactory): Promise<void> {
  const stores = await factory(t, 3);
  const [a, b, c] = stores as [Store, Store, Store];

  await t.test('50 at once from 3 processes: one has the turn, and each other in the order of the store', async (t) => {
    const key = newKey();
    const all = await Promise.all(
      Array.from({ length: 50 }, async (_, i) => {
        const store = stores[i % 3] as Store;
        return { i, store, entered: await enter(store, { key }) };
      }),
    );
    const first = all.filter(({ entered }) => entered.kind === 'turn');
    t.equal(first.length, 1);
    const order: number[] = [];
    let holders = 0;
    let most = 0;
    await Promise.all(
      all.map(async ({ i, store, entered }) => {
        const turn = entered.kind === 'queued' ? await turnOf(store, entered.place, 20_000) : (entered as Turn);
        order.push(i);
        holders += 1;
        most = Math.max(most, holders);
        await sleep(1);
        holders -= 1;
        t.equal(await giveBack(store, turn), 'held');
      }),
    );
    t.equal(order.length, 50);
    t.equal(most, 1, 'never two at a time');
    for (const rest of [0, 1, 2]) {
      const own = order.filter((i) => i % 3 === rest);
      t.same(
        own,
        [...own].sort((x, y) => x - y),
        `process ${rest} is served in the order in which it asked`,
      );
    }
  });

  await t.test('first in, first out over processes', async (t) => {
    const key = newKey();
    const first = await turnAtOnce(a, { key });
    const order: string[] = [];
    const waits: Promise<void>[] = [];
    for (const [name, store] of [
      ['b', b],
      ['c', c],
      ['a', a],
      ['b again', b],
    ] as const) {
      const place = await placeIn(store, { key });
      waits.push(
        turnOf(store, place).then(async (turn) => {
          order.push(name);
          await giveBack(store, turn);
        }),
      );
    }
    await giveBack(a, first);
    await Promise.all(waits);
    t.same(order, ['b', 'c', 'a', 'b again']);
  });

  await t.test('concurrency: so many have the turn, and one more for each that is given back', async (t) => {
    const key = newKey();
    const ask = { key, concurrency: 3 };
    const held = [await turnAtOnce(a, ask), await turnAtOnce(b, ask), await turnAtOnce(c, ask)];
    const places = [await placeIn(a, ask), await placeIn(b, ask)];
    await giveBack(b, held[1] as Turn);
    await turnOf(a, places[0] as PlaceRequest);
    t.same(await seen(c, key), { turns: 3, waiting: 1 });
    await giveBack(a, held[0] as Turn);
    await turnOf(b, places[1] as PlaceRequest);
  });

  await t.test('fences grow from turn to turn, given at once and handed over', async (t) => {
    const key = newKey();
    const first = await turnAtOnce(a, { key });
    const place = await placeIn(b, { key });
    await giveBack(a, first);
    const second = await turnOf(b, place);
    t.ok(second.lease.fence > first.lease.fence);
    await giveBack(b, second);
    t.ok((await turnAtOnce(c, { key })).lease.fence > second.lease.fence);
  });

  await t.test('two keys have two queues', async () => {
    await turnAtOnce(a, { key: newKey() });
    await turnAtOnce(b, { key: newKey() });
  });

  await t.test('a key is not queued for and claimed at the same time: neither knows of the other', async (t) => {
    const key = newKey();
    await turnAtOnce(a, { key });
    t.same(await seen(b, key), { turns: 1, waiting: 0 });
  });
}

async function places(t: Test, factory: StoreFactory): Promise<void> {
  const [a, b, c] = (await factory(t, 3)) as unknown as [Store, Store, Store];

  await t.test('asked again with its own flight id: the same turn, or the same place', async (t) => {
    const ask = { key: newKey(), flight: newFlightId() };
    const first = await turnAtOnce(a, ask);
    t.same((await turnAtOnce(a, ask)).lease, first.lease);
    const waiting = { key: ask.key, flight: newFlightId() };
    await placeIn(b, waiting);
    const other = await placeIn(c, { key: ask.key });
    const place = await placeIn(b, waiting);
    t.same(await seen(a, ask.key), { turns: 1, waiting: 2 });
    await giveBack(a, first);
    await giveBack(b, await turnOf(b, place));
    await turnOf(c, other);
  });

  await t.test('as many as may wait do; the next is told that it is full, and of the turn', async (t) => {
    const key = newKey();
    const ask = { key, maxQueue: 2 };
    const turn = await turnAtOnce(a, ask);
    const first = await placeIn(b, ask);
    await placeIn(c, ask);
    const full = await enter(a, ask);
    t.equal(full.kind, 'full');
    if (full.kind !== 'full') return;
    t.ok(full.leaseLeftMs > 20_000 && full.leaseLeftMs <= LONG_MS, `${full.leaseLeftMs}`);
    t.ok(full.ageMs >= 0 && full.ageMs < 10_000);
    await giveBack(a, turn);
    await turnOf(b, first);
    await placeIn(a, ask);
  });

  await t.test('who leaves gives up its place at once', async (t) => {
    const key = newKey();
    const ask = { key, maxQueue: 1 };
    const turn = await turnAtOnce(a, ask);
    const place = await placeIn(b, ask);
    t.equal((await enter(c, ask)).kind, 'full');
    const gone = new AbortController();
    const wait = b.queue.turn(place, { pollMs: POLL_MS, signal: gone.signal });
    gone.abort(new Error('the client left'));
    await t.rejects(wait, { message: 'the client left' });
    await until('its place is free', async () => (await seen(a, key)).waiting === 0);
    const next = await placeIn(c, ask);
    await giveBack(a, turn);
    await turnOf(c, next);
  });

  await t.test('who has left before it waits gives up its place as well', async () => {
    const key = newKey();
    const turn = await turnAtOnce(a, { key });
    await leave(b, await placeIn(b, { key }));
    const next = await placeIn(c, { key });
    await giveBack(a, turn);
    await turnOf(c, next);
  });

  await t.test('a turn that came before its place was waited for is there', async (t) => {
    const key = newKey();
    const turn = await turnAtOnce(a, { key });
    const place = await placeIn(b, { key });
    await giveBack(a, turn);
    await until('it was handed over', async () => (await seen(c, key)).waiting === 0);
    t.equal((await turnOf(b, place)).lease.key, key);
  });

  await t.test('who leaves when its turn has come passes it on', async () => {
    const key = newKey();
    const turn = await turnAtOnce(a, { key });
    const place = await placeIn(b, { key });
    const next = await placeIn(c, { key });
    await giveBack(a, turn);
    await until('it was handed over', async () => (await seen(c, key)).waiting === 1);
    await leave(b, place);
    await turnOf(c, next);
  });

  await t.test('leaving and handing over at the same moment lose no turn', async () => {
    for (let i = 0; i < 50; i += 1) {
      const key = newKey();
      const turn = await turnAtOnce(a, { key });
      const place = await placeIn(b, { key });
      const next = await placeIn(c, { key });
      const gone = new AbortController();
      const wait = b.queue.turn(place, { pollMs: POLL_MS, signal: gone.signal }).catch(() => null);
      const waitNext = turnOf(c, next);
      const given = giveBack(a, turn);
      if (i % 2 === 0) await Promise.resolve();
      if (i % 3 === 0) await given;
      gone.abort(new Error('left'));
      const got = await wait;
      if (got?.kind === 'turn') await giveBack(b, got);
      await waitNext;
    }
  });
}

async function leases(t: Test, factory: StoreFactory): Promise<void> {
  const [a, b, c] = (await factory(t, 3)) as unknown as [Store, Store, Store];

  await t.test('a turn that is neither renewed nor given back is passed on when its lease ends', async (t) => {
    const key = newKey();
    const lost = await turnAtOnce(a, { key, leaseMs: 300 });
    const place = await placeIn(b, { key });
    const turn = await turnOf(b, place, 300 + PROMPT_MS, POLL_MS);
    t.ok(turn.lease.fence > lost.lease.fence);
    t.equal(await a.queue.renew(lost.lease), 'lost');
    t.equal(await a.queue.release(lost.lease, { unlessAwaited: false }), 'lost');
    t.equal(await a.queue.complete(lost.lease, UNKNOWN, 10_000), 'lost');
    t.equal(await b.queue.renew(turn.lease), 'held', 'the old one has changed nothing');
  });

  await t.test(
    'a lease is counted from before the store was asked for it, given at once and handed over',
    async (t) => {
      const key = newKey();
      const entering = turnAtOnce(a, { key });
      const askedAtMs = performance.now();
      const first = await entering;
      t.ok(first.claimedAtMs <= askedAtMs && first.claimedAtMs > askedAtMs - PROMPT_MS, `${first.claimedAtMs}`);
      const queueing = placeIn(b, { key });
      const queuedAtMs = performance.now();
      const place = await queueing;
      await giveBack(a, first);
      const second = await turnOf(b, place);
      t.ok(second.claimedAtMs <= performance.now() && second.claimedAtMs > queuedAtMs - PROMPT_MS);
    },
  );

  await t.test('renewed, it goes on', async (t) => {
    const key = newKey();
    const { lease } = await turnAtOnce(a, { key, leaseMs: 400 });
    const place = await placeIn(b, { key });
    const wait = turnOf(b, place, 20_000, 50);
    for (let i = 0; i < 6; i += 1) {
      await sleep(130);
      t.equal(await a.queue.renew(lease), 'held');
    }
    await giveBack(a, { kind: 'turn', lease, claimedAtMs: 0 });
    await wait;
  });

  await t.test('only the flight and the fence that have it can renew it or give it back', async (t) => {
    const key = newKey();
    const { lease } = await turnAtOnce(a, { key });
    for (const other of [
      { ...lease, fence: lease.fence + 1 },
      { ...lease, flight: newFlightId() },
      { ...lease, key: newKey() },
    ]) {
      t.equal(await b.queue.renew(other), 'lost');
      t.equal(await b.queue.release(other, { unlessAwaited: false }), 'lost');
      t.equal(await b.queue.complete(other, UNKNOWN, 1_000), 'lost');
    }
    t.equal((await enter(c, { key })).kind, 'queued');
    t.equal(await a.queue.renew(lease), 'held');
  });

  await t.test('places stand longer than a lease while their process lives', async (t) => {
    const key = newKey();
    const ask = { key, leaseMs: 300 };
    const first = await turnAtOnce(a, { key, leaseMs: LONG_MS });
    const place = await placeIn(b, ask);
    const later = await placeIn(c, ask);
    const wait = turnOf(b, place, 20_000, POLL_MS);
    const waitLater = turnOf(c, later, 20_000, POLL_MS);
    await sleep(1_000);
    t.same(await seen(a, key), { turns: 1, waiting: 2 });
    await giveBack(a, first);
    const turn = await wait;
    t.ok(turn.claimedAtMs + 300 > performance.now(), 'and the turn that comes of them is held');
    await giveBack(b, turn);
    await waitLater;
  });
}

async function unknowns(t: Test, factory: StoreFactory): Promise<void> {
  const [a, b, c] = (await factory(t, 3)) as unknown as [Store, Store, Store];

  await t.test('held: nobody enters, those who wait are told, and afterwards the turn is free', async (t) => {
    const key = newKey();
    const ask = { key, holdMs: 700 };
    const { lease } = await turnAtOnce(a, ask);
    const places = [await placeIn(b, ask), await placeIn(c, ask)];
    const waits = [ended(b, places[0] as PlaceRequest), ended(c, places[1] as PlaceRequest)];
    t.equal(await a.queue.complete(lease, UNKNOWN, 700), 'held');
    for (const result of await Promise.all(waits)) t.equal(result.kind, 'unknown');
    const entered = await enter(b, ask);
    t.equal(entered.kind, 'unknown');
    if (entered.kind === 'unknown') t.ok(entered.ttlMs > 0 && entered.ttlMs <= 700, `${entered.ttlMs}`);
    const listed = (await b.taken({ state: 'unknown', limit: 100_000 })).filter((taken) => taken.key === key);
    t.match(listed, [{ flight: lease.flight, route: 'route' }]);
    await until('the hold is over', async () => (await enter(b, ask)).kind === 'turn');
  });

  await t.test('a lease that passes with a hold is an unknown outcome', async (t) => {
    const key = newKey();
    const ask = { key, holdMs: LONG_MS };
    await turnAtOnce(a, { ...ask, leaseMs: 300 });
    const place = await placeIn(b, ask);
    t.equal((await ended(b, place, 300 + PROMPT_MS)).kind, 'unknown');
    t.equal((await enter(c, ask)).kind, 'unknown');
  });

  await t.test('with a turn left the others go on', async (t) => {
    const key = newKey();
    const ask = { key, holdMs: LONG_MS, concurrency: 2 };
    const first = await turnAtOnce(a, ask);
    const second = await turnAtOnce(b, ask);
    const place = await placeIn(c, ask);
    t.equal(await a.queue.complete(first.lease, UNKNOWN, LONG_MS), 'held');
    await giveBack(b, second);
    await turnOf(c, place);
    const last = await placeIn(b, ask);
    t.same(await seen(a, key), { turns: 2, waiting: 1 });
    await leave(b, last);
  });

  await t.test('released, the next runs', async (t) => {
    const key = newKey();
    const { lease } = await turnAtOnce(a, { key });
    const place = await placeIn(b, { key });
    t.equal(await a.queue.complete(lease, UNKNOWN, 0), 'held');
    await turnOf(b, place);
  });

  await t.test('handed over with a hold, the turn is held too', async (t) => {
    const key = newKey();
    const ask = { key, holdMs: LONG_MS };
    const first = await turnAtOnce(a, ask);
    const place = await placeIn(b, ask);
    t.equal(await a.queue.complete(first.lease, FAILED, 0), 'held');
    const second = await turnOf(b, place);
    t.equal(await b.queue.renew(second.lease), 'held');
    t.equal(await b.queue.complete(second.lease, UNKNOWN, LONG_MS), 'held');
    t.equal((await enter(c, ask)).kind, 'unknown');
  });
}

async function operators(t: Test, factory: StoreFactory): Promise<void> {
  const [a, b, c] = (await factory(t, 3)) as unknown as [Store, Store, Store];

  await t.test('each turn is listed, with those who wait', async (t) => {
    const key = newKey();
    const ask = { key, concurrency: 2, route: 'stock' };
    const { lease } = await turnAtOnce(a, ask);
    await turnAtOnce(b, ask);
    await placeIn(c, ask);
    const all = (await c.taken({ state: 'in-flight', limit: 100_000 })).filter((taken) => taken.key === key);
    t.equal(all.length, 2);
    const own = all.find(({ flight }) => flight === lease.flight);
    t.match(own, { key, route: 'stock', state: 'in-flight', fence: lease.fence, waiting: 1 });
    t.ok(own !== undefined && own.leftMs > 20_000 && own.leftMs <= LONG_MS && own.ageMs < 10_000);
  });

  await t.test('freed: an unknown turn is, and one that is at work is not', async (t) => {
    const key = newKey();
    const ask = { key, holdMs: LONG_MS, concurrency: 2 };
    const unknown = await turnAtOnce(a, ask);
    const atWork = await turnAtOnce(b, ask);
    const place = await placeIn(c, ask);
    await a.queue.complete(unknown.lease, UNKNOWN, LONG_MS);
    t.equal(await b.settle(key, { kind: 'free' }, null), 'settled');
    await turnOf(c, place);
    t.equal(await b.queue.renew(atWork.lease), 'held');
  });

  await t.test('a turn that is at work is freed only by its own flight id', async (t) => {
    const key = newKey();
    const { lease } = await turnAtOnce(a, { key });
    const place = await placeIn(b, { key });
    t.equal(await c.settle(key, { kind: 'free' }, null), 'other');
    t.equal(await c.settle(key, { kind: 'free' }, newFlightId()), 'other');
    t.equal(await a.queue.renew(lease), 'held');
    t.equal(await c.settle(key, { kind: 'free' }, lease.flight), 'settled');
    await turnOf(b, place);
    t.equal(await a.queue.renew(lease), 'lost');
    t.equal(await c.settle(newKey(), { kind: 'free' }, null), 'absent');
  });

  await t.test('who has a turn is told when it is freed at work, wherever that is', async (t) => {
    for (const store of [a, b]) {
      await tellsLeaders(
        t,
        a.queue,
        async () => (await turnAtOnce(a, { key: newKey() })).lease,
        ({ key, flight }) => store.settle(key, { kind: 'free' }, flight),
      );
    }
    // A turn that came by a push has the same holder as one that was there at once.
    await tellsLeaders(
      t,
      a.queue,
      async () => {
        const key = newKey();
        const first = await turnAtOnce(b, { key });
        const place = await placeIn(a, { key });
        await b.queue.release(first.lease, { unlessAwaited: false });
        return (await turnOf(a, place)).lease;
      },
      ({ key, flight }) => b.settle(key, { kind: 'free' }, flight),
    );
  });

  await t.test('each turn is of the process that has it, handed over or not, at work or unknown', async (t) => {
    const key = newKey();
    const first = await turnAtOnce(a, { key, holdMs: LONG_MS });
    const place = await placeIn(b, { key, holdMs: LONG_MS });
    const leader = async () => (await c.taken({ state: 'any', limit: 100_000 })).find((one) => one.key === key)?.leader;
    const ofA = await leader();
    t.match(ofA, /^[\w.-]{3,80}$/);
    await a.queue.release(first.lease, { unlessAwaited: false });
    const { lease } = await turnOf(b, place);
    const ofB = await leader();
    t.match(ofB, /^[\w.-]{3,80}$/);
    t.equal(ofA === ofB, a === b);
    await b.queue.renew(lease);
    t.equal(await leader(), ofB);
    await b.queue.complete(lease, UNKNOWN, LONG_MS);
    t.equal(await leader(), ofB);
  });

  await t.test('the end of the store ends every wait', async (t) => {
    const [store] = (await factory(t, 1)) as unknown as [Store];
    const key = newKey();
    await turnAtOnce(store, { key });
    const place = await placeIn(store, { key });
    const wait = store.queue.turn(place, { pollMs: POLL_MS, signal: new AbortController().signal });
    const late = await placeIn(store, { key });
    const rejected = t.rejects(wait, StoreUnavailable);
    await store.close();
    await rejected;
    await t.rejects(store.queue.turn(late, { pollMs: 1, signal: new AbortController().signal }), StoreUnavailable);
    await t.rejects(enter(store, { key }), StoreUnavailable);
  });
}
