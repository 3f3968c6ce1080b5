/** Followers of one turn are given the same bytes: each gets a message that is right for its own connection. */

import t from 'tap';
import { RawClient } from '../support/client.js';
import { COLLAPSED } from '../support/expect.js';
import { configOf, startGateway } from '../support/gateway.js';
import { startUpstream } from '../support/upstream.js';

t.setTimeout(120_000);

const ROUTES = `
  - name: shared
    match: { path: /shared/* }
    policy: coalesce
    key: [ { request: path } ]
    identity: public
    wait: 30s`;

/** Kinds of followers: what their request says, and what is asked of their answer. */
const KINDS = {
  ordinary: { line: 'HTTP/1.1', more: '', kept: true },
  'ordinary too': { line: 'HTTP/1.1', more: 'X-Other: 1\r\n', kept: true },
  'one that is the last of its connection': { line: 'HTTP/1.1', more: 'Connection: close\r\n', kept: false },
  'one of HTTP/1.0': { line: 'HTTP/1.0', more: '', kept: false },
  'one of HTTP/1.0 that keeps its connection': { line: 'HTTP/1.0', more: 'Connection: keep-alive\r\n', kept: true },
} as const;

t.test('every follower gets the whole response, and its connection goes on or ends as it asked', async (t) => {
  const stub = await startUpstream(t);
  const content = Buffer.from('ä'.repeat(300));
  const held = stub.holds('/shared/one', { content, fields: ['Content-Type', 'text/plain', 'X-Latin', 'caf\xe9'] });
  const gateway = await startGateway(t, { config: configOf({ upstream: stub.url, routes: ROUTES }) });
  const get = (line: string, more = '', path = '/shared/one') => `GET ${path} ${line}\r\nHost: a\r\n${more}\r\n`;
  const leader = await RawClient.connect(gateway.url);
  leader.write(get('HTTP/1.1'));
  await held.arrived(1);
  const followers = await Promise.all(
    Object.entries(KINDS).flatMap(([kind, asks]) =>
      [1, 2, 3].map(async () => ({ kind, asks, client: await RawClient.connect(gateway.url) })),
    ),
  );
  for (const { asks, client } of followers) client.write(get(asks.line, asks.more));
  const piped = await RawClient.connect(gateway.url);
  piped.write(get('HTTP/1.1') + get('HTTP/1.1') + get('HTTP/1.1', '', '/shared/two'));
  await gateway.caughtUp();
  held.release();

  t.equal((await leader.answer())?.body.equals(content), true);
  for (const { kind, asks, client } of followers) {
    const answer = (await client.answer())!;
    t.equal(answer.status, 200, kind);
    t.ok(answer.body.equals(content), kind);
    t.equal(answer.header('x-latin'), 'caf\xe9');
    t.equal(answer.cacheStatus, COLLAPSED, kind);
    t.equal(answer.headerLines('content-length').length, 1, kind);
    t.equal(answer.header('connection'), asks.kept ? 'keep-alive' : 'close', kind);
    if (asks.kept) {
      client.write(get(asks.line, asks.more, '/shared/next'));
      t.match((await client.answer())?.text, /"path":"\/shared\/next"/, `${kind}: the connection goes on`);
      client.close();
    } else await client.closed;
  }
  for (const path of ['one', 'one', 'two']) {
    const answer = (await piped.answer())!;
    t.equal(answer.status, 200);
    if (path === 'one') t.ok(answer.body.equals(content), 'pipelined');
    else t.not(answer.body.equals(content), true);
  }
  piped.close();
  leader.close();
  t.equal(stub.count('/shared/one'), 1);
  const metrics = await gateway.metrics();
  t.equal(metrics.sum('oneflight_requests_total', { outcome: 'collapsed' }), followers.length + 2);
});
