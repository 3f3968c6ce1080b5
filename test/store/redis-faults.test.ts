/** What goes wrong around Redis, and that a gateway process comes through it without a restart. */

import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { newFlightId } from '../../src/core/claim.js';
import { RedisStore, type RedisStoreOptions } from '../../src/store/redis.js';
import { eventually } from '../support/gate.js';
import { accessTo, type RedisServer, startRedis } from '../support/redis.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import {
  anyResponse,
  claim,
  claimWhenFree,
  follow,
  lead,
  newKey,
  releaseWhenAlone,
  responseWith,
  settle,
  settled,
  Told,
  waitFor,
} from './contract.js';
import { enter, giveBack, placeIn, turnAtOnce, turnOf } from './queue-contract.js';

const redis = await startRedis();
t.teardown(() => redis.stop());

const UNAVAILABLE = { name: 'StoreUnavailable' };
/** The budget of a claim is 250 ms and its promise is 300; a busy machine gets some more. */
const BUDGET_MS = 450;

type Options = Partial<Omit<RedisStoreOptions, 'access'>> & { readonly url?: string };

async function open(t: Test, { url = redis.url, ...options }: Options = {}): Promise<RedisStore> {
  const store = new RedisStore({ access: accessTo(url), ...options });
  t.teardown(() => store.close());
  await store.open();
  return store;
}

async function proxied(t: Test): Promise<{ proxy: TcpProxy; store: RedisStore }> {
  const proxy = await TcpProxy.start(t, redis.port);
  return { proxy, store: await open(t, { url: `redis://127.0.0.1:${proxy.port}` }) };
}

/** A server of the test's own, where it is stopped or restarted. */
async function ownServer(t: Test): Promise<RedisServer> {
  const server = await startRedis();
  t.teardown(() => server.stop());
  return server;
}

async function untilItAnswers(store: RedisStore): Promise<void> {
  const deadline = performance.now() + 8_000;
  while (performance.now() < deadline) {
    const answers = await store.ping().then(
      () => true,
      () => false,
    );
    if (answers) return;
    await sleep(20);
  }
  throw new Error('the store did not come back within 8 s');
}

async function tookMs(run: () => Promise<unknown>): Promise<number> {
  const began = performance.now();
  await run();
  return performance.now() - began;
}

/** Calls by command since CONFIG RESETSTAT, those of the scripts included. */
async function calls(): Promise<Map<string, number>> {
  const text = String(await redis.command('INFO', 'commandstats'));
  return new Map([...text.matchAll(/^cmdstat_([^:]+):calls=(\d+)/gm)].map(([, name, n]) => [String(name), Number(n)]));
}

function scripts(counted: ReadonlyMap<string, number>): number {
  return (counted.get('evalsha') ?? 0) + (counted.get('eval') ?? 0);
}

t.test('a claim whose reply is lost is asked again and leads', async (t) => {
  const { proxy, store } = await proxied(t);
  const other = await open(t);
  for (let i = 0; i < 5; i += 1) {
    const ask = { key: newKey(), flight: newFlightId() };
    proxy.loseReplyTo(ask.flight);
    const lease = await lead(store, ask);
    t.equal(lease.flight, ask.flight);
    t.equal((await follow(other, { key: ask.key })).flight, ask.flight);
    t.equal(await store.complete(lease, responseWith(Buffer.from('x')), 0), 'held');
    await untilItAnswers(store);
  }
});

t.test('renew and a completion with followers or keep survive a lost reply', async (t) => {
  const { proxy, store } = await proxied(t);
  const other = await open(t);
  const lease = await lead(store, { key: newKey() });
  proxy.loseReplyTo(lease.flight);
  t.equal(await store.renew(lease), 'held');
  const wait = settled(other, await follow(other, { key: lease.key }));
  proxy.loseReplyTo(lease.flight);
  t.equal(await store.complete(lease, { kind: 'response', response: anyResponse }, 0), 'held');
  t.same(await wait, { kind: 'response', response: anyResponse });
  for (const ending of [
    { kind: 'response', response: anyResponse },
    { kind: 'not-kept' },
    { kind: 'unknown', election: 0 },
  ] as const) {
    await untilItAnswers(store);
    const kept = await lead(store, { key: newKey() });
    proxy.loseReplyTo(kept.flight);
    t.equal(await store.complete(kept, ending, 5_000), 'held');
  }
});

