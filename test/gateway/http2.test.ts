/** HTTP/2 towards clients: one stream is one request, and nothing of HTTP/1 is lost on the way. */

import http2, { type ClientHttp2Session, type OutgoingHttpHeaders } from 'node:http2';
import t, { type Test } from 'tap';
import { request } from '../support/client.js';
import { TRUSTING, tlsYaml } from '../support/dial.js';
import { Gate, within } from '../support/gate.js';
import { configOf, type Gateway, startGateway } from '../support/gateway.js';
import { cutsChunked, cutsContentLength, startUpstream } from '../support/upstream.js';

t.setTimeout(100_000);

const stub = await startUpstream(t);
const MIB = 1_048_576;
const ROUTES = `
  - name: shared
    match: { path: /shared }
    upstream: api
    policy: coalesce
    identity: public
    key: [ { request: target } ]
    keep: 0`;

function start(t: Test, more = ''): Promise<Gateway> {
  const listen = `http2: true, tls: ${tlsYaml()}`;
  return startGateway(t, { config: configOf({ upstream: stub.url, routes: ROUTES, listen, more }) });
}

function connect(t: Test, gateway: Gateway): ClientHttp2Session {
  const session = http2.connect(gateway.url, TRUSTING);
  session.on('error', () => {});
  t.teardown(() => session.destroy());
  return session;
}

type Got = {
  status: number;
  fields: string[];
  interim: string[][];
  trailers: string[];
  text: string;
  /** Code that the stream ended with, and whether its content came to an end in order. */
  code: number;
  ended: boolean;
};

function ask(
  session: ClientHttp2Session,
  headers: OutgoingHttpHeaders,
  body?: string | Buffer,
  trailers?: OutgoingHttpHeaders,
): Promise<Got> {
  const got: Got = { status: 0, fields: [], interim: [], trailers: [], text: '', code: 0, ended: false };
  const stream = session.request(headers, { endStream: body === undefined, waitForTrailers: trailers !== undefined });
  stream.on('headers', (_headers: unknown, _flags: unknown, raw: string[]) => got.interim.push(raw));
  stream.on('response', (head: Record<string, unknown>, _flags: unknown, raw: string[]) => {
    got.status = Number(head[':status']);
    got.fields = raw.slice(2);
  });
  stream.on('trailers', (_headers: unknown, _flags: unknown, raw: string[]) => (got.trailers = raw));
  stream.on('data', (piece: Buffer) => (got.text += piece.toString('latin1')));
  stream.on('end', () => (got.ended = true)).on('error', () => {});
  if (trailers !== undefined) stream.on('wantTrailers', () => stream.sendTrailers(trailers));
  if (body !== undefined) stream.end(body);
  return within(
    15_000,
    'the end of a stream',
    new Promise((resolve) => stream.once('close', () => resolve({ ...got, code: stream.rstCode ?? 0 }))),
  );
}

t.test('a request arrives as it would over HTTP/1.1', async (t) => {
  const gateway = await start(t);
  const session = connect(t, gateway);
  const first = await ask(session, {
    ':path': '/a/../b%2F?x=%zz',
    ':authority': 'api.example',
    cookie: ['a=1', 'b=2', 'c=3'],
    'x-many': ['1', '2'],
    'x-latin': 'caf\xe9',
    te: 'trailers',
  });
  t.equal(first.status, 200);
  const [call] = stub.callsOf('/a/../b%2F');
  t.equal(call!.target, '/a/../b%2F?x=%zz');
  t.same(call!.headerLines('host'), ['api.example']);
  t.same(call!.headerLines('cookie'), ['a=1; b=2; c=3'], 'crumbs are one line');
  t.same(call!.headerLines('x-many'), ['1', '2']);
  t.same(call!.headerLines('x-latin'), ['caf\xe9']);
  t.match(call!.headerLines('via').join(), /^2\.0 oneflight-[0-9a-f]{8}$/);
  t.same(call!.headerLines('x-forwarded-proto'), ['https']);
  t.same(call!.headerLines('te'), []);

  t.equal((await ask(session, { ':path': '/length', ':method': 'POST', 'content-length': 4 }, 'body')).status, 200);
  t.equal(stub.callsOf('/length')[0]!.content?.toString(), 'body');
  t.equal((await ask(session, { ':path': '/trailers', ':method': 'PUT' }, 'body', { 'x-sum': '1' })).status, 200);
  const received = await stub.callsOf('/trailers')[0]!.received;
  t.same([received.bytes.toString(), received.trailers], ['body', ['x-sum', '1']]);

  t.equal((await request(gateway.url, { path: '/one' })).status, 200, 'HTTP/1.1 is spoken beside it');
  t.match(stub.callsOf('/one')[0]!.headerLines('via').join(), /^1\.1 oneflight-[0-9a-f]{8}$/);
  session.close();
  await gateway.stop();
});

