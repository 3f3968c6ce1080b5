/** What goes through the gateway goes through unchanged, but for the fields that belong to one connection. */

import { createHash, randomBytes } from 'node:crypto';
import http from 'node:http';
import t from 'tap';
import { burst, RawClient, rawRequest } from '../support/client.js';
import { isProblem, PROMPT_MS } from '../support/expect.js';
import { Gate, within } from '../support/gate.js';
import { configOf, startGateway } from '../support/gateway.js';
import { answers, type Call, chunkedInParts, startUpstream } from '../support/upstream.js';

t.setTimeout(120_000);

const upstream = await startUpstream(t);
const routes = `
  - name: keyed
    match: { methods: [POST, PUT], path: /keyed/* }
    policy: coalesce
    key: [ { body: /id } ]
    keep: 0
  - name: queried
    match: { path: /queried/* }
    policy: coalesce
    key: [ { request: path }, { query: id } ]
    keep: 0
  - name: locked
    match: { path: /locked/* }
    policy: reject
    key: [ { request: path } ]`;
const gateway = await startGateway(t, { config: configOf({ upstream: upstream.url, routes }) });
const trusting = await startGateway(t, {
  config: configOf({ upstream: upstream.url, routes, more: 'trustedProxies: [ 127.0.0.0/8 ]' }),
});

/** The only call of that path. */
function callOf(path: string): Call {
  const calls = upstream.callsOf(path);
  if (calls.length !== 1) throw new Error(`${calls.length} calls of ${path}`);
  return calls[0]!;
}

/** Field lines without those that the gateway adds and those of the connection. */
function own(fields: readonly string[]): string[] {
  const added =
    /^(host|via|x-forwarded-(for|proto|host)|x-request-id|connection|content-length|transfer-encoding|date|keep-alive)$/i;
  return fields.filter((_, at) => !added.test(fields[at - (at % 2)]!));
}

t.test('the raw target is kept, on plain and on keyed routes', async (t) => {
  const targets = [
    '//',
    '/',
    '/./a',
    '/a/../b',
    '/a//b/',
    '/%2F',
    '/%2f',
    '/%61',
    '/a?',
    '/a?&&=',
    '/a?x=%zz',
    '/a%20b;c=d',
    "/a!$&'()*+,=:@~",
    '/a?b?c',
    '/a|b',
    '/"<>',
  ];
  for (const target of targets) {
    for (const prefix of ['', '/queried']) {
      const before = upstream.count();
      const path = prefix + target;
      const answer = await gateway.request({ path });
      t.equal(answer.status, 200, path);
      t.equal(upstream.count(), before + 1);
      t.equal(upstream.calls[before]?.target, path);
    }
  }
});

t.test('methods are kept, known and unknown', async (t) => {
  for (const method of [
    'GET',
    'HEAD',
    'POST',
    'PUT',
    'PATCH',
    'DELETE',
    'OPTIONS',
    'PURGE',
    'PROPFIND',
    'REPORT',
    'MKCOL',
    'M-SEARCH',
    'QUERY',
  ]) {
    if (!http.METHODS.includes(method)) continue;
    const path = `/method/${method}`;
    upstream.on(
      path,
      answers(method === 'HEAD' ? { framing: 'none', fields: ['Content-Length', '5'] } : { content: 'hello' }),
    );
    const answer = await gateway.request({ method, path });
    t.equal(answer.status, 200, method);
    t.equal(answer.text, method === 'HEAD' ? '' : 'hello');
    t.equal(callOf(path).method, method);
  }
});

t.test('request fields keep their order, spelling, repeats and bytes', async (t) => {
  const fields = [
    'X-Zero',
    '0',
    'accept',
    'a/b',
    'X-Twice',
    '1',
    'x-one',
    '',
    'X-Twice',
    '2',
    'X-Latin',
    'caf\xe9',
    'Cookie',
    'a=1',
    'TRACEPARENT',
    '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
  ];
  await gateway.request({ path: '/fields/up', headers: fields });
  t.same(own(callOf('/fields/up').fields), fields);
});