t.test('what a repeated question cannot tell is an outage, not a lost lease', async (t) => {
  const { proxy, store } = await proxied(t);
  const lease = await lead(store, { key: newKey() });
  proxy.loseReplyTo(lease.flight);
  await t.rejects(store.complete(lease, { kind: 'response', response: anyResponse }, 0), UNAVAILABLE);
  const next = await lead(store, { key: newKey() });
  proxy.loseReplyTo(next.flight);
  await t.rejects(store.release(next, { unlessAwaited: false }), UNAVAILABLE);
});

t.test('the push connection is killed just before publication: the new subscription looks at once', async (t) => {
  const [leader, follower] = [await open(t), await open(t)];
  for (const size of [10, 50_000]) {
    const key = newKey();
    const lease = await lead(leader, { key });
    const wait = settled(follower, await follow(follower, { key }), 5_000);
    await redis.command('CLIENT', 'KILL', 'TYPE', 'pubsub');
    t.equal(await leader.complete(lease, responseWith(Buffer.alloc(size)), 0), 'held');
    t.equal((await wait).kind, 'response');
  }
});

t.test('the push connection was lost and is back before the wait begins: the wait begins with a look', async (t) => {
  const [leader, follower] = [await open(t), await open(t, { processId: 'late' })];
  const key = newKey();
  const lease = await lead(leader, { key });
  const flight = await follow(follower, { key });
  await redis.command('CLIENT', 'KILL', 'TYPE', 'pubsub');
  await leader.release(lease, { unlessAwaited: false });
  const listening = async () => (await redis.command('PUBSUB', 'NUMSUB', 'oneflight:p:late')) as [string, number];
  while ((await listening())[1] === 0) await sleep(10);
  await sleep(50);
  t.same(await settled(follower, flight), { kind: 'failed', election: 0 });
});

t.test('pushes get lost in silence: the poll finds the settlement, and the dead line is replaced', async (t) => {
  const { proxy, store } = await proxied(t);
  const leader = await open(t);
  proxy.deafenSubscribers();
  const first = await lead(leader, { key: newKey() });
  const wait = settled(store, await follow(store, { key: first.key }), 3_000, 200);
  await leader.complete(first, responseWith(Buffer.from('x')), 0);
  t.equal((await wait).kind, 'response');
  for (let replaced = false; !replaced; ) {
    const lease = await lead(leader, { key: newKey() });
    const next = settled(store, await follow(store, { key: lease.key }), 300, 10_000);
    await leader.complete(lease, responseWith(Buffer.from('x')), 0);
    replaced = await next.then(
      () => true,
      () => false,
    );
  }
  t.pass('a push arrived again');
});