t.test('a response arrives as it would over HTTP/1.1', async (t) => {
  const gateway = await start(t);
  const session = connect(t, gateway);
  stub.on('/answer', (call) => {
    call.raw('HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nLink: </b>\r\n\r\n');
    call.answer({
      status: 201,
      fields: [
        'X-A',
        '1',
        'Set-Cookie',
        'a',
        'x-a',
        '2',
        'Set-Cookie',
        'b',
        'X-Latin',
        'caf\xe9',
        'Connection',
        'X-Hop',
        'X-Hop',
        '1',
        'Trailer',
        'X-Sum',
      ],
      content: 'hello',
      framing: 'chunked',
      trailers: ['X-Sum', '1'],
    });
  });
  const got = await ask(session, { ':path': '/answer' });
  t.equal(got.status, 201);
  t.same(got.fields, [
    'x-a',
    '1',
    'x-a',
    '2',
    'set-cookie',
    'a',
    'set-cookie',
    'b',
    'x-latin',
    'caf\xe9',
    'trailer',
    'X-Sum',
  ]);
  t.same([got.text, got.trailers, got.ended, got.code], ['hello', ['x-sum', '1'], true, 0]);
  t.match(got.interim, [[':status', '103', 'link']]);
  for (const [status, method] of [
    [204, 'GET'],
    [304, 'GET'],
    [200, 'HEAD'],
  ] as const) {
    stub.on('/empty', (call) => call.answer({ status, framing: 'none', fields: ['X-A', '1'] }));
    const empty = await ask(session, { ':path': '/empty', ':method': method });
    t.same([empty.status, empty.text, empty.ended, empty.code], [status, '', true, 0]);
  }
});

t.test('a cut is a reset, never an end', async (t) => {
  const gateway = await start(t);
  const session = connect(t, gateway);
  for (const [name, behaviour] of Object.entries({ length: cutsContentLength, chunked: cutsChunked })) {
    const gate = new Gate();
    stub.on(`/cut-${name}`, behaviour(gate));
    const got = ask(session, { ':path': `/cut-${name}` });
    await stub.arrived(1, `/cut-${name}`);
    await gateway.caughtUp();
    gate.open();
    const { code, ended, status } = await got;
    t.same([status, code, ended], [200, http2.constants.NGHTTP2_INTERNAL_ERROR, false], name);
  }
  const { status } = await ask(session, { ':path': '/others' });
  t.equal(status, 200, 'the connection goes on');
});

t.test('who resets its stream, or leaves, has left', async (t) => {
  const gateway = await start(t);
  for (const how of ['stream', 'connection']) {
    const session = connect(t, gateway);
    const held = stub.holds(`/left-${how}`);
    const stream = session.request({ ':path': `/left-${how}` });
    stream.on('error', () => {});
    const call = await held.arrived(1);
    if (how === 'stream') stream.close(http2.constants.NGHTTP2_CANCEL);
    else session.destroy();
    await within(10_000, 'the end of the upstream call', call.closed);
  }
  t.match((await gateway.metrics()).outcomes('unmatched'), { left: 2 });
});

t.test('what contradicts itself or is no request here is refused', async (t) => {
  const gateway = await start(t, 'limits: { maxFields: 8KiB, maxContent: 64KiB }');
  const session = connect(t, gateway);
  const refused = async (headers: OutgoingHttpHeaders, body?: string) =>
    (await ask(session, { ':authority': 'a', ...headers }, body)).status;
  t.equal(await refused({ ':path': '/refused', host: 'b' }), 400, 'another Host');
  t.equal(await refused({ ':path': '/agrees', host: 'A' }), 200, 'the same Host');
  t.equal(await refused({ ':path': '/refused', ':scheme': 'ftp' }), 400, 'another scheme');
  t.equal(await refused({ ':path': '/refused', 'x-a': 'a'.repeat(9_000) }), 431, 'too large fields');
  t.equal(
    await refused({ ':path': '/refused', ':method': 'POST', 'content-length': 70_000 }, 'a'.repeat(70_000)),
    413,
    'too large content',
  );
  t.equal(await refused({ ':path': '/refused', ':method': 'POST', expect: 'tea' }, ''), 417);
  t.equal(await refused({ ':method': 'CONNECT' }, ''), 501, 'CONNECT');
  t.equal(stub.count('/refused'), 0);
  const expecting = await ask(
    session,
    { ':path': '/expecting', ':method': 'POST', ':authority': 'a', expect: '100-continue' },
    'body',
  );
  t.equal(expecting.status, 200);
  t.same(stub.callsOf('/expecting')[0]!.headerLines('expect'), []);
});

