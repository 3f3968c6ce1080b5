/** Clients that leave at awkward moments: everything that was theirs is over, and what others wait for is not. */

import { spawn } from 'node:child_process';
import { connect, type Socket } from 'node:net';
import t, { type Test } from 'tap';
import { RawClient, send } from '../support/client.js';
import { COLLAPSED, PROMPT_MS, problemOf } from '../support/expect.js';
import { delay, eventually } from '../support/gate.js';
import { configOf, type Gateway, type Samples, startGateway, startGateways } from '../support/gateway.js';
import { startRedis } from '../support/redis.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { startUpstream } from '../support/upstream.js';

t.setTimeout(90_000);

const DRAIN_MS = 25_000;
const upstream = await startUpstream(t);

/** Number of requests of a route whose clients left. */
function leftOf(metrics: Samples, route: string): number {
  return metrics.sum('oneflight_requests_total', { route, outcome: 'left' });
}

t.test('requests that wait their turn on a connection end with it', async (t) => {
  const config = configOf({
    upstream: upstream.url,
    routes: `
  - name: lock
    match: { path: /lock/* }
    policy: reject
    key: [ { request: path } ]
  - name: shared
    match: { path: /shared/* }
    policy: coalesce
    key: [ { request: path } ]
    keep: 0`,
    more: `drain: ${DRAIN_MS}ms`,
  });
  const gateway = await startGateway(t, { config });
  const paths = ['/plain/1', '/lock/1', '/shared/1', '/shared/2', '/plain/2'] as const;
  const held = paths.map((path) => upstream.holds(path, { content: Buffer.alloc(4_000_000, 'a') }));
  const client = await RawClient.connect(gateway.url);
  client.socket.pause();
  const [plain, lock, shared, posted, last] = paths;
  client.write(
    [`GET ${plain}`, `POST ${lock}`, `GET ${shared}`, `POST ${posted}`, `GET ${last}`]
      .map((line) => `${line} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n`)
      .join(''),
  );
  await Promise.all(held.map((calls) => calls.arrived(1)));
  client.close();

  await eventually('every request is counted', async () => {
    const metrics = await gateway.metrics();
    const counts = ['unmatched', 'lock', 'shared'].map((route) => leftOf(metrics, route));
    return counts.join() === '2,1,2';
  });
  // What may matter goes on without its client; what is safe ends with it.
  await upstream.callsOf(shared)[0]!.closed;
  t.equal((await gateway.request({ method: 'POST', path: lock })).status, 409, 'the call goes on');
  for (const calls of held) calls.release();
  await eventually('no flight is left', async () => {
    return (await gateway.metrics()).sum('oneflight_flights_in_progress') === 0;
  });
  for (const path of [lock, shared, posted]) {
    const answer = await gateway.request({ method: path === shared ? 'GET' : 'POST', path });
    t.equal(answer.status, 200, `${path}: free`);
    t.equal(upstream.count(path), 2);
  }
  const metrics = await gateway.metrics();
  t.same(metrics.outcomes('unmatched'), { left: 2 });
  t.same(metrics.outcomes('lock'), { left: 1, 'in-flight': 1, led: 1 });
  t.same(metrics.outcomes('shared'), { left: 2, led: 2 });

  const stopping = performance.now();
  await gateway.stop();
  t.ok(performance.now() - stopping < DRAIN_MS / 2, `ended after ${Math.round(performance.now() - stopping)} ms`);
});

type Closed = {
  readonly url: string;
  /** From now on connections are made, those that hang too. */
  open(): void;
};

