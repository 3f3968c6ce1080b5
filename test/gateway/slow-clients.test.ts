/**
 * Clients that keep a connection by sending or taking as little as they can (slowloris), on raw sockets: each is
 * disconnected in its time, and others are served meanwhile. Limits that silence alone runs into are in limits.test.ts.
 */

import { connect as connectHttp2, constants } from 'node:http2';
import { connect, type Socket } from 'node:net';
import t, { type Test } from 'tap';
import { RawClient, request } from '../support/client.js';
import { secured, TRUSTING, tlsYaml } from '../support/dial.js';
import { isProblem } from '../support/expect.js';
import { delay, eventually, within } from '../support/gate.js';
import { configOf, type Gateway, startGateway } from '../support/gateway.js';
import { startUpstream } from '../support/upstream.js';
import { chunkBytes } from '../support/wire.js';

t.setTimeout(150_000);

const stub = await startUpstream(t);
const MIB = 1_048_576;
const MANY = 60;
const LONGEST_MS = 20_000;
const ROUTES = `
  - { name: keyed, match: { path: /keyed }, upstream: api, policy: coalesce, key: [ { body: /id } ] }`;

function start(t: Test, limits: string, listen = ''): Promise<Gateway> {
  return startGateway(t, {
    config: configOf({ upstream: stub.url, routes: ROUTES, listen, more: `limits: { ${limits} }` }),
  });
}

/** A connection that sends a byte, or whatever it is given, again and again until it is closed. */
function dribble(socket: Socket, what: () => Buffer | string, everyMs = 40): Promise<void> {
  const timer = setInterval(() => {
    if (socket.writable) socket.write(what());
  }, everyMs);
  return new Promise((resolve) => {
    socket.on('error', () => {});
    socket.once('close', () => {
      clearInterval(timer);
      resolve();
    });
  });
}

function plain(t: Test, { url }: Gateway): Socket {
  const socket = connect({ host: '127.0.0.1', port: Number(new URL(url).port), noDelay: true });
  t.teardown(() => socket.destroy());
  return socket;
}

/** Others are served while the slow ones are there, and when they are gone nothing of them is left. */
async function allEnd(t: Test, gateway: Gateway, ends: readonly Promise<void>[]): Promise<void> {
  t.equal((await request(gateway.url, { path: '/others' })).status, 200, 'others are served');
  await within(LONGEST_MS, 'their end', Promise.all(ends));
  await eventually('no connection', async () => (await gateway.metrics()).sum('oneflight_connections') === 0);
  await eventually('no request', async () => (await gateway.metrics()).sum('oneflight_requests_in_progress') === 0);
  await eventually('no upstream call', async () => {
    return (await gateway.metrics()).sum('oneflight_upstream_pending_requests') === 0;
  });
}

t.test('many that send their fields byte by byte, or nothing at all', async (t) => {
  const gateway = await start(t, 'fieldsTimeout: 1s');
  const heads = ['', 'G', 'GET /slow HTTP/1.1\r\nHost: a\r\nX-A: ', 'POST /keyed HTTP/1.1\r\nHost: a\r\n'];
  const ends = Array.from({ length: MANY }, (_, index) => {
    const head = heads[index % heads.length]!;
    const socket = plain(t, gateway).resume();
    if (head !== '') socket.write(head);
    // A whole line now and then is no request either.
    return dribble(socket, () => (head === '' ? '' : head.endsWith('\n') ? 'X-B: b\r\n' : 'a'));
  });
  await allEnd(t, gateway, ends);
  t.equal(stub.count('/slow') + stub.count('/keyed'), 0);
});

t.test('many that do not finish the handshake of TLS, or begin another protocol in it', async (t) => {
  const gateway = await start(t, 'fieldsTimeout: 1s', `tls: ${tlsYaml()}`);
  // The first bytes of a ClientHello that announces 512.
  const hello = Buffer.from([0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]);
  const ends = Array.from({ length: MANY }, (_, index) => {
    const socket = plain(t, gateway).resume();
    if (index % 3 > 0) socket.write(hello.subarray(0, index % hello.length));
    return dribble(socket, () => (index % 3 === 2 ? Buffer.from([0]) : ''));
  });
  await allEnd(t, gateway, ends);
  t.ok((await gateway.metrics()).sum('oneflight_connections_refused_total', { reason: 'handshake' }) >= MANY);
});

