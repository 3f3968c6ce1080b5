/** Several addresses behind one name: who gets the next request, who gets it when that one fails, and who gets none. */

import { createHash, randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { isProblem } from '../support/expect.js';
import { delay, eventually, Gate, within } from '../support/gate.js';
import { configOf, type Gateway, startGateway } from '../support/gateway.js';
import { freePort } from '../support/ports.js';
import { type StubUpstream, startUnconnectable, startUpstream } from '../support/upstream.js';

t.setTimeout(120_000);

const ROUTES = `
  - name: read
    match: { path: /read/* }
    upstream: api
    policy: coalesce
    key: [ { request: path } ]
    onUnshareable: fail
  - name: pay
    match: { path: /pay/* }
    upstream: api
    policy: reject
    key: [ { request: path } ]`;

function gatewayOf(t: Test, api: string): Promise<Gateway> {
  const config = configOf({ upstream: 'http://127.0.0.1:1', routes: ROUTES }).replace(
    /^ {2}api: .*$/m,
    `  api: ${api}`,
  );
  return startGateway(t, { config });
}

const urlsOf = (stubs: readonly { readonly url: string }[]) => `urls: [${stubs.map(({ url }) => url).join(', ')}]`;
const both = (t: Test) => Promise.all([startUpstream(t), startUpstream(t)]);
const counts = (stubs: readonly StubUpstream[]) => stubs.map((stub) => stub.count());

t.test('addresses get requests in turn', async (t) => {
  const stubs = await Promise.all([1, 2, 3].map(() => startUpstream(t)));
  const gateway = await gatewayOf(t, `{ ${urlsOf(stubs)} }`);
  for (let i = 0; i < 9; i++) t.equal((await gateway.request({ path: `/a/${i}` })).status, 200);
  t.same(counts(stubs), [3, 3, 3]);
});

t.test('with least-pending, an address that is busy gets no more while another one is not', async (t) => {
  const stubs = await both(t);
  const held = stubs.map((stub) => stub.holds('/slow'));
  const gateway = await gatewayOf(t, `{ ${urlsOf(stubs)}, balance: least-pending }`);
  const slow = gateway.send({ path: '/slow' });
  await eventually('the slow one arriving', () => counts(stubs).includes(1));
  const busy = stubs[0].count() === 1 ? 0 : 1;
  for (let i = 0; i < 6; i++) t.equal((await gateway.request({ path: `/a/${i}` })).status, 200);
  t.equal(stubs[busy]!.count(), 1);
  t.equal(stubs[1 - busy]!.count(), 6);
  for (const one of held) one.release();
  t.equal((await slow.answer).status, 200);
});

t.test('a request of which nothing was written goes to another address, with all of its content', async (t) => {
  const [gone, there] = await both(t);
  const unconnectable = await startUnconnectable(t);
  await gone.refuse();
  const urls = urlsOf([gone, unconnectable, there]);
  const gateway = await gatewayOf(t, `{ ${urls}, eject: false, timeouts: { connect: 200ms, headers: 20s } }`);
  const content = randomBytes(700_000);
  const digest = createHash('sha256').update(content).digest('hex');
  there.on('/sum', async (call) => {
    const { bytes } = await call.received;
    call.answer({ content: createHash('sha256').update(bytes).digest('hex') });
  });
  for (const path of ['/sum', '/sum', '/sum']) {
    const sized = await gateway.request({ method: 'POST', path, body: content });
    t.equal(sized.text, digest, 'content with a length');
    const chunked = { method: 'POST', path, headers: ['Transfer-Encoding', 'chunked'], body: content };
    t.equal((await gateway.request(chunked)).text, digest, 'content in chunks');
  }
  for (const path of ['/read/1', '/pay/1', '/read/2', '/pay/2']) {
    t.equal((await gateway.request({ method: 'POST', path, body: 'x' })).status, 200, path);
  }
  t.equal(there.count(), 10);
  const retried = (await gateway.metrics()).sum('oneflight_upstream_retries_total', { upstream: 'api' });
  t.ok(retried >= 10, `${retried} further attempts`);
});

t.test('attempts end with the retries, and with the addresses', async (t) => {
  const [first, second] = await both(t);
  const third = await startUpstream(t);
  await Promise.all([first.refuse(), second.refuse()]);
  const once = await gatewayOf(t, `{ ${urlsOf([first, second, third])}, retries: 0, eject: false }`);
  const statuses = [];
  for (let i = 0; i < 3; i++) statuses.push((await once.request({ path: '/a' })).status);
  t.same(statuses.sort(), [200, 502, 502]);
  await third.refuse();
  const often = await gatewayOf(t, `{ ${urlsOf([first, second, third])}, retries: 10 }`);
  isProblem(t, await often.request({ path: '/a' }), 'upstream-unreachable');
  isProblem(t, await often.request({ path: '/pay/a' }), 'upstream-unreachable');
  await third.listen();
  t.equal((await often.request({ path: '/pay/a' })).status, 200, 'the key is free');
});

t.test('what was written is not sent again', async (t) => {
  const stubs = await both(t);
  const gateway = await gatewayOf(t, `{ ${urlsOf(stubs)}, eject: false }`);
  for (const stub of stubs) for (const path of ['/a', '/pay/a']) stub.on(path, (call) => call.reset());
  isProblem(t, await gateway.request({ method: 'POST', path: '/a', body: 'x' }), 'upstream-unreachable');
  isProblem(t, await gateway.request({ path: '/a' }), 'upstream-unreachable');
  isProblem(t, await gateway.request({ method: 'POST', path: '/pay/a', body: 'x' }), 'outcome-unknown');
  t.equal(stubs[0].count() + stubs[1].count(), 3);
});

t.test(
  'a kept connection that its upstream has closed costs a safe request nothing, and no other is repeated',
  async (t) => {
    const stub = await startUpstream(t);
    const gateway = await gatewayOf(t, `{ url: ${stub.url} }`);
    const served = new WeakSet<object>();
    // As when the upstream closes an idle connection at the moment at which a request comes.
    const onlyFirst = (path: string) =>
      stub.on(path, (call) => {
        if (served.has(call.socket)) return call.reset();
        served.add(call.socket);
        call.answer({ content: 'done' });
      });
    for (const path of ['/a', '/read/a', '/pay/a', '/post', '/chunked', '/early']) onlyFirst(path);
    const chunked = ['Transfer-Encoding', 'chunked'];
    for (const [path, method, headers, calls, code] of [
      ['/a', 'GET', [], 2, null],
      ['/read/a', 'GET', [], 2, null],
      ['/post', 'POST', [], 1, 'upstream-unreachable'],
      ['/pay/a', 'POST', [], 1, 'outcome-unknown'],
      ['/chunked', 'POST', chunked, 1, 'upstream-unreachable'],
      ['/early', 'GET', chunked, 1, 'upstream-unreachable'],
    ] as const) {
      const before = stub.count();
      // The connection is made, and kept, by a request of the same kind.
      const request = { method, headers: [...headers], ...(method === 'GET' ? {} : { body: 'x' }) };
      const kind = path.startsWith('/read') ? '/read/warm' : path.startsWith('/pay') ? '/pay/warm' : '/warm';
      stub.on(kind, (call) => {
        served.add(call.socket);
        call.answer({ content: 'warm' });
      });
      t.equal((await gateway.request({ ...request, path: kind })).status, 200);
      const answer = await gateway.request({ ...request, path });
      if (code === null) t.equal(answer.text, 'done', path);
      else isProblem(t, answer, code);
      t.equal(stub.count() - before - 1, calls, `${path}: calls`);
    }
  },
);

t.test('an address at which requests fail is left out, and comes back when it answers', async (t) => {
  const [bad, good] = await both(t);
  const gateway = await gatewayOf(t, `{ ${urlsOf([bad, good])}, eject: { failures: 2, for: 1s } }`);
  const usable = async (stub: StubUpstream) =>
    (await gateway.metrics()).sum('oneflight_upstream_usable', { address: `127.0.0.1:${stub.port}` });
  bad.on('/a', (call) => call.reset());
  const statuses: number[] = [];
  for (let i = 0; i < 4; i++) statuses.push((await gateway.request({ method: 'POST', path: '/a' })).status);
  t.same(statuses, [502, 200, 502, 200]);
  t.equal(await usable(bad), 0);
  for (let i = 0; i < 4; i++) statuses.push((await gateway.request({ method: 'POST', path: '/a' })).status);
  t.same(statuses.slice(4), [200, 200, 200, 200]);
  t.equal(bad.count(), 2);
  bad.on('/a', (call) => call.answer({}));
  await eventually('its being tried again', async () => {
    t.equal((await gateway.request({ method: 'POST', path: '/a' })).status, 200);
    return bad.count() > 2;
  });
  t.equal(await usable(bad), 1);
  const events = () => gateway.logs.flatMap(({ msg }) => /^upstream: an address (.*)/.exec(String(msg))?.[1] ?? []);
  await eventually('two lines', () => events().length === 2);
  t.match(events(), [/is left out/, /answers again/]);
  const dead = await gatewayOf(t, `{ ${urlsOf([bad, good])}, eject: { failures: 1, for: 60s } }`);
  await Promise.all([bad.refuse(), good.refuse()]);
  isProblem(t, await dead.request({ path: '/a' }), 'upstream-unreachable');
  await good.listen();
  t.equal((await dead.request({ path: '/a' })).status, 200, 'when all are ejected they are tried all the same');
});

t.test('statuses count as failures where the configuration says so', async (t) => {
  const [bad, good] = await both(t);
  bad.on('/a', (call) => call.answer({ status: 503 }));
  const eject = 'eject: { failures: 1, for: 60s }, failureStatuses: [502, 503]';
  const gateway = await gatewayOf(t, `{ ${urlsOf([bad, good])}, ${eject} }`);
  const statuses = [];
  for (let i = 0; i < 4; i++) statuses.push((await gateway.request({ path: '/a' })).status);
  t.same(statuses, [503, 200, 200, 200]);
});

t.test('health checks take an address out and bring it back', async (t) => {
  const [one, other] = await both(t);
  const stubs = [one, other];
  const isWell = new Map(stubs.map((stub) => [stub, true]));
  for (const stub of stubs) {
    stub.on('/healthz', (call) => call.answer({ status: isWell.get(stub) && call.header('host') === 'h' ? 200 : 500 }));
  }
  const rule = '{ path: /healthz, every: 100ms, healthy: 2, unhealthy: 2, statuses: [200], headers: { Host: h } }';
  const gateway = await gatewayOf(t, `{ ${urlsOf(stubs)}, preserveHost: false, health: ${rule} }`);
  const usable = async () => (await gateway.metrics()).sum('oneflight_upstream_usable', { upstream: 'api' });
  await Promise.all(stubs.map((stub) => stub.arrived(3, '/healthz')));
  t.equal(await usable(), 2);
  isWell.set(one, false);
  await eventually('one down', async () => (await usable()) === 1);
  const before = one.count('/a');
  for (let i = 0; i < 4; i++) t.equal((await gateway.request({ path: '/a' })).status, 200);
  t.equal(one.count('/a'), before);
  t.equal((await gateway.admin('/readyz')).status, 200);
  await other.refuse();
  await eventually('both down', async () => (await usable()) === 0);
  for (const path of ['/a', '/pay/a', '/read/a']) {
    isProblem(t, await gateway.request({ path }), 'upstream-unavailable');
  }
  t.equal((await gateway.admin('/readyz')).status, 503);
  t.equal(one.count('/a'), before, 'nothing was sent');
  isWell.set(one, true);
  await eventually('one up', async () => (await usable()) === 1);
  t.equal((await gateway.request({ path: '/pay/a' })).status, 200);
  t.equal((await gateway.admin('/readyz')).status, 200);
});

t.test('a circuit breaker answers at once while it is open, and lets one request try', async (t) => {
  const stub = await startUpstream(t);
  const gateway = await gatewayOf(t, `{ url: ${stub.url}, breaker: { failures: 2, for: 1s } }`);
  const post = (path: string) => gateway.request({ method: 'POST', path });
  stub.on('/a', (call) => call.reset());
  for (let i = 0; i < 2; i++) isProblem(t, await post('/a'), 'upstream-unreachable');
  for (const path of ['/a', '/b', '/pay/a', '/read/a']) isProblem(t, await post(path), 'upstream-unavailable');
  t.equal(stub.count(), 2);
  const held = stub.holds('/trial');
  let trial = gateway.send({ path: '/trial' });
  await eventually('the trial', async () => {
    if (stub.count('/trial') > 0) return true;
    if (await Promise.race([trial.answer.then(() => true), stub.arrived(1, '/trial').then(() => false)])) {
      trial = gateway.send({ path: '/trial' });
    }
    return false;
  });
  isProblem(t, await post('/a'), 'upstream-unavailable');
  held.release();
  t.equal((await trial.answer).status, 200);
  t.equal((await post('/b')).status, 200);
  t.equal(stub.count('/b'), 1);
  t.equal((await gateway.metrics()).sum('oneflight_upstream_breaker_opened_total'), 1);
});

t.test('a trial whose client leaves lets the next request try', async (t) => {
  const stub = await startUpstream(t);
  const gateway = await gatewayOf(t, `{ url: ${stub.url}, breaker: { failures: 1, for: 100ms } }`);
  stub.on('/a', (call) => call.reset());
  stub.holds('/never');
  isProblem(t, await gateway.request({ path: '/a' }), 'upstream-unreachable');
  await eventually('a trial', async () => {
    const leaving = new AbortController();
    const trial = gateway.send({ path: '/never', signal: leaving.signal });
    trial.answer.catch(() => {});
    const arrived = stub.arrived(1, '/never').then(() => true);
    const isTrial = await Promise.race([arrived, trial.answer.then(() => false)]);
    leaving.abort();
    return isTrial;
  });
  await stub.callsOf('/never')[0]!.closed;
  await eventually('the next', async () => (await gateway.request({ path: '/b' })).status === 200);
});

t.test('no more requests than connections: the next ones wait, and no longer than they may', async (t) => {
  const stub = await startUpstream(t);
  const gateway = await gatewayOf(t, `{ url: ${stub.url}, connections: { max: 4, queue: 2, wait: 20s } }`);
  const slow = stub.holds('/slow');
  const waiting = async () => (await gateway.metrics()).sum('oneflight_upstream_waiting_requests');
  const open = [1, 2, 3].map(() => gateway.send({ path: '/slow' }));
  await slow.arrived(3);
  const fourth = gateway.send({ path: '/slow' });
  await eventually('it waits', async () => (await waiting()) === 1);
  t.equal((await gateway.request({ path: '/pay/a' })).status, 200, 'a call with a key has its own place');
  const leaving = new AbortController();
  const left = gateway.send({ path: '/slow', signal: leaving.signal });
  left.answer.catch(() => {});
  await eventually('two wait', async () => (await waiting()) === 2);
  isProblem(t, await gateway.request({ path: '/slow' }), 'overloaded');
  leaving.abort();
  await eventually('one has left', async () => (await waiting()) === 1);
  t.equal(stub.count('/slow'), 3);
  slow.release();
  for (const one of [...open, fourth]) t.equal((await one.answer).status, 200);
  t.equal(stub.count('/slow'), 4);
  t.equal((await gateway.metrics()).sum('oneflight_upstream_pending_requests'), 0);
  const short = await gatewayOf(t, `{ url: ${stub.url}, connections: { max: 1, queue: 5, wait: 50ms } }`);
  const again = stub.holds('/again');
  const first = short.send({ path: '/again' });
  await again.arrived(1);
  isProblem(t, await short.request({ path: '/pay/b' }), 'overloaded');
  isProblem(t, await short.request({ path: '/b' }), 'overloaded');
  again.release();
  t.equal((await first.answer).status, 200);
  t.equal((await short.request({ path: '/pay/b' })).status, 200, 'the key is free');
});

t.test('a connection that is old enough gets no more requests, so that names are resolved anew', async (t) => {
  const stub = await startUpstream(t);
  const lasting = await gatewayOf(t, `{ url: ${stub.url} }`);
  const aging = await gatewayOf(t, `{ url: ${stub.url}, maxConnectionAge: 1s }`);
  const chunked = { method: 'POST', path: '/c', headers: ['Transfer-Encoding', 'chunked'], body: 'x' };
  for (const [gateway, connections] of [
    [lasting, 2],
    [aging, 4],
  ] as const) {
    const before = stub.connections;
    for (let i = 0; i < 2; i++) {
      for (let n = 0; n < 3; n++) {
        t.equal((await gateway.request({ path: '/a' })).status, 200);
        t.equal((await gateway.request(chunked)).status, 200);
      }
      // Longer than the age; nothing else happens in this time.
      await delay(1_200);
    }
    t.equal(stub.connections - before, connections);
  }
});

t.test('an upstream behind a Unix socket', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'api-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const path = join(folder, 'api.sock');
  const server = createServer((req, res) => res.end(`${req.method} ${req.url} ${req.headers.host}`));
  await new Promise<void>((resolve) => server.listen(path, resolve));
  t.teardown(() => server.close());
  const gateway = await gatewayOf(t, `{ url: "unix:${path}" }`);
  t.equal((await gateway.request({ path: '/a?b', headers: ['Host', 'x'] })).text, 'GET /a?b x');
  t.equal((await gateway.request({ method: 'POST', path: '/pay/1', headers: ['Host', 'x'] })).text, 'POST /pay/1 x');
  const chunked = { method: 'POST', path: '/c', headers: ['Host', 'x', 'Transfer-Encoding', 'chunked'], body: 'x' };
  t.equal((await gateway.request(chunked)).text, 'POST /c x');
  t.equal((await gateway.admin('/readyz')).status, 200);
  const own = await gatewayOf(t, `{ url: "unix:${path}", preserveHost: false }`);
  t.equal((await own.request({ path: '/a', headers: ['Host', 'x'] })).text, 'GET /a localhost');
});