t.test('a stopped server: unavailable within the budget, then at once, then back by itself', async (t) => {
  const server = await ownServer(t);
  const store = await open(t, { url: server.url });
  const other = await open(t, { url: server.url, commandTimeoutMs: 2_000 });
  const lost = { key: newKey(), flight: newFlightId(), leaseMs: 60_000 };
  const held = await lead(store, { key: newKey(), leaseMs: 60_000 });
  const large = await lead(store, { key: newKey() });
  const response = responseWith(Buffer.alloc(64 * 1_024));
  server.pause();
  const took = await Promise.all([
    ...Array.from({ length: 20 }, () => tookMs(() => t.rejects(claim(store, { key: newKey() }), UNAVAILABLE))),
    tookMs(() => t.rejects(claim(store, lost), UNAVAILABLE)),
    tookMs(() => t.rejects(store.release(held, { unlessAwaited: false }), UNAVAILABLE)),
    tookMs(() => t.rejects(store.complete(large, response, 60_000), UNAVAILABLE)),
    tookMs(() => t.rejects(store.ping(), UNAVAILABLE)),
  ]);
  t.ok(Math.max(...took) < BUDGET_MS, `longest ${Math.max(...took)} ms`);
  await sleep(1_300);
  const later = await tookMs(() => t.rejects(claim(store, { key: newKey() }), UNAVAILABLE));
  t.ok(later < 100, `once the connection is known to be down: ${later} ms`);
  server.resume();
  await untilItAnswers(store);
  await untilItAnswers(other);
  // The claim lay in the server's socket and was executed at resume: its lease is a minute.
  for (const key of [lost.key, held.key]) {
    const freed = await tookMs(() => claimWhenFree(other, { key }));
    t.ok(freed < 5_000, `the key is free again after ${freed} ms`);
  }
  const lease = await lead(store, { key: newKey() });
  const wait = settled(other, await follow(other, { key: lease.key }));
  await store.complete(lease, responseWith(Buffer.from('x')), 0);
  t.equal((await wait).kind, 'response', 'pushes come again');
});

t.test('a claim of which the answer is lost holds no key, even if its lease passes first', async (t) => {
  const { proxy, store } = await proxied(t);
  const other = await open(t);
  const lost = { key: newKey(), flight: newFlightId(), leaseMs: 20, holdMs: 60_000 };
  // What arrives of the claim that is given up below.
  await lead(other, lost);
  await sleep(40);
  proxy.blackHole = true;
  await t.rejects(claim(store, lost), UNAVAILABLE);
  t.equal((await claim(other, { key: lost.key })).kind, 'unknown');
  await sleep(1_500);
  proxy.blackHole = false;
  await untilItAnswers(store);
  const deadline = performance.now() + 3_000;
  let now = await claim(other, { key: lost.key });
  while (now.kind !== 'leader' && performance.now() < deadline) {
    await sleep(10);
    now = await claim(other, { key: lost.key });
  }
  t.equal(now.kind, 'leader');
});

t.test('a claim that was given up and arrives late does not take the key', async (t) => {
  const { proxy, store } = await proxied(t);
  const other = await open(t);
  const letGo = proxy.holdRequests();
  const lost = { key: newKey(), flight: newFlightId(), leaseMs: 60_000 };
  await t.rejects(claim(store, lost), UNAVAILABLE);
  await untilItAnswers(store);
  while (Number(await redis.command('EXISTS', `oneflight:{${lost.key}}:r:${lost.flight}`)) === 0) await sleep(10);
  letGo();
  await sleep(100);
  t.equal((await claim(other, { key: lost.key })).kind, 'leader');
});

t.test('a network that swallows everything: unavailable within the budget, then back by itself', async (t) => {
  const { proxy, store } = await proxied(t);
  proxy.blackHole = true;
  const took = await tookMs(() => t.rejects(claim(store, { key: newKey() }), UNAVAILABLE));
  t.ok(took < BUDGET_MS, `${took} ms`);
  await sleep(1_500);
  const later = await tookMs(() => t.rejects(claim(store, { key: newKey() }), UNAVAILABLE));
  t.ok(later < 100, `${later} ms`);
  proxy.blackHole = false;
  await untilItAnswers(store);
  await lead(store, { key: newKey() });
});

t.test('no server at open: not an error, unavailable at once, and there as soon as the server is', async (t) => {
  const server = await startRedis();
  await server.kill();
  const told: string[] = [];
  const store = await open(t, { url: server.url, log: (level, message) => told.push(`${level} ${message}`) });
  const took = await tookMs(() => t.rejects(claim(store, { key: newKey() }), UNAVAILABLE));
  t.ok(took < 100, `${took} ms`);
  await t.rejects(store.ping(), UNAVAILABLE);
  await sleep(300);
  t.same(told, Array(3).fill('warn store connection failed'), 'told once for each connection');
  await server.stop();
  const second = await startRedis({ port: server.port });
  t.teardown(() => second.stop());
  await untilItAnswers(store);
  await lead(store, { key: newKey() });
});

