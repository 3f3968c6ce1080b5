/** Clients that are slow, however many, take nothing from the others. */

import { connect, type Socket } from 'node:net';
import t, { type Test } from 'tap';
import { burst } from '../support/client.js';
import { isProblem } from '../support/expect.js';
import { eventually } from '../support/gate.js';
import { configOf, type Gateway, startGateway } from '../support/gateway.js';
import { type StubUpstream, startUpstream } from '../support/upstream.js';

t.setTimeout(120_000);

const EACH = 120;
const PIECE = Buffer.alloc(262_144, 'x');

const ROUTES = `
  - name: by-content
    match: { path: /by-content }
    upstream: api
    policy: coalesce
    key: [ { body: /id } ]
  - name: pay
    match: { path: /pay/* }
    upstream: api
    policy: reject
    key: [ { request: path } ]`;

/** Uploads that do not go on, to the upstream and to a key; downloads that are not read. */
async function slowClients(t: Test, gateway: Gateway, upstream: StubUpstream): Promise<void> {
  const sockets: Socket[] = [];
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
  });
  const { hostname, port } = new URL(gateway.url);
  upstream.on('/download', (call) => {
    call.head(200, 'OK', ['Content-Length', String(64 * PIECE.length)]);
    for (let i = 0; i < 64; i++) call.socket.write(PIECE);
  });
  const head = (method: string, path: string) => `${method} ${path} HTTP/1.1\r\nHost: a\r\n`;
  for (let i = 0; i < EACH; i++) {
    for (const bytes of [
      `${head('PUT', '/upload')}Content-Length: 1000000\r\n\r\nbegun`,
      `${head('PUT', '/upload')}Transfer-Encoding: chunked\r\n\r\n5\r\nbegun\r\n`,
      `${head('POST', '/by-content')}Content-Length: 1000\r\n\r\n{"id":`,
      `${head('GET', '/download')}\r\n`,
    ]) {
      const socket = connect({ host: hostname, port: Number(port) }).pause();
      socket.on('error', () => {});
      socket.write(bytes);
      sockets.push(socket);
    }
  }
  await upstream.arrived(2 * EACH, '/upload');
  await upstream.arrived(EACH, '/download');
}

async function othersAreServed(t: Test, gateway: Gateway): Promise<void> {
  const body = (n: number) => JSON.stringify({ id: n });
  const answers = await Promise.all([
    burst(20, (n) => gateway.request({ path: `/read/${n}` })),
    burst(20, (n) => gateway.request({ method: 'POST', path: '/by-content', body: body(n) })),
    burst(20, (n) => gateway.request({ method: 'POST', path: `/pay/${n}`, body: body(n) })),
  ]);
  t.same(new Set(answers.flat().map(({ status }) => status)), new Set([200]));
}

t.test('slow uploads and downloads, on every kind of route', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startGateway(t, { config: configOf({ upstream: upstream.url, routes: ROUTES }) });
  await slowClients(t, gateway, upstream);
  for (let i = 0; i < 3; i++) await othersAreServed(t, gateway);
});

t.test('where connections are bounded, calls with a key have their part of them', async (t) => {
  const upstream = await startUpstream(t);
  const bound = `connections: { max: ${4 * EACH}, queue: 10, wait: 100ms }`;
  const config = configOf({ upstream: upstream.url, routes: ROUTES }).replace('retries: 0,', `retries: 0, ${bound},`);
  const gateway = await startGateway(t, { config });
  await slowClients(t, gateway, upstream);
  await eventually('all that others may have being taken', async () => {
    return (await gateway.metrics()).sum('oneflight_upstream_pending_requests') === 3 * EACH;
  });
  isProblem(t, await gateway.request({ path: '/read/1' }), 'overloaded');
  const paid = await burst(20, (n) => gateway.request({ method: 'POST', path: `/pay/${n}` }));
  t.same(new Set(paid.map(({ status }) => status)), new Set([200]));
});
