/**
 * What every store has to do: the guarantees in the head of src/store/store.ts, one after the other.
 *
 * Wake-ups are tested with a poll of 10 s and leases of 30 s and are given 2 s: neither the poll nor the lease can stand
 * in for a lost push.
 */

import { createHash, createSecretKey, type KeyObject } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { type ClaimResult, type FlightRef, type Lease, newFlightId, type Settlement } from '../../src/core/claim.js';
import type { SharedResponse } from '../../src/core/sharing.js';
import type { LeaseHolder, Leases } from '../../src/store/leases.js';
import type { ClaimRequest, SettleAs, Store } from '../../src/store/store.js';
import { eventually } from '../support/gate.js';

/** Makes `count` open stores over one backend, as that many processes would; the test's end closes them. */
export type StoreFactory = (test: Test, count: number) => Promise<readonly Store[]>;

export const LONG_MS = 30_000;
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

/** What a key's contents are sealed with: the same in all processes. */
export function materialFor(key: string): KeyObject {
  return createSecretKey(createHash('sha256').update(`material of ${key}`).digest());
}

export type Ask = Partial<ClaimRequest> & { readonly key: string };

export function claim(store: Store, ask: Ask): Promise<ClaimResult> {
  return store.claim(asked(ask));
}

export function asked(ask: Ask): ClaimRequest {
  return {
    flight: newFlightId(),
    leaseMs: LONG_MS,
    election: 0,
    after: '',
    fingerprint: '',
    holdMs: 0,
    route: 'route',
    material: materialFor(ask.key),
    others: [],
    join: true,
    ...ask,
  };
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
    const result = await claim(store, { join: false, ...ask });
    if (result.kind !== 'follower') return result;
    await sleep(10);
  }
}

/** Settles whatever has the key, naming its flight as an operator does who has looked. */
export async function settle(store: Store, key: string, as: SettleAs): Promise<'settled' | 'absent' | 'other'> {
  const [taken] = (await store.taken({ state: 'any', limit: 1_000_000 })).filter((one) => one.key === key);
  return store.settle(key, as, taken?.flight ?? null);
}

/** Who has leases, and which of their flights it was told to be over, in that order. */
export class Told implements LeaseHolder {
  readonly flights: string[] = [];
  revoked({ flight }: Lease): void {
    this.flights.push(flight);
  }
}

/**
 * A leader is told of the end of its flight, each time. `lead` gives the leases of keys, `settle` ends the flight of one
 * from wherever the test wants it.
 */
export async function tellsLeaders(
  t: Test,
  leases: Leases,
  lead: () => Promise<Lease>,
  settle: (lease: Lease) => Promise<unknown>,
): Promise<void> {
  const told = new Told();
  const heard = (flight: string) => eventually('the leader is told', () => told.flights.includes(flight), PROMPT_MS);
  const [one, left, late] = [await lead(), await lead(), await lead()];
  leases.watch(one, told);
  leases.watch(left, told);
  leases.unwatch(left);
  for (const lease of [left, late, one]) await settle(lease);
  await heard(one.flight);
  // What was said of the others came before that, or comes as soon: whoever gave its lease back hears nothing of it.
  leases.watch(late, told);
  await heard(late.flight);
  t.same(told.flights, [one.flight, late.flight], 'each once, and one before it was watched');
}

