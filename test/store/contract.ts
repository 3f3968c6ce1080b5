/**
 * What every store has to do: the guarantees in the head of src/store/store.ts, one after the other.
 *
 * Wake-ups are tested with a poll of 10 s and leases of 30 s and are given 2 s: neither the poll nor the lease can stand
 * in for a lost push.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { type ClaimResult, type FlightRef, type Lease, newFlightId, type Settlement } from '../../src/core/claim.js';
import type { SharedResponse } from '../../src/core/sharing.js';
import type { Store } from '../../src/store/store.js';

/** Makes `count` open stores over one backend, as that many processes would; the test's end closes them. */
export type StoreFactory = (test: Test, count: number) => Promise<readonly Store[]>;

const LONG_MS = 30_000;
const POLL_MS = 10_000;
/** Well below poll and lease, well above what a busy machine needs. */
const PROMPT_MS = 2_000;

export const anyResponse: SharedResponse = {
  status: 200,
  reason: 'OK',
  fields: ['Content-Type', 'text/plain', 'Set-Cookie', 'a=1', 'set-cookie', 'b=2'],
  content: Buffer.from('hello'),
  trailers: [],
  vary: { names: [], digest: '' },
};

export function responseWith(content: Buffer): Settlement {
  return { kind: 'response', response: { ...anyResponse, content } };
}

let keys = 0;
/** A key that no other test uses. */
export function newKey(): string {
  keys += 1;
  return `key-${keys}`;
}

type Ask = { readonly key: string; readonly flight?: string; readonly leaseMs?: number; readonly election?: number };

export function claim(store: Store, { key, flight = newFlightId(), leaseMs = LONG_MS, election = 0 }: Ask) {
  return store.claim({ key, flight, leaseMs, election, join: true });
}

export async function lead(store: Store, ask: Ask): Promise<Lease> {
  const result = await claim(store, ask);
  if (result.kind !== 'leader') throw new Error(`expected to lead, was ${result.kind}`);
  return result.lease;
}

export async function follow(store: Store, ask: Ask): Promise<FlightRef> {
  const result = await claim(store, ask);
  if (result.kind !== 'follower') throw new Error(`expected to follow, was ${result.kind}`);
  return result.flight;
}

/** The settlement, or a rejection when it takes longer than a push may. */
export async function settled(store: Store, flight: FlightRef, ms = PROMPT_MS, pollMs = POLL_MS): Promise<Settlement> {
  const tooLate = new AbortController();
  // A timer that holds the process: a store's own need not.
  const timer = setTimeout(() => tooLate.abort(new Error(`not settled within ${ms} ms`)), ms);
  try {
    return await store.settled(flight, { pollMs, signal: tooLate.signal });
  } finally {
    clearTimeout(timer);
  }
}

/** Claims until the answer is another than `follower`: the store's clock decides when a lease has passed. */
export async function claimWhenFree(store: Store, ask: Ask): Promise<ClaimResult> {
  for (;;) {
    const result = await store.claim({
      flight: newFlightId(),
      leaseMs: LONG_MS,
      election: 0,
      join: false,
      ...ask,
    });
    if (result.kind !== 'follower') return result;
    await sleep(10);
  }
}

export function storeContract(name: string, factory: StoreFactory): void {
  t.test(`${name}: claims`, (test) => claims(test, factory));
  t.test(`${name}: token and fence`, (test) => tokens(test, factory));
  t.test(`${name}: wake-up`, (test) => wakeUps(test, factory));
  t.test(`${name}: leaving`, (test) => leaving(test, factory));
  t.test(`${name}: flights without a settlement`, (test) => vanished(test, factory));
  t.test(`${name}: kept responses`, (test) => kept(test, factory));
  t.test(`${name}: bytes`, (test) => bytes(test, factory));
  t.test(`${name}: end of the store`, (test) => closing(test, factory));
}