t.test('response fields keep their order, spelling, repeats and bytes, and so do status and reason', async (t) => {
  const fields = [
    'X-Zero',
    '0',
    'set-cookie',
    'a=1',
    'X-Twice',
    '1',
    'Set-Cookie',
    'b=2',
    'x-one',
    '',
    'X-Twice',
    '2',
    'X-Latin',
    'caf\xe9',
    'Server',
    'stub',
  ];
  upstream.on('/fields/down', answers({ status: 299, reason: 'Fine By Me', fields, content: 'ok' }));
  const answer = await gateway.request({ path: '/fields/down' });
  t.equal(answer.status, 299);
  t.equal(answer.reason, 'Fine By Me');
  t.same(own(answer.rawHeaders), fields);
  t.equal(answer.text, 'ok');
});

t.test('fields of the connection, and those that Connection names, go no further in either direction', async (t) => {
  const connection = [
    'Connection',
    'X-Hop, x-other',
    'X-Hop',
    'secret',
    'X-Other',
    'secret',
    'Keep-Alive',
    'timeout=99',
    'Proxy-Connection',
    'keep-alive',
    'TE',
    'gzip',
    'Upgrade',
    'h2c',
  ];
  await gateway.request({ path: '/hop/up', headers: [...connection, 'X-Kept', 'yes'] });
  t.same(own(callOf('/hop/up').fields), ['X-Kept', 'yes']);
  t.notMatch(callOf('/hop/up').header('connection'), /x-hop/i);
  upstream.on(
    '/hop/down',
    answers({
      fields: [
        'Connection',
        'X-Hop',
        'X-Hop',
        'secret',
        'Keep-Alive',
        'timeout=99',
        'Proxy-Connection',
        'x',
        'X-Kept',
        'yes',
      ],
      content: 'ok',
    }),
  );
  const answer = await gateway.request({ path: '/hop/down' });
  t.same(own(answer.rawHeaders), ['X-Kept', 'yes']);
  t.notMatch(answer.header('connection'), /x-hop/i);
});

t.test('Connection cannot name away what a request needs', async (t) => {
  await gateway.request({
    method: 'POST',
    path: '/hop/needed',
    headers: ['Connection', 'Host, Content-Length, X-Forwarded-For, Authorization', 'Authorization', 'Bearer x'],
    body: 'four',
  });
  const call = callOf('/hop/needed');
  t.equal(call.content?.toString(), 'four');
  t.equal(call.headerLines('host').length, 1);
  t.match(call.header('x-forwarded-for'), /127\.0\.0\.1$/);
});

t.test('the upstream learns who asked, and a client cannot lie about it', async (t) => {
  const claims = ['X-Forwarded-For', '10.9.8.7', 'X-Forwarded-Proto', 'https', 'X-Forwarded-Host', 'evil.example'];
  await gateway.request({ path: '/who/untrusted', headers: ['Host', 'api.example:8080', ...claims] });
  const call = callOf('/who/untrusted');
  t.same(call.headerLines('host'), ['api.example:8080'], "the client's own Host");
  t.same(call.headerLines('x-forwarded-for'), ['127.0.0.1']);
  t.same(call.headerLines('x-forwarded-proto'), ['http']);
  t.same(call.headerLines('x-forwarded-host'), ['api.example:8080']);
  t.match(call.header('via'), /^1\.1 \S+/);
  t.match(call.header('x-request-id'), /^\S{8,}$/);
});

t.test('a trusted proxy is believed, and the real peer stands last', async (t) => {
  const claims = [
    'X-Forwarded-For',
    '10.9.8.7',
    'X-Forwarded-For',
    '10.1.1.1',
    'X-Forwarded-Proto',
    'https',
    'X-Forwarded-Host',
    'shop.example',
    'Via',
    '1.1 edge',
  ];
  await trusting.request({ path: '/who/trusted', headers: claims });
  const call = callOf('/who/trusted');
  t.same(call.headerLines('x-forwarded-for'), ['10.9.8.7, 10.1.1.1, 127.0.0.1']);
  t.same(call.headerLines('x-forwarded-proto'), ['https']);
  t.same(call.headerLines('x-forwarded-host'), ['shop.example']);
  t.match(call.header('via'), /^1\.1 edge, 1\.1 \S+/);
});

