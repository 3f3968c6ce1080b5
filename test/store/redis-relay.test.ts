/** Pieces of a response under way: in order, without a gap, each once, whatever becomes of pushes. */

import t, { type Test } from 'tap';
import type { FlightRef } from '../../src/core/claim.js';
import { RedisStore } from '../../src/store/redis.js';
import type { Piece } from '../../src/store/relay.js';
import { eventually } from '../support/gate.js';
import { startRedis } from '../support/redis.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { follow, lead, newKey } from './contract.js';

const redis = await startRedis();
t.teardown(() => redis.stop());

async function open(t: Test, url = redis.url): Promise<RedisStore> {
  const store = new RedisStore({ url, commandTimeoutMs: 2_000 });
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
  store.relayed(flight, { onPiece, onLost: () => told.push('lost') }, { pollMs, signal: end.signal });
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
      onLost: () => slow.push('lost'),
    };
    const { resume } = c.relayed(ref, reader, { pollMs: 100, signal: end.signal });
    for (let i = 0; i < 5; i += 1) await a.relay(lease, piece(i));
    await eventually('what there is', () => near.length === 5 && slow.length === 3);
    await a.complete(lease, { kind: 'unshareable', reason: 'too-large' }, 0);
    t.equal(await a.relay(lease, piece(5)), 'lost');
    await eventually('the slowest', async () => (await a.relayOn(lease, piece(5), 0)) === 0);
    t.same(reading(t, d, ref), [], 'nobody joins');
    await eventually('the sixth', () => near.length === 6);
    resume();
    await eventually('all of it', () => slow.length === 6);
    t.same(slow, upTo(6));
    await eventually('all have it', async () => (await a.relayOn(lease, null, 0)) === 6);
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
  const reader = { onPiece: ({ index }: Piece) => told.push(String(index)) > 0, onLost: () => {} };
  b.relayed(await follow(b, { key: lease.key }), reader, { pollMs: 10_000, signal: end.signal });
  await a.relay(lease, piece(0));
  await eventually('the first', () => told.length === 1);
  await a.complete(lease, { kind: 'unshareable', reason: 'too-large' }, 0);
  t.equal(await a.relayOn(lease, null, 0), 0);
  end.abort();
  await eventually('nobody', async () => (await a.relayOn(lease, null, 0)) === null);
});

t.test('more pieces than one fetch brings', async (t) => {
  const [a, b] = await Promise.all([open(t), open(t)]);
  const lease = await lead(a, { key: newKey() });
  await Promise.all(Array.from({ length: 1_200 }, (_, i) => a.relay(lease, piece(i))));
  const told = reading(t, b, await follow(b, { key: lease.key }));
  await eventually('all of them', () => told.length === 1_200);
  t.same(told, upTo(1_200));
});