async function claims(t: Test, factory: StoreFactory): Promise<void> {
  const stores = await factory(t, 3);
  const [a, b, c] = stores as [Store, Store, Store];

  await t.test('50 claims at once from 3 processes: one leader, 49 followers of it', async (t) => {
    const key = newKey();
    const all = await Promise.all(Array.from({ length: 50 }, (_, i) => claim(stores[i % 3] as Store, { key })));
    const leaders = all.filter((result) => result.kind === 'leader');
    t.equal(leaders.length, 1);
    const followed = all.flatMap((result) => (result.kind === 'follower' ? [result.flight.flight] : []));
    t.equal(followed.length, 49);
    const flight = leaders[0]?.kind === 'leader' ? leaders[0].lease.flight : 'nobody';
    t.same(new Set(followed), new Set([flight]));
  });

  await t.test('a claim asked again with its own flight id leads again, with the same fence', async (t) => {
    const ask = { key: newKey(), flight: newFlightId() };
    const first = await lead(a, ask);
    t.same(await lead(a, ask), first);
    t.same(await lead(b, ask), first, 'over another connection too');
    t.equal((await claim(c, { key: ask.key })).kind, 'follower');
  });

  await t.test('a follower is told the flight, its age, its lease and its election', async (t) => {
    const key = newKey();
    const lease = await lead(a, { key, leaseMs: 20_000, election: 3 });
    const flight = await follow(b, { key });
    t.match(flight, { key, flight: lease.flight, election: 3 });
    t.ok(flight.leaseLeftMs > 15_000 && flight.leaseLeftMs <= 20_000, `lease left ${flight.leaseLeftMs}`);
    t.ok(flight.ageMs >= 0 && flight.ageMs < 5_000, `age ${flight.ageMs}`);
  });

  await t.test('the lease ends by itself', async (t) => {
    const key = newKey();
    const began = performance.now();
    await lead(a, { key, leaseMs: 200 });
    t.equal((await claimWhenFree(b, { key })).kind, 'leader');
    const took = performance.now() - began;
    t.ok(took >= 195 && took < 1_500, `free after ${took} ms`);
  });

  await t.test('renewal extends the lease from now', async (t) => {
    const key = newKey();
    const lease = await lead(a, { key, leaseMs: 1_500 });
    for (let i = 0; i < 4; i += 1) {
      await sleep(500);
      t.equal(await a.renew(lease), 'held');
    }
    const flight = await follow(b, { key });
    t.ok(flight.leaseLeftMs > 200, `lease left ${flight.leaseLeftMs}`);
    t.equal((await claimWhenFree(b, { key })).kind, 'leader');
  });

  await t.test('fences grow over release, completion and expiry', async (t) => {
    const key = newKey();
    const fences: number[] = [];
    for (let i = 0; i < 12; i += 1) {
      const store = stores[i % 3] as Store;
      const next = await claimWhenFree(store, { key, leaseMs: i % 3 === 2 ? 20 : LONG_MS });
      if (next.kind !== 'leader') throw new Error(next.kind);
      fences.push(next.lease.fence);
      if (i % 3 === 0) await store.release(next.lease, { unlessAwaited: false });
      if (i % 3 === 1) await store.complete(next.lease, { kind: 'failed', election: 0 }, 0);
    }
    t.same(
      fences,
      [...new Set(fences)].sort((x, y) => x - y),
    );
    t.ok(fences.every(Number.isSafeInteger));
  });
}

