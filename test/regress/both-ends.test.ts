/** What an upstream or a client may send beside a request and its response harms nobody else, and not the gateway. */

import t, { type Test } from 'tap';
import { Answered } from '../support/client.js';
import { isProblem } from '../support/expect.js';
import { eventually } from '../support/gate.js';
import { configOf, startGateway } from '../support/gateway.js';
import { RawEnd, RawUpstream } from '../support/raw-end.js';
import { chunkBytes, fieldLines, lastChunkBytes, readContent } from '../support/wire.js';

t.setTimeout(120_000);

const MiB = 1_048_576;
const OFFER = ['Host', 'a', 'Connection', 'Upgrade', 'Upgrade', 'websocket'];

const upstream = await RawUpstream.start(t);
const routes = `
  - { name: locked, match: { path: "/locked/*" }, policy: reject, key: [ { request: path } ] }
  - { name: kept, match: { path: "/kept/*" }, policy: coalesce, key: [ { request: path } ], keep: 60s }
  - { name: replayed, match: { path: "/replayed/*" }, policy: replay, key: [ { request: path } ] }`;
const gateway = await startGateway(t, { config: configOf({ upstream: upstream.url, routes }) });
const CHUNKED = ['Host', 'a', 'Transfer-Encoding', 'chunked'];
const SIZED = ['Host', 'a', 'Content-Length', '5'];
const hello = Buffer.from('hello');
const chunks = Buffer.concat([chunkBytes(hello), lastChunkBytes()]).toString('latin1');

async function connected(t: Test): Promise<RawEnd> {
  const client = await RawEnd.connect(gateway.url);
  t.teardown(() => client.socket.destroy());
  return client;
}

/** The upstream's end of the next request, which has been read whole. */
async function arrived(): Promise<RawEnd> {
  const server = await upstream.next();
  await readContent(server.reader, (await server.nextHead()).fields, false);
  return server;
}

async function answerTo(client: RawEnd): Promise<Answered> {
  const { startLine, fields } = await client.nextHead();
  const { bytes, trailers, whole } = await readContent(client.reader, fields, true);
  const [, status = '', ...reason] = startLine.split(' ');
  return new Answered(Number(status), reason.join(' '), fields, bytes, trailers, !whole, 0);
}

t.test('a length with zeros in front is a length, over every transport and for every reader', async (t) => {
  const length = '0000000000000005';
  for (const route of ['pass', 'locked', 'kept', 'replayed']) {
    for (const [how, fields, content] of [
      ['sized', SIZED, 'hello'],
      ['chunked', CHUNKED, chunks],
    ] as const) {
      const path = `/${route}/${how}`;
      const client = await connected(t);
      client.head(`POST ${path} HTTP/1.1`, fields, content);
      const server = await arrived();
      const answer = ['Content-Length', length, 'Trailer', 'X-Sum', 'Connection', 'close'];
      server.head('HTTP/1.1 200 OK', answer, 'hello');
      const first = await answerTo(client);
      t.same([first.status, first.text, first.cut], [200, 'hello', false], path);
      t.same(first.headerLines('content-length'), [length], path);
      if (route !== 'kept' && route !== 'replayed') continue;
      client.head(`POST ${path} HTTP/1.1`, fields, content);
      const next = await answerTo(client);
      t.equal(next.text, 'hello', path);
      t.equal(next.headerLines('content-length').length, 1, `${path}, kept`);
    }
  }
  t.ok(gateway.running);
});

t.test('a client of HTTP/1.0 gets no chunks, whatever else it says that it takes', async (t) => {
  for (const path of ['/pass', '/locked/old']) {
    const client = await connected(t);
    client.head(`GET ${path} HTTP/1.0`, ['TE', 'chunked, trailers', 'Connection', 'keep-alive']);
    const server = await arrived();
    server.head('HTTP/1.1 200 OK', ['Transfer-Encoding', 'chunked', 'Trailer', 'X-Sum', 'Connection', 'close'], chunks);
    const answer = await answerTo(client);
    t.same([answer.text, answer.headerLines('transfer-encoding'), answer.trailers], ['hello', [], []], path);
  }
});

