/** The memory store of a parent, as its workers have it: over sockets, as many channels as "processes". */

import { once } from 'node:events';
import { type AddressInfo, createServer, connect as dial, type Socket } from 'node:net';
import t, { type Test } from 'tap';
import { type FlightRef, type Lease, newFlightId } from '../../src/core/claim.js';
import { MemoryBudget } from '../../src/core/memory-budget.js';
import { MemoryStore } from '../../src/store/memory.js';
import { MemoryRelay } from '../../src/store/memory-relay.js';
import { ParentStore } from '../../src/store/parent-store.js';
import type { Piece } from '../../src/store/relay.js';
import type { Store } from '../../src/store/store.js';
import { StoreServer } from '../../src/store/store-server.js';
import { eventually } from '../support/gate.js';
import { anyResponse, claim, follow, LONG_MS, lead, newKey, responseWith, settled, storeContract } from './contract.js';
import { marksContract } from './marks-contract.js';
import { ended, enter, placeIn, queueContract, turnAtOnce, turnOf } from './queue-contract.js';

type Parent = { readonly shared: MemoryStore; readonly budget: MemoryBudget; worker(): Promise<Worker> };
type Worker = { readonly store: Store; readonly server: StoreServer; readonly socket: Socket; gone: boolean };

async function startParent(t: Test, mostBytes = 64 * 1_048_576): Promise<Parent> {
  const budget = new MemoryBudget(mostBytes);
  const shared = new MemoryStore({ budget, relay: new MemoryRelay(budget) });
  await shared.open();
  const port = createServer().listen(0, '127.0.0.1');
  await once(port, 'listening');
  t.teardown(async () => {
    port.close();
    await shared.close();
  });
  let workers = 0;
  const worker = async (): Promise<Worker> => {
    const accepted = once(port, 'connection') as Promise<[Socket]>;
    const socket = dial((port.address() as AddressInfo).port, '127.0.0.1');
    workers += 1;
    const server = new StoreServer(shared, (await accepted)[0], `worker-${workers}`);
    const made: Worker = {
      store: new ParentStore(socket, () => {
        made.gone = true;
      }),
      server,
      socket,
      gone: false,
    };
    t.teardown(() => made.store.close());
    return made;
  };
  return { shared, budget, worker };
}

async function factory(t: Test, count: number): Promise<Store[]> {
  const parent = await startParent(t);
  const stores: Store[] = [];
  for (let i = 0; i < count; i += 1) stores.push((await parent.worker()).store);
  return stores;
}

storeContract('parent', factory);
marksContract('parent', factory);
queueContract('parent', factory);

const MOST = { state: 'any', limit: 1_000 } as const;