export function storeContract(name: string, factory: StoreFactory): void {
  t.test(`${name}: claims`, (test) => claims(test, factory));
  t.test(`${name}: token and fence`, (test) => tokens(test, factory));
  t.test(`${name}: wake-up`, (test) => wakeUps(test, factory));
  t.test(`${name}: leaving`, (test) => leaving(test, factory));
  t.test(`${name}: flights without a settlement`, (test) => vanished(test, factory));
  t.test(`${name}: kept responses`, (test) => kept(test, factory));
  t.test(`${name}: fingerprints`, (test) => fingerprints(test, factory));
  t.test(`${name}: outcomes that nobody knows`, (test) => unknowns(test, factory));
  t.test(`${name}: lease and keep`, (test) => twoTimers(test, factory));
  t.test(`${name}: an operator's word`, (test) => settling(test, factory));
  t.test(`${name}: reconciling`, (test) => reconciling(test, factory));
  t.test(`${name}: what is taken`, (test) => listing(test, factory));
  t.test(`${name}: looking`, (test) => looking(test, factory));
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
      t.equal(
        await attempt({ key, flight: newFlightId(), fence: 1, leaseMs: LONG_MS, material: materialFor(key) }),
        'lost',
      );
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
      t.equal((await claim(b, { key, leaseMs: 1, join: false })).kind, 'follower');
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
    { kind: 'not-kept' },
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
    const flight = { key: newKey(), flight: newFlightId(), leaseLeftMs: 10, ageMs: 0, election: 0, material: null };
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
    t.same(result.ended, { kind: 'response', response: anyResponse });
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

  await t.test('keepMs 0, or an ending of which nothing is to be known, keeps nothing', async (t) => {
    const endings: readonly [Settlement, number][] = [
      [{ kind: 'response', response: anyResponse }, 0],
      [{ kind: 'failed', election: 0 }, LONG_MS],
      [{ kind: 'unknown', election: 0 }, 0],
      [{ kind: 'not-kept' }, 0],
      [{ kind: 'unshareable', reason: 'x' }, LONG_MS],
    ];
    for (const [ending, keepMs] of endings) {
      const key = newKey();
      await a.complete(await lead(a, { key }), ending, keepMs);
      t.equal((await claim(b, { key })).kind, 'leader', ending.kind);
    }
  });
}

/** Long enough for a claim and its answer on a busy machine, short enough to wait for. */
export const SHORT_MS = 150;

/** Leads with a short lease and lets it pass. */
async function abandon(store: Store, ask: Ask): Promise<Lease> {
  const lease = await lead(store, { leaseMs: SHORT_MS, holdMs: LONG_MS, ...ask });
  await sleep(SHORT_MS + 30);
  return lease;
}

/** Every state in which a key can be taken, and how a claim with the same fingerprint is answered in it. */
export const STATES: {
  readonly [state: string]: readonly [answer: string, enter: (store: Store, ask: Ask) => Promise<Lease>];
} = {
  'in flight': ['follower', lead],
  'lease passed, held': ['unknown', abandon],
  'completed as unknown': [
    'unknown',
    async (store, ask) => {
      const lease = await lead(store, ask);
      await store.complete(lease, { kind: 'unknown', election: 0 }, LONG_MS);
      return lease;
    },
  ],
  kept: [
    'stored',
    async (store, ask) => {
      const lease = await lead(store, ask);
      await store.complete(lease, { kind: 'response', response: anyResponse }, LONG_MS);
      return lease;
    },
  ],
  'done, not kept': [
    'stored',
    async (store, ask) => {
      const lease = await lead(store, ask);
      await store.complete(lease, { kind: 'not-kept' }, LONG_MS);
      return lease;
    },
  ],
  'settled by an operator': [
    'stored',
    async (store, ask) => {
      const lease = await lead(store, ask);
      await settle(store, lease.key, { kind: 'response', response: anyResponse, keepMs: LONG_MS });
      return lease;
    },
  ],
};

async function fingerprints(t: Test, factory: StoreFactory): Promise<void> {
  const [a, b] = (await factory(t, 2)) as [Store, Store];

  for (const [state, [answer, enter]] of Object.entries(STATES)) {
    await t.test(`${state}: another fingerprint is a mismatch before anything else`, async (t) => {
      for (const [own, others] of [
        ['print', ['other', '', 'prin', 'print ']],
        ['', ['other', ' ']],
      ] as const) {
        const key = newKey();
        await enter(a, { key, fingerprint: own });
        for (const fingerprint of others) t.same(await claim(b, { key, fingerprint }), { kind: 'mismatch' });
        t.equal((await claim(b, { key, fingerprint: own })).kind, answer);
      }
    });
  }

  await t.test('a mismatch waits for nothing', async (t) => {
    const key = newKey();
    const lease = await lead(a, { key, fingerprint: 'x' });
    t.equal((await claim(b, { key, fingerprint: 'y' })).kind, 'mismatch');
    t.equal(await a.release(lease, { unlessAwaited: true }), 'held');
  });

  await t.test('the flight that has the key asks again whatever its fingerprint', async (t) => {
    const ask = { key: newKey(), flight: newFlightId() };
    const lease = await lead(a, { ...ask, fingerprint: 'x' });
    t.same(await lead(b, { ...ask, fingerprint: 'y' }), lease);
    t.equal((await claim(b, { key: ask.key, fingerprint: 'x' })).kind, 'follower', 'the first one stays');
  });

  await t.test('a free key takes any fingerprint', async (t) => {
    const key = newKey();
    await a.release(await lead(a, { key, fingerprint: 'x' }), { unlessAwaited: false });
    await a.complete(await lead(a, { key, fingerprint: 'y' }), { kind: 'response', response: anyResponse }, SHORT_MS);
    await sleep(SHORT_MS + 30);
    await lead(a, { key, fingerprint: 'z', leaseMs: 20 });
    t.equal((await claimWhenFree(b, { key, fingerprint: 'z' })).kind, 'leader');
  });
}

