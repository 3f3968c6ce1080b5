/** Connections that switch to another protocol pass through the gateway as if it were not there. */

import { createHash, randomBytes } from 'node:crypto';
import t, { type Test } from 'tap';
import { Answered, rawRequest } from '../support/client.js';
import { isProblem } from '../support/expect.js';
import { delay, eventually } from '../support/gate.js';
import { configOf, type Gateway, startGateway } from '../support/gateway.js';
import { freePort } from '../support/ports.js';
import { RawEnd, RawUpstream } from '../support/raw-end.js';
import { startUnconnectable } from '../support/upstream.js';
import { fieldLines, readContent } from '../support/wire.js';

t.setTimeout(120_000);

const upstream = await RawUpstream.start(t);
const dead = await freePort();
const unconnectable = await startUnconnectable(t);
const routes = `
  - name: locked
    match: { path: /locked }
    upstream: api
    policy: reject
    key: [ { request: path } ]
  - name: read
    match: { path: /read }
    upstream: api
    policy: coalesce
    key: [ { body: /id } ]
    keep: 0
  - name: watched
    match: { path: /watched }
    upstream: api
    policy: reject
    observe: true
    key: [ { request: path } ]
  - name: plain
    match: { path: /plain }
    upstream: api
  - name: dead
    match: { path: /dead }
    upstream: dead
  - name: hangs
    match: { path: /hangs }
    upstream: hangs`;
const config = (more = '') =>
  configOf({
    upstream: upstream.url,
    upstreams: `
  dead: { url: "http://127.0.0.1:${dead}" }
  hangs: { url: "${unconnectable.url}", timeouts: { connect: 300ms } }`,
    timeouts: '{ connect: 2s, headers: 700ms, body: 700ms }',
    routes,
    more,
  });
const gateway = await startGateway(t, { config: config() });

const OFFER = ['Host', 'api.example', 'Connection', 'keep-alive, Upgrade', 'Upgrade', 'websocket'];
const SWITCHING = ['Upgrade', 'websocket', 'Connection', 'Upgrade'];

async function connected(t: Test, to: Gateway = gateway): Promise<RawEnd> {
  const client = await RawEnd.connect(to.url);
  t.teardown(() => client.socket.destroy());
  return client;
}

/** A client and an upstream whose connections are one. */
async function joined(t: Test, to: Gateway = gateway, path = '/socket'): Promise<[client: RawEnd, server: RawEnd]> {
  const client = await connected(t, to);
  client.head(`GET ${path} HTTP/1.1`, OFFER);
  const server = await upstream.next();
  await server.nextHead();
  server.head('HTTP/1.1 101 Switching Protocols', SWITCHING);
  await client.nextHead();
  return [client, server];
}

/** The next response as a client without an upgrade would read it. */
async function answerTo(client: RawEnd): Promise<Answered> {
  const { startLine, fields } = await client.nextHead();
  const { bytes, trailers, whole } = await readContent(client.reader, fields, true);
  const [, status = '', ...reason] = startLine.split(' ');
  return new Answered(Number(status), reason.join(' '), fields, bytes, trailers, !whole, 0);
}

/** The gateway has read what was sent to it before: it has answered something later by itself. */
async function hasRead(): Promise<void> {
  await rawRequest(gateway.url, 'GET /no-host HTTP/1.1\r\n\r\n');
}

t.test('the handshake is relayed as it is, the answer too, and then bytes both ways', async (t) => {
  for (const path of ['/socket?a=%2f', '/plain', '/watched']) {
    const client = await connected(t);
    const own = ['sec-websocket-KEY', 'dGhlIHNhbXBsZQ==', 'Sec-WebSocket-Protocol', 'a', 'Sec-WebSocket-Protocol', 'b'];
    client.head(`GET ${path} HTTP/1.1`, [...OFFER, ...own, 'X-Latin', 'caf\xe9']);
    const server = await upstream.next();
    const { startLine, fields } = await server.nextHead();
    t.equal(startLine, `GET ${path} HTTP/1.1`);
    t.same(fields.slice(0, own.length + 4), ['Host', 'api.example', ...own, 'X-Latin', 'caf\xe9']);
    t.same(fieldLines(fields, 'upgrade'), ['websocket']);
    t.same(fieldLines(fields, 'connection'), ['Upgrade']);
    t.same(fieldLines(fields, 'x-forwarded-for'), ['127.0.0.1']);
    t.same(fieldLines(fields, 'x-forwarded-host'), ['api.example']);
    t.match(fieldLines(fields, 'via').join(), /^1\.1 oneflight-[0-9a-f]{8}$/);
    t.equal(fieldLines(fields, 'x-request-id').length, 1);
    const answer = [
      'upgrade',
      'WebSocket',
      'CONNECTION',
      'upgrade',
      'Sec-WebSocket-Accept',
      'x=',
      'x-One',
      '1',
      'x-One',
      '2',
    ];
    server.head('HTTP/1.1 101 Go On', answer);
    const head = await client.nextHead();
    t.equal(head.startLine, 'HTTP/1.1 101 Go On');
    t.same(head.fields, answer);
    client.write('\x00up\xff');
    t.equal(await server.text(4), '\x00up\xff');
    server.write('\x00down\xff');
    t.equal(await client.text(6), '\x00down\xff');
  }
});

