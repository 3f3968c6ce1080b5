/** What a client may take, and how slow it may be: in clear and over TLS. */

import t, { type Test } from 'tap';
import { RawClient, rawRequest, request, Watching } from '../support/client.js';
import { tlsYaml } from '../support/dial.js';
import { isProblem } from '../support/expect.js';
import { delay, eventually, Gate, within } from '../support/gate.js';
import { configOf, type Gateway, startGateway } from '../support/gateway.js';
import { RawEnd, RawUpstream } from '../support/raw-end.js';
import { startUpstream } from '../support/upstream.js';
import { chunkBytes, lastChunkBytes, readHead } from '../support/wire.js';

t.setTimeout(150_000);

const stub = await startUpstream(t);
const MIB = 1_048_576;
const ROUTES = `
  - name: keyed
    match: { path: /keyed }
    upstream: api
    policy: coalesce
    key: [ { body: /id } ]
    keep: 0`;

function start(t: Test, limits: string, more: { listen?: string; upstream?: string } = {}): Promise<Gateway> {
  const { listen = '', upstream = stub.url } = more;
  return startGateway(t, { config: configOf({ upstream, routes: ROUTES, listen, more: `limits: { ${limits} }` }) });
}

const CHANNELS = { 'in clear': '', 'over TLS': `tls: ${tlsYaml()}` } as const;

/** Announces a chunked upload. */
function uploadHead(path: string): string {
  return `POST ${path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n`;
}

t.test('fields beyond maxFields are 431', async (t) => {
  const gateway = await start(t, 'maxFields: 4KiB');
  t.equal((await request(gateway.url, { path: '/fields', headers: ['X-A', 'a'.repeat(3_500)] })).status, 200);
  const answer = await request(gateway.url, { path: '/fields', headers: ['X-A', 'a'.repeat(4_500)] });
  t.equal(answer.status, 431);
  t.equal(stub.count('/fields'), 1);
});

t.test('content beyond maxContent is 413, and never whole for the upstream', async (t) => {
  const gateway = await start(t, 'maxContent: 64KiB');
  const whole = Buffer.from(JSON.stringify({ id: 'x'.repeat(65_536 - 9) }));
  t.equal(whole.length, 65_536);
  const json = ['Content-Type', 'application/json'];
  for (const path of ['/content', '/keyed']) {
    const of = (body: Buffer) => request(gateway.url, { method: 'POST', path, headers: json, body });
    t.equal((await of(whole)).status, 200, `${path}: as much as may be`);
    isProblem(t, await of(Buffer.concat([whole, Buffer.from(' ')])), 'content-too-large');
    t.equal(stub.count(path), 1, `${path}: one more byte, announced: nothing is sent`);

    const chunked = await RawClient.connect(gateway.url);
    chunked.write(Buffer.concat([Buffer.from(uploadHead(path)), chunkBytes(whole), lastChunkBytes()]));
    t.equal((await chunked.answer())?.status, 200, `${path}: as much as may be, in chunks`);
    chunked.write(Buffer.concat([Buffer.from(uploadHead(path)), chunkBytes(whole)]));
    if (path === '/content') await stub.arrived(3, path);
    chunked.write(Buffer.concat([chunkBytes(Buffer.from(' ')), lastChunkBytes()]));
    isProblem(t, (await chunked.answer())!, 'content-too-large');
    await within(10_000, 'the end of its connection', chunked.closed);
  }
  t.equal(stub.count('/keyed'), 2, 'content that is read for the key is not sent at all');
  const cut = stub.callsOf('/content')[2]!;
  await cut.closed;
  t.equal((await cut.received).whole, false, 'content that is streamed breaks off');

  const expecting = ['Host', 'a', 'Content-Length', '70000', 'Expect', '100-continue'];
  const end = await RawEnd.connect(gateway.url);
  end.head('POST /content HTTP/1.1', expecting);
  t.match((await end.nextHead()).startLine, /413/, 'nobody is asked for content that would be refused');
  end.socket.destroy();
});