t.test('each address has its own Host where the client’s is not kept', async (t) => {
  const stubs = await both(t);
  const gateway = await gatewayOf(t, `{ ${urlsOf(stubs)}, preserveHost: false }`);
  for (let i = 0; i < 4; i++) await gateway.request({ path: '/a', headers: ['Host', 'public.example'] });
  for (const stub of stubs) {
    t.same(
      stub.calls.map((call) => call.headerLines('host')),
      [[`127.0.0.1:${stub.port}`], [`127.0.0.1:${stub.port}`]],
    );
    t.equal(stub.calls[0]?.header('x-forwarded-host'), 'public.example');
  }
});

t.test('a prefix is stripped, and what is left keeps its spelling', async (t) => {
  const stub = await startUpstream(t);
  const gateway = await gatewayOf(t, `{ url: ${stub.url}, stripPrefix: /v1 }`);
  for (const [sent, arrives] of [
    ['/v1/a%2Fb//c?x=/v1', '/a%2Fb//c?x=/v1'],
    ['/v1', '/'],
    ['/v1?q', '/?q'],
    ['/v10/a', '/v10/a'],
    ['/%761/a', '/a'],
    ['/x/../v1/a', '/a'],
    ['/pay/1', '/pay/1'],
    ['/v1/../pay/2', '/v1/../pay/2'],
    ['/v1/./a//b', '/./a//b'],
  ] as const) {
    await gateway.request({ method: 'PUT', path: sent });
    t.equal(stub.calls.at(-1)?.target, arrives, sent);
  }
});