t.test('a request id is kept when there is one', async (t) => {
  await gateway.request({ path: '/who/id', headers: ['X-Request-Id', 'abc-123'] });
  t.same(callOf('/who/id').headerLines('x-request-id'), ['abc-123']);
});

t.test('content that a key is read from goes on byte for byte', async (t) => {
  const contents = [
    '{ "id" :  1,\r\n\t"n": 12345678901234567890, "f": 1.0, "e": 1E2, "u": "\\u00e9", "s": "\\/" }\n',
    ' {"b":1,"id":"x","a":[ ]}',
    `{"id":"${'y'.repeat(100_000)}"}`,
    '{"id":"caf\xc3\xa9 \xe2\x82\xac"}',
  ];
  for (const [index, content] of contents.entries()) {
    for (const framing of ['length', 'chunked'] as const) {
      const path = `/keyed/${index}-${framing}`;
      const body = Buffer.from(content, 'latin1');
      const headers = [
        'Content-Type',
        'application/json',
        ...(framing === 'chunked' ? ['Transfer-Encoding', 'chunked'] : []),
      ];
      t.equal((await gateway.request({ method: 'POST', path, headers, body })).status, 200);
      const call = callOf(path);
      t.ok((await call.received).bytes.equals(body), `${index} ${framing}`);
      t.equal((await call.received).whole, true);
      t.ok((call.header('content-length') !== null) !== (call.header('transfer-encoding') !== null), 'framed once');
    }
  }
});

t.test('content that no key is read from goes on whole, over new connections and old ones', async (t) => {
  for (const route of ['plain', 'queried', 'locked']) {
    const sizes = [1, 100, 70_000, 300_000];
    const bodies = Array.from({ length: 24 }, (_, index) => Buffer.alloc(sizes[index % 4]!, `${route}${index};`));
    for (const framing of ['length', 'chunked'] as const) {
      const headers = framing === 'chunked' ? ['Transfer-Encoding', 'chunked'] : [];
      const path = (index: number) => `/${route}/upload-${framing}-${index}`;
      const all = await burst(bodies.length, (index) =>
        gateway.request({ method: 'POST', path: `${path(index)}?id=1`, headers, body: bodies[index]! }),
      );
      t.ok(
        all.every((answer) => answer.status === 200),
        `${route} ${framing}: ${all.map(({ status }) => status).join()}`,
      );
      const changed = bodies.filter((body, index) => !upstream.callsOf(path(index))[0]?.content?.equals(body));
      t.equal(changed.length, 0, `${route} ${framing}: contents that did not arrive as they were sent`);
    }
  }
});

t.test('content of GET and DELETE goes on, and no content stays none', async (t) => {
  for (const method of ['GET', 'DELETE']) {
    await gateway.request({ method, path: `/content/${method}`, body: 'with content' });
    t.equal(callOf(`/content/${method}`).content?.toString(), 'with content');
    await gateway.request({ method, path: `/no-content/${method}` });
    t.equal(callOf(`/no-content/${method}`).content?.length, 0);
    t.equal(callOf(`/no-content/${method}`).header('transfer-encoding'), null);
  }
});