async function tokens(t: Test, factory: StoreFactory): Promise<void> {
  const [a, b] = (await factory(t, 2)) as [Store, Store];
  const attempts: { readonly [name: string]: (lease: Lease) => Promise<string> } = {
    renew: (lease) => b.renew(lease),
    complete: (lease) => b.complete(lease, responseWith(Buffer.from('stolen')), LONG_MS),
    release: (lease) => b.release(lease, { unlessAwaited: false }),
  };

  for (const [name, attempt] of Object.entries(attempts)) {
    await t.test(`${name} with a wrong flight, a wrong fence or a key that is free changes nothing`, async (t) => {
      const key = newKey();
      t.equal(await attempt({ key, flight: newFlightId(), fence: 1, leaseMs: LONG_MS }), 'lost');
      const lease = await lead(a, { key, leaseMs: 10_000 });
      t.equal(await attempt({ ...lease, flight: newFlightId(), leaseMs: LONG_MS }), 'lost');
      t.equal(await attempt({ ...lease, fence: lease.fence + 1, leaseMs: LONG_MS }), 'lost');
      t.equal(await attempt({ ...lease, fence: lease.fence - 1, leaseMs: LONG_MS }), 'lost');
      const flight = await follow(b, { key });
      t.equal(flight.flight, lease.flight);
      t.ok(flight.leaseLeftMs <= 10_000, 'the lease was not extended');
      t.equal(await a.renew(lease), 'held');
    });

    await t.test(`${name} after the lease has passed is lost, with or without a next leader`, async (t) => {
      const key = newKey();
      const old = await lead(a, { key, leaseMs: 30 });
      await sleep(60);
      t.equal(await attempt(old), 'lost');
      const next = await lead(a, { key, leaseMs: 10_000 });
      t.equal(await attempt(old), 'lost');
      const flight = await follow(b, { key });
      t.equal(flight.flight, next.flight);
      t.equal(await a.renew(next), 'held');
    });

    await t.test(`${name} after the flight has ended is lost`, async (t) => {
      const key = newKey();
      const lease = await lead(a, { key });
      t.equal(await a.release(lease, { unlessAwaited: false }), 'held');
      t.equal(await attempt(lease), 'lost');
      t.equal((await claim(a, { key })).kind, 'leader');
    });
  }

  await t.test(
    'release unlessAwaited frees a flight without followers and leaves one with followers alone',
    async (t) => {
      const key = newKey();
      const alone = await lead(a, { key });
      t.equal((await b.claim({ key, flight: newFlightId(), leaseMs: 1, election: 0, join: false })).kind, 'follower');
      t.equal(await a.release(alone, { unlessAwaited: true }), 'held', 'a claim without join is nobody who waits');
      const joined = await lead(a, { key });
      const flight = await follow(b, { key });
      t.equal(await a.release(joined, { unlessAwaited: true }), 'awaited');
      t.equal(await a.renew(joined), 'held', 'nothing was changed');
      const end = settled(b, flight);
      t.equal(await a.complete(joined, responseWith(Buffer.from('x')), 0), 'held');
      t.equal((await end).kind, 'response');
    },
  );
}