t.test('HTTP/2: no preface, half a preface, no request behind it, and fields that never end', async (t) => {
  const gateway = await start(t, 'fieldsTimeout: 1s', `tls: ${tlsYaml()}, http2: true`);
  const preface = 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n';
  const settings = Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]);
  // HEADERS of stream 1 without END_HEADERS, then a CONTINUATION of one byte again and again.
  const headers = Buffer.from([0, 0, 1, 1, 1, 0, 0, 0, 1, 0x82]);
  const continuation = Buffer.from([0, 0, 0, 9, 0, 0, 0, 0, 1]);
  const starts = ['', preface.slice(0, 10), Buffer.concat([Buffer.from(preface), settings])];
  const ends = Array.from({ length: MANY }, (_, index) => {
    const socket = secured(plain(t, gateway), { ALPNProtocols: ['h2'] });
    socket.resume();
    t.teardown(() => socket.destroy());
    if (index % 4 === 3) {
      socket.write(Buffer.concat([Buffer.from(preface), settings, headers]));
      return dribble(socket, () => continuation, 100);
    }
    const start = starts[index % 4]!;
    if (start.length > 0) socket.write(start);
    return dribble(socket, () => '');
  });
  await allEnd(t, gateway, ends);
});

t.test('minRate: an upload that comes in drops is ended, one that keeps the rate is not', async (t) => {
  const gateway = await start(t, 'contentTimeout: 1s, minRate: 200B');
  const before = stub.count('/drops');
  const clients = await Promise.all(Array.from({ length: 20 }, () => RawClient.connect(gateway.url)));
  const ends = clients.map((client, index) => {
    const path = index % 2 === 0 ? '/drops' : '/keyed';
    client.write(`POST ${path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n`);
    return dribble(client.socket, () => chunkBytes(Buffer.from('a')), 100);
  });
  await stub.arrived(before + 10, '/drops');
  const answers = await Promise.all(clients.map((client) => client.answer()));
  for (const answer of answers) isProblem(t, answer!, 'bad-request');
  await allEnd(t, gateway, ends);
  for (const call of stub.callsOf('/drops').slice(before)) t.equal((await call.received).whole, false);

  const steady = await RawClient.connect(gateway.url);
  steady.write('POST /steady HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n');
  for (let piece = 0; piece < 30; piece += 1) {
    steady.write(chunkBytes(Buffer.alloc(200, 'a')));
    await delay(100);
  }
  steady.write('0\r\n\r\n');
  t.equal((await steady.answer())?.status, 200);
  steady.close();
});

t.test('trailers and chunk extensions are no way to go on for ever', async (t) => {
  const gateway = await start(t, 'contentTimeout: 1s, minRate: 200B');
  const head = 'POST /drops HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n';
  const ends = ['1;a=', '1\r\na\r\n0\r\nX-A: '].map((begun) => {
    const socket = plain(t, gateway).resume();
    socket.write(head + begun);
    return dribble(socket, () => 'a');
  });
  await allEnd(t, gateway, ends);
});

for (const http2 of [false, true]) {
  t.test(`minRate: an answer that is taken in drops is cut${http2 ? ', over HTTP/2 its stream' : ''}`, async (t) => {
    const listen = http2 ? `tls: ${tlsYaml()}, http2: true` : '';
    const gateway = await start(t, 'stallTimeout: 1s, minRate: 1MiB', listen);
    const much = Buffer.alloc(96 * MIB, 'a');
    stub.on('/much', (call) => call.answer({ content: much }));
    if (http2) {
      const session = connectHttp2(gateway.url, { ...TRUSTING, settings: { initialWindowSize: 1_024 } });
      t.teardown(() => session.destroy());
      const stream = session.request({ ':path': '/much' });
      stream.on('error', () => {});
      // Each piece opens the window for as much again.
      stream.on('data', () => {
        stream.pause();
        setTimeout(() => stream.resume(), 100);
      });
      await within(LONGEST_MS, 'its end', new Promise((resolve) => stream.once('close', resolve)));
      t.not(stream.rstCode, constants.NGHTTP2_NO_ERROR);
      t.equal((await request(gateway.url, { path: '/others' })).status, 200);
      session.close();
    } else {
      const socket = plain(t, gateway).on('error', () => {});
      socket.write('GET /much HTTP/1.1\r\nHost: a\r\n\r\n');
      let bytes = 0;
      let pauseMs = 300;
      socket.on('data', (piece: Buffer) => {
        bytes += piece.length;
        socket.pause();
        setTimeout(() => socket.resume(), pauseMs);
      });
      await eventually('the cut', async () => {
        const { cut } = (await gateway.metrics()).outcomes('unmatched') as { cut?: number };
        return cut === 1;
      });
      // What lies in the system is still to be read.
      pauseMs = 0;
      await within(LONGEST_MS, 'its end', new Promise<void>((resolve) => socket.once('close', () => resolve())));
      t.ok(bytes < much.length, `${bytes} bytes`);
    }
    await within(LONGEST_MS, 'the end of the upstream call', stub.callsOf('/much').at(-1)!.closed);
  });
}

t.test('without minRate whatever moves may go on', async (t) => {
  const gateway = await start(t, 'contentTimeout: 500ms');
  const client = await RawClient.connect(gateway.url);
  client.write('POST /slowly HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\n');
  for (let byte = 0; byte < 20; byte += 1) {
    client.write('a');
    await delay(100);
  }
  t.equal((await client.answer())?.status, 200);
  client.close();
});