t.test('a 100 with line feeds that stand alone takes nothing of the response with it', async (t) => {
  const inner = 'HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil';
  for (const interim of ['HTTP/1.1 100 Continue\n\n', 'HTTP/1.1 100 Continue\r\nX: y\n\r\n']) {
    const client = await connected(t);
    client.head('GET /pass HTTP/1.1', ['Host', 'a']);
    const server = await arrived();
    server.write(interim);
    server.head('HTTP/1.1 200 OK', ['Content-Length', String(inner.length)], inner);
    isProblem(t, await answerTo(client), 'bad-upstream-response');
  }
});

t.test('a connection on which something came unasked is nobody’s next one', async (t) => {
  for (const path of ['/pass', '/locked/idle']) {
    const client = await connected(t);
    client.head(`POST ${path} HTTP/1.1`, CHUNKED, chunks);
    const server = await arrived();
    server.head('HTTP/1.1 200 OK', ['Content-Length', '2'], 'ok');
    t.equal((await answerTo(client)).text, 'ok');
    server.write('HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nev');
    // The gateway has read it: it has answered something that was sent later.
    const other = await connected(t);
    other.head('GET / HTTP/1.1', []);
    t.equal((await answerTo(other)).status, 400);
    client.head(`POST ${path} HTTP/1.1`, CHUNKED, chunks);
    const same = server.nextHead().then(
      () => 'the same connection',
      () => 'ended',
    );
    const next = arrived();
    t.not(await Promise.race([next, same]), 'the same connection', path);
    (await next).head('HTTP/1.1 200 OK', ['Connection', 'close', 'Content-Length', '4'], 'mine');
    t.equal((await answerTo(client)).text, 'mine', path);
  }
});

t.test('interim responses do not pile up for a client that does not read', async (t) => {
  const hints = Buffer.from(`HTTP/1.1 103 Early Hints\r\nLink: </${'a'.repeat(1_000)}>\r\n\r\n`.repeat(1_000));
  for (const [startLine, fields, content] of [
    ['GET /pass HTTP/1.1', ['Host', 'a'], ''],
    ['POST /pass HTTP/1.1', CHUNKED, chunks],
  ] as const) {
    const client = await connected(t);
    client.socket.pause();
    client.head(startLine, fields, content);
    const server = await arrived();
    for (let sent = 0; sent < 64 * MiB; sent += hints.length) server.write(hints);
    server.head('HTTP/1.1 200 OK', ['Content-Length', '2', 'Connection', 'close'], 'ok');
    await eventually('the gateway having taken them', () => server.socket.writableLength === 0);
    client.socket.resume();
    let head = await client.nextHead();
    while (head.startLine.includes(' 103 ')) head = await client.nextHead();
    t.equal((await readContent(client.reader, head.fields, false)).bytes.toString(), 'ok');
    t.ok(client.bytes < 32 * MiB, `${client.bytes} bytes for the client`);
  }
});

t.test('a connection that is read as HTTP no more is closed, whatever its client goes on sending', async (t) => {
  const refusals: [startLine: string, fields: readonly string[]][] = [
    ['CONNECT a:1 HTTP/1.1', ['Host', 'a:1']],
    ['GET /refused HTTP/1.1', OFFER],
  ];
  for (const [startLine, fields] of refusals) {
    const client = await connected(t);
    client.head(startLine, fields, 'x'.repeat(MiB));
    if (fields === OFFER) (await arrived()).head('HTTP/1.1 403 Forbidden', ['Content-Length', '2'], 'no');
    const answer = await client.nextHead();
    t.match(answer.startLine, fields === OFFER ? / 403 / : / 501 /);
    t.same(fieldLines(answer.fields, 'connection'), ['close']);
    const trickle = setInterval(() => client.write('x'), 50);
    t.teardown(() => clearInterval(trickle));
    t.equal(await client.closed(), 'reset', startLine);
    clearInterval(trickle);
  }
});