t.test('a restart on the same port: claims go on, followers of the lost flight learn unknown', async (t) => {
  const server = await startRedis();
  const store = await open(t, { url: server.url });
  const key = newKey();
  const old = await lead(store, { key });
  const wait = settled(store, await follow(store, { key }), 8_000);
  await server.kill();
  await server.stop();
  await t.rejects(claim(store, { key }), UNAVAILABLE);
  const second = await startRedis({ port: server.port });
  t.teardown(() => second.stop());
  t.same(await wait, { kind: 'unknown', election: 0 });
  await untilItAnswers(store);
  const lease = await lead(store, { key });
  t.ok(lease.fence > old.fence);
  t.equal(await store.complete(old, responseWith(Buffer.from('x')), 0), 'lost');
});

t.test('SCRIPT FLUSH is not noticed', async (t) => {
  const store = await open(t);
  await lead(store, { key: newKey() });
  await redis.command('SCRIPT', 'FLUSH');
  const lease = await lead(store, { key: newKey() });
  await redis.command('SCRIPT', 'FLUSH');
  t.equal(await store.renew(lease), 'held');
  await redis.command('SCRIPT', 'FLUSH');
  t.equal(await store.complete(lease, responseWith(Buffer.from('x')), 0), 'held');
});

t.test('FLUSHALL: the old leader has lost, its followers learn unknown, fences grow', async (t) => {
  const [leader, follower] = [await open(t), await open(t)];
  const key = newKey();
  const old = await lead(leader, { key });
  const wait = settled(follower, await follow(follower, { key }), 3_000, 200);
  await redis.command('FLUSHALL');
  t.same(await wait, { kind: 'unknown', election: 0 });
  t.equal(await leader.renew(old), 'lost');
  const next = await lead(follower, { key });
  t.ok(next.fence > old.fence);
  t.equal(await leader.complete(old, responseWith(Buffer.from('x')), 0), 'lost');
  t.equal((await follow(leader, { key })).flight, next.flight);
});

t.test('flights ended by an operator while pushes get lost in silence', async (t) => {
  const { proxy, store } = await proxied(t);
  const elsewhere = await open(t);
  proxy.deafenSubscribers();
  const told = new Told();

  await t.test("a word given in the leader's own process is heard all the same", async (t) => {
    const lease = await lead(store, { key: newKey() });
    const turn = await turnAtOnce(store, { key: newKey() });
    store.watch(lease, told);
    store.queue.watch(turn.lease, told);
    t.equal(await store.settle(lease.key, { kind: 'free' }, lease.flight), 'settled');
    t.equal(await store.settle(turn.lease.key, { kind: 'free' }, turn.lease.flight), 'settled');
    t.same(told.flights, [lease.flight, turn.lease.flight]);
  });

  await t.test('of one given elsewhere the renewal tells', async (t) => {
    const lease = await lead(store, { key: newKey() });
    const turn = await turnAtOnce(store, { key: newKey() });
    t.equal(await elsewhere.settle(lease.key, { kind: 'free' }, lease.flight), 'settled');
    t.equal(await elsewhere.settle(turn.lease.key, { kind: 'free' }, turn.lease.flight), 'settled');
    t.equal(await store.renew(lease), 'lost');
    t.equal(await store.queue.renew(turn.lease), 'lost');
  });
});