async function unknowns(t: Test, factory: StoreFactory): Promise<void> {
  const [a, b] = (await factory(t, 2)) as [Store, Store];

  await t.test('a lease that passes leaves the key held, for holdMs from its end', async (t) => {
    const key = newKey();
    const began = performance.now();
    const lease = await abandon(a, { key, holdMs: 900 });
    const held = await claim(b, { key });
    if (held.kind !== 'unknown') throw new Error(held.kind);
    t.equal(held.flight, lease.flight);
    t.ok(held.ttlMs > 0 && held.ttlMs <= 900, `left ${held.ttlMs}`);
    let last: ClaimResult = held;
    while (last.kind === 'unknown') {
      await sleep(10);
      last = await claim(b, { key });
    }
    const took = performance.now() - began;
    t.equal(last.kind, 'leader');
    t.ok(took >= SHORT_MS + 895 && took < SHORT_MS + 1_900, `held until ${took} ms`);
    if (last.kind === 'leader') t.ok(last.lease.fence > lease.fence);
  });

  await t.test('renewal moves the hold with the lease', async (t) => {
    const lease = await lead(a, { key: newKey(), leaseMs: 600, holdMs: 400 });
    for (let i = 0; i < 4; i += 1) {
      await sleep(300);
      t.equal(await a.renew(lease), 'held');
    }
    const flight = await follow(b, { key: lease.key });
    t.ok(flight.leaseLeftMs > 0 && flight.leaseLeftMs <= 600, `lease left ${flight.leaseLeftMs}, the hold not counted`);
    await sleep(620);
    t.equal((await claim(b, { key: lease.key })).kind, 'unknown');
  });

  await t.test(
    'within its lease the own flight leads again, with the hold of the first claim; then it is unknown',
    async (t) => {
      const ask = { key: newKey(), flight: newFlightId(), leaseMs: 500, holdMs: LONG_MS };
      const lease = await lead(a, ask);
      t.same(await lead(b, ask), lease);
      t.ok((await follow(b, { key: ask.key })).leaseLeftMs <= 500);
      await sleep(530);
      t.equal((await claim(a, ask)).kind, 'unknown');
      t.equal((await claim(b, { key: ask.key })).kind, 'unknown');
    },
  );

  await t.test('the old leader of a held key has lost, and changes nothing', async (t) => {
    for (const enter of [abandon, STATES['completed as unknown']?.[1] ?? abandon]) {
      const lease = await enter(a, { key: newKey() });
      t.equal(await a.renew(lease), 'lost');
      t.equal(await a.complete(lease, responseWith(Buffer.from('late')), LONG_MS), 'lost');
      t.equal(await a.complete(lease, { kind: 'failed', election: 0 }, 0), 'lost');
      t.equal(await a.release(lease, { unlessAwaited: false }), 'lost');
      t.equal(await a.release(lease, { unlessAwaited: true }), 'lost');
      t.equal((await claim(b, { key: lease.key })).kind, 'unknown');
    }
  });

  await t.test(
    'followers of a leader that is gone learn unknown within the lease and a second, not after the hold',
    async (t) => {
      const key = newKey();
      const began = performance.now();
      await lead(a, { key, leaseMs: 400, holdMs: LONG_MS, election: 1 });
      t.same(await settled(b, await follow(b, { key }), 5_000), { kind: 'unknown', election: 1 });
      const took = performance.now() - began;
      t.ok(took >= 395 && took < 1_400, `told after ${took} ms`);
    },
  );

  await t.test('completed as unknown: followers are told by a push, repeats until keepMs is over', async (t) => {
    const key = newKey();
    const began = performance.now();
    const lease = await lead(a, { key, election: 2 });
    const wait = settled(b, await follow(b, { key }));
    t.equal(await a.complete(lease, { kind: 'unknown', election: 2 }, 600), 'held');
    t.same(await wait, { kind: 'unknown', election: 2 });
    const held = await claim(b, { key });
    t.match(held, { kind: 'unknown', flight: lease.flight });
    t.ok(held.kind === 'unknown' && held.ttlMs > 0 && held.ttlMs <= 600);
    let last = held;
    while (last.kind === 'unknown') {
      await sleep(10);
      last = await claim(b, { key });
    }
    t.equal(last.kind, 'leader');
    const took = performance.now() - began;
    t.ok(took >= 595 && took < 1_600, `held for ${took} ms`);
  });
}