t.test('uploads and downloads of any size pass, and pass piece by piece', async (t) => {
  const big = randomBytes(24 * 1024 * 1024);
  const sum = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');
  upstream.on('/big', async (call) => {
    const { bytes } = await call.received;
    call.answer({ content: bytes, fields: ['X-Sum', sum(bytes)], framing: 'chunked' });
  });
  const answer = await gateway.request({ method: 'PUT', path: '/big', body: big });
  t.equal(answer.header('x-sum'), sum(big));
  t.equal(sum(answer.body), sum(big));

  const gate = new Gate();
  upstream.on('/pieces/down', chunkedInParts([Buffer.from('first'), Buffer.from('second')], gate));
  const sent = gateway.send({ path: '/pieces/down' });
  await within(PROMPT_MS, 'the first piece before the second exists', sent.started);
  gate.open();
  t.equal((await sent.answer).text, 'firstsecond');

  const client = await RawClient.connect(gateway.url);
  t.teardown(() => client.close());
  client.write('POST /pieces/up HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n');
  await within(PROMPT_MS, 'the request before its end exists', upstream.arrived(1, '/pieces/up'));
  client.write('6\r\nsecond\r\n0\r\n\r\n');
  t.equal((await client.answer())?.status, 200);
  t.equal(callOf('/pieces/up').content?.toString(), 'firstsecond');
});

t.test('an upload that the client breaks off never arrives as a whole', async (t) => {
  for (const framing of ['Content-Length: 10', 'Transfer-Encoding: chunked']) {
    const path = `/broken/${framing.slice(0, 7)}`;
    const client = await RawClient.connect(gateway.url);
    const half = framing.startsWith('C') ? 'hello' : '5\r\nhello\r\n';
    client.write(`POST ${path} HTTP/1.1\r\nHost: a\r\n${framing}\r\n\r\n${half}`);
    await upstream.arrived(1, path);
    client.close();
    const call = callOf(path);
    await within(PROMPT_MS, 'the upstream seeing it', call.closed);
    t.equal((await call.received).whole, false);
  }
});

t.test('an upload that breaks off on a keyed route is not forwarded and holds no key', async (t) => {
  const client = await RawClient.connect(gateway.url);
  client.write('POST /keyed/half HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\n{"id":1');
  await gateway.caughtUp();
  client.close();
  await gateway.caughtUp();
  t.equal(upstream.count('/keyed/half'), 0);
  t.equal((await gateway.post('/keyed/half', { id: 1 }).answer).status, 200);
});

t.test('trailers pass in both directions', async (t) => {
  const answer = answers({
    framing: 'chunked',
    content: 'abc',
    fields: ['Trailer', 'X-Sum'],
    trailers: ['X-Sum', '3'],
  });
  const head = (path: string, fields = '') =>
    `POST ${path} HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\n${fields}\r\n`;
  const up = ['X-Up', '2', 'x-up', 'caf\xe9', 'Checksum', 'abc'];
  const end = `0\r\nX-Up: 2\r\nx-up: caf\xe9\r\nChecksum: abc\r\n\r\n`;
  const contents = ['2\r\nhi\r\n', '8\r\n{"id":1}\r\n', '1\r\n{\r\n7\r\n"id":2}\r\n'];
  for (const [index, prefix] of ['/plain', '/keyed', '/keyed', '/locked', '/queried'].entries()) {
    for (const announced of ['', 'Trailer: X-Up, checksum\r\n']) {
      const path = `${prefix}/trailers-${index}-${announced.length}`;
      upstream.on(path, answer);
      const content = prefix === '/keyed' ? contents[index]! : contents[0]!;
      const got = await rawRequest(gateway.url, `${head(`${path}?id=1`, announced)}${content}${end}`);
      t.equal(got?.text, 'abc', path);
      t.same(got?.trailers, ['X-Sum', '3']);
      const call = callOf(path);
      const { bytes, trailers, whole } = await call.received;
      t.equal(bytes.toString(), content.replace(/\d\r\n|\r\n/g, ''));
      t.same(trailers, up);
      t.equal(whole, true);
      t.same(call.headerLines('trailer'), announced === '' ? [] : ['X-Up, checksum']);
      t.same(call.headerLines('transfer-encoding'), ['chunked']);
      t.equal(call.header('content-length'), null);
    }
  }
  t.equal(upstream.callsOf('/keyed/trailers-1-0').length, 1);
});