async function wakeUps(t: Test, factory: StoreFactory): Promise<void> {
  const stores = await factory(t, 3);
  const [a, b, c] = stores as [Store, Store, Store];

  const endings: readonly Settlement[] = [
    { kind: 'response', response: anyResponse },
    { kind: 'failed', election: 2 },
    { kind: 'unknown', election: 1 },
    { kind: 'unshareable', reason: 'vary' },
  ];
  for (const ending of endings) {
    await t.test(`${ending.kind}: every follower in every process learns it by a push`, async (t) => {
      const key = newKey();
      const lease = await lead(a, { key });
      const waits = [];
      for (const store of [a, b, b, c]) waits.push(settled(store, await follow(store, { key })));
      t.equal(await a.complete(lease, ending, 0), 'held');
      t.same(
        await Promise.all(waits),
        waits.map(() => ending),
      );
      t.equal((await claim(b, { key })).kind, 'leader', 'and the key is free');
    });
  }

  await t.test('release: followers learn failed, with the election of the flight', async (t) => {
    const key = newKey();
    const lease = await lead(a, { key, election: 4 });
    const wait = settled(b, await follow(b, { key }));
    t.equal(await a.release(lease, { unlessAwaited: false }), 'held');
    t.same(await wait, { kind: 'failed', election: 4 });
  });

  await t.test('a settlement that comes before the follower waits is not lost', async (t) => {
    for (const size of [10, 100_000]) {
      const key = newKey();
      const lease = await lead(a, { key });
      const flight = await follow(b, { key });
      await a.complete(lease, responseWith(Buffer.alloc(size, 'x')), 0);
      await sleep(50);
      const ended = await settled(b, flight);
      t.equal(ended.kind === 'response' && ended.response.content.length, size);
    }
    const key = newKey();
    const lease = await lead(a, { key, election: 1 });
    const flight = await follow(b, { key });
    await a.release(lease, { unlessAwaited: false });
    await sleep(50);
    t.same(await settled(b, flight), { kind: 'failed', election: 1 });
  });

  await t.test('a follower that comes in the instant of publication is told something, always', async (t) => {
    let followers = 0;
    for (let i = 0; i < 300; i += 1) {
      const key = newKey();
      const lease = await lead(a, { key });
      const content = Buffer.alloc(i % 2 === 0 ? 20 : 20_000, String(i % 10));
      const publish = () => a.complete(lease, responseWith(content), 0);
      const ask = (store: Store) => claim(store, { key }).then((result) => ({ store, result }));
      // Who is written to its socket first changes; who is served first is the store's matter.
      const early = i % 3 === 0 ? [ask(c)] : [];
      const done = i % 3 === 2 ? null : publish();
      const all = await Promise.all([...early, ask(b), ask(c)]);
      await (done ?? publish());
      for (const { store, result } of all) {
        if (result.kind !== 'follower' || result.flight.flight !== lease.flight) continue;
        followers += 1;
        const ended = await settled(store, result.flight);
        if (ended.kind !== 'response' || !ended.response.content.equals(content)) t.fail(`${i}: ${ended.kind}`);
      }
    }
    t.ok(followers > 0, `${followers} followers`);
  });

  await t.test('a follower gets the settlement of its own flight, whatever the key did before and after', async (t) => {
    const key = newKey();
    const waits: Promise<Settlement>[] = [];
    for (let i = 0; i < 5; i += 1) {
      const lease = await lead(a, { key });
      const flight = await follow(b, { key });
      if (i % 2 === 0) waits.push(settled(b, flight));
      await a.complete(lease, responseWith(Buffer.from(String(i))), 0);
      if (i % 2 === 1) waits.push(settled(b, flight));
    }
    const told = (await Promise.all(waits)).map((s) => (s.kind === 'response' ? String(s.response.content) : s.kind));
    t.same(told, ['0', '1', '2', '3', '4']);
  });

  await t.test('a follower of the next flight is not woken by the end of the one before', async (t) => {
    const key = newKey();
    const first = await lead(a, { key });
    await follow(b, { key });
    await a.complete(first, responseWith(Buffer.from('first')), 0);
    const second = await lead(a, { key });
    const wait = settled(b, await follow(b, { key }));
    t.equal(await Promise.race([wait, sleep(100, 'waits')]), 'waits');
    await a.complete(second, responseWith(Buffer.from('second')), 0);
    const ended = await wait;
    t.equal(ended.kind === 'response' && String(ended.response.content), 'second');
  });

  await t.test('the signal ends a wait with its reason, and only that wait', async (t) => {
    const key = newKey();
    const lease = await lead(a, { key });
    const flight = await follow(b, { key });
    const leaving = new AbortController();
    const left = b.settled(flight, { pollMs: POLL_MS, signal: leaving.signal });
    const stays = settled(b, flight);
    leaving.abort(new Error('client left'));
    await t.rejects(left, { message: 'client left' });
    await t.rejects(b.settled(flight, { pollMs: POLL_MS, signal: leaving.signal }), { message: 'client left' });
    await a.complete(lease, { kind: 'unshareable', reason: 'x' }, 0);
    t.same(await stays, { kind: 'unshareable', reason: 'x' });
  });
}

/** A wait that can be left. Leaving resolves when the wait has ended by it. */
export function waitFor(store: Store, flight: FlightRef, pollMs = POLL_MS) {
  const leaving = new AbortController();
  const ended = store.settled(flight, { pollMs, signal: leaving.signal }).then(
    ({ kind }) => kind,
    (reason: unknown) => (reason === LEFT ? 'left' : Promise.reject(reason)),
  );
  const leave = async () => {
    leaving.abort(LEFT);
    const kind = await ended;
    if (kind !== 'left') throw new Error(`left, and was told ${kind}`);
  };
  return { ended, leave };
}