t.test('any protocol may be offered, but none that carries HTTP', async (t) => {
  const offers: [string, string | null][] = [
    ['tcp', 'tcp'],
    ['SPDY/3.1', 'SPDY/3.1'],
    ['a/1, b', 'a/1, b'],
    ['h2c, websocket', 'websocket'],
    ['h2c', null],
    ['TLS/1.0, HTTP/1.1', null],
  ];
  for (const [offered, passed] of offers) {
    const client = await connected(t);
    client.head('POST /any HTTP/1.1', [
      'Host',
      'a',
      'Content-Length',
      '0',
      'Connection',
      'Upgrade',
      'Upgrade',
      offered,
    ]);
    const server = await upstream.next();
    const { fields } = await server.nextHead();
    t.same(fieldLines(fields, 'upgrade'), passed === null ? [] : [passed], offered);
    t.same(fieldLines(fields, 'content-length'), ['0']);
    server.head('HTTP/1.1 200 OK', ['Content-Length', '2', 'Connection', 'close'], 'ok');
    t.equal((await answerTo(client)).text, 'ok');
  }
});

t.test('bytes right behind the request and right behind the 101 are kept, the former until there is one', async (t) => {
  const client = await connected(t);
  client.head('GET /socket HTTP/1.1', OFFER, 'early');
  const server = await upstream.next();
  await server.nextHead();
  const before = server.bytes;
  await hasRead();
  t.equal(server.bytes, before, 'nothing more before the 101');
  server.head('HTTP/1.1 101 Switching Protocols', SWITCHING, 'first');
  await client.nextHead();
  t.equal(await client.text(5), 'first');
  client.write('-late');
  t.equal(await server.text(10), 'early-late');
});

t.test('a refusal is an ordinary response, and what stood behind the request is no second one', async (t) => {
  const refusals: [head: string, fields: string[], content: string, text: string][] = [
    ['HTTP/1.1 403 Not You', ['X-Why', 'because', 'Content-Length', '2'], 'no', 'no'],
    ['HTTP/1.1 426 Upgrade Required', [...SWITCHING, 'Transfer-Encoding', 'chunked'], '2\r\nno\r\n0\r\n\r\n', 'no'],
    ['HTTP/1.1 200 OK', ['Connection', 'close'], 'until the end', 'until the end'],
    ['HTTP/1.1 304 Not Modified', ['Content-Length', '99'], '', ''],
  ];
  for (const [startLine, fields, content, text] of refusals) {
    const client = await connected(t);
    client.head('GET /socket HTTP/1.1', OFFER, 'GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n');
    const server = await upstream.next();
    await server.nextHead();
    const { bytes } = server;
    server.head(startLine, fields, content);
    if (fields.includes('close')) server.socket.end();
    const head = await client.nextHead();
    const [version, status, ...reason] = startLine.split(' ');
    t.equal(head.startLine, `${version} ${status} ${reason.join(' ')}`);
    t.same(fieldLines(head.fields, 'x-why'), fieldLines(fields, 'x-why'));
    t.same(fieldLines(head.fields, 'upgrade'), []);
    if (status !== '304') t.equal((await readContent(client.reader, head.fields, true)).bytes.toString(), text);
    await client.ended();
    client.socket.end();
    t.equal(await client.closed(), 'in order');
    await server.ended().catch(() => {});
    t.equal(server.bytes, bytes, 'the upstream got nothing more');
  }
});

t.test('the end of one direction is not the end of the other', async (t) => {
  const [client, server] = await joined(t);
  client.socket.end('last');
  t.equal(await server.text(4), 'last');
  await server.ended();
  server.write('still here');
  t.equal(await client.text(10), 'still here');
  server.socket.end();
  t.equal(await client.closed(), 'in order');
  t.equal(await server.closed(), 'in order');

  const [other, otherServer] = await joined(t);
  otherServer.socket.end('bye');
  t.equal(await other.text(3), 'bye');
  await other.ended();
  other.write('thanks');
  t.equal(await otherServer.text(6), 'thanks');
  other.socket.end();
  t.equal(await otherServer.closed(), 'in order');
});