t.test('a trailer cannot say who asks, nor how the message is to be read', async (t) => {
  const never = ['Authorization', 'Cookie', 'Host', 'Idempotency-Key', 'X-Forwarded-For', 'Connection', 'X-Request-Id'];
  for (const path of ['/plain/odd-trailers', '/keyed/odd-trailers']) {
    const lines = [...never, 'X-Kept'].map((name) => `${name}: 1\r\n`).join('');
    const head = `POST ${path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n`;
    const answer = await rawRequest(gateway.url, `${head}8\r\n{"id":3}\r\n0\r\n${lines}\r\n`);
    t.equal(answer?.status, 200);
    t.same((await callOf(path).received).trailers, ['X-Kept', '1']);
  }
});

t.test('chunked uploads: one of any size, one after the other, and an early answer to one', async (t) => {
  const big = randomBytes(16 * 1024 * 1024);
  const chunked = ['Transfer-Encoding', 'chunked'];
  await gateway.request({ method: 'PUT', path: '/chunked/big', headers: chunked, body: big });
  t.ok(callOf('/chunked/big').content?.equals(big));
  const before = upstream.connections;
  for (let turn = 0; turn < 10; turn += 1) {
    const answer = await gateway.request({ method: 'POST', path: `/chunked/${turn}`, headers: chunked, body: 'x' });
    t.equal(answer.status, 200);
  }
  t.ok(upstream.connections <= before + 1, 'connections are used again');
  upstream.on('/chunked/early', (call) => {
    call.socket.pause();
    call.answer({ status: 413, reason: 'Content Too Large', fields: ['Connection', 'close'], content: 'too much' });
  });
  const client = await RawClient.connect(gateway.url);
  t.teardown(() => client.close());
  client.write('PUT /chunked/early HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nf4240\r\n');
  client.write(Buffer.alloc(1_000_000));
  t.equal((await client.answer())?.text, 'too much');
  callOf('/chunked/early').socket.destroy();
});

t.test('a chunked request that fails is told of as any other', async (t) => {
  const head = (path: string) =>
    `POST ${path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n`;
  const cuts = (bytes: string) => (call: Call) => {
    call.raw(bytes);
    call.hangUp();
  };
  const endings: [string, (call: Call) => void, string | null][] = [
    ['reset', (call) => call.reset(), 'upstream-unreachable'],
    ['hang-up', (call) => call.hangUp(), 'upstream-unreachable'],
    ['garbage', (call) => call.raw('no HTTP\r\n\r\n'), 'bad-upstream-response'],
    [
      'two-lengths',
      (call) => call.raw('HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nok'),
      'bad-upstream-response',
    ],
    [
      'switching',
      (call) => call.head(101, 'Switching Protocols', ['Upgrade', 'x', 'Connection', 'Upgrade']),
      'bad-upstream-response',
    ],
    ['cut', cuts('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf'), null],
    ['cut-chunks', cuts('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n'), null],
  ];
  for (const [name, ending, problem] of endings) {
    const path = `/chunked/fails-${name}`;
    upstream.on(path, async (call) => {
      await call.received;
      ending(call);
    });
    const answer = await rawRequest(gateway.url, head(path));
    if (problem !== null) isProblem(t, answer!, problem);
    else t.ok(answer?.cut && answer.text === 'half', `${name}: cut`);
    t.equal(upstream.count(path), 1, 'sent once');
  }
  const path = '/chunked/reset-until-close';
  const gate = new Gate();
  upstream.on(path, async (call) => {
    await call.received;
    call.raw('HTTP/1.1 200 OK\r\n\r\nhalf');
    await gate.opened;
    call.reset();
  });
  const client = await RawClient.connect(gateway.url);
  client.write(head(path));
  await upstream.arrived(1, path);
  client.socket.once('data', () => gate.open());
  t.equal((await client.answer())?.cut, true, 'a reset is no end');
});