const LEFT = new Error('client left');

/** The answer of `release` when nobody waits, asked until it is another than `awaited` or a withdrawal is overdue. */
export async function releaseWhenAlone(store: Store, lease: Lease): Promise<string> {
  const deadline = performance.now() + PROMPT_MS;
  for (;;) {
    const answer = await store.release(lease, { unlessAwaited: true });
    if (answer !== 'awaited' || performance.now() > deadline) return answer;
    await sleep(5);
  }
}

async function leaving(t: Test, factory: StoreFactory): Promise<void> {
  const [a, b, c] = (await factory(t, 3)) as [Store, Store, Store];

  /** Whether the flight is still awaited once everything has arrived that the followers' stores have sent. */
  const isAwaited = async (lease: Lease) => {
    for (const store of [b, c]) await store.ping();
    return (await a.release(lease, { unlessAwaited: true })) === 'awaited';
  };
  /** The flight ends, and the wait learns it by a push. */
  const wakes = async (t: Test, lease: Lease, wait: Promise<Settlement>) => {
    t.equal(await a.complete(lease, responseWith(Buffer.from('x')), 0), 'held');
    t.equal((await wait).kind, 'response');
  };

  await t.test('joined and left: nobody waits any more', async (t) => {
    const lease = await lead(a, { key: newKey() });
    await waitFor(b, await follow(b, { key: lease.key })).leave();
    t.equal(await releaseWhenAlone(a, lease), 'held');
    t.equal((await claim(b, { key: lease.key })).kind, 'leader', 'and the key is free');
  });

  await t.test('joined and never waited: a signal that is aborted already is leaving too', async (t) => {
    const lease = await lead(a, { key: newKey() });
    const flight = await follow(b, { key: lease.key });
    t.ok(await isAwaited(lease), 'a wait is still to come');
    await t.rejects(b.settled(flight, { pollMs: POLL_MS, signal: AbortSignal.abort(LEFT) }), LEFT);
    t.equal(await releaseWhenAlone(a, lease), 'held');
  });

  await t.test('of two waits in a process one leaves: the flight is awaited until the other does', async (t) => {
    for (const claims of [1, 2]) {
      const lease = await lead(a, { key: newKey() });
      const flight = await follow(b, { key: lease.key });
      const one = waitFor(b, flight);
      const other = waitFor(b, claims === 1 ? flight : await follow(b, { key: lease.key }));
      await one.leave();
      t.ok(await isAwaited(lease), `joined by ${claims}`);
      await other.leave();
      t.equal(await releaseWhenAlone(a, lease), 'held');
    }
  });

  await t.test('of two processes one leaves: the flight is awaited until the other does', async (t) => {
    const lease = await lead(a, { key: newKey() });
    const one = waitFor(b, await follow(b, { key: lease.key }));
    const other = waitFor(c, await follow(c, { key: lease.key }));
    await one.leave();
    t.ok(await isAwaited(lease));
    await other.leave();
    t.equal(await releaseWhenAlone(a, lease), 'held');
  });

  await t.test('of two processes one leaves: the other is told', async (t) => {
    const lease = await lead(a, { key: newKey() });
    const one = waitFor(b, await follow(b, { key: lease.key }));
    const other = settled(c, await follow(c, { key: lease.key }));
    await one.leave();
    t.ok(await isAwaited(lease));
    await wakes(t, lease, other);
  });

  await t.test('left and joined again: awaited, and told by a push', async (t) => {
    for (const pauseMs of [0, 50]) {
      const lease = await lead(a, { key: newKey() });
      const first = waitFor(b, await follow(b, { key: lease.key }));
      const left = first.leave();
      if (pauseMs > 0) await sleep(pauseMs);
      const wait = settled(b, await follow(b, { key: lease.key }));
      await left;
      t.ok(await isAwaited(lease), `after ${pauseMs} ms`);
      await wakes(t, lease, wait);
    }
  });

  await t.test('left, joined and left again: nobody waits any more', async (t) => {
    const lease = await lead(a, { key: newKey() });
    for (let i = 0; i < 3; i += 1) await waitFor(b, await follow(b, { key: lease.key })).leave();
    t.equal(await releaseWhenAlone(a, lease), 'held');
  });

  await t.test('a claim that is under way when the last wait leaves keeps its wake-up', async (t) => {
    const lease = await lead(a, { key: newKey() });
    const last = waitFor(b, await follow(b, { key: lease.key }));
    const joining = follow(b, { key: lease.key });
    await last.leave();
    const flight = await joining;
    t.ok(await isAwaited(lease));
    await wakes(t, lease, settled(b, flight));
  });

  await t.test('a claim whose wait has not begun when the last wait leaves keeps its wake-up', async (t) => {
    const lease = await lead(a, { key: newKey() });
    const last = waitFor(b, await follow(b, { key: lease.key }));
    const flight = await follow(b, { key: lease.key });
    await last.leave();
    t.ok(await isAwaited(lease));
    const wait = settled(b, flight);
    t.ok(await isAwaited(lease));
    await wakes(t, lease, wait);
  });

  await t.test('leaving during a re-read of the flight is leaving', async (t) => {
    for (let i = 0; i < 20; i += 1) {
      const lease = await lead(a, { key: newKey() });
      const wait = waitFor(b, await follow(b, { key: lease.key }), 1);
      await sleep(1 + (i % 4));
      await wait.leave();
      if ((await releaseWhenAlone(a, lease)) !== 'held') t.fail(`awaited in round ${i}`);
    }
  });

  await t.test('leaving after the end changes nothing', async (t) => {
    const key = newKey();
    const lease = await lead(a, { key });
    const wait = waitFor(b, await follow(b, { key }));
    const late = await follow(b, { key });
    await a.complete(lease, responseWith(Buffer.from('x')), 0);
    t.equal(await wait.ended, 'response');
    const next = await lead(a, { key });
    const following = settled(b, await follow(b, { key }));
    await t.rejects(b.settled(late, { pollMs: POLL_MS, signal: AbortSignal.abort(LEFT) }), LEFT);
    t.ok(await isAwaited(next));
    await wakes(t, next, following);
  });
}

