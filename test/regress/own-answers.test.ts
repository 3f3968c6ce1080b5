/** What the gateway says itself, and what it makes of answers that are not quite HTTP. */

import t from 'tap';
import { burst, RawClient, rawRequest, request } from '../support/client.js';
import { COLLAPSED, HIT, isProblem, LED, problemOf, tally } from '../support/expect.js';
import { Gate } from '../support/gate.js';
import { allCaughtUp, configOf, type Gateway, startGateways } from '../support/gateway.js';
import { startRedis } from '../support/redis.js';
import { type Behaviour, gated, startUpstream } from '../support/upstream.js';

t.setTimeout(60_000);

const redis = await startRedis();
t.teardown(() => redis.stop());
const upstream = await startUpstream(t);
const gateways = (await startGateways(t, 2, {
  config: configOf({
    upstream: upstream.url,
    timeouts: '{ connect: 2s, headers: 5s, body: 5s }',
    store: `{ kind: redis, url: "${redis.url}", commandTimeout: 2s }`,
    routes: `
  - name: shared
    match: { path: /shared/* }
    policy: coalesce
    key: [ { request: path } ]
    keep: 30s
  - name: lock
    match: { path: /lock/* }
    policy: reject
    key: [ { request: path } ]`,
  }),
})) as [Gateway, Gateway];
const [here, there] = gateways;

/** What follows the reason phrase. */
const REST = '\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\ndone';
const COMPLETED = Buffer.from(`HTTP/1.1 201 完了${REST}`, 'utf8');

/** Answers with bytes as they are. */
function bytes(message: Buffer): Behaviour {
  return async (call) => {
    await call.received;
    call.raw(message);
    call.finish();
  };
}

t.test('a reason phrase of other bytes than ASCII passes, with status and content', async (t) => {
  const phrases: Readonly<Record<string, Buffer>> = {
    utf8: COMPLETED,
    'utf8-latin': Buffer.from(`HTTP/1.1 201 créé${REST}`, 'utf8'),
    latin1: Buffer.from(`HTTP/1.1 201 n\xe3o${REST}`, 'latin1'),
    empty: Buffer.from(`HTTP/1.1 201 ${REST}`, 'latin1'),
    error: Buffer.from(`HTTP/1.1 503 próximo${REST}`, 'latin1'),
  };
  for (const [name, message] of Object.entries(phrases)) {
    const status = name === 'error' ? 503 : 201;
    for (const route of ['plain', 'lock', 'shared']) {
      const path = `/${route}/${name}`;
      upstream.on(path, bytes(message));
      const answer = await request(here.url, { method: 'POST', path });
      t.equal(answer.status, status, path);
      t.equal(answer.text, 'done', path);
      t.equal(answer.cut, false, path);
    }
  }
  // Followers, and those who find it in the store, get the same.
  const path = '/shared/others';
  const gate = new Gate();
  upstream.on(path, gated(gate, bytes(COMPLETED)));
  const leader = request(here.url, { method: 'POST', path });
  await upstream.arrived(1, path);
  const followers = burst(2, (index) => request(gateways[index]!.url, { method: 'POST', path }));
  await allCaughtUp(gateways);
  gate.open();
  const answers = [await leader, ...(await followers)];
  t.same(tally(answers), { [LED]: 1, [COLLAPSED]: 2 });
  const kept = await request(there.url, { method: 'POST', path });
  t.match(kept.cacheStatus, HIT);
  for (const answer of [...answers, kept]) t.same([answer.status, answer.text], [201, 'done']);
  t.equal(upstream.count(path), 1);
});