t.test('flights and turns of an earlier version, which do not say who leads', async (t) => {
  const prefix = 'earlier';
  const [a, b] = [await open(t, { prefix }), await open(t, { prefix })];
  const only = async (key: string) => (await b.taken({ state: 'any', limit: 1_000 })).filter((one) => one.key === key);
  const [inFlight, unknown] = [await lead(a, { key: newKey() }), await lead(a, { key: newKey() })];
  for (const { key } of [inFlight, unknown]) await redis.command('HDEL', `${prefix}:{${key}}`, 'p');
  await a.complete(unknown, { kind: 'unknown', election: 0 }, 30_000);
  const { lease: turn } = await turnAtOnce(a, { key: newKey() });
  const turns = `${prefix}:{${turn.key}}:q`;
  const [state, fence, ends, began, hold, token = '', route] = String(
    await redis.command('HGET', turns, `h:${turn.flight}`),
  ).split(' ');
  const note = token.split('@')[0];
  await redis.command('HSET', turns, `h:${turn.flight}`, [state, fence, ends, began, hold, note, route].join(' '));

  t.match(await only(inFlight.key), [{ state: 'in-flight', leader: null }]);
  t.match(await only(unknown.key), [{ state: 'unknown', leader: null }]);
  t.match(await only(turn.key), [{ state: 'in-flight', route: 'route', leader: null }]);
  const told = new Told();
  a.watch(inFlight, told);
  a.queue.watch(turn, told);
  for (const { key, flight } of [inFlight, unknown, turn]) {
    t.equal(await b.settle(key, { kind: 'free' }, flight), 'settled');
    t.same(await only(key), []);
  }
  t.equal(await a.renew(inFlight), 'lost');
  t.equal(await a.queue.renew(turn), 'lost');
  const last = await lead(a, { key: newKey() });
  a.watch(last, told);
  await b.settle(last.key, { kind: 'free' }, last.flight);
  await eventually('the last is told', () => told.flights.length > 0);
  t.same(told.flights, [last.flight], 'of the earlier ones nothing was pushed');
});

t.test('one channel for a process, however much it waits for', async (t) => {
  const prefix = 'channels';
  const stores = [await open(t, { prefix, processId: 'one' }), await open(t, { prefix, processId: 'two' })];
  for (let i = 0; i < 20; i += 1) {
    const key = newKey();
    const lease = await lead(stores[0] as RedisStore, { key });
    const wait = settled(stores[1] as RedisStore, await follow(stores[1] as RedisStore, { key }));
    await stores[0]?.complete(lease, responseWith(Buffer.from('x')), 0);
    await wait;
  }
  const channels = (await redis.command('PUBSUB', 'CHANNELS', `${prefix}:*`)) as string[];
  t.same(channels.sort(), ['channels:p:one', 'channels:p:two']);
  t.same(await redis.command('PUBSUB', 'NUMSUB', ...channels), ['channels:p:one', 1, 'channels:p:two', 1]);
});

t.test('a flight costs two commands and one for each waiting process; a large result one fetch each', async (t) => {
  const audits: string[] = [];
  const log = (_level: string, message: string) => {
    if (message === 'store audited') audits.push(message);
  };
  const stores = [await open(t, { log }), await open(t, { log }), await open(t, { log })] as const;
  // The look at the server has a push of its own.
  await eventually('the audits are over', () => audits.length === stores.length);
  const flight = async (size: number, joinsEach: number) => {
    const key = newKey();
    const lease = await lead(stores[0], { key });
    const waits = [];
    for (const store of stores.slice(1)) {
      const ref = await follow(store, { key });
      for (let i = 0; i < joinsEach; i += 1) waits.push(settled(store, ref));
    }
    await stores[0].complete(lease, responseWith(Buffer.alloc(size)), 0);
    await Promise.all(waits);
  };
  // Every connection has sent each script in full once.
  await flight(100_000, 1);
  for (const [size, fetches] of [
    [1_000, 0],
    [100_000, 2],
  ] as const) {
    await redis.command('CONFIG', 'RESETSTAT');
    await flight(size, 5);
    const counted = await calls();
    t.equal(scripts(counted), 4 + fetches, `scripts for ${size} bytes`);
    t.equal(counted.get('publish'), 2, 'a push to each waiting process, and to no other');
    t.equal(counted.get('subscribe') ?? 0, 0);
  }
});

