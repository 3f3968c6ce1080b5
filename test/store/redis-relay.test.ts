/** Pieces of a response under way: in order, without a gap, each once, whatever becomes of pushes. */

import t, { type Test } from 'tap';
import type { FlightRef, Lease } from '../../src/core/claim.js';
import { RedisStore } from '../../src/store/redis.js';
import type { Piece } from '../../src/store/relay.js';
import { eventually } from '../support/gate.js';
import { accessTo, startRedis } from '../support/redis.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { anyResponse, follow, lead, newKey, responseWith } from './contract.js';

// One that is full: it refuses whatever does not begin with a write that takes no room.
const redis = await startRedis({ settings: ['--maxmemory', '1'] });
t.teardown(() => redis.stop());

async function open(t: Test, url = redis.url): Promise<RedisStore> {
  const store = new RedisStore({ access: accessTo(url), commandTimeoutMs: 2_000 });
  t.teardown(() => store.close());
  await store.open();
  return store;
}

/** What a process is told of a flight, as text. */
function reading(t: Test, store: RedisStore, flight: FlightRef, pollMs = 10_000): string[] {
  const told: string[] = [];
  const end = new AbortController();
  t.teardown(() => end.abort());
  const onPiece = ({ index, bytes }: Piece) => told.push(`${index}:${bytes}`) > 0;
  store.relayed(
    flight,
    { onPiece, onAlive: () => {}, onLost: () => told.push('lost') },
    { pollMs, signal: end.signal },
  );
  return told;
}

const piece = (index: number) => ({ index, bytes: Buffer.from(`p${index}`) });
const upTo = (count: number) => Array.from({ length: count }, (_, i) => `${i}:p${i}`);

t.test('pieces are pushed to who waits, and are there for who comes later', async (t) => {
  const [a, b, c] = await Promise.all([open(t), open(t), open(t)]);
  const lease = await lead(a, { key: newKey() });
  const near = reading(t, b, await follow(b, { key: lease.key }));
  for (let i = 0; i < 3; i += 1) t.equal(await a.relay(lease, piece(i)), 'held');
  await eventually('three pieces', () => near.length === 3);
  const late = reading(t, c, await follow(c, { key: lease.key }));
  await eventually('the same for who comes later', () => late.length === 3);
  for (let i = 3; i < 6; i += 1) await a.relay(lease, piece(i));
  await eventually('and those after', () => near.length === 6 && late.length === 6);
  t.same(near, upTo(6));
  t.same(late, upTo(6));
});

t.test('only the leader can send', async (t) => {
  const [a, b] = await Promise.all([open(t), open(t)]);
  const lease = await lead(a, { key: newKey() });
  const told = reading(t, b, await follow(b, { key: lease.key }));
  t.equal(await a.relay({ ...lease, fence: lease.fence + 1 }, piece(0)), 'lost');
  t.equal(await a.relay({ ...lease, flight: 'other' }, piece(0)), 'lost');
  await a.release(lease, { unlessAwaited: false });
  t.equal(await a.relay(lease, piece(0)), 'lost');
  t.same(told, []);
});

t.test('pushes that are lost are fetched: with the next one, or by the poll', async (t) => {
  const [a, b] = await Promise.all([open(t), open(t)]);
  const lease = await lead(a, { key: newKey() });
  const told = reading(t, b, await follow(b, { key: lease.key }), 200);
  await a.relay(lease, piece(0));
  await redis.command('CLIENT', 'KILL', 'TYPE', 'pubsub');
  for (let i = 1; i < 5; i += 1) await a.relay(lease, piece(i));
  await eventually('all of them', () => told.length === 5);
  t.same(told, upTo(5));
});

t.test('a piece whose reply is lost is there once', async (t) => {
  const proxy = await TcpProxy.start(t, redis.port);
  const [a, b] = await Promise.all([open(t, `redis://127.0.0.1:${proxy.port}`), open(t)]);
  const lease = await lead(a, { key: newKey() });
  const told = reading(t, b, await follow(b, { key: lease.key }));
  await a.relay(lease, piece(0));
  const lost = proxy.loseReplyTo('p1');
  const second = a.relay(lease, piece(1));
  await lost;
  t.equal(await second, 'held');
  await a.relay(lease, piece(2));
  await eventually('three pieces', () => told.length === 3);
  t.same(told, upTo(3));
});