t.test('what cannot be taken as a request is refused with a problem, and nothing is forwarded', async (t) => {
  const before = upstream.count();
  const requests: Readonly<Record<string, { readonly status: number; readonly message: string }>> = {
    'an unknown expectation': {
      status: 417,
      message: 'POST /plain/x HTTP/1.1\r\nHost: a\r\nExpect: foo\r\nContent-Length: 2\r\n\r\nok',
    },
    'an unknown expectation on a keyed route': {
      status: 417,
      message: 'POST /shared/x HTTP/1.1\r\nHost: a\r\nExpect: foo\r\nContent-Length: 2\r\n\r\nok',
    },
    'no Host': { status: 400, message: 'GET /plain/x HTTP/1.1\r\n\r\n' },
    'two Hosts': { status: 400, message: 'GET /plain/x HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n' },
    CONNECT: { status: 501, message: 'CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n' },
    'fields over 64 KiB': {
      status: 431,
      message: `GET /plain/x HTTP/1.1\r\nHost: a\r\n${`X-A: ${'a'.repeat(1_000)}\r\n`.repeat(70)}\r\n`,
    },
    'one field over 64 KiB': {
      status: 431,
      message: `GET /plain/x HTTP/1.1\r\nHost: a\r\nX-A: ${'a'.repeat(70_000)}\r\n\r\n`,
    },
    'no HTTP': { status: 400, message: 'this is no HTTP at all\r\n\r\n' },
    'two lengths': {
      status: 400,
      message: 'POST /plain/x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok',
    },
  };
  for (const [name, { status, message }] of Object.entries(requests)) {
    await t.test(name, async (t) => {
      const answer = await rawRequest(here.url, message);
      if (answer === null) throw new Error('the connection ended without an answer');
      t.equal(answer.status, status);
      t.match(answer.header('proxy-status'), /^oneflight; error=/);
      t.equal(problemOf(answer), 'bad-request');
      const problem = answer.json() as { status: unknown; title: string };
      t.equal(problem.status, status, 'status in the content');
      t.equal(problem.title === 'The request cannot be read in one way only', status === 400, problem.title);
    });
  }
  t.equal(upstream.count(), before);
  t.equal((await rawRequest(here.url, 'GET /plain/old HTTP/1.0\r\n\r\n'))?.status, 200, 'HTTP/1.0 needs no Host');
});

t.test('fields below 64 KiB pass', async (t) => {
  const fields = Array.from({ length: 60 }, () => ['X-A', 'a'.repeat(1_000)]).flat();
  const answer = await request(here.url, { path: '/plain/large', headers: fields });
  t.equal(answer.status, 200);
  t.equal(upstream.callsOf('/plain/large')[0]?.headerLines('x-a').length, 60);
});

t.test('a response whose length is not stated in one way is a bad response, not an unknown outcome', async (t) => {
  const messages: Readonly<Record<string, string>> = {
    'two-lengths': 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok',
    'list-of-lengths': 'HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok',
    'length-and-more': 'HTTP/1.1 200 OK\r\nContent-Length: 2abc\r\n\r\nok',
    'no-number': 'HTTP/1.1 200 OK\r\nContent-Length: abc\r\n\r\nok',
    negative: 'HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok',
    huge: 'HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\nok',
    'length-then-chunked':
      'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n',
    'chunked-then-length':
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\nok\r\n0\r\n\r\n',
    'bad-field-after-length': 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX Y: a\r\n\r\nok',
  };
  for (const [name, message] of Object.entries(messages)) {
    for (const route of ['plain', 'lock', 'shared']) {
      const path = `/${route}/${name}`;
      upstream.on(path, bytes(Buffer.from(message, 'latin1')));
      isProblem(t, await request(here.url, { method: 'POST', path }), 'bad-upstream-response');
      t.equal(upstream.count(path), 1, `${path}: not sent again`);
    }
  }
});

t.test('a response that is cut in its content stays a cut, whatever its length says', async (t) => {
  for (const route of ['plain', 'lock', 'shared']) {
    const path = `/${route}/short`;
    upstream.on(path, async (call) => {
      await call.received;
      call.raw('HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nshort');
      call.hangUp();
    });
    const client = await RawClient.connect(here.url);
    client.write(`POST ${path} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n`);
    const answer = await client.answer().catch(() => null);
    t.ok(answer === null || answer.cut, path);
    client.close();
  }
});

t.test('a status below 100 is a bad response, and no interim one', async (t) => {
  upstream.on('/shared/99', bytes(Buffer.from('HTTP/1.1 099 Odd\r\nContent-Length: 2\r\n\r\nok')));
  const answer = await request(here.url, { method: 'POST', path: '/shared/99' });
  t.match(answer.status, /^50[24]$/);
});