async function twoTimers(t: Test, factory: StoreFactory): Promise<void> {
  const [a, b] = (await factory(t, 2)) as [Store, Store];

  await t.test('a crash without a hold frees the key after the lease, however long responses are kept', async (t) => {
    const key = newKey();
    const first = await lead(a, { key, leaseMs: 200, fingerprint: 'x' });
    await a.complete(first, responseWith(Buffer.from('x')), 300);
    t.equal((await claim(b, { key, fingerprint: 'x' })).kind, 'stored');
    await sleep(330);
    const began = performance.now();
    await lead(a, { key, leaseMs: 200, fingerprint: 'x' });
    t.equal((await claimWhenFree(b, { key, fingerprint: 'x' })).kind, 'leader');
    const took = performance.now() - began;
    t.ok(took >= 195 && took < 1_200, `free after ${took} ms`);
  });

  await t.test('what is kept outlives lease and hold', async (t) => {
    for (const ending of [{ kind: 'response', response: anyResponse }, { kind: 'not-kept' }] as const) {
      const key = newKey();
      const lease = await lead(a, { key, leaseMs: 100, holdMs: 50 });
      t.equal(await a.complete(lease, ending, LONG_MS), 'held');
      await sleep(200);
      const stored = await claim(b, { key });
      if (stored.kind !== 'stored') throw new Error(stored.kind);
      t.same(stored.ended, ending);
      t.ok(stored.ttlMs > 20_000 && stored.ageMs >= 190);
    }
  });

  await t.test('what is kept for less than lease and hold ends by its own time', async (t) => {
    const key = newKey();
    await a.complete(await lead(a, { key, holdMs: LONG_MS }), { kind: 'not-kept' }, SHORT_MS);
    await sleep(SHORT_MS + 30);
    t.equal((await claim(b, { key })).kind, 'leader');
  });
}