t.test('a Trailer field with Content-Length, which nobody may send, does no harm', async (t) => {
  for (const path of ['/odd/trailer', '/queried/trailer?id=1']) {
    upstream.on(path.split('?')[0]!, answers({ fields: ['Trailer', 'X-Sum'], content: 'abc' }));
    for (let turn = 0; turn < 2; turn += 1) {
      const answer = await gateway.request({ path });
      t.equal(answer.status, 200);
      t.equal(answer.text, 'abc');
      t.equal(answer.cut, false);
    }
  }
  t.ok(gateway.running);
});

t.test('304 with Content-Length, 204 and HEAD end where they should', async (t) => {
  upstream.on(
    '/odd/304',
    answers({ status: 304, reason: 'Not Modified', framing: 'none', fields: ['Content-Length', '999', 'ETag', '"x"'] }),
  );
  const client = await RawClient.connect(gateway.url);
  t.teardown(() => client.close());
  for (let turn = 0; turn < 2; turn += 1) {
    client.write('GET /odd/304 HTTP/1.1\r\nHost: a\r\n\r\n');
    const answer = await client.answer();
    t.equal(answer?.status, 304);
    t.equal(answer?.header('etag'), '"x"');
  }
  upstream.on('/odd/head', answers({ framing: 'none', fields: ['Content-Length', '1234'] }));
  client.write('HEAD /odd/head HTTP/1.1\r\nHost: a\r\n\r\n');
  t.equal((await client.answer(true))?.header('content-length'), '1234');
  upstream.on('/odd/204', answers({ status: 204, reason: 'No Content', framing: 'none' }));
  client.write('DELETE /odd/204 HTTP/1.1\r\nHost: a\r\n\r\n');
  t.equal((await client.answer())?.status, 204);
  client.write('GET /odd/next HTTP/1.1\r\nHost: a\r\n\r\n');
  t.match((await client.answer())?.text, /"path":"\/odd\/next"/, 'the connection is still in step');
});

t.test('two Host fields, and two ways to delimit content, are refused and not forwarded', async (t) => {
  const before = upstream.count();
  const refused = [
    'GET /refused HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n',
    'GET /refused HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n',
    'GET /refused HTTP/1.1\r\n\r\n',
    'POST /refused HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
    'POST /refused HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello',
  ];
  for (const bytes of refused) {
    const answer = await rawRequest(gateway.url, bytes);
    t.equal(answer?.status, 400, bytes.split('\r\n').slice(1, 3).join(' '));
  }
  t.equal(upstream.count(), before);
});

t.test('Expect: 100-continue is answered, and the content arrives', async (t) => {
  const client = await RawClient.connect(gateway.url);
  t.teardown(() => client.close());
  client.write('PUT /expect HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n');
  t.equal((await client.answer())?.status, 100);
  client.write('hello');
  t.equal((await client.answer())?.status, 200);
  t.equal(callOf('/expect').content?.toString(), 'hello');
});

t.test('a 100 Continue that nobody asked for is ignored, in whatever pieces it comes', async (t) => {
  const interim = 'HTTP/1.1 100 Continue\r\nX-Interim: 1\r\n\r\n';
  const hints = 'HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n';
  const final = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';
  const whole = `HTTP/1.1 100\r\n\r\n${interim}${hints}${interim}${final}`;
  const cases: [string, string[], number][] = [
    ['one', [interim + final], 0],
    ['apart', [interim, final], 0],
    ['several', [whole], 1],
    ['bytes', [...whole], 1],
    ['content', [`HTTP/1.1 200 OK\r\nContent-Length: ${interim.length}\r\n\r\n${interim}`], 0],
  ];
  for (const prefix of ['plain', 'queried', 'chunked']) {
    for (const [name, pieces, hinted] of cases) {
      const path = `/${prefix}/continue-${name}`;
      upstream.on(path, async (call) => {
        // The first comes while the request may still be under way.
        for (const [index, piece] of pieces.entries()) {
          if (index === pieces.length - 1) await call.received;
          call.raw(piece);
          await new Promise<void>((resolve) => setImmediate(resolve));
        }
        call.finish();
      });
      const client = await RawClient.connect(gateway.url);
      t.teardown(() => client.close());
      for (let turn = 1; turn <= 2; turn += 1) {
        const framing =
          prefix === 'chunked' ? 'Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n' : 'Content-Length: 1\r\n\r\nx';
        client.write(`PUT ${path}?id=${turn} HTTP/1.1\r\nHost: a\r\n${framing}`);
        for (let hint = 0; hint < hinted; hint += 1) t.equal((await client.answer())?.status, 103, path);
        const answer = await client.answer();
        t.equal(answer?.status, 200, path);
        t.equal(answer?.text, name === 'content' ? interim : 'ok');
      }
      t.equal(upstream.count(path), 2, 'each sent once');
    }
  }
});

