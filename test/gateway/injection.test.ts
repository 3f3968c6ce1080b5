/**
 * What clients write into ids, keys, fields and targets stays what it is: it makes no line of its own, no rule is slipped
 * past, and nothing of it grows beyond its bounds.
 */

import { gzipSync } from 'node:zlib';
import t from 'tap';
import { rawRequest, request } from '../support/client.js';
import { tlsYaml } from '../support/dial.js';
import { isProblem, problemOf } from '../support/expect.js';
import { eventually } from '../support/gate.js';
import { configOf, type Gateway, startGateway } from '../support/gateway.js';
import { Http2Frames } from '../support/http2-frames.js';
import { startUpstream } from '../support/upstream.js';

t.setTimeout(100_000);

const stub = await startUpstream(t);
const ROUTES = `
  - { name: pay, match: { methods: [POST], path: "/pay/:id" }, upstream: api, policy: reject, key: [ { param: id } ], forward: { fence: X-Fence, idempotencyKey: X-Derived } }
  - { name: hosted, match: { path: /hosted, host: api.example }, upstream: api, policy: reject, key: [ { request: path } ] }
  - { name: once, match: { path: /once }, upstream: api, policy: replay }
  - { name: by-content, match: { path: /by-content }, upstream: api, policy: coalesce, key: [ { body: /id } ], onMissingKey: reject }
  - { name: by-content-or-not, match: { path: /or-not }, upstream: api, policy: coalesce, key: [ { body: /id } ] }
  - { name: wide, match: { path: /wide }, upstream: api, policy: reject, key: [ { cookie: c }, { query: q }, { header: x-a } ] }`;
const gateway = await startGateway(t, { config: configOf({ upstream: stub.url, routes: ROUTES }) });

/** Everything that the gateway has said so far is a line of its own making. */
function logIsSound({ noise, stderr }: Gateway): void {
  t.same(noise, []);
  t.equal(stderr, '');
}

t.test('ids: what could be more than an id is replaced, and what is one makes no log line', async (t) => {
  const sound = '","level":60,"msg":"forged","x":"\\n';
  const ids = ['x'.repeat(201), 'x'.repeat(20_000), 'a b', 'a\tb', '\xe9', ''];
  for (const id of ids) {
    t.equal((await request(gateway.url, { path: '/ids', headers: ['X-Request-Id', id] })).status, 200);
    t.match(stub.calls.at(-1)!.headerLines('x-request-id').join(), /^[0-9a-f-]{36}$/, `${id.length} characters`);
  }
  t.equal((await request(gateway.url, { path: '/ids', headers: ['X-Request-Id', sound] })).status, 200);
  t.equal(stub.calls.at(-1)!.header('x-request-id'), sound);
  const twice = ['X-Request-Id', 'one', 'X-Request-Id', 'two'];
  t.equal((await request(gateway.url, { path: '/ids', headers: twice })).status, 200);
  t.equal(stub.calls.at(-1)!.headerLines('x-request-id').length, 1, 'there is one');
  await eventually('its line', () =>
    gateway.logs.some((line) => (line as { requestId?: unknown }).requestId === sound),
  );
  t.equal(gateway.logs.filter(({ msg }) => msg === 'forged').length, 0);
  logIsSound(gateway);
});

t.test('keys: malformed ones are refused unread, long ones leave as a digest of one length', async (t) => {
  const before = stub.count();
  for (const key of ['x'.repeat(256), '\xe9', '"a', 'a, b', '']) {
    const answer = await request(gateway.url, { method: 'POST', path: '/once', headers: ['Idempotency-Key', key] });
    isProblem(t, answer, 'key-malformed');
    t.notMatch(answer.text, 'xxxx', 'and is not repeated');
  }
  for (const byte of ['\0', '\r', '\n', '\r\n']) {
    const raw = `POST /once HTTP/1.1\r\nHost: a\r\nIdempotency-Key: a${byte}b\r\nContent-Length: 0\r\n\r\n`;
    t.equal((await rawRequest(gateway.url, raw))?.status, 400, JSON.stringify(byte));
  }
  t.equal(stub.count(), before, 'nothing was sent');

  const long = 'k'.repeat(20_000);
  const held = stub.holds('/wide');
  const headers = ['Cookie', `c=${long}`, 'X-A', `${long}\xe9'"%0d%0a`];
  const ask = () => request(gateway.url, { method: 'POST', path: `/wide?q=%0d%0aX-B:1${long}`, headers });
  const first = ask();
  await held.arrived(1);
  t.equal((await ask()).status, 409, 'they are one key');
  const flights = await gateway.admin('/flights');
  t.match((flights.json() as { flights: { key: string }[] }).flights[0]?.key, /^[\w-]{43}$/);
  t.notMatch(flights.text, 'kkkk');
  held.release();
  t.equal((await first).status, 200);
  logIsSound(gateway);
});

t.test("fields that the gateway adds are the gateway's, whatever the client sends by their names", async (t) => {
  const forged = ['X-Fence', '999', 'x-fence', '1, 2', 'X_Fence', '5', 'X-Derived', 'mine', 'X-DERIVED', 'mine too'];
  const ask = (id: string) =>
    request(gateway.url, {
      method: 'POST',
      path: `/pay/${id}`,
      headers: [...forged, 'Connection', 'X-Fence, X-Derived'],
    });
  t.equal((await ask('1%0d%0aX-Injected:%201')).status, 200);
  const call = stub.calls.at(-1)!;
  t.match(call.headerLines('x-fence').join(';'), /^\d{10,}$/);
  t.match(call.headerLines('x-derived').join(';'), /^[\w-]{20,}$/);
  t.equal(call.header('x_fence'), null, 'nor by a name that some servers take for it');
  t.equal(call.header('x-injected'), null);
  t.equal(call.target, '/pay/1%0d%0aX-Injected:%201', 'escapes stay escapes');
  const trailing = await rawRequest(
    gateway.url,
    'POST /pay/2 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-Fence\r\n\r\n1\r\na\r\n0\r\nX-Fence: 9\r\n\r\n',
  );
  t.equal(trailing?.status, 200);
  t.same((await stub.calls.at(-1)!.received).trailers, [], 'nor at its end');
});