async function settling(t: Test, factory: StoreFactory): Promise<void> {
  const [a, b, c] = (await factory(t, 3)) as [Store, Store, Store];
  const byOperator = { ...anyResponse, content: Buffer.from('by an operator') };
  const asResponse = { kind: 'response', response: byOperator, keepMs: LONG_MS } as const;
  const told = { kind: 'response', response: byOperator };
  const lost = async (t: Test, lease: Lease) => {
    t.equal(await a.renew(lease), 'lost');
    t.equal(await a.complete(lease, responseWith(Buffer.from('late')), LONG_MS), 'lost');
    t.equal(await a.release(lease, { unlessAwaited: false }), 'lost');
  };

  await t.test('a key that is free is absent', async (t) => {
    const key = newKey();
    t.equal(await settle(a, key, { kind: 'free' }), 'absent');
    t.equal(await settle(a, key, asResponse), 'absent');
    t.equal((await claim(b, { key })).kind, 'leader');
    await lead(a, { key: `${key}-passed`, leaseMs: 20 });
    await sleep(40);
    t.equal(await settle(a, `${key}-passed`, { kind: 'free' }), 'absent');
  });

  await t.test('a live flight is freed: followers learn failed, the leader has lost', async (t) => {
    const key = newKey();
    const lease = await lead(a, { key, election: 3 });
    const waits = [settled(b, await follow(b, { key })), settled(c, await follow(c, { key }))];
    t.equal(await settle(b, key, { kind: 'free' }), 'settled');
    for (const wait of waits) t.same(await wait, { kind: 'failed', election: 3 });
    await lost(t, lease);
    const next = await lead(c, { key });
    t.ok(next.fence > lease.fence);
    await lost(t, lease);
    t.equal(await c.renew(next), 'held');
  });

  await t.test('a live flight is given a response: followers and repeats get it, the leader has lost', async (t) => {
    for (const size of [10, 100_000]) {
      const key = newKey();
      const response = { ...byOperator, content: Buffer.alloc(size, 'o') };
      const lease = await lead(a, { key, fingerprint: 'x' });
      const wait = settled(b, await follow(b, { key, fingerprint: 'x' }));
      const late = await follow(c, { key, fingerprint: 'x' });
      t.equal(await settle(c, key, { kind: 'response', response, keepMs: LONG_MS }), 'settled');
      t.same(await wait, { kind: 'response', response });
      t.same(await settled(c, late), { kind: 'response', response }, 'one that waits afterwards');
      await lost(t, lease);
      const stored = await claim(b, { key, fingerprint: 'x' });
      if (stored.kind !== 'stored') throw new Error(stored.kind);
      t.equal(stored.flight, lease.flight);
      t.same(stored.ended, { kind: 'response', response });
      t.ok(stored.ageMs < 5_000 && stored.ttlMs > 20_000);
    }
  });

  for (const as of [{ kind: 'free' }, asResponse, { kind: 'not-kept', keepMs: LONG_MS }] as const) {
    await t.test(`the leader is told when its flight is settled as ${as.kind}, wherever that is`, async (t) => {
      for (const store of [a, b]) {
        await tellsLeaders(
          t,
          a,
          () => lead(a, { key: newKey() }),
          ({ key, flight }) => store.settle(key, as, flight),
        );
      }
    });
  }

  await t.test(
    'a leader that is told nothing: of other flights, other keys and words that change nothing',
    async (t) => {
      const told = new Told();
      const [lease, end] = [await lead(a, { key: newKey() }), await lead(a, { key: newKey() })];
      a.watch(lease, told);
      a.watch(end, told);
      t.equal(await b.settle(lease.key, { kind: 'free' }, null), 'other');
      t.equal(await b.settle(lease.key, { kind: 'free' }, newFlightId()), 'other');
      t.equal(await b.settleUnknown(lease.key, lease.flight, { kind: 'free' }, lease.material), 'absent');
      t.equal(await b.settle(end.key, { kind: 'free' }, end.flight), 'settled');
      await eventually('the other is told', () => told.flights.length > 0, PROMPT_MS);
      t.same(told.flights, [end.flight]);
      t.equal(await a.renew(lease), 'held');
    },
  );

  await t.test('a response for keepMs 0 is for the followers only', async (t) => {
    const key = newKey();
    const lease = await lead(a, { key });
    const wait = settled(b, await follow(b, { key }));
    t.equal(await settle(b, key, { ...asResponse, keepMs: 0 }), 'settled');
    t.same(await wait, told);
    await lost(t, lease);
    t.equal((await claim(c, { key })).kind, 'leader');
  });

  for (const [state, [, enter]] of Object.entries(STATES)) {
    await t.test(`${state}: settled as free, the next may run`, async (t) => {
      const lease = await enter(a, { key: newKey(), fingerprint: 'x' });
      t.equal(await settle(b, lease.key, { kind: 'free' }), 'settled');
      await lost(t, lease);
      t.equal((await claim(c, { key: lease.key, fingerprint: 'y' })).kind, 'leader');
    });

    await t.test(`${state}: settled as a response, repeats get it and other fingerprints do not`, async (t) => {
      const lease = await enter(a, { key: newKey(), fingerprint: 'x' });
      t.equal(await settle(b, lease.key, asResponse), 'settled');
      await lost(t, lease);
      t.match(await claim(c, { key: lease.key, fingerprint: 'x' }), { kind: 'stored', ended: told });
      t.equal((await claim(c, { key: lease.key, fingerprint: 'y' })).kind, 'mismatch');
    });
  }
}