t.test('fields are edited in both directions, of responses before they are judged', async (t) => {
  const stub = await startUpstream(t);
  const request = '{ set: { X-Api-Key: secret-of-the-gateway }, add: { X-Tag: [a, b] }, remove: [X-Internal] }';
  const response = '{ set: { X-Frame-Options: DENY }, remove: [Server, Set-Cookie] }';
  const gateway = await gatewayOf(t, `{ url: ${stub.url}, headers: { request: ${request}, response: ${response} } }`);
  const fields = ['Server', 'x/1', 'Set-Cookie', 'a=1', 'x-frame-options', 'ALLOW', 'X-Other', '1'];
  for (const path of ['/a', '/read/a', '/pay/a']) {
    stub.on(path, (call) =>
      call.answer({ fields, content: 'x', framing: 'chunked', trailers: ['Server', 'late', 'X-Sum', '1'] }),
    );
    const sent = ['x-api-key', 'of the client', 'x-internal', '1', 'X-Tag', 'own'];
    const answer = await gateway.request({ path, headers: sent });
    const call = stub.calls.at(-1)!;
    t.same(call.headerLines('x-api-key'), ['secret-of-the-gateway'], path);
    t.same(call.headerLines('x-tag'), ['own', 'a', 'b'], path);
    t.equal(call.header('x-internal'), null, path);
    t.same(answer.headerLines('x-frame-options'), ['DENY'], path);
    t.equal(answer.header('server'), null, path);
    t.equal(answer.header('set-cookie'), null, path);
    t.equal(answer.header('x-other'), '1', path);
    t.same(answer.trailers, ['X-Sum', '1'], path);
  }
});