async function vanished(t: Test, factory: StoreFactory): Promise<void> {
  const [a, b] = (await factory(t, 2)) as [Store, Store];

  await t.test('a leader that is gone: unknown within the lease and a second', async (t) => {
    const key = newKey();
    const began = performance.now();
    await lead(a, { key, leaseMs: 400, election: 1 });
    const flight = await follow(b, { key });
    t.same(await settled(b, flight, 5_000), { kind: 'unknown', election: 1 });
    const took = performance.now() - began;
    t.ok(took >= 395 && took < 1_400, `told after ${took} ms`);
  });

  await t.test('a lease that is renewed keeps its followers waiting', async (t) => {
    const key = newKey();
    const lease = await lead(a, { key, leaseMs: 1_500 });
    const wait = settled(b, await follow(b, { key }), 8_000);
    for (let i = 0; i < 4; i += 1) {
      await sleep(500);
      t.equal(await a.renew(lease), 'held');
    }
    await a.complete(lease, { kind: 'unshareable', reason: 'late' }, 0);
    t.same(await wait, { kind: 'unshareable', reason: 'late' });
  });

  await t.test('a flight that nobody knows any more is unknown', async (t) => {
    const flight = { key: newKey(), flight: newFlightId(), leaseLeftMs: 10, ageMs: 0, election: 0 };
    t.same(await settled(b, flight), { kind: 'unknown', election: 0 });
  });
}