t.test(
  'beyond the flight: for who read already, let go when all have it, and who is given up hears of it',
  async (t) => {
    const [a, b, c, d] = await Promise.all([open(t), open(t), open(t), open(t)]);
    const lease = await lead(a, { key: newKey() });
    const near = reading(t, b, await follow(b, { key: lease.key }), 100);
    const ref = await follow(c, { key: lease.key });
    const slow: string[] = [];
    const end = new AbortController();
    t.teardown(() => end.abort());
    const reader = {
      // It is full with the third.
      onPiece: ({ index, bytes }: Piece) => slow.push(`${index}:${bytes}`) !== 3,
      onAlive: () => {},
      onLost: () => slow.push('lost'),
    };
    const { resume } = c.relayed(ref, reader, { pollMs: 100, signal: end.signal });
    for (let i = 0; i < 5; i += 1) await a.relay(lease, piece(i));
    await eventually('what there is', () => near.length === 5 && slow.length === 3);
    await a.complete(lease, { kind: 'unshareable', reason: 'too-large' }, 0);
    t.equal(await a.relay(lease, piece(5)), 'lost');
    await eventually('the slowest', async () => (await a.relayOn(lease, piece(5), 0))?.wanted === 0);
    t.same(reading(t, d, ref), [], 'nobody joins');
    await eventually('the sixth', () => near.length === 6);
    resume();
    await eventually('all of it', () => slow.length === 6);
    t.same(slow, upTo(6));
    await eventually('all have it', async () => (await a.relayOn(lease, null, 0))?.wanted === 6);
    const [stream] = (await redis.command('KEYS', `*${lease.key}*:s:*`)) as string[];
    t.equal(await redis.command('XLEN', stream!), 0, 'nothing is held that all have');
    t.equal(await a.relayOn(lease, piece(6), 7), null, 'nobody is left');
    await eventually('they hear of it', () => near.at(-1) === 'lost' && slow.at(-1) === 'lost');
    t.equal(near.length, 7);
  },
);

t.test('who stops reading is not waited for', async (t) => {
  const [a, b] = await Promise.all([open(t), open(t)]);
  const lease = await lead(a, { key: newKey() });
  const end = new AbortController();
  const told: string[] = [];
  const reader = { onPiece: ({ index }: Piece) => told.push(String(index)) > 0, onAlive: () => {}, onLost: () => {} };
  b.relayed(await follow(b, { key: lease.key }), reader, { pollMs: 10_000, signal: end.signal });
  await a.relay(lease, piece(0));
  await eventually('the first', () => told.length === 1);
  await a.complete(lease, { kind: 'unshareable', reason: 'too-large' }, 0);
  t.same(await a.relayOn(lease, null, 0), { wanted: 0, processes: 1 });
  end.abort();
  await eventually('nobody', async () => (await a.relayOn(lease, null, 0)) === null);
});

/** How often pieces were asked for since the counting began. */
async function fetches(): Promise<number> {
  const stats = String(await redis.command('INFO', 'commandstats'));
  return Number(/^cmdstat_hget:calls=(\d+)/m.exec(stats)?.[1] ?? 0);
}

t.test('more pieces than one fetch brings, and none is read twice', async (t) => {
  const [a, b] = await Promise.all([open(t), open(t)]);
  const lease = await lead(a, { key: newKey() });
  await Promise.all(Array.from({ length: 1_200 }, (_, i) => a.relay(lease, piece(i))));
  await redis.command('CONFIG', 'RESETSTAT');
  const told = reading(t, b, await follow(b, { key: lease.key }));
  await eventually('all of them', () => told.length === 1_200);
  t.same(told, upTo(1_200));
  await redis.command('PING');
  t.equal(await fetches(), 3, '500, 500 and 200');
});