t.test('an upgrade goes to another address as well, and holds its connection', async (t) => {
  const stub = await startUpstream(t);
  const gone = await freePort();
  const urls = `urls: [http://127.0.0.1:${gone}, ${stub.url}]`;
  const gateway = await gatewayOf(t, `{ ${urls}, eject: false, connections: { max: 1, queue: 0 } }`);
  stub.on('/ws', (call) => {
    call.raw('HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n');
    call.finish();
  });
  for (let i = 0; i < 2; i++) {
    const { socket, switched } = await upgraded(gateway);
    t.match(switched, /^HTTP\/1.1 101 /);
    isProblem(t, await gateway.request({ path: '/a' }), 'overloaded');
    socket.destroy();
    await eventually('its place being free', async () => (await gateway.request({ path: '/a' })).status === 200);
  }
});

t.test('an upgrade whose client ends its side before there is a connection is ended there too', async (t) => {
  const stub = await startUpstream(t);
  const unconnectable = await startUnconnectable(t);
  const urls = urlsOf([unconnectable, { url: `http://127.0.0.1:${await freePort()}` }, stub]);
  const gateway = await gatewayOf(t, `{ ${urls}, eject: false, timeouts: { connect: 500ms } }`);
  const ended = new Gate();
  stub.on('/ws', (call) => {
    call.socket.once('end', () => ended.open());
    call.raw('HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n');
    call.finish();
  });
  const { hostname, port } = new URL(gateway.url);
  const socket = connect({ port: Number(port), host: hostname, allowHalfOpen: true });
  socket.end('GET /ws HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n');
  await within(10_000, 'the end', ended.opened);
  socket.destroy();
});