/** A way to the upstream on which connecting hangs until it is opened: stopped, and its accept queue full. */
async function startClosedWay(t: Test, port: number): Promise<Closed> {
  const script = `const net = require('net');
    const relay = net.createServer((near) => {
      const far = net.connect(${port}, '127.0.0.1');
      for (const end of [near, far]) end.on('error', () => { near.destroy(); far.destroy(); });
      near.pipe(far).pipe(near);
    });
    relay.listen({ host: '127.0.0.1', port: 0, backlog: 1 }, () => process.stdout.write(String(relay.address().port)));`;
  const child = spawn(process.execPath, ['-e', script], { stdio: ['ignore', 'pipe', 'inherit'] });
  const fillers: Socket[] = [];
  t.teardown(() => {
    for (const filler of fillers) filler.destroy();
    child.kill('SIGKILL');
  });
  const way = Number(await new Promise<Buffer>((resolve) => child.stdout.once('data', resolve)));
  child.kill('SIGSTOP');
  for (let stuck = 0; stuck < 2; ) {
    const filler = connect({ host: '127.0.0.1', port: way });
    filler.on('error', () => {});
    fillers.push(filler);
    const made = new Promise<boolean>((resolve) => filler.once('connect', () => resolve(true)));
    if (!(await Promise.race([made, delay(150).then(() => false)]))) stuck += 1;
  }
  return {
    url: `http://127.0.0.1:${way}`,
    open: () => {
      for (const filler of fillers) filler.destroy();
      child.kill('SIGCONT');
    },
  };
}

t.test('a leader’s client that leaves before the upstream is connected takes nobody with it', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  const way = await startClosedWay(t, upstream.port);
  const config = configOf({
    upstream: upstream.url,
    upstreams: `  slow: { url: "${way.url}", timeouts: { connect: 20s, headers: 20s, body: 10s } }`,
    store: `{ kind: redis, url: "${redis.url}", commandTimeout: 2s }`,
    routes: `
  - name: slow
    match: { path: /slow/* }
    upstream: slow
    policy: coalesce
    key: [ { request: path } ]
    lease: 3s
    wait: { max: 30s, poll: 10s }
    keep: 0`,
  });
  const [here, there] = (await startGateways(t, 2, { config })) as [Gateway, Gateway];
  const path = '/slow/order';
  const leader = send(here.url, { method: 'POST', path });
  const alone = send(here.url, { method: 'POST', path: '/slow/alone' });
  await eventually('both are led', async () => {
    return (await here.metrics()).sum('oneflight_flights_in_progress', { route: 'slow' }) === 2;
  });
  const follower = there.request({ method: 'POST', path });
  await there.caughtUp();
  for (const { leave, answer } of [leader, alone]) {
    leave();
    await t.rejects(answer);
  }
  await eventually('it is known that they left', async () => {
    return leftOf(await here.metrics(), 'slow') === 2;
  });
  t.equal((await here.metrics()).sum('oneflight_flights_in_progress', { route: 'slow' }), 2, 'the calls go on');
  way.open();
  const answer = await follower;
  t.equal(answer.status, 200);
  t.equal(answer.cacheStatus, COLLAPSED);
  t.equal(answer.text, `{"path":"${path}","call":1}`);
  t.equal(upstream.count(path), 1);
  await upstream.arrived(1, '/slow/alone');
});

t.test('who leaves before its claim is answered takes nobody with it: a follower elsewhere leads', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  const proxy = await TcpProxy.start(t, redis.port);
  const routes = `
  - name: fresh
    match: { methods: [POST], path: /fresh }
    policy: coalesce
    key: [ { request: path } ]
    wait: { max: 20s, poll: 15s }
  - name: waits
    match: { methods: [POST], path: /waits }
    policy: replay
    wait: { max: 20s, poll: 15s }`;
  const configFor = (port: number) =>
    configOf({
      upstream: upstream.url,
      store: `{ kind: redis, url: "redis://127.0.0.1:${port}", commandTimeout: 300ms }`,
      routes,
    });
  const [slow, near] = await Promise.all([
    startGateway(t, { config: configFor(proxy.port) }),
    startGateway(t, { config: configFor(redis.port) }),
  ]);
  for (const path of ['/fresh', '/waits']) {
    proxy.delayMs = 100;
    const ask = { method: 'POST', path, headers: ['Idempotency-Key', 'one'], body: 'x' };
    const leaving = slow.send(ask);
    await leaving.sent;
    await delay(20);
    leaving.leave();
    await t.rejects(leaving.answer);
    // Its claim is in the store by now, and the answer on its way.
    await delay(100);
    const answer = await near.request(ask);
    t.equal(answer.status, 200, `${path}: ${problemOf(answer)}`);
    t.equal(upstream.count(path), 1);
    t.ok(answer.elapsedMs < PROMPT_MS);
    proxy.delayMs = 0;
  }
});