t.test('leaving costs one command for a process, and none when the flight or the store has ended', async (t) => {
  const [leader, follower] = [await open(t), await open(t)];
  const lease = await lead(leader, { key: newKey() });
  const ref = await follow(follower, { key: lease.key });
  const waits = Array.from({ length: 5 }, () => waitFor(follower, ref));
  await redis.command('CONFIG', 'RESETSTAT');
  for (const wait of waits) await wait.leave();
  await follower.ping();
  t.equal(scripts(await calls()), 1);
  t.equal(await releaseWhenAlone(leader, lease), 'held');

  const next = await lead(leader, { key: newKey() });
  const told = settled(follower, await follow(follower, { key: next.key }));
  const other = await lead(leader, { key: newKey() });
  const cut = t.rejects(settled(follower, await follow(follower, { key: other.key })), UNAVAILABLE);
  await redis.command('CONFIG', 'RESETSTAT');
  await leader.complete(next, responseWith(Buffer.from('x')), 0);
  await told;
  await follower.ping();
  await follower.close();
  await cut;
  await leader.ping();
  t.equal(scripts(await calls()), 1, 'the completion');
});

t.test('a withdrawal that is executed late does not undo a later claim of its process', async (t) => {
  const [leader, follower] = [await open(t), await open(t)];
  const before = await lead(leader, { key: newKey() });
  await waitFor(follower, await follow(follower, { key: before.key })).leave();
  await follower.ping();
  const lease = await lead(leader, { key: newKey() });
  const first = waitFor(follower, await follow(follower, { key: lease.key }));
  // The server has forgotten the withdrawal's script but not the claim's: the client sends it again, after the claim.
  await redis.command('SCRIPT', 'FLUSH');
  await lead(await open(t), { key: newKey() });
  const left = first.leave();
  const wait = settled(follower, await follow(follower, { key: lease.key }));
  await left;
  await follower.ping();
  t.equal(await leader.release(lease, { unlessAwaited: true }), 'awaited');
  await leader.complete(lease, responseWith(Buffer.from('x')), 0);
  t.equal((await wait).kind, 'response');
});

t.test('leaving while the store is away is quiet, and whoever joins afterwards is told', async (t) => {
  const { proxy, store } = await proxied(t);
  const leader = await open(t);
  const lease = await lead(leader, { key: newKey() });
  const wait = waitFor(store, await follow(store, { key: lease.key }));
  proxy.loseReplyTo(lease.flight);
  await wait.leave();
  await untilItAnswers(store);
  const again = settled(store, await follow(store, { key: lease.key }));
  await leader.complete(lease, responseWith(Buffer.from('x')), 0);
  t.equal((await again).kind, 'response');
});

t.test('a frame that cannot be read is unknown to followers and an outage to claims', async (t) => {
  const store = await open(t);
  const key = newKey();
  const kept = await lead(store, { key });
  await store.complete(kept, { kind: 'response', response: anyResponse }, 60_000);
  await redis.command('HSET', `oneflight:{${key}}`, 'b', 'from another version');
  await t.rejects(claim(store, { key }), { ...UNAVAILABLE, cause: { name: 'UnreadableFrame' } });
  const ref = { key, flight: kept.flight, leaseLeftMs: 0, ageMs: 0, election: 2, material: null };
  t.same(await settled(store, ref), { kind: 'unknown', election: 2 });
});

t.test('an operator of whom the answer is lost is told so, and may say it again', async (t) => {
  const { proxy, store } = await proxied(t);
  const other = await open(t);
  const lease = await lead(other, { key: newKey() });
  const as = { kind: 'response', response: anyResponse, keepMs: 5_000 } as const;
  proxy.loseReplyTo(lease.flight);
  t.equal(await store.settle(lease.key, as, lease.flight), 'settled', 'a response is there all the same');
  await untilItAnswers(store);
  proxy.loseReplyTo(lease.flight);
  await t.rejects(store.settle(lease.key, { kind: 'free' }, lease.flight), UNAVAILABLE);
  await untilItAnswers(store);
  t.equal(await store.settle(lease.key, { kind: 'free' }, lease.flight), 'absent');
});

t.test('a flight that an operator has freed cannot begin again', async (t) => {
  const store = await open(t);
  const ask = { key: newKey(), flight: newFlightId() };
  await lead(store, ask);
  await settle(store, ask.key, { kind: 'free' });
  await t.rejects(claim(store, ask), UNAVAILABLE);
});

