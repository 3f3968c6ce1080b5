/** What the upstream is told about a flight: a number that only grows, and a key that stays over attempts. */

import t from 'tap';
import type { Answered } from '../support/client.js';
import { isProblem, problemOf } from '../support/expect.js';
import { delay, eventually, Gate } from '../support/gate.js';
import { configOf, type Gateway, startGateway, startGateways } from '../support/gateway.js';
import { startRedis } from '../support/redis.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import {
  answers,
  type Behaviour,
  type Call,
  inTurn,
  ordinalAnswer,
  resetsAfterReading,
  startUnconnectable,
  startUpstream,
} from '../support/upstream.js';

t.setTimeout(120_000);

const LEASE_MS = 1_500;
const redis = await startRedis();
t.teardown(() => redis.stop());
const unconnectable = await startUnconnectable(t);

const route = (name: string, forward: string, more = '') => `
  - name: ${name}
    match: { path: "/${name}/*" }
    policy: replay
    onUnknown: release
    lease: ${LEASE_MS}ms
    ${forward === '' ? '' : `forward: ${forward}`}
    ${more === '' ? 'upstream: api' : more}`;
const configFor = (upstream: string, store: string) =>
  configOf({
    upstream,
    store,
    upstreams: `
  unconnectable: { url: "${unconnectable.url}", timeouts: { connect: 30s, headers: 2s, body: 2s } }`,
    routes: [
      route('fenced', '{ fence: X-Fence, idempotencyKey: X-Operation }'),
      route('renamed', '{ idempotencyKey: Idempotency-Key }'),
      route('unfenced', ''),
      route('unsent', '{ fence: X-Fence }', 'upstream: unconnectable'),
    ].join(''),
  });
const overRedis = `{ kind: redis, url: "${redis.url}", commandTimeout: 2s }`;

function post(gateway: Gateway, path: string, headers: readonly string[] = [], key = path): Promise<Answered> {
  return gateway.request({ method: 'POST', path, headers: ['Idempotency-Key', key, ...headers], body: 'A' });
}

const fenceOf = (call: Call): number => Number(call.header('x-fence'));

for (const [name, store, processes] of [
  ['the memory store', '{ kind: memory }', 1],
  ['Redis', overRedis, 2],
] as const) {
  t.test(`with ${name} the fence grows over the leaders of a key, and its derived key stays`, async (t) => {
    const upstream = await startUpstream(t);
    const gateways = await startGateways(t, processes, { config: configFor(upstream.url, store) });
    const path = '/fenced/grows';
    upstream.on(
      path,
      inTurn(
        resetsAfterReading,
        answers({ status: 503 }),
        resetsAfterReading,
        answers({ status: 429 }),
        answers(ordinalAnswer),
      ),
    );
    const own = ['X-Fence', '999999999999999999', 'x-fence', '7', 'X-OPERATION', 'mine'];
    for (let turn = 0; turn < 5; turn += 1) await post(gateways[turn % processes]!, path, own);
    t.equal((await post(gateways[0]!, path, own)).header('idempotent-replayed'), 'true');
    const calls = upstream.callsOf(path);
    t.equal(calls.length, 5);
    const fences = calls.map(fenceOf);
    for (const call of calls) {
      t.match(call.headerLines('x-fence').join(), /^[1-9]\d*$/, "one line, and not the client's");
      t.equal(call.headerLines('x-operation').length, 1);
      t.equal(call.header('idempotency-key'), path, "the client's own key is passed on");
    }
    t.same(
      fences,
      [...new Set(fences)].sort((a, b) => a - b),
    );
    t.ok(fences.every(Number.isSafeInteger), fences.join());

    const operation = calls[0]!.header('x-operation')!;
    t.same([...new Set(calls.map((call) => call.header('x-operation')))], [operation]);
    const { flights } = (await gateways[0]!.admin('/flights?state=kept')).json() as { flights: { key: string }[] };
    t.equal(flights.length, 1);
    t.not(operation, flights[0]!.key, 'not the digest');
    t.not(operation, path);
    const bypassed = await gateways[0]!.request({ method: 'POST', path: '/fenced/bypassed', headers: own });
    t.match(bypassed.header('cache-status'), /fwd=bypass/);
    t.same(
      upstream.callsOf('/fenced/bypassed')[0]!.headerLines('x-fence'),
      [],
      'no client has a fence of its own making',
    );
    await post(gateways[0]!, path, own, 'another');
    await post(gateways[0]!, path, [...own, 'Authorization', 'a']);
    t.equal(new Set(upstream.callsOf(path).map((call) => call.header('x-operation'))).size, 3);
    t.equal(upstream.count(path), 7);

    await post(gateways[0]!, '/renamed/key', [], '"client"');
    const [renamed] = upstream.callsOf('/renamed/key');
    t.match(renamed!.headerLines('idempotency-key').join('|'), /^[\w-]{43}$/, 'in the place of the client’s');
    t.equal(renamed!.header('x-fence'), null);
  });
}