t.test('Expect: 100-continue is answered once, also where the upstream says so as well', async (t) => {
  for (const path of ['/plain/expected', '/keyed/expected']) {
    upstream.on(path, async (call) => {
      call.head(100, 'Continue', []);
      await call.received;
      call.answer({ content: 'ok' });
    });
    const client = await RawClient.connect(gateway.url);
    t.teardown(() => client.close());
    client.write(`PUT ${path} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 8\r\n\r\n`);
    t.equal((await client.answer())?.status, 100);
    client.write('{"id":9}');
    t.equal((await client.answer())?.text, 'ok');
    t.equal(callOf(path).header('expect'), null);
  }
});

t.test('the fields of other intermediaries are added to, not replaced', async (t) => {
  upstream.on('/queried/status', answers({ fields: ['Cache-Status', 'origin; hit', 'Age', '7'], content: 'ok' }));
  const answer = await gateway.request({ path: '/queried/status?id=1' });
  t.equal(answer.headerLines('cache-status').join(', '), 'origin; hit, oneflight; fwd=miss; stored');
});

t.test('an idle upstream connection that was closed is no trouble for the next request', async (t) => {
  for (let turn = 0; turn < 5; turn += 1) {
    upstream.on('/idle', async (call) => {
      await call.received;
      call.answer({ content: 'ok', fields: ['Connection', 'close'] });
      call.hangUp();
    });
    t.equal((await gateway.request({ method: 'POST', path: '/idle' })).text, 'ok');
  }
  t.equal(upstream.count('/idle'), 5);
});

t.test('an early answer reaches a client that is still uploading', async (t) => {
  upstream.on('/early', (call) => {
    call.socket.pause();
    call.answer({ status: 413, reason: 'Content Too Large', fields: ['Connection', 'close'], content: 'too much' });
  });
  const client = await RawClient.connect(gateway.url);
  t.teardown(() => client.close());
  client.write('PUT /early HTTP/1.1\r\nHost: a\r\nContent-Length: 50000000\r\n\r\n');
  client.write(Buffer.alloc(1_000_000));
  const answer = await client.answer();
  t.equal(answer?.status, 413);
  t.equal(answer?.text, 'too much');
  callOf('/early').socket.destroy();
});

t.test('interim responses pass', async (t) => {
  for (const path of ['/hints', '/queried/hints?id=1']) {
    upstream.on(path.split('?')[0]!, async (call) => {
      await call.received;
      call.head(103, 'Early Hints', ['Link', '</style.css>; rel=preload']);
      call.answer({ content: 'final' });
    });
    const client = await RawClient.connect(gateway.url);
    t.teardown(() => client.close());
    client.write(`GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`);
    const hints = await client.answer();
    t.equal(hints?.status, 103, path);
    t.equal(hints?.header('link'), '</style.css>; rel=preload');
    t.equal((await client.answer())?.text, 'final');
  }
});