/** The states in which a flight's outcome is unknown; in all others the API has nothing to say. */
export const UNKNOWN_STATES: readonly string[] = ['lease passed, held', 'completed as unknown'];

async function reconciling(t: Test, factory: StoreFactory): Promise<void> {
  const [a, b, c] = (await factory(t, 3)) as [Store, Store, Store];
  const found = { ...anyResponse, content: Buffer.from('found by asking') };
  const asResponse = { kind: 'response', response: found, keepMs: LONG_MS } as const;
  const words = [{ kind: 'free' }, asResponse, { kind: 'not-kept', keepMs: LONG_MS }] as const;

  for (const [state, [answer, enter]] of Object.entries(STATES)) {
    if (UNKNOWN_STATES.includes(state)) {
      await t.test(`${state}: the flight's own outcome is settled`, async (t) => {
        const freed = await enter(a, { key: newKey(), fingerprint: 'x' });
        const standing = await b.standing(freed.key, freed.flight);
        if (standing.kind !== 'unknown') throw new Error(standing.kind);
        t.ok(standing.leftMs > 20_000 && standing.leftMs <= LONG_MS, `left ${standing.leftMs}`);
        t.equal(await b.settleUnknown(freed.key, freed.flight, { kind: 'free' }, freed.material), 'settled');
        t.same(await c.standing(freed.key, freed.flight), { kind: 'over' });
        t.equal(await b.settleUnknown(freed.key, freed.flight, { kind: 'free' }, freed.material), 'absent', 'once');
        const next = await lead(c, { key: freed.key, fingerprint: 'y' });
        t.ok(next.fence > freed.fence);

        for (const [as, ended] of [
          [asResponse, { kind: 'response', response: found }],
          [words[2], { kind: 'not-kept' }],
        ] as const) {
          const lease = await enter(a, { key: newKey(), fingerprint: 'x' });
          t.equal(await b.settleUnknown(lease.key, lease.flight, as, lease.material), 'settled');
          t.same(await c.standing(lease.key, lease.flight), { kind: 'over' });
          const stored = await claim(c, { key: lease.key, fingerprint: 'x' });
          if (stored.kind !== 'stored') throw new Error(stored.kind);
          t.same(stored.ended, ended);
          t.equal(stored.flight, lease.flight);
          t.ok(stored.ageMs < 5_000 && stored.ttlMs > 20_000, 'kept from now on');
          t.equal((await claim(c, { key: lease.key, fingerprint: 'y' })).kind, 'mismatch');
          t.equal(await a.complete(lease, responseWith(Buffer.from('late')), LONG_MS), 'lost');
        }
      });
    } else {
      await t.test(`${state}: its own flight is left as it is`, async (t) => {
        const lease = await enter(a, { key: newKey(), fingerprint: 'x' });
        const before = await claim(c, { key: lease.key, fingerprint: 'x' });
        const standing = { kind: state === 'in flight' ? 'in-flight' : 'over' };
        t.same(await b.standing(lease.key, lease.flight), standing);
        for (const as of words)
          t.equal(await b.settleUnknown(lease.key, lease.flight, as, lease.material), 'absent', as.kind);
        const after = await claim(c, { key: lease.key, fingerprint: 'x' });
        t.equal(after.kind, answer);
        if (after.kind === 'stored' && before.kind === 'stored') t.same(after.ended, before.ended);
        t.equal(await a.renew(lease), state === 'in flight' ? 'held' : 'lost');
      });
    }

    await t.test(`${state}: an answer about an earlier flight changes nothing`, async (t) => {
      const key = newKey();
      const earlier = await lead(a, { key });
      await a.complete(earlier, { kind: 'unknown', election: 0 }, LONG_MS);
      await settle(a, key, { kind: 'free' });
      const lease = await enter(a, { key, fingerprint: 'x' });
      t.same(await b.standing(key, earlier.flight), { kind: 'over' });
      for (const as of words)
        t.equal(await b.settleUnknown(key, earlier.flight, as, materialFor(key)), 'absent', as.kind);
      const after = await claim(c, { key, fingerprint: 'x' });
      t.equal(after.kind, answer);
      if (after.kind === 'unknown') t.equal(after.flight, lease.flight);
    });
  }

  await t.test('a key that is free is absent', async (t) => {
    const key = newKey();
    for (const as of words) t.equal(await a.settleUnknown(key, newFlightId(), as, materialFor(key)), 'absent');
    t.same(await a.standing(key, newFlightId()), { kind: 'over' });
    const passed = await lead(a, { key: `${key}-passed`, leaseMs: 20 });
    await sleep(40);
    t.same(await a.standing(passed.key, passed.flight), { kind: 'over' });
    t.equal(await a.settleUnknown(passed.key, passed.flight, asResponse, passed.material), 'absent');
    t.equal((await claim(b, { key: passed.key })).kind, 'leader');
  });

  await t.test('an outcome whose time is over is absent', async (t) => {
    const lease = await lead(a, { key: newKey() });
    await a.complete(lease, { kind: 'unknown', election: 0 }, SHORT_MS);
    await sleep(SHORT_MS + 30);
    t.same(await b.standing(lease.key, lease.flight), { kind: 'over' });
    t.equal(await b.settleUnknown(lease.key, lease.flight, asResponse, lease.material), 'absent');
    t.equal((await claim(c, { key: lease.key })).kind, 'leader');
  });

  await t.test('of two who found it out one settles', async (t) => {
    const lease = await lead(a, { key: newKey() });
    await a.complete(lease, { kind: 'unknown', election: 0 }, LONG_MS);
    const both = await Promise.all(words.map((as) => b.settleUnknown(lease.key, lease.flight, as, lease.material)));
    t.equal(both.filter((how) => how === 'settled').length, 1);
  });
}