t.test('connections beyond maxConnections are refused at once; idle ones make room', async (t) => {
  const gateway = await start(t, 'maxConnections: 2');
  const held = stub.holds('/held');
  const busy = [await RawClient.connect(gateway.url), await RawClient.connect(gateway.url)];
  for (const client of busy) client.write('GET /held HTTP/1.1\r\nHost: a\r\n\r\n');
  await held.arrived(2);

  for (let i = 0; i < 3; i += 1) {
    const refused = (await rawRequest(gateway.url, 'GET /refused HTTP/1.1\r\nHost: a\r\n\r\n'))!;
    isProblem(t, refused, 'overloaded');
    t.equal(refused.header('connection'), 'close');
  }
  const silent = await RawClient.connect(gateway.url);
  t.equal((await silent.answer())?.status, 503, 'before anything is asked');
  await within(10_000, 'and the connection is closed', silent.closed);
  t.equal(stub.count('/refused'), 0);
  t.equal((await gateway.metrics()).sum('oneflight_connections_refused_total', { reason: 'limit' }), 4);
  t.equal((await gateway.metrics()).sum('oneflight_connections'), 2);

  held.release();
  for (const client of busy) t.equal((await client.answer())?.status, 200, 'those that are there go on');
  const [longest, other] = busy as [RawClient, RawClient];
  const third = await RawClient.connect(gateway.url);
  third.write('GET /third HTTP/1.1\r\nHost: a\r\n\r\n');
  t.equal((await third.answer())?.status, 200, 'a new one is taken');
  await within(10_000, 'in place of the one that was idle longest', longest.closed);
  other.write('GET /other HTTP/1.1\r\nHost: a\r\n\r\n');
  t.equal((await other.answer())?.status, 200, 'and of no other');
  other.close();
  third.close();
});

t.test('over TLS a connection beyond maxConnections is closed', async (t) => {
  const gateway = await start(t, 'maxConnections: 1', { listen: CHANNELS['over TLS'] });
  const held = stub.holds('/held-over-tls');
  const busy = await RawClient.connect(gateway.url);
  busy.write('GET /held-over-tls HTTP/1.1\r\nHost: a\r\n\r\n');
  await held.arrived(1);
  const refused = await RawClient.connect(gateway.url).then(
    (client) => within(10_000, 'the end', client.closed),
    () => {},
  );
  t.equal(refused, undefined);
  held.release();
  t.equal((await busy.answer())?.status, 200);
  busy.close();
});