t.test('an end that comes before the 101 is carried over as well, and the answer still comes', async (t) => {
  for (const early of ['', 'early']) {
    const client = await connected(t);
    client.head('GET /socket HTTP/1.1', OFFER, early);
    client.socket.end();
    const server = await upstream.next();
    await server.nextHead();
    if (early === '') await server.ended();
    server.head('HTTP/1.1 101 Switching Protocols', SWITCHING, 'down');
    await client.nextHead();
    t.equal(await client.text(4), 'down');
    t.equal(await server.text(early.length), early);
    await server.ended();
    server.socket.end();
    t.equal(await client.closed(), 'in order');
  }
});

t.test('a reset is carried over in both directions', async (t) => {
  const [client, server] = await joined(t);
  client.socket.resetAndDestroy();
  t.equal(await server.closed(), 'reset');
  const [other, otherServer] = await joined(t);
  otherServer.socket.resetAndDestroy();
  t.equal(await other.closed(), 'reset');
  const [half, halfServer] = await joined(t);
  halfServer.socket.end();
  await half.ended();
  half.socket.resetAndDestroy();
  t.equal(await halfServer.closed(), 'reset', 'after an end in the other direction too');
  t.ok(gateway.running);
});

t.test('who does not read slows the other down, and loses nothing', async (t) => {
  const bytes = randomBytes(48 * 1024 * 1024);
  const sum = (all: Buffer | null) =>
    createHash('sha256')
      .update(all ?? '')
      .digest('hex');
  for (const direction of ['up', 'down']) {
    const [client, server] = await joined(t);
    const [from, to] = direction === 'up' ? [client, server] : [server, client];
    to.socket.pause();
    from.socket.write(bytes);
    let written = -1;
    await eventually('the writer being held up', async () => {
      const before = written;
      written = from.socket.bytesWritten - from.socket.writableLength;
      await delay(100);
      return written === before;
    });
    t.ok(from.socket.writableLength > bytes.length / 4, `${direction}: much of it waits at its writer`);
    to.socket.resume();
    t.equal(sum(await to.reader.exactly(bytes.length)), sum(bytes), direction);
  }
});

t.test('silence, for longer than any deadline of HTTP here, ends nothing', async (t) => {
  const [client, server] = await joined(t);
  await delay(2_000);
  client.write('up');
  t.equal(await server.text(2), 'up');
  await delay(1_000);
  server.write('down');
  t.equal(await client.text(4), 'down');
});

t.test('an upstream that does not answer the handshake is told of as for any request', async (t) => {
  const ask = async (path: string): Promise<RawEnd> => {
    const client = await connected(t);
    client.head(`GET ${path} HTTP/1.1`, OFFER);
    return client;
  };
  isProblem(t, await answerTo(await ask('/dead')), 'upstream-unreachable');
  isProblem(t, await answerTo(await ask('/hangs')), 'upstream-timeout');
  const silent = await ask('/socket');
  const stalled = await upstream.next();
  isProblem(t, await answerTo(silent), 'upstream-timeout');
  await stalled.ended();
  const answers: [string, string][] = [
    ['', 'upstream-unreachable'],
    ['no HTTP\r\n\r\n', 'bad-upstream-response'],
    ['HTTP/1.1 101 Switching Protocols\r\n\r\n', 'bad-upstream-response'],
    ['HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n', 'bad-upstream-response'],
  ];
  for (const [bytes, problem] of answers) {
    const client = await ask('/socket');
    const server = await upstream.next();
    await server.nextHead();
    server.socket.end(bytes);
    isProblem(t, await answerTo(client), problem);
  }
});

t.test('an interim response comes before the 101', async (t) => {
  const client = await connected(t);
  client.head('GET /socket HTTP/1.1', OFFER);
  const server = await upstream.next();
  await server.nextHead();
  server.write('HTTP/1.1 100 Continue\r\n\r\n');
  server.head('HTTP/1.1 103 Early Hints', ['Link', '</a>']);
  server.head('HTTP/1.1 101 Switching Protocols', SWITCHING);
  t.equal((await client.nextHead()).startLine, 'HTTP/1.1 103 Early Hints');
  t.equal((await client.nextHead()).startLine, 'HTTP/1.1 101 Switching Protocols');
});

t.test('a client that leaves before the answer ends the call', async (t) => {
  const client = await connected(t);
  client.head('GET /socket HTTP/1.1', OFFER);
  const server = await upstream.next();
  await server.nextHead();
  client.socket.resetAndDestroy();
  await Promise.race([server.closed(), server.ended()]);
  t.ok(gateway.running);
});