async function kept(t: Test, factory: StoreFactory): Promise<void> {
  const [a, b] = (await factory(t, 2)) as [Store, Store];

  await t.test('a kept response answers claims, with age and time left, until keepMs after completion', async (t) => {
    const key = newKey();
    const lease = await lead(a, { key });
    const began = performance.now();
    await a.complete(lease, { kind: 'response', response: anyResponse }, 700);
    await sleep(100);
    const result = await claim(b, { key });
    if (result.kind !== 'stored') throw new Error(result.kind);
    t.equal(result.flight, lease.flight);
    t.same(result.response, anyResponse);
    t.ok(result.ageMs >= 95 && result.ageMs < 700, `age ${result.ageMs}`);
    t.ok(Math.abs(result.ageMs + result.ttlMs - 700) <= 5, `age ${result.ageMs} + left ${result.ttlMs} = 700`);
    for (;;) {
      const next = await claim(b, { key });
      if (next.kind === 'leader') break;
      t.equal(next.kind, 'stored');
      await sleep(20);
    }
    const took = performance.now() - began;
    t.ok(took >= 695 && took < 1_700, `kept for ${took} ms`);
  });

  await t.test('a flight that is kept wakes its followers too, and cannot be touched any more', async (t) => {
    for (const keepMs of [5_000, 60_000]) {
      const key = newKey();
      const lease = await lead(a, { key });
      const flight = await follow(b, { key });
      const wait = settled(b, flight);
      t.equal(await a.complete(lease, responseWith(Buffer.alloc(50_000, 'k')), keepMs), 'held');
      t.equal((await wait).kind, 'response');
      t.equal((await settled(b, flight)).kind, 'response', 'asked again');
      t.equal(await a.renew(lease), 'lost');
      t.equal(await a.release(lease, { unlessAwaited: false }), 'lost');
      t.equal((await claim(b, { key })).kind, 'stored');
    }
  });

  await t.test('keepMs 0, or anything but a response, keeps nothing', async (t) => {
    const endings: readonly [Settlement, number][] = [
      [{ kind: 'response', response: anyResponse }, 0],
      [{ kind: 'failed', election: 0 }, LONG_MS],
      [{ kind: 'unknown', election: 0 }, LONG_MS],
      [{ kind: 'unshareable', reason: 'x' }, LONG_MS],
    ];
    for (const [ending, keepMs] of endings) {
      const key = newKey();
      await a.complete(await lead(a, { key }), ending, keepMs);
      t.equal((await claim(b, { key })).kind, 'leader', ending.kind);
    }
  });
}

async function bytes(t: Test, factory: StoreFactory): Promise<void> {
  const [a, b] = (await factory(t, 2)) as [Store, Store];
  const every = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
  const contents: { readonly [name: string]: Buffer } = {
    'no content': Buffer.alloc(0),
    'every byte value': every,
    '16 KiB': Buffer.alloc(16 * 1024, every),
    '1 MiB': Buffer.alloc(1024 * 1024, every),
  };
  for (const [name, content] of Object.entries(contents)) {
    await t.test(`${name} and latin1 fields come back equal, shared and kept`, async (t) => {
      const key = newKey();
      const latin1 = every.subarray(0x20).toString('latin1');
      const response: SharedResponse = {
        status: 207,
        reason: 'Grüße \x80\xff',
        fields: ['X-Latin', latin1, 'x-latin', '', 'X-Quoted', '"\\'],
        content,
        trailers: ['X-Sum', latin1],
        vary: { names: ['accept', 'x-ü'], digest: 'd' },
      };
      const lease = await lead(a, { key });
      const wait = settled(b, await follow(b, { key }));
      await a.complete(lease, { kind: 'response', response }, LONG_MS);
      const ended = await wait;
      const stored = await claim(b, { key });
      for (const got of [ended, stored]) {
        if (got.kind !== 'response' && got.kind !== 'stored') throw new Error(got.kind);
        t.ok(got.response.content.equals(content), 'content');
        t.same({ ...got.response, content: null }, { ...response, content: null });
      }
    });
  }
}

async function closing(t: Test, factory: StoreFactory): Promise<void> {
  const [a] = (await factory(t, 1)) as [Store];
  const key = newKey();
  await a.ping();
  await lead(a, { key });
  const wait = settled(a, await follow(a, { key }));
  const ends = t.rejects(wait, { name: 'StoreUnavailable' });
  await a.close();
  await ends;
  await t.rejects(claim(a, { key }), { name: 'StoreUnavailable' });
  await t.rejects(a.ping(), { name: 'StoreUnavailable' });
}