for (const [channel, listen] of Object.entries(CHANNELS)) {
  t.test(`${channel}: fields that do not come in time are 408`, async (t) => {
    const gateway = await start(t, 'fieldsTimeout: 400ms', { listen });
    for (const begun of ['', 'GET /slow HTTP/1.1\r\nHost: a\r\nX-A: ']) {
      const client = await RawClient.connect(gateway.url);
      const trickle = setInterval(() => begun !== '' && client.write('a'), 50);
      client.write(begun);
      const answer = await client.answer();
      clearInterval(trickle);
      t.equal(answer?.status, 408, begun === '' ? 'nothing at all' : 'byte by byte');
      await within(10_000, 'the end of the connection', client.closed);
    }
    t.equal(stub.count('/slow'), 0);
  });

  t.test(`${channel}: an upload that stops is 408, one that moves is not`, async (t) => {
    const upstream = await RawUpstream.start(t);
    const gateway = await start(t, 'contentTimeout: 1s', { listen, upstream: upstream.url });

    const stops = await RawClient.connect(gateway.url);
    stops.write(Buffer.concat([Buffer.from(uploadHead('/stops')), chunkBytes(Buffer.from('{"id"'))]));
    const call = await upstream.next();
    isProblem(t, (await stops.answer())!, 'bad-request');
    await within(10_000, 'the end of the connection', stops.closed);
    await Promise.race([call.ended(), call.closed()]);
    t.pass('the upstream call has ended');

    const keyed = await RawClient.connect(gateway.url);
    keyed.write('POST /keyed HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n{"id"');
    t.equal((await keyed.answer())?.status, 408, 'content that is read for the key as well');

    const begun = await RawClient.connect(gateway.url);
    begun.write(Buffer.concat([Buffer.from(uploadHead('/begun')), chunkBytes(Buffer.from('a'))]));
    const early = await upstream.next();
    await early.nextHead();
    early.head('HTTP/1.1 200 OK', ['Content-Length', '10'], 'half');
    t.equal((await begun.answer())?.cut, true, 'an answer that has begun is cut');

    const answered = await RawClient.connect(gateway.url);
    answered.write(Buffer.concat([Buffer.from(uploadHead('/answered')), chunkBytes(Buffer.from('a'))]));
    const answer = await upstream.next();
    await answer.nextHead();
    answer.head('HTTP/1.1 200 OK', ['Content-Length', '2'], 'ok');
    t.equal((await answered.answer())?.text, 'ok');
    const dribble = setInterval(() => answered.write(chunkBytes(Buffer.from('a'))), 100);
    await within(15_000, 'the end of an upload that is for nobody any more', answered.closed);
    clearInterval(dribble);

    const slow = await RawClient.connect(gateway.url);
    slow.write(uploadHead('/slow'));
    const slowCall = await upstream.next();
    for (let i = 0; i < 20; i += 1) {
      slow.write(chunkBytes(Buffer.from('a')));
      await delay(100);
    }
    slow.write(lastChunkBytes());
    await slowCall.nextHead();
    slowCall.head('HTTP/1.1 200 OK', ['Content-Length', '2'], 'ok');
    t.equal((await slow.answer())?.text, 'ok', 'slow is not silent');

    const waits = await RawClient.connect(gateway.url);
    const much = Buffer.alloc(64 * MIB);
    waits.write(`POST /waits HTTP/1.1\r\nHost: a\r\nContent-Length: ${much.length}\r\n\r\n`);
    waits.write(much);
    const slowUpstream = await upstream.next();
    slowUpstream.socket.pause();
    await delay(2_500);
    slowUpstream.socket.resume();
    await readHead(slowUpstream.reader);
    await within(20_000, 'all of it', slowUpstream.reader.exactly(much.length));
    slowUpstream.head('HTTP/1.1 200 OK', ['Content-Length', '2'], 'ok');
    t.equal((await waits.answer())?.text, 'ok', 'a client that waits for the upstream is not to blame');
    waits.close();
    slow.close();
  });

  t.test(`${channel}: an answer that is not read is cut, one that is read slowly is not`, async (t) => {
    const gateway = await start(t, 'stallTimeout: 1s', { listen });
    const much = Buffer.alloc(96 * MIB, 'a');
    stub.on('/much', (call) => call.answer({ content: much }));
    const before = stub.count('/much');

    const stalled = new Watching(gateway.url, { path: '/much' }, false);
    await stub.arrived(before + 1, '/much');
    const call = stub.callsOf('/much').at(-1)!;
    await within(15_000, 'the end of the upstream call', call.closed);
    await eventually('the outcome', async () => {
      const { cut } = (await gateway.metrics()).outcomes('unmatched') as { cut?: number };
      return cut === 1;
    });
    stalled.resume();
    t.equal((await stalled.answer.catch(() => null))?.cut ?? true, true, 'it is not whole for the client');

    const slow = new Watching(gateway.url, { path: '/much' }, false);
    await slow.received(0);
    for (let bytes = 16 * MIB; bytes <= much.length; bytes += 16 * MIB) {
      await delay(400);
      slow.resume();
      await slow.received(bytes);
      slow.pause();
    }
    slow.resume();
    const answer = await slow.answer;
    t.equal(answer.cut, false);
    t.equal(answer.body.length, much.length, 'slow is not stalled');
  });
}

t.test('what is spoken after an upgrade may be silent and unread', async (t) => {
  const upstream = await RawUpstream.start(t);
  const gateway = await start(t, 'stallTimeout: 300ms, contentTimeout: 300ms, keepAliveTimeout: 1s', {
    upstream: upstream.url,
  });
  const client = await RawEnd.connect(gateway.url);
  client.head('GET /socket HTTP/1.1', ['Host', 'a', 'Connection', 'Upgrade', 'Upgrade', 'echo']);
  const server = await upstream.next();
  await server.nextHead();
  server.head('HTTP/1.1 101 Switching Protocols', ['Connection', 'Upgrade', 'Upgrade', 'echo']);
  await client.nextHead();
  client.socket.pause();
  server.write(Buffer.alloc(64 * MIB));
  await delay(2_500);
  client.socket.resume();
  t.ok(await within(20_000, 'all bytes', client.reader.exactly(64 * MIB)));
  client.socket.destroy();
});

t.test('a connection without a request is closed after keepAliveTimeout', async (t) => {
  const gateway = await start(t, 'keepAliveTimeout: 1s');
  const client = await RawClient.connect(gateway.url);
  client.write('GET /idle HTTP/1.1\r\nHost: a\r\n\r\n');
  t.equal((await client.answer())?.status, 200);
  const opened = new Gate();
  setTimeout(() => opened.open(), 300);
  await opened.opened;
  t.equal(client.socket.destroyed, false);
  await within(10_000, 'its end', client.closed);
});
