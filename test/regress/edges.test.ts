/** What happens at the edges: clients that send too much, leave or come back at once, and responses that are large. */

import { once } from 'node:events';
import { connect } from 'node:net';
import t from 'tap';
import { type Answered, burst, RawClient, send } from '../support/client.js';
import { HIT, isProblem, PROMPT_MS, problemOf } from '../support/expect.js';
import { delay, eventually, Gate, within } from '../support/gate.js';
import { allCaughtUp, configOf, type Gateway, startGateway, startGateways } from '../support/gateway.js';
import { startRedis } from '../support/redis.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import {
  answers,
  answersAfter,
  type Behaviour,
  type Call,
  gated,
  inTurn,
  ordinalAnswer,
  resetsAfterReading,
  startUpstream,
} from '../support/upstream.js';
import { chunkBytes } from '../support/wire.js';

t.setTimeout(120_000);

const MiB = 1_048_576;
const DRAIN_MS = 25_000;
/** What a busy machine may add to the answer of a request that has nothing to wait for. */
const LATE_MS = 4_000;

const redis = await startRedis();
t.teardown(() => redis.stop());
const upstream = await startUpstream(t);

const ROUTES = `
  - name: shared
    match: { path: /shared/* }
    upstream: api
    policy: coalesce
    key: [ { request: path } ]
    wait: 10s
  - name: kept
    match: { path: /kept/* }
    upstream: api
    policy: coalesce
    key: [ { request: path } ]
    keep: 60s
  - name: elect
    match: { path: /elect/* }
    upstream: api
    policy: coalesce
    key: [ { request: path } ]
    onLeaderFailure: elect
    elections: 1
    wait: 10s
  - name: patient
    match: { path: /patient }
    upstream: api
    policy: coalesce
    scope: patience
    key: [ { query: k } ]
    wait: 7s
  - name: hasty
    match: { path: /hasty }
    upstream: api
    policy: coalesce
    scope: patience
    key: [ { query: k } ]
    wait: 1s
  - name: lock
    match: { path: /lock/* }
    upstream: api
    policy: reject
    key: [ { request: path } ]
  - name: forward
    match: { path: /forward/* }
    upstream: api
    policy: coalesce
    key: [ { request: path } ]
    identity: public
    onUnshareable: forward
  - name: keyless
    match: { path: /keyless/* }
    upstream: api
    policy: coalesce
    key: [ { body: /a } ]
  - name: gone
    match: { path: /gone/pass }
    upstream: gone
    policy: pass
  - name: gone-shared
    match: { path: /gone/shared }
    upstream: gone
    policy: coalesce
    key: [ { request: path } ]
  - name: gone-keyless
    match: { path: /gone/keyless }
    upstream: gone
    policy: coalesce
    key: [ { body: /a } ]`;

function configFor(store: string): string {
  return configOf({
    upstream: upstream.url,
    upstreams: '  gone: { url: "http://127.0.0.1:1", timeouts: { connect: 2s, headers: 20s, body: 10s } }',
    store,
    routes: ROUTES,
    more: `drain: ${DRAIN_MS}ms`,
  });
}

const alone = await startGateway(t, { config: configFor('{ kind: memory }') });
const gateways = (await startGateways(t, 3, {
  config: configFor(`{ kind: redis, url: "${redis.url}", commandTimeout: 2s }`),
})) as [Gateway, Gateway, Gateway];

function post(gateway: Gateway, path: string): Promise<Answered> {
  return gateway.request({ method: 'POST', path });
}

t.test('a CONNECT whose connection is reset does not end the process', async (t) => {
  const target = new URL(alone.url);
  for (let round = 0; round < 100; round += 1) {
    const socket = connect({ host: target.hostname, port: Number(target.port) });
    socket.on('error', () => {});
    await once(socket, 'connect');
    await new Promise((resolve) => socket.write('CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n', resolve));
    socket.resetAndDestroy();
    if (round % 10 === 0) await delay(5);
  }
  await delay(100);
  t.ok(alone.running, 'it goes on');
  t.equal((await alone.request({ path: '/plain' })).status, 200);
});

t.test('whoever asks again at once after the leader’s client left is answered promptly', async (t) => {
  const proxy = await TcpProxy.start(t, redis.port);
  proxy.delayMs = 15;
  const gateway = await startGateway(t, {
    config: configFor(`{ kind: redis, url: "redis://127.0.0.1:${proxy.port}" }`),
  });
  const again = await burst(20, async (index) => {
    const path = `/shared/reload-${index}`;
    upstream.on(path, answersAfter(400));
    const first = send(gateway.url, { path });
    first.answer.catch(() => {});
    await upstream.arrived(1, path);
    first.leave();
    // The gateway is asking the store to let go of the key, or is about to.
    await delay(index * 2);
    return gateway.request({ path });
  });
  for (const answer of again) t.equal(answer.status, 200, problemOf(answer) ?? '');
  const slowest = Math.max(...again.map((answer) => answer.elapsedMs));
  t.ok(slowest < LATE_MS, `the slowest after ${Math.round(slowest)} ms`);
});