async function listing(t: Test, factory: StoreFactory): Promise<void> {
  const [a, b] = (await factory(t, 2)) as [Store, Store];
  const any = { state: 'any', limit: 10_000 } as const;
  const entered = new Map<string, Lease>();
  for (const [state, [, enter]] of Object.entries(STATES)) {
    entered.set(state, await enter(a, { key: newKey(), fingerprint: 'secret', route: `route ${state}` }));
  }
  const taken = await b.taken(any);
  const found = (state: string) => taken.filter(({ key }) => key === entered.get(state)?.key);

  await t.test('every taken key, once, with its flight, route, state and fence and nothing else', async (t) => {
    const states = { 'in flight': 'in-flight', 'lease passed, held': 'unknown', 'completed as unknown': 'unknown' };
    for (const [state, { key, flight, fence }] of entered) {
      const [one, ...more] = found(state);
      t.equal(more.length, 0);
      const named = { key, flight, fence, route: `route ${state}`, waiting: 0 };
      t.match(one, { ...named, state: new Map(Object.entries(states)).get(state) ?? 'kept' });
      t.same(
        Object.keys(one ?? {}).sort(),
        ['ageMs', 'fence', 'flight', 'key', 'leader', 'leftMs', 'route', 'state', 'waiting'],
        'no content, no fingerprint',
      );
      t.ok(one !== undefined && one.ageMs >= 0 && one.ageMs < 5_000, `${state}: age ${one?.ageMs}`);
      t.ok(one !== undefined && one.leftMs > 20_000 && one.leftMs <= LONG_MS, `${state}: left ${one?.leftMs}`);
    }
    const [held] = found('lease passed, held');
    t.ok(held !== undefined && held.ageMs >= SHORT_MS, 'an unknown one is as old as its flight');
  });

  await t.test('what waits for a flight is counted, results are not listed, free keys are gone', async (t) => {
    const key = newKey();
    const only = async () => (await b.taken(any)).filter((one) => one.key.startsWith(key));
    const lease = await lead(a, { key, leaseMs: 5_000, holdMs: LONG_MS });
    const wait = settled(b, await follow(b, { key }));
    t.match(await only(), [{ state: 'in-flight', waiting: 1 }]);
    t.ok(
      (await only()).every(({ leftMs }) => leftMs <= 5_000),
      'left of the lease, without the hold',
    );
    await a.complete(lease, responseWith(Buffer.from('x')), 0);
    await wait;
    t.same(await only(), []);
    await lead(a, { key, leaseMs: 20 });
    await sleep(40);
    t.same(await only(), []);
  });

  await t.test('by state, and at most the limit', async (t) => {
    for (const state of ['in-flight', 'unknown', 'kept'] as const) {
      const some = await b.taken({ state, limit: 10_000 });
      const expected = taken.filter((one) => one.state === state).map(({ key }) => key);
      t.same(some.map(({ key }) => key).sort(), expected.sort());
      t.ok(some.every((one) => one.state === state));
    }
    t.equal((await b.taken({ state: 'unknown', limit: 1 })).length, 1);
    t.equal((await b.taken({ state: 'any', limit: 0 })).length, 0);
    await Promise.all(Array.from({ length: 1_200 }, () => lead(a, { key: newKey() })));
    const many = await b.taken(any);
    t.ok(many.length >= 1_200);
    t.equal(new Set(many.map(({ key }) => key)).size, many.length);
    t.equal((await b.taken({ state: 'any', limit: 700 })).length, 700);
  });

  await t.test('the process that leads, in flight and unknown, is the same for whoever looks', async (t) => {
    const [byA, byB] = [await lead(a, { key: newKey() }), await lead(b, { key: newKey() })];
    // Who follows, or asks again, is not who leads.
    await follow(b, { key: byA.key });
    await lead(a, { key: byA.key, flight: byA.flight });
    const seenBy = async (store: Store): Promise<string> => {
      const all = await store.taken(any);
      const leaderOf = (key: string | undefined) => all.find((one) => one.key === key)?.leader ?? null;
      const [ofA, ofB] = [leaderOf(byA.key), leaderOf(byB.key)];
      t.match(ofA, /^[\w.-]{3,80}$/);
      t.match(ofB, /^[\w.-]{3,80}$/);
      t.equal(ofA === ofB, a === b);
      for (const [state, { key }] of entered) {
        const taken = all.find((one) => one.key === key);
        t.equal(taken?.leader, taken?.state === 'kept' ? null : ofA, state);
      }
      return `${ofA} ${ofB}`;
    };
    t.equal(await seenBy(a), await seenBy(b));
  });
}