t.test('what is taken is read under its own prefix only, without the content of anything', async (t) => {
  const own = await ownServer(t);
  const at = (prefix: string) => open(t, { url: own.url, prefix });
  const [odd, like, plain] = [await at('a[b]*?'), await at('abxx'), await at('plain')];
  const key = newKey();
  for (const store of [odd, like, plain]) {
    await store.complete(await lead(store, { key, fingerprint: 'x' }), responseWith(Buffer.alloc(1_000_000)), 9_000);
  }
  await own.command('SET', 'plain:{not a hash}', 'x');
  for (const store of [odd, like, plain]) {
    const sent = async () =>
      Number(/total_net_output_bytes:(\d+)/.exec(String(await own.command('INFO', 'stats')))?.[1]);
    const before = await sent();
    t.match(await store.taken({ state: 'any', limit: 100 }), [{ key, state: 'kept' }]);
    t.ok((await sent()) - before < 20_000);
  }
});

t.test('nothing is left behind: every key that the store wrote expires', async (t) => {
  const own = await ownServer(t);
  const [a, b] = [await open(t, { url: own.url }), await open(t, { url: own.url })];
  const ends = [
    (key: string) => lead(a, { key }),
    async (key: string) => a.complete(await lead(a, { key }), responseWith(Buffer.from('x')), 9_000),
    async (key: string) => {
      const lease = await lead(a, { key });
      await follow(b, { key });
      await a.complete(lease, responseWith(Buffer.from('x')), 0);
    },
    async (key: string) => {
      const lease = await lead(a, { key });
      await follow(b, { key });
      await a.release(lease, { unlessAwaited: false });
    },
  ];
  const more = [
    (key: string) => lead(a, { key, leaseMs: 20_000, holdMs: 10_000 }),
    async (key: string) => a.renew(await lead(a, { key, leaseMs: 20_000, holdMs: 10_000 })),
    async (key: string) => a.complete(await lead(a, { key }), { kind: 'unknown', election: 0 }, 9_000),
    async (key: string) => {
      await lead(a, { key });
      await settle(a, key, { kind: 'free' });
    },
  ];
  for (const end of [...ends, ...more]) await end(newKey());
  const keys = (await own.command('KEYS', '*')) as string[];
  t.equal(keys.length, 8);
  for (const key of keys) {
    const left = Number(await own.command('PTTL', key));
    t.ok(left > 0 && left <= 30_000, `${key} ${left}`);
  }
});

t.test('a server that evicts keys is warned of', async (t) => {
  const own = await ownServer(t);
  await own.command('CONFIG', 'SET', 'maxmemory', '100mb');
  const warned = (policy: string) =>
    new Promise<string>((resolve) => {
      const store = new RedisStore({
        access: accessTo(own.url),
        log: (level, message, { policy: told }) =>
          level === 'warn' && told !== undefined && resolve(`${told}: ${message}`),
      });
      t.teardown(() => store.close());
      void own.command('CONFIG', 'SET', 'maxmemory-policy', policy).then(() => store.open());
      setTimeout(resolve, policy === 'noeviction' ? 500 : 10_000, 'not warned').unref();
    });
  t.equal(await warned('noeviction'), 'not warned');
  t.match(await warned('allkeys-lru'), /^allkeys-lru: .*noeviction/);
});

t.test('a turn and a place whose reply is lost are asked for again and are the same', async (t) => {
  const { proxy, store } = await proxied(t);
  const other = await open(t);
  const ask = { key: newKey(), flight: newFlightId() };
  proxy.loseReplyTo(ask.flight);
  const turn = await turnAtOnce(store, ask);
  t.equal(turn.lease.flight, ask.flight);
  await untilItAnswers(store);
  const waiting = { key: ask.key, flight: newFlightId() };
  proxy.loseReplyTo(waiting.flight);
  const place = await placeIn(store, waiting);
  const next = await placeIn(other, { key: ask.key });
  await untilItAnswers(store);
  await giveBack(store, turn);
  await giveBack(store, await turnOf(store, place));
  await giveBack(other, await turnOf(other, next));
});