t.test('clients that break off their uploads do not open the breaker', async (t) => {
  const stub = await startUpstream(t);
  const gateway = await gatewayOf(t, `{ url: ${stub.url}, breaker: { failures: 1, for: 60s } }`);
  const { hostname, port } = new URL(gateway.url);
  for (const path of ['/up', '/pay/up']) {
    for (const framing of ['Content-Length: 100', 'Transfer-Encoding: chunked']) {
      const own = `${path}/${framing.length}`;
      stub.on(own, () => {});
      const socket = connect(Number(port), hostname);
      socket.write(`POST ${own} HTTP/1.1\r\nHost: a\r\n${framing}\r\n\r\n5\r\nhello\r\n`);
      await stub.arrived(1, own);
      socket.resetAndDestroy();
      await stub.callsOf(own)[0]!.closed;
      t.equal((await gateway.request({ path: '/a' })).status, 200, own);
    }
  }
});

async function upgraded(gateway: Gateway) {
  const { hostname, port } = new URL(gateway.url);
  const socket = connect(Number(port), hostname);
  socket.write('GET /ws HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n');
  const first = new Promise<Buffer>((resolve) => {
    socket.once('data', resolve);
  });
  return { socket, switched: (await within(10_000, 'an answer', first)).toString('latin1') };
}