t.test('HTTP/2: bytes that would end a line of HTTP/1 go nowhere, wherever they stand', async (t) => {
  const own = await startGateway(t, {
    config: configOf({ upstream: stub.url, routes: ROUTES, listen: `tls: ${tlsYaml()}, http2: true` }),
  });
  const before = stub.count();
  const inject = ['a\r\nX-Injected: 1', 'a\nb', 'a\rb', 'a\0b', 'a HTTP/1.1\r\n\r\nGET /smuggled HTTP/1.1'];
  const base = { ':method': 'GET', ':scheme': 'https', ':authority': 'a', ':path': '/h2' };
  for (const text of inject) {
    for (const fields of [
      { ...base, 'x-a': text },
      { ...base, ':path': `/${text}` },
      { ...base, ':authority': text },
      { ...base, ':method': text },
      { ...base, 'idempotency-key': text },
      { ...base, [`x-${text}`]: 'b' },
    ]) {
      const client = await Http2Frames.connect(t, own.url);
      const status = await client.ask(fields);
      // The library drops a field that cannot be one, and ends the stream where it says what is asked.
      const isOdd = Object.entries(fields).some(([name, value]) => name.startsWith(':') && value === text);
      if (isOdd || fields[':path'].includes(text)) t.not(status, 200, JSON.stringify(fields));
    }
  }
  for (const call of stub.calls.slice(before)) {
    t.equal(call.target, '/h2');
    t.notMatch(call.fields.join('|'), /x-injected|smuggled|idempotency-key|x-a/i);
  }
  const client = await Http2Frames.connect(t, own.url);
  t.equal(await client.ask(base), 200, 'that is not because nothing passes');
  logIsSound(own);
});

t.test('coded content is not decoded: a key in it is missing, and nothing grows', async (t) => {
  const bomb = gzipSync(Buffer.alloc(64 * 1_048_576, ' '));
  t.ok(bomb.length < 100_000);
  const of = (path: string, coding: string) =>
    request(gateway.url, {
      method: 'POST',
      path,
      headers: ['Content-Type', 'application/json', 'Content-Encoding', coding],
      body: bomb,
    });
  const rss = async () => (await gateway.metrics()).sum('process_resident_memory_bytes');
  const beforeBytes = await rss();
  for (const coding of ['gzip', 'GZIP', 'identity, gzip', 'br', 'x-unknown']) {
    const refused = await of('/by-content', coding);
    t.match(problemOf(refused), /^key-(missing|malformed)$/, coding);
    t.equal((await of('/or-not', coding)).header('cache-status')?.startsWith('oneflight; fwd=bypass'), true);
    t.same(stub.calls.at(-1)!.content, bomb, 'it is forwarded as it is');
  }
  t.ok((await rss()) - beforeBytes < 48 * 1_048_576);
});

t.test('no spelling of a target or a host slips past its rule', async (t) => {
  const held = stub.holds('/pay/7');
  const first = request(gateway.url, { method: 'POST', path: '/pay/7' });
  await held.arrived(1);
  const before = stub.count();
  const { host } = new URL(gateway.url);
  const same = [
    '/pay/7/',
    '//pay//7',
    '/./pay/7',
    '/x/../pay/7',
    '/%70a%79/7',
    '/%2e/pay/%37',
    '/x/%2E%2e/pay/7',
    '/pay\\7',
  ];
  for (const target of [
    ...same,
    '/pay/7?',
    '/pay/7?a=b',
    '/pay/7#x',
    `http://${host}/pay/7`,
    `HTTP://${host}//pay/7`,
  ]) {
    const raw = `POST ${target} HTTP/1.1\r\nHost: ${host}\r\nContent-Length: 0\r\n\r\n`;
    t.equal(problemOf((await rawRequest(gateway.url, raw))!), 'in-flight', target);
  }
  t.equal(stub.count(), before);
  held.release();
  t.equal((await first).status, 200);
  const other = ['/pay%2f7', '/PAY/7', '/pay/7;a', '/pay/7%00', '/pay/7%2f'];
  for (const target of other) {
    const raw = `POST ${target} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n`;
    t.equal((await rawRequest(gateway.url, raw))?.status, 200, `${target} is another resource`);
    t.equal(stub.calls.at(-1)!.target, target, 'and goes on as it came');
  }

  const hosted = stub.holds('/hosted');
  const leader = request(gateway.url, { path: '/hosted', headers: ['Host', 'api.example'] });
  await hosted.arrived(1);
  for (const name of ['API.Example', 'api.example.', 'api.example:80', 'api.example:', 'api.example.:8080']) {
    t.equal((await request(gateway.url, { path: '/hosted', headers: ['Host', name] })).status, 409, name);
  }
  const absolute = (host: string) =>
    rawRequest(gateway.url, `GET http://api.example/hosted HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
  t.equal((await absolute('api.example'))?.status, 409);
  t.equal((await absolute('other.example'))?.status, 400, 'two hosts in one request');
  const forwarded = ['Host', 'other.example', 'X-Forwarded-Host', 'api.example'];
  t.equal((await request(gateway.url, { path: '/other', headers: forwarded })).status, 200);
  t.equal(stub.calls.at(-1)!.header('x-forwarded-host'), 'other.example', 'nobody says so for somebody else');
  hosted.release();
  t.equal((await leader).status, 200);
});