t.test('parent: a worker that is gone', async (t) => {
  await t.test('what it was leading is unknown at once, held by its rule, and followers are told', async (t) => {
    const parent = await startParent(t);
    const [a, b] = [await parent.worker(), await parent.worker()];
    const [released, held] = [newKey(), newKey()];
    const lease = await lead(a.store, { key: released, election: 2 });
    await lead(a.store, { key: held, holdMs: LONG_MS, fingerprint: 'x' });
    const told = settled(b.store, await follow(b.store, { key: released }));
    const toldHeld = settled(b.store, await follow(b.store, { key: held, fingerprint: 'x' }));
    a.socket.destroy();
    t.same(await told, { kind: 'unknown', election: 2 });
    t.same(await toldHeld, { kind: 'unknown', election: 0 });
    await a.server.closed;
    t.match(await claim(b.store, { key: held, fingerprint: 'x' }), { kind: 'unknown' });
    t.equal((await claim(b.store, { key: held, fingerprint: 'y' })).kind, 'mismatch');
    const next = await lead(b.store, { key: released });
    t.ok(next.fence > lease.fence);
    t.equal(await parent.shared.renew(lease), 'lost', 'the old one has it no more');
  });

  await t.test('what it had ended before is as it ended it', async (t) => {
    const parent = await startParent(t);
    const [a, b] = [await parent.worker(), await parent.worker()];
    const [kept, freed] = [newKey(), newKey()];
    const first = await lead(a.store, { key: kept });
    await a.store.complete(first, { kind: 'response', response: anyResponse }, LONG_MS);
    await a.store.release(await lead(a.store, { key: freed, holdMs: LONG_MS }), { unlessAwaited: false });
    const last = await lead(a.store, { key: newKey() });
    // The last words of a process that ends are read before it is taken for gone.
    void a.store.complete(last, responseWith(Buffer.alloc(300_000, 'z')), LONG_MS).catch(() => {});
    await a.store.close();
    await a.server.closed;
    t.match(await claim(b.store, { key: kept }), { kind: 'stored', ended: { kind: 'response' } });
    t.match(await claim(b.store, { key: last.key }), { kind: 'stored', ended: { kind: 'response' } });
    t.equal((await claim(b.store, { key: freed })).kind, 'leader');
  });

  await t.test('it holds nothing of what was ended, lost or told before', async (t) => {
    const parent = await startParent(t);
    const [a, b] = [await parent.worker(), await parent.worker()];
    const ends: readonly ((lease: Lease) => Promise<unknown>)[] = [
      (lease) => a.store.complete(lease, responseWith(Buffer.from('x')), 0),
      (lease) => a.store.complete(lease, { kind: 'unknown', election: 0 }, 0),
      (lease) => a.store.release(lease, { unlessAwaited: false }),
      async (lease) => {
        await b.store.settle(lease.key, { kind: 'free' }, lease.flight);
        t.equal(await a.store.renew(lease), 'lost');
      },
    ];
    for (const end of ends) {
      const lease = await lead(a.store, { key: newKey(), holdMs: LONG_MS });
      const told = settled(b.store, await follow(b.store, { key: lease.key }));
      await end(lease);
      await told;
    }
    const key = newKey();
    const { lease } = await turnAtOnce(a.store, { key });
    const place = await placeIn(b.store, { key });
    await a.store.queue.release(lease, { unlessAwaited: false });
    const turn = await turnOf(b.store, place);
    t.equal(await b.store.queue.complete(turn.lease, { kind: 'unknown', election: 0 }, 0), 'held');
    for (const { store, server } of [a, b]) {
      await store.close();
      t.equal(await server.closed, 0);
    }
    t.same(await parent.shared.taken(MOST), []);
  });

  await t.test('nobody waits in it any more: for flights, joined or waited for', async (t) => {
    const parent = await startParent(t);
    const [a, b] = [await parent.worker(), await parent.worker()];
    const lease = await lead(b.store, { key: newKey() });
    await follow(a.store, { key: lease.key });
    const wait = settled(a.store, await follow(a.store, { key: lease.key }));
    const gone = t.rejects(wait, { name: 'StoreUnavailable' });
    await b.store.ping();
    t.match(await b.store.taken(MOST), [{ waiting: 2 }]);
    t.equal(await b.store.release(lease, { unlessAwaited: true }), 'awaited');
    a.socket.destroy();
    await gone;
    await a.server.closed;
    t.equal(await b.store.release(lease, { unlessAwaited: true }), 'held');
  });

  await t.test('its places are free, and its turns are passed on or held', async (t) => {
    const parent = await startParent(t);
    const [a, b] = [await parent.worker(), await parent.worker()];
    const [line, held] = [newKey(), newKey()];
    await turnAtOnce(a.store, { key: line });
    await placeIn(a.store, { key: line });
    const waits = placeIn(a.store, { key: line }).then((place) => ended(a.store, place, 20_000));
    const gone = t.rejects(waits, { name: 'StoreUnavailable' });
    await turnAtOnce(a.store, { key: held, holdMs: LONG_MS });
    const place = await placeIn(b.store, { key: line });
    const next = turnOf(b.store, place);
    a.socket.destroy();
    await gone;
    await next;
    await a.server.closed;
    t.equal((await enter(b.store, { key: held, holdMs: LONG_MS })).kind, 'unknown');
    const taken = (await b.store.taken(MOST)).filter(({ key }) => key === line);
    t.match(taken, [{ state: 'in-flight', waiting: 0 }]);
  });

  await t.test('its channel is gone for the worker too, and that is told once it was not asked for', async (t) => {
    const parent = await startParent(t);
    const a = await parent.worker();
    const told = settled(a.store, await follow(a.store, { key: (await lead(a.store, { key: newKey() })).key }));
    const ends = t.rejects(told, { name: 'StoreUnavailable', message: /parent/ });
    a.server.close();
    await ends;
    t.ok(a.gone);
    await t.rejects(claim(a.store, { key: newKey() }), { name: 'StoreUnavailable' });
    await t.rejects(a.store.ping(), { name: 'StoreUnavailable' });
    const b = await parent.worker();
    await b.store.close();
    t.notOk(b.gone, 'who closes it knows');
  });
});