t.test('followers over HTTP/2 and HTTP/1.1 get one answer', async (t) => {
  const gateway = await start(t);
  const session = connect(t, gateway);
  const held = stub.holds('/shared', { content: 'one for all', fields: ['X-A', '1'] });
  const over2 = Array.from({ length: 5 }, () => ask(session, { ':path': '/shared', ':authority': 'a' }));
  const over1 = Array.from({ length: 5 }, () => request(gateway.url, { path: '/shared', headers: ['Host', 'a'] }));
  await held.arrived(1);
  await gateway.caughtUp();
  await gateway.caughtUp();
  held.release();
  const texts = [
    ...(await Promise.all(over2)).map(({ text }) => text),
    ...(await Promise.all(over1)).map(({ text }) => text),
  ];
  t.same(texts, Array(10).fill('one for all'));
  t.equal(stub.count('/shared'), 1, 'one upstream call');
});

t.test('windows hold back both ways, one stream and not the others', async (t) => {
  const gateway = await start(t);
  const session = connect(t, gateway);
  stub.on('/much', (call) => call.answer({ content: Buffer.alloc(24 * MIB, 'a') }));
  const slow = session.request({ ':path': '/much' });
  slow.on('error', () => {});
  await within(10_000, 'its fields', new Promise((resolve) => slow.once('response', resolve)));
  for (let i = 0; i < 5; i += 1) t.equal((await ask(session, { ':path': '/beside' })).status, 200);
  let bytes = 0;
  slow.on('data', (piece: Buffer) => (bytes += piece.length));
  await within(20_000, 'all of it', new Promise((resolve) => slow.once('close', resolve)));
  t.equal(bytes, 24 * MIB);
  const upload = await ask(session, { ':path': '/upload', ':method': 'POST' }, Buffer.alloc(8 * MIB));
  t.equal(upload.status, 200);
  t.equal(stub.callsOf('/upload')[0]!.content?.length, 8 * MIB);
});

t.test('slow streams are ended as slow connections are', async (t) => {
  const gateway = await start(t, 'limits: { contentTimeout: 400ms, stallTimeout: 400ms }');
  const session = connect(t, gateway);
  const upload = session.request({ ':path': '/stops', ':method': 'POST' });
  upload.on('error', () => {});
  upload.write('half');
  const status = await within(
    10_000,
    'an answer',
    new Promise((resolve) => upload.once('response', (head) => resolve(head[':status']))),
  );
  t.equal(status, 408);
  stub.on('/much', (call) => call.answer({ content: Buffer.alloc(24 * MIB, 'a') }));
  const before = stub.count('/much');
  const stalled = session.request({ ':path': '/much' });
  stalled.on('error', () => {});
  await stub.arrived(before + 1, '/much');
  await within(10_000, 'the end of the upstream call', stub.callsOf('/much').at(-1)!.closed);
  t.equal((await ask(session, { ':path': '/beside' })).status, 200, 'others go on');
});

t.test('at SIGTERM clients are told, and streams end', async (t) => {
  const gateway = await start(t);
  const session = connect(t, gateway);
  const held = stub.holds('/held', { content: 'to its end' });
  const got = ask(session, { ':path': '/held' });
  await held.arrived(1);
  const goaway = new Promise((resolve) => session.once('goaway', resolve));
  const stopped = gateway.stop();
  t.equal(await within(10_000, 'GOAWAY', goaway), http2.constants.NGHTTP2_NO_ERROR);
  held.release();
  const { text, code } = await got;
  t.same([text, code], ['to its end', 0]);
  await stopped;
});

const MOST_RESETS = 2_000;
t.test('a client that opens and resets streams in a row is disconnected', async (t) => {
  const gateway = await start(t);
  const session = connect(t, gateway);
  stub.holds('/reset');
  const closed = new Promise((resolve) => session.once('close', resolve));
  await new Promise((resolve) => session.once('connect', resolve));
  let resets = 0;
  for (; resets < MOST_RESETS && !session.closed && !session.destroyed; resets += 1) {
    const stream = session.request({ ':path': '/reset' });
    stream.on('error', () => {});
    stream.close(http2.constants.NGHTTP2_CANCEL);
    // The gateway has read them when it answers behind them.
    if (resets % 20 === 19) await Promise.race([closed, new Promise((resolve) => session.ping(resolve))]);
  }
  await within(10_000, 'the end of the connection', closed);
  t.ok(resets < MOST_RESETS, `${resets} resets, then it was disconnected`);
  const next = connect(t, gateway);
  t.equal((await ask(next, { ':path': '/after' })).status, 200);
  next.settings({});
  t.equal(next.remoteSettings.maxConcurrentStreams, 128);
});