t.test('an HTTP/1.0 client gets content without chunks', async (t) => {
  for (const path of ['/old', '/queried/old?id=1']) {
    upstream.on(path.split('?')[0]!, answers({ content: 'whole', framing: 'chunked', trailers: ['X-Sum', '5'] }));
    const answer = await rawRequest(gateway.url, `GET ${path} HTTP/1.0\r\nHost: a\r\n\r\n`);
    t.equal(answer?.status, 200, path);
    t.equal(answer?.header('transfer-encoding'), null);
    t.equal(answer?.text, 'whole');
  }
});

t.test('OPTIONS * is forwarded as it is, and no other method has that target', async (t) => {
  upstream.on('*', answers({ status: 204, reason: 'No Content', framing: 'none', fields: ['Allow', 'GET, HEAD'] }));
  const client = await RawClient.connect(gateway.url);
  t.teardown(() => client.close());
  for (let turn = 1; turn <= 3; turn += 1) {
    client.write('OPTIONS * HTTP/1.1\r\nHost: a\r\nX-Own: 1\r\n\r\n');
    const answer = await client.answer();
    t.equal(answer?.status, 204);
    t.equal(answer?.header('allow'), 'GET, HEAD');
    t.equal(upstream.count('*'), turn);
    t.same(own(upstream.callsOf('*')[turn - 1]!.fields), ['X-Own', '1']);
    t.equal(upstream.callsOf('*')[turn - 1]!.header('transfer-encoding'), null);
  }
  const before = upstream.count();
  isProblem(t, await gateway.request({ method: 'GET', path: '*' }), 'bad-request');
  t.equal(upstream.count(), before);
});

t.test('a target in absolute form is understood', async (t) => {
  const answer = await rawRequest(gateway.url, 'GET http://a/absolute?x=1 HTTP/1.1\r\nHost: a\r\n\r\n');
  t.equal(answer?.status, 200);
  t.equal(upstream.calls.at(-1)?.target.replace('http://a', ''), '/absolute?x=1');
});

t.test('responses that cannot be passed on are refused or cut, and the process lives', async (t) => {
  const odd = [
    'HTTP/1.1 200 OK\r\nX-Bad: a\x00b\r\nContent-Length: 2\r\n\r\nok',
    'HTTP/1.1 200 OK\r\nBad Name: x\r\nContent-Length: 2\r\n\r\nok',
    'HTTP/1.1 999 Odd\r\nContent-Length: 2\r\n\r\nok',
    'HTTP/1.1 99 Odd\r\nContent-Length: 2\r\n\r\nok',
    'HTTP/1.1 200 \x01\r\nContent-Length: 2\r\n\r\nok',
    'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok',
    'HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nok',
    'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n',
    'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nok\r\n0\r\n\r\n',
    'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil',
    'HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n',
    'HTTP/1.1 200 OK\r\nTrailer: Content-Length\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nContent-Length: 9\r\n\r\n',
    `HTTP/1.1 200 OK\r\nX-Long: ${'x'.repeat(200_000)}\r\nContent-Length: 2\r\n\r\nok`,
  ];
  for (const [index, bytes] of odd.entries()) {
    for (const path of [`/odd/raw-${index}`, `/queried/raw-${index}?id=1`]) {
      upstream.on(path.split('?')[0]!, async (call) => {
        await call.received;
        call.raw(bytes);
        call.hangUp();
      });
      const answer = await gateway.request({ path }).catch(() => null);
      const what = `${index} ${path}: ${answer?.status} ${answer?.text.slice(0, 60)}`;
      t.ok(
        answer === null ||
          answer.cut ||
          answer.status === 502 ||
          answer.status === 504 ||
          answer.text === 'ok' ||
          answer.text === '',
        what,
      );
      t.notMatch(answer?.text ?? '', 'evil', 'nothing of a second response');
      t.equal(upstream.count(path.split('?')[0]!), 1, 'one call');
    }
    t.equal((await gateway.request({ path: `/plain-${index}` })).status, 200, 'the next request is in step');
  }
  t.ok(gateway.running);
  t.equal((await gateway.metrics()).sum('oneflight_flights_in_progress'), 0);
});
