/** Responses that end with their connection: a reset is no end. */

import t from 'tap';
import { RawClient } from '../support/client.js';
import { within } from '../support/gate.js';
import { configOf, startGateways } from '../support/gateway.js';
import { inEachStore } from '../support/stores.js';
import { startUpstream } from '../support/upstream.js';

t.setTimeout(60_000);

inEachStore(t, 2, async (t, store, processes) => {
  const upstream = await startUpstream(t);
  const routes = `
  - name: c
    match: { path: /c/* }
    policy: coalesce
    key: [ { request: path } ]
    keep: 20s
  - name: r
    match: { path: /r/* }
    policy: replay
    key: [ { request: path } ]`;
  const gateways = await startGateways(t, processes, { config: configOf({ upstream: upstream.url, store, routes }) });
  const last = gateways.at(-1)!;
  const begin = '\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\nhalf of it';

  await t.test('reset in the middle: cut for the client, and nothing is kept', async (t) => {
    for (const version of ['1.0', '1.1']) {
      for (const route of ['c', 'r', 'plain']) {
        const path = `/${route}/reset-${version}`;
        upstream.on(path, async (call) => {
          await call.received;
          call.raw(`HTTP/${version} 200 OK${begin}`);
          await new Promise((resolve) => setTimeout(resolve, 100));
          call.reset();
        });
        const answer = await gateways[0]!.request({ method: 'POST', path });
        t.equal(answer.cut, true, `${path}: ${answer.text}`);
        upstream.on(path, (call) => call.answer({ content: 'whole' }));
        const next = await last.request({ method: 'POST', path });
        t.not(next.text, 'half of it', path);
      }
    }
  });

  await t.test('closed at the end: whole, shared and kept as ever', async (t) => {
    const path = '/c/closed';
    upstream.on(path, async (call) => {
      await call.received;
      call.raw(`HTTP/1.0 200 OK${begin}`);
      call.hangUp();
    });
    const answer = await gateways[0]!.request({ method: 'POST', path });
    t.same([answer.cut, answer.text], [false, 'half of it']);
    t.equal((await last.request({ method: 'POST', path })).text, 'half of it');
    t.equal(upstream.count(path), 1);
  });

  await t.test('a client of HTTP/1.0 sees a cut as a reset, not as an end', async (t) => {
    const path = '/c/old-client';
    upstream.on(path, async (call) => {
      await call.received;
      call.head(200, 'OK', ['Transfer-Encoding', 'chunked']);
      call.raw('4\r\nhalf\r\n');
      await new Promise((resolve) => setTimeout(resolve, 100));
      call.reset();
    });
    const client = await RawClient.connect(last.url);
    const ended = new Promise<string>((resolve) => {
      client.socket.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? 'error'));
      client.socket.once('end', () => resolve('a clean end'));
    });
    client.write(`GET ${path} HTTP/1.0\r\n\r\n`);
    t.equal(await within(10_000, 'the end', ended), 'ECONNRESET');
  });
});