t.test('a place that was given up before its question arrived holds up nobody', async (t) => {
  const { proxy, store } = await proxied(t);
  const other = await open(t);
  const key = newKey();
  const turn = await turnAtOnce(other, { key });
  const late = proxy.holdRequests();
  await t.rejects(enter(store, { key }), UNAVAILABLE);
  await untilItAnswers(store);
  // It comes now, from a connection that is gone.
  late();
  await sleep(200);
  const next = await placeIn(other, { key });
  await giveBack(other, turn);
  await giveBack(other, await turnOf(other, next));
});

t.test('a turn whose giving back was not answered is given back all the same', async (t) => {
  const { proxy, store } = await proxied(t);
  const other = await open(t);
  for (let i = 0; i < 3; i += 1) {
    const turn = await turnAtOnce(store, { key: newKey() });
    const next = await placeIn(other, { key: turn.lease.key });
    proxy.loseReplyTo(turn.lease.flight);
    await giveBack(store, turn).catch(() => {});
    await turnOf(other, next);
    await untilItAnswers(store);
  }
});

t.test('a turn whose giving back did not arrive is given back when the store is there again', async (t) => {
  const { proxy, store } = await proxied(t);
  const other = await open(t);
  const turn = await turnAtOnce(store, { key: newKey() });
  const next = await placeIn(other, { key: turn.lease.key });
  proxy.blackHole = true;
  await t.rejects(giveBack(store, turn), UNAVAILABLE);
  // What was begun before this has had no answer either.
  await t.rejects(store.ping(), UNAVAILABLE);
  proxy.cut();
  proxy.blackHole = false;
  await turnOf(other, next, 8_000);
});

t.test('a place is kept through an outage in which it was looked for in vain', async (t) => {
  const { proxy, store } = await proxied(t);
  const other = await open(t);
  const key = newKey();
  const turn = await turnAtOnce(other, { key });
  const place = await placeIn(store, { key });
  await placeIn(other, { key });
  const wait = turnOf(store, place, 10_000, 50);
  proxy.blackHole = true;
  // Longer than a poll and the time for its answer.
  for (let i = 0; i < 2; i += 1) await t.rejects(store.ping(), UNAVAILABLE);
  proxy.cut();
  proxy.blackHole = false;
  await untilItAnswers(store);
  await giveBack(other, turn);
  await wait;
});

t.test('who frees a turn and loses the reply is not told that there was nothing to free', async (t) => {
  const { proxy, store } = await proxied(t);
  const other = await open(t);
  const ask = { key: newKey(), holdMs: 60_000 };
  const { lease } = await turnAtOnce(other, ask);
  await other.queue.complete(lease, { kind: 'unknown', election: 0 }, 60_000);
  proxy.loseReplyTo('\r\nfree\r\n');
  await t.rejects(store.settle(ask.key, { kind: 'free' }, null), UNAVAILABLE);
  await turnAtOnce(other, ask);
});

t.test('the places of a process that is gone do not fill the queue for longer than its lease', async (t) => {
  const gone = await open(t);
  const store = await open(t);
  const ask = { key: newKey(), maxQueue: 1 };
  await turnAtOnce(store, ask);
  await placeIn(gone, { ...ask, leaseMs: 300 });
  t.equal((await enter(store, ask)).kind, 'full');
  await gone.close();
  await eventually('there is room', async () => (await enter(store, ask)).kind === 'queued');
});

t.test('a place stands as long as its own lease, whatever others its process had', async (t) => {
  const gone = await open(t);
  const store = await open(t);
  const key = newKey();
  await giveBack(gone, await turnAtOnce(gone, { key, leaseMs: 60_000 }));
  const turn = await turnAtOnce(store, { key });
  await placeIn(gone, { key, leaseMs: 300 });
  const next = await placeIn(store, { key });
  await gone.close();
  await giveBack(store, turn);
  await turnOf(store, next, 3_000, 200);
});