/** What a worker is told of a flight, as text. A reader that is full takes no more until it is resumed. */
function reading(t: Test, store: Store, flight: FlightRef, fullAt = Number.POSITIVE_INFINITY) {
  const told: string[] = [];
  const end = new AbortController();
  t.teardown(() => end.abort());
  const onPiece = ({ index, bytes }: Piece) => told.push(`${index}:${bytes.toString('utf8', 0, 8)}`) !== fullAt;
  const reader = { onPiece, onAlive: () => {}, onLost: () => told.push('lost') };
  const { resume } = store.relayed(flight, reader, { pollMs: 10_000, signal: end.signal });
  return { told, resume, leave: () => end.abort() };
}

const piece = (index: number) => ({ index, bytes: Buffer.from(`p${index}`) });
const upTo = (count: number) => Array.from({ length: count }, (_, i) => `${i}:p${i}`);

t.test('parent: pieces of a response under way', async (t) => {
  await t.test('are pushed to who waits, and are there for who comes later, byte for byte', async (t) => {
    const [a, b, c] = (await factory(t, 3)) as [Store, Store, Store];
    const lease = await lead(a, { key: newKey() });
    const near = reading(t, b, await follow(b, { key: lease.key }));
    for (let i = 0; i < 3; i += 1) t.equal(await a.relay(lease, piece(i)), 'held');
    await eventually('three pieces', () => near.told.length === 3);
    const late = reading(t, c, await follow(c, { key: lease.key }));
    await eventually('the same for who comes later', () => late.told.length === 3);
    for (let i = 3; i < 6; i += 1) await a.relay(lease, piece(i));
    await eventually('and those after', () => near.told.length === 6 && late.told.length === 6);
    t.same(near.told, upTo(6));
    t.same(late.told, upTo(6));
    await a.complete(lease, responseWith(Buffer.from('all')), 0);
    await eventually('nothing more comes', () => near.told.at(-1) === 'lost' && late.told.at(-1) === 'lost');
  });

  await t.test('only the leader can send', async (t) => {
    const [a, b] = (await factory(t, 2)) as [Store, Store];
    const lease = await lead(a, { key: newKey() });
    const { told } = reading(t, b, await follow(b, { key: lease.key }));
    t.equal(await a.relay({ ...lease, fence: lease.fence + 1 }, piece(0)), 'lost');
    t.equal(await a.relay({ ...lease, flight: newFlightId() }, piece(0)), 'lost');
    await a.release(lease, { unlessAwaited: false });
    t.equal(await a.relay(lease, piece(0)), 'lost');
    await eventually('it is over', () => told.length === 1);
    t.same(told, ['lost']);
  });

  await t.test('a reader that is full holds up no other, and has all when it goes on', async (t) => {
    const [a, b, c] = (await factory(t, 3)) as [Store, Store, Store];
    const lease = await lead(a, { key: newKey() });
    const slow = reading(t, b, await follow(b, { key: lease.key }), 1);
    const fast = reading(t, c, await follow(c, { key: lease.key }));
    const large = (index: number) => ({ index, bytes: Buffer.alloc(200_000, `p${index};`) });
    for (let i = 0; i < 20; i += 1) await a.relay(lease, large(i));
    await eventually('the fast one has all', () => fast.told.length === 20);
    t.equal(slow.told.length, 1);
    slow.resume();
    await eventually('the slow one has all', () => slow.told.length === 20);
    t.same(slow.told, fast.told);
  });

  await t.test(
    'beyond the flight: for who read already, let go when all have it, and who is given up hears',
    async (t) => {
      const parent = await startParent(t);
      const [a, b, c] = [(await parent.worker()).store, (await parent.worker()).store, (await parent.worker()).store];
      const lease = await lead(a, { key: newKey() });
      const ref = await follow(b, { key: lease.key });
      const near = reading(t, b, ref);
      const left = reading(t, c, await follow(c, { key: lease.key }));
      for (let i = 0; i < 5; i += 1) await a.relay(lease, piece(i));
      await eventually('what there is', () => near.told.length === 5 && left.told.length === 5);
      await a.complete(lease, { kind: 'unshareable', reason: 'too-large' }, 0);
      t.equal(await a.relay(lease, piece(5)), 'lost');
      const nobody = reading(t, c, ref);
      await eventually('nobody joins', () => nobody.told.length === 1);
      t.same(await a.relayOn(lease, piece(5), 0), { wanted: 6, processes: 2 });
      await eventually('the sixth', () => near.told.length === 6 && left.told.length === 6);
      left.leave();
      await eventually('one has left', async () => (await a.relayOn(lease, null, 0))?.processes === 1);
      t.equal(await a.relayOn(lease, piece(6), 7), null, 'nobody is left');
      await eventually('it hears of it', () => near.told.at(-1) === 'lost');
      t.same(near.told.slice(0, 6), upTo(6));
      t.equal(left.told.includes('lost'), false);
    },
  );

  await t.test('what the leader sent is lost with it', async (t) => {
    const parent = await startParent(t);
    const [a, b] = [await parent.worker(), await parent.worker()];
    const lease = await lead(a.store, { key: newKey() });
    const { told } = reading(t, b.store, await follow(b.store, { key: lease.key }));
    await a.store.relay(lease, piece(0));
    await eventually('the first', () => told.length === 1);
    a.socket.destroy();
    await eventually('the rest is lost', () => told.at(-1) === 'lost');
  });

  await t.test(
    'they take room of the store, and none when they are gone; without room the rest is left out',
    async (t) => {
      const parent = await startParent(t, 100_000);
      const [a, b] = [(await parent.worker()).store, (await parent.worker()).store];
      const large = (index: number) => ({ index, bytes: Buffer.alloc(40_000, `p${index};`) });
      const lease = await lead(a, { key: newKey() });
      const { told } = reading(t, b, await follow(b, { key: lease.key }));
      for (let i = 0; i < 2; i += 1) await a.relay(lease, large(i));
      t.ok(parent.budget.usedBytes > 80_000);
      for (let i = 2; i < 6; i += 1) t.equal(await a.relay(lease, large(i)), 'held', 'the flight goes on');
      t.equal(parent.budget.usedBytes, 0, 'what is worth nothing is let go');
      await a.complete(lease, { kind: 'unshareable', reason: 'too-large' }, 0);
      await eventually('what goes on would have a gap', () => told.at(-1) === 'lost');
      t.equal(told.length, 3);
      const beforeBytes = parent.budget.usedBytes;
      const next = await lead(a, { key: newKey() });
      await a.relay(next, large(0));
      t.ok(parent.budget.usedBytes > beforeBytes);
      await a.release(next, { unlessAwaited: false });
      t.equal(parent.budget.usedBytes, beforeBytes);
    },
  );
});