t.test('a gap, while the flight is up, leaves the rest to its settlement', async (t) => {
  const [a, b] = await Promise.all([open(t), open(t)]);
  const lease = await lead(a, { key: newKey() });
  await Promise.all(Array.from({ length: 600 }, (_, i) => a.relay(lease, piece(i + 1))));
  await redis.command('CONFIG', 'RESETSTAT');
  const told = reading(t, b, await follow(b, { key: lease.key }));
  await eventually('it has asked', async () => (await fetches()) > 0);
  await a.relay(lease, piece(0));
  await a.relay(lease, piece(601));
  // Each is a connection and two round trips: whoever asks without a pause does so many times meanwhile.
  for (let i = 0; i < 50; i += 1) await redis.command('PING');
  t.ok((await fetches()) < 3);
  t.same(told, []);
});

const piecesOf = ({ key, flight }: Lease) => `oneflight:{${key}}:s:${flight}`;

/** A flight of which a piece is there. */
async function sending(store: RedisStore, leaseMs?: number): Promise<Lease> {
  const lease = await lead(store, { key: newKey(), ...(leaseMs === undefined ? {} : { leaseMs }) });
  await store.relay(lease, piece(0));
  return lease;
}

/** Sooner than they expire. */
async function areGone(lease: Lease): Promise<void> {
  await eventually('the pieces are gone', async () => (await redis.command('EXISTS', piecesOf(lease))) === 0);
}

t.test('the pieces are gone when their flight has ended, however it did', async (t) => {
  const store = await open(t);
  const ends: readonly ((lease: Lease) => Promise<unknown>)[] = [
    (lease) => store.complete(lease, { kind: 'response', response: anyResponse }, 0),
    (lease) => store.complete(lease, responseWith(Buffer.alloc(100_000)), 60_000),
    (lease) => store.complete(lease, { kind: 'unknown', election: 0 }, 60_000),
    (lease) => store.release(lease, { unlessAwaited: false }),
  ];
  for (const end of ends) {
    const lease = await sending(store);
    t.equal(await redis.command('EXISTS', piecesOf(lease)), 1);
    t.equal(await end(lease), 'held');
    await areGone(lease);
  }
});

t.test('nor are they left behind by a leader that has lost its lease, whatever it does next', async (t) => {
  const [a, b] = await Promise.all([open(t), open(t)]);
  const next: readonly ((lease: Lease) => Promise<unknown>)[] = [
    (lease) => a.complete(lease, { kind: 'response', response: anyResponse }, 0),
    (lease) => a.release(lease, { unlessAwaited: true }),
    (lease) => a.renew(lease),
    (lease) => a.relay(lease, piece(1)),
  ];
  for (const act of next) {
    const lease = await sending(a);
    t.equal(await b.settle(lease.key, { kind: 'free' }, lease.flight), 'settled');
    t.equal(await act(lease), 'lost');
    await areGone(lease);
  }
});

t.test('a leader whose reply about the end is lost leaves no pieces either', async (t) => {
  const proxy = await TcpProxy.start(t, redis.port);
  const store = await open(t, `redis://127.0.0.1:${proxy.port}`);
  const lease = await sending(store);
  const content = Buffer.from('the end of this response');
  const lost = proxy.loseReplyTo(content.toString());
  const told = store.complete(lease, responseWith(content), 0);
  await lost;
  await told.catch(() => {});
  await areGone(lease);
});

t.test('a leader who cannot tell the end before the store is back leaves no pieces either', async (t) => {
  const proxy = await TcpProxy.start(t, redis.port);
  const store = await open(t, `redis://127.0.0.1:${proxy.port}`);
  const lease = await sending(store);
  const end = () => store.complete(lease, { kind: 'response', response: anyResponse }, 0);
  await proxy.refuse();
  await t.rejects(end());
  await proxy.listen();
  await eventually('the end is told', () => end().then(Boolean, () => false));
  await areGone(lease);
});

t.test('a piece that comes after the end is not kept', async (t) => {
  const store = await open(t);
  const lease = await sending(store);
  await store.complete(lease, { kind: 'response', response: anyResponse }, 60_000);
  t.equal(await store.relay(lease, piece(1)), 'lost');
  await areGone(lease);
});