t.test('many large kept responses at once are served from the store, and disturb nobody', async (t) => {
  const keys = Array.from({ length: 60 }, (_, index) => `/kept/large-${index}`);
  const small = Array.from({ length: 10 }, (_, index) => `/shared/small-${index}`);
  const content = Buffer.alloc(MiB, 'k');
  for (const path of keys) upstream.on(path, answers({ content }));
  for (const path of small) upstream.on(path, answersAfter(1_000));
  for (const path of keys) await post(gateways[0], path);

  const hits = Promise.all(keys.map((path, index) => post(gateways[index % 2]!, path)));
  const others = Promise.all(small.flatMap((path) => [post(gateways[0], path), post(gateways[1], path)]));
  const found = await hits;
  t.ok(
    found.every((answer) => answer.status === 200 && answer.body.equals(content)),
    'every one is whole',
  );
  t.ok(
    found.every((answer) => HIT.test(answer.cacheStatus ?? '')),
    'every one is a hit',
  );
  t.equal(keys.filter((path) => upstream.count(path) !== 1).length, 0, 'no call is repeated');
  for (const [index, { status, text }] of (await others).entries()) {
    const path = small[Math.floor(index / 2)]!;
    t.same([status, text], [200, `{"path":"${path}","call":1}`], path);
  }
  t.equal(small.filter((path) => upstream.count(path) !== 1).length, 0, 'one call each');
});

t.test('one leader follows a failed flight, over all processes, however fast it fails too', async (t) => {
  const failing = new Gate();
  const keys = Array.from({ length: 20 }, (_, index) => `/elect/${index}`);
  for (const path of keys) upstream.on(path, inTurn(gated(failing, resetsAfterReading), resetsAfterReading));
  const asked = burst(120, (index) => post(gateways[index % 3]!, keys[Math.floor(index / 6)]!));
  for (const path of keys) await upstream.arrived(1, path);
  await allCaughtUp(gateways);
  failing.open();
  const all = await asked;
  for (const answer of all) t.not(problemOf(answer), null);
  const counts = keys.map((path) => upstream.count(path));
  t.ok(
    counts.every((count) => count <= 2),
    `calls a key: ${counts.join()}`,
  );
});

t.test('more than 2,000 fields in front of Content-Length arrive, and so does the content', async (t) => {
  const count = 2_100;
  const fields = Array.from({ length: count }, (_, index) => `a${index}:b\r\n`).join('');
  for (const path of ['/plain/many', '/shared/many']) {
    const client = await RawClient.connect(alone.url);
    client.write(`POST ${path} HTTP/1.1\r\nHost: a\r\n${fields}Content-Length: 5\r\n\r\nhello`);
    t.equal((await client.answer())?.status, 200, path);
    client.close();
    const [call] = upstream.callsOf(path);
    t.equal(call?.content?.toString(), 'hello', `${path}: content`);
    t.equal(call?.fields.filter((field) => /^a\d+$/.test(field)).length, count, `${path}: fields`);
  }
});

/** Events without an end, until the connection is closed. */
const streamsEvents: Behaviour = async (call) => {
  await call.received;
  call.head(200, 'OK', ['Content-Type', 'text/event-stream', 'Transfer-Encoding', 'chunked']);
  const timer = setInterval(() => call.raw(chunkBytes(Buffer.from('data: x\n\n'))), 50);
  await call.closed;
  clearInterval(timer);
};

/** A download of 400 MiB, too large to be shared, at 1 MiB every 20 ms. */
const sendsMuch: Behaviour = async (call) => {
  await call.received;
  call.head(200, 'OK', ['Content-Type', 'application/zip', 'Content-Length', String(400 * MiB)]);
  const piece = Buffer.alloc(MiB);
  for (let sent = 0; sent < 400 && !call.socket.destroyed; sent += 1) {
    if (!call.socket.write(piece)) {
      await Promise.race([new Promise((resolve) => call.socket.once('drain', resolve)), call.closed]);
    }
    await delay(20);
  }
  if (!call.socket.destroyed) call.finish();
};

t.test('a response that nobody else gets ends when its only client leaves', async (t) => {
  for (const [name, store] of [
    ['memory', '{ kind: memory }'],
    ['redis', `{ kind: redis, url: "${redis.url}", commandTimeout: 2s }`],
  ] as const) {
    const gateway = await startGateway(t, { config: configFor(store) });
    const leaves = async (path: string, behaviour: Behaviour): Promise<void> => {
      upstream.on(path, behaviour);
      const client = send(gateway.url, { path });
      await client.started;
      await delay(100);
      client.leave();
      const [call] = upstream.callsOf(path) as [Call];
      const ended = within(LATE_MS, 'the end of the call', call.closed).then(
        () => 'ended',
        () => 'goes on',
      );
      t.equal(await ended, 'ended', path);
      t.ok(call.aborted, `${path}: before its end`);
    };
    await leaves(`/shared/events-${name}`, streamsEvents);
    await leaves(`/shared/download-${name}`, sendsMuch);
    await eventually('no flight is left', async () => {
      return (await gateway.metrics()).sum('oneflight_flights_in_progress') === 0;
    }).catch((error: Error) => t.fail(error.message));

    const path = `/shared/events-last-${name}`;
    upstream.on(path, streamsEvents);
    const last = send(gateway.url, { path });
    await last.started;
    last.leave();
    const began = performance.now();
    await gateway.stop();
    const tookMs = performance.now() - began;
    t.ok(tookMs < DRAIN_MS / 4, `${name}: ended after ${Math.round(tookMs)} ms`);
  }
});