for (const rule of ['unfenced', 'fenced']) {
  t.test(`a request on its way while its leader is frozen past the lease (${rule})`, async (t) => {
    const upstream = await startUpstream(t);
    const proxy = await TcpProxy.start(t, upstream.port);
    const frozen = await startGateway(t, { config: configFor(`http://127.0.0.1:${proxy.port}`, overRedis) });
    const there = await startGateway(t, { config: configFor(upstream.url, overRedis) });
    const path = `/${rule}/late`;
    // An upstream that executes what it is asked, unless it is fenced and has seen a larger number.
    let highest = 0;
    const executed: Call[] = [];
    const guarded: Behaviour = async (call) => {
      await call.received;
      const fence = fenceOf(call);
      if (rule === 'fenced' && fence < highest) return call.answer({ status: 412, content: 'stale' });
      highest = Math.max(highest, fence);
      executed.push(call);
      call.answer({ content: `executed ${executed.length}` });
    };
    upstream.on(path, guarded);
    const late = new Gate();
    proxy.heldUntil = late.opened;
    const first = post(frozen, path);
    await eventually(
      'the first request being sent',
      async () => (await frozen.metrics()).sum('oneflight_upstream_calls_total', { route: rule }) === 1,
    );
    frozen.pause();
    await eventually('the second leader', async () => (await post(there, path)).status === 200, 6_000);
    t.equal(executed.length, 1);
    late.open();
    await upstream.arrived(2, path);
    frozen.resume();
    const answer = await first;
    if (rule === 'fenced') {
      t.ok(fenceOf(upstream.callsOf(path)[1]!) < fenceOf(executed[0]!), 'the frozen leader has the smaller number');
      t.equal(answer.status, 412, 'refused');
      t.equal(executed.length, 1, 'executed once');
    } else {
      t.equal(answer.status, 200);
      t.equal(executed.length, 2, 'without a fence nobody can tell');
    }
    for (const gateway of [frozen, there]) {
      const again = await post(gateway, path);
      t.equal(again.text, 'executed 1', 'the record is that of the second leader');
      t.equal(again.header('idempotent-replayed'), 'true');
    }
    t.equal(upstream.count(path), 2);
  });
}

t.test('a leader that was frozen before it had sent anything sends nothing', async (t) => {
  const upstream = await startUpstream(t);
  const [frozen, there] = (await startGateways(t, 2, { config: configFor(upstream.url, overRedis) })) as [
    Gateway,
    Gateway,
  ];
  const path = '/unsent/late';
  const first = post(frozen, path);
  await frozen.caughtUp();
  isProblem(t, await post(there, path), 'in-flight', LEASE_MS / 1000);
  frozen.pause();
  await delay(LEASE_MS + 300);
  const second = post(there, path);
  await there.caughtUp();
  unconnectable.open();
  await eventually('the request of the second leader', () => unconnectable.received().includes(path));
  frozen.resume();
  const answer = await first;
  t.equal(problemOf(answer), 'leader-failed');
  t.equal((await frozen.metrics()).sum('oneflight_upstream_calls_total', { route: 'unsent' }), 0);
  isProblem(t, await second, 'outcome-unknown');
  t.equal(unconnectable.received().split(path).length - 1, 2, 'one request arrived: its target and its key');
  const fences = [...unconnectable.received().matchAll(/x-fence: (\d+)/gi)];
  t.equal(fences.length, 1, 'that of the second leader');
});