async function looking(t: Test, factory: StoreFactory): Promise<void> {
  const [store, other] = (await factory(t, 2)) as [Store, Store];
  const look = (ask: Ask) => other.look(asked({ ...ask, join: true }));

  await t.test('a free key stays free', async (t) => {
    const key = newKey();
    t.strictSame(await look({ key }), { kind: 'free' });
    await lead(store, { key });
  });

  await t.test('what a claim would be told, and nothing is taken, joined or renewed', async (t) => {
    const key = newKey();
    const lease = await lead(store, { key, fingerprint: 'one' });
    const seen = await look({ key, fingerprint: 'one', flight: lease.flight, leaseMs: 10 * LONG_MS });
    t.match(seen, { kind: 'follower', flight: { flight: lease.flight } });
    t.ok(seen.kind === 'follower' && seen.flight.leaseLeftMs <= LONG_MS, 'the lease is what it was');
    t.strictSame(await look({ key, fingerprint: 'two' }), { kind: 'mismatch' });
    t.equal(await store.release(lease, { unlessAwaited: true }), 'held', 'nobody waits for it');
    t.strictSame(await look({ key }), { kind: 'free' });
  });

  await t.test('what is kept, and what nobody knows', async (t) => {
    const key = newKey();
    await store.complete(await lead(store, { key }), responseWith(Buffer.from('kept')), LONG_MS);
    t.match(await look({ key }), { kind: 'stored', ended: { response: { content: Buffer.from('kept') } } });
    const unknown = newKey();
    await store.complete(await lead(store, { key: unknown }), { kind: 'unknown', election: 0 }, LONG_MS);
    t.match(await look({ key: unknown }), { kind: 'unknown' });
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
      for (const got of [ended, stored.kind === 'stored' ? stored.ended : stored]) {
        if (got.kind !== 'response') throw new Error(got.kind);
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