t.test('who waits 1 s waits 1 s, whoever waits longer for the same flight', async (t) => {
  const patient = upstream.holds('/patient');
  const leader = post(alone, '/patient?k=1');
  await patient.arrived(1);
  const follower = post(alone, '/patient?k=1');
  await alone.caughtUp();
  const hasty = await post(alone, '/hasty?k=1');
  isProblem(t, hasty, 'wait-timeout');
  t.ok(hasty.elapsedMs > 900 && hasty.elapsedMs < 1_000 + PROMPT_MS, `after ${Math.round(hasty.elapsedMs)} ms`);
  patient.release();
  for (const answer of [leader, follower]) t.equal((await answer).status, 200);
  t.equal(upstream.count('/patient'), 1);
  t.equal(upstream.count('/hasty'), 0);
});

t.test('an upload that nobody reads gets its answer, and so does the next request behind it', async (t) => {
  const size = 8_000_000;
  const lock = upstream.holds('/lock/upload');
  const holder = post(alone, '/lock/upload');
  await lock.arrived(1);
  for (const [line, status] of [
    ['POST /gone/pass', 502],
    ['POST /gone/shared', 502],
    ['POST /lock/upload', 409],
  ] as const) {
    const client = await RawClient.connect(alone.url);
    client.write(`${line} HTTP/1.1\r\nHost: a\r\nContent-Length: ${size}\r\n\r\n`);
    // It has been answered by the time the most of the content comes.
    await delay(100);
    const sent = new Promise((resolve) => client.socket.write(Buffer.alloc(size, 'a'), resolve));
    const taken = within(LATE_MS, 'the upload', sent).then(
      () => true,
      () => false,
    );
    if (t.ok(await taken, `${line}: the upload is taken`)) {
      t.equal((await client.answer())?.status, status, line);
      client.write('GET /plain/next HTTP/1.1\r\nHost: a\r\n\r\n');
      t.equal((await client.answer())?.status, 200, `${line}: the next one`);
    }
    client.close();
  }
  lock.release();
  t.equal((await holder).status, 200);
});

async function unprotectedOf(route: string): Promise<number> {
  return (await alone.metrics()).sum('oneflight_unprotected_requests_total', { route });
}

t.test('a request that was sent unprotected is counted, whatever becomes of it', async (t) => {
  const failed = await alone.request({ method: 'POST', path: '/gone/keyless', body: 'x' });
  t.equal(failed.status, 502);
  t.notMatch(failed.cacheStatus ?? '', /collapsed/);
  t.equal(await unprotectedOf('gone-keyless'), 1, 'the upstream was not there');

  const path = '/keyless/left';
  const held = upstream.holds(path);
  const { answer, leave } = alone.send({ method: 'POST', path, body: 'x' });
  answer.catch(() => {});
  await held.arrived(1);
  leave();
  await eventually('it has left', async () => {
    return (await alone.metrics()).sum('oneflight_requests_total', { route: 'keyless', outcome: 'left' }) === 1;
  });
  t.equal(await unprotectedOf('keyless'), 1, 'its client left');
  held.release();
});

t.test('followers that were sent on alone are nobody’s followers when that fails', async (t) => {
  const path = '/forward/cookie';
  const first = new Gate();
  const withCookie = answers({ fields: ['Set-Cookie', 'a=b'], content: 'ok' });
  upstream.on(path, inTurn(gated(first, withCookie), resetsAfterReading));
  const leader = alone.request({ path });
  await upstream.arrived(1, path);
  const followers = burst(2, () => alone.request({ path }));
  await alone.caughtUp();
  first.open();
  t.equal((await leader).status, 200);
  for (const answer of await followers) {
    t.equal(answer.status, 502);
    t.notMatch(answer.cacheStatus ?? '', /collapsed/);
  }
  t.equal(await unprotectedOf('forward'), 2);
});

t.test('what cannot be read behind a request is not answered in its place', async (t) => {
  const behind = ['\x00\x01garbage\r\n\r\n', 'CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n'];
  for (const [index, bytes] of behind.entries()) {
    for (const route of ['plain', 'shared', 'lock']) {
      for (const together of [true, false]) {
        const path = `/${route}/behind-${index}-${together}`;
        upstream.on(path, answersAfter(200, ordinalAnswer));
        const client = await RawClient.connect(alone.url);
        const head = `POST ${path} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n`;
        client.write(together ? head + bytes : head);
        if (!together) {
          await upstream.arrived(1, path);
          client.write(bytes);
        }
        const answer = await client.answer();
        t.ok(answer === null || answer.text === `{"path":"${path}","call":1}`, `${path}: ${answer?.status ?? 'cut'}`);
        client.close();
      }
    }
  }
});