t.test(
  'on a route with a key the request is an ordinary one, with its content, on a connection that goes on',
  async (t) => {
    const client = await connected(t);
    const ask = ['Host', 'a', 'Connection', 'Upgrade', 'Upgrade', 'websocket'];
    const requests: [string, string[], string][] = [
      ['GET /locked HTTP/1.1', [], ''],
      ['POST /read HTTP/1.1', ['Content-Length', '8'], '{"id":1}'],
      ['POST /socket HTTP/1.1', ['Content-Length', '5'], 'hello'],
      ['POST /socket HTTP/1.1', ['Transfer-Encoding', 'chunked'], '5\r\nhello\r\n0\r\n\r\n'],
    ];
    for (let turn = 0; turn < 4; turn += 1) {
      for (const [startLine, fields, content] of requests) {
        client.head(startLine, [...ask, ...fields], content);
        const server = await upstream.next();
        const head = await server.nextHead();
        t.equal(head.startLine, startLine);
        t.same(fieldLines(head.fields, 'upgrade'), []);
        t.notMatch(fieldLines(head.fields, 'connection').join(), /upgrade/i);
        const { bytes } = await readContent(server.reader, head.fields, false);
        t.equal(bytes.toString(), content.replace(/^5\r\n|\r\n0\r\n\r\n$/g, ''));
        server.head('HTTP/1.1 200 OK', ['Connection', 'close', 'Content-Length', '2'], 'ok');
        t.equal((await answerTo(client)).text, 'ok', startLine);
      }
    }
    client.head('GET /socket HTTP/1.0', ask);
    const server = await upstream.next();
    t.same(fieldLines((await server.nextHead()).fields, 'upgrade'), [], 'HTTP/1.0 has no upgrades');
    server.head('HTTP/1.1 200 OK', ['Connection', 'close', 'Content-Length', '2'], 'ok');
    t.equal((await answerTo(client)).text, 'ok');
    t.equal(gateway.stderr, '');
  },
);

t.test('an upgrade behind requests that are not answered yet has its answer after theirs', async (t) => {
  const client = await connected(t);
  client.head('GET /before HTTP/1.1', ['Host', 'a']);
  const before = await upstream.next();
  await before.nextHead();
  client.head('GET /socket HTTP/1.1', OFFER, 'early');
  await hasRead();
  const content = randomBytes(8 * 1024 * 1024);
  client.socket.pause();
  before.head('HTTP/1.1 200 OK', ['Content-Length', String(content.length), 'Connection', 'close']);
  before.write(content);
  await eventually('it being held up', () => before.socket.writableLength > 0 || client.socket.isPaused());
  client.socket.resume();
  const head = await client.nextHead();
  t.ok((await readContent(client.reader, head.fields, true)).bytes.equals(content));
  const server = await upstream.next();
  await server.nextHead();
  server.head('HTTP/1.1 101 Switching Protocols', SWITCHING);
  t.match((await client.nextHead()).startLine, / 101 /);
  t.equal(await server.text(5), 'early');
});

t.test('an upgrade is counted while it is open and when it is over', async (t) => {
  const counting = await startGateway(t, { config: config() });
  const open = async () => (await counting.metrics()).sum('oneflight_open_upgrades', { route: 'plain' });
  const [client, server] = await joined(t, counting, '/plain');
  t.equal(await open(), 1);
  t.same((await counting.metrics()).outcomes('plain'), {});
  client.socket.end();
  await server.ended();
  server.socket.end();
  await client.closed();
  await eventually('the gauge falling', async () => (await open()) === 0);
  t.same((await counting.metrics()).outcomes('plain'), { upgraded: 1 });
  t.equal((await counting.metrics()).sum('oneflight_upstream_calls_total', { route: 'plain' }), 1);
  // The log takes another way to the test than the metrics do.
  const exchanges = () => counting.logs.filter(({ msg }) => msg === 'exchange');
  await eventually('the line in the log', () => exchanges().length > 0);
  t.match(exchanges(), [{ route: 'plain', outcome: 'upgraded', status: 101 }]);
});

t.test('at SIGTERM it may go on until the drain is over, then it is cut', async (t) => {
  const stopping = await startGateway(t, { config: config('drain: 1500ms') });
  const [client, server] = await joined(t, stopping);
  stopping.signal('SIGTERM');
  await eventually('the listener being closed', () =>
    RawEnd.connect(stopping.url).then(
      ({ socket }) => !socket.destroy(),
      () => true,
    ),
  );
  client.write('up');
  t.equal(await server.text(2), 'up');
  server.write('down');
  t.equal(await client.text(4), 'down');
  t.equal(await client.closed(), 'reset');
  t.equal(await server.closed(), 'reset');
  t.same(await stopping.exited, { code: 0, signal: null });

  const waiting = await startGateway(t, { config: config('drain: 30s') });
  const [last, lastServer] = await joined(t, waiting);
  waiting.signal('SIGTERM');
  last.socket.end();
  await lastServer.ended();
  lastServer.socket.end();
  t.equal(await last.closed(), 'in order');
  t.same(await waiting.exited, { code: 0, signal: null }, 'and nobody waits for longer than the last one');
});
