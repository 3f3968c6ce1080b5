/** The tests' own tools do what they say: a stub that miscounts or a client that hides a cut would prove nothing. */

import { once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, connect, createServer as createTcpServer } from 'node:net';
import t from 'tap';
import { burst, RawClient, rawRequest, request, send } from './client.js';
import { delay, eventually, Gate } from './gate.js';
import { Samples } from './gateway.js';
import { listenDuring, listenOn } from './ports.js';
import { TcpProxy } from './tcp-proxy.js';
import {
  answers,
  answersGarbage,
  answersSlowly,
  cutsChunked,
  cutsContentLength,
  hangsUpAfterReading,
  inTurn,
  resetsAfterReading,
  resetsBeforeReading,
  stalls,
  startUnconnectable,
  startUpstream,
} from './upstream.js';

t.test('the stub records a request as it came and says which call it was', async (t) => {
  const upstream = await startUpstream(t);
  const answer = await request(upstream.url, {
    method: 'POST',
    path: '//a/./%2F?x=%2f&',
    headers: ['X-Twice', 'one', 'x-ONCE', '', 'X-Twice', 'two'],
    body: '{ "n" :  12345678901234567890 }',
  });
  t.equal(answer.status, 200);
  t.same(answer.json(), { path: '//a/./%2F', call: 1 });
  t.equal(answer.cut, false);
  const [call] = upstream.calls;
  t.equal(call?.target, '//a/./%2F?x=%2f&');
  t.same(call?.headerLines('x-twice'), ['one', 'two']);
  t.ok(call?.fields.includes('x-ONCE'), 'spelling is kept');
  t.equal(call?.content?.toString(), '{ "n" :  12345678901234567890 }');
  t.equal(call?.aborted, false);
  t.equal(upstream.count(), 1);
});

t.test('the stub reads chunked content and trailers', async (t) => {
  const upstream = await startUpstream(t);
  const head = 'PUT /up HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n';
  const answer = await rawRequest(upstream.url, `${head}3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\nX-Sum: 7\r\n\r\n`);
  t.equal(answer?.status, 200);
  t.equal(upstream.calls[0]?.content?.toString(), 'abcdefg');
  t.same((await upstream.calls[0]!.received).trailers, ['X-Sum', '7']);
});

t.test('a held path answers when the test says so, several calls on one connection', async (t) => {
  const upstream = await startUpstream(t);
  const held = upstream.holds('/held');
  const client = await RawClient.connect(upstream.url);
  t.teardown(() => client.close());
  client.write('GET /held HTTP/1.1\r\nHost: a\r\n\r\nGET /free HTTP/1.1\r\nHost: a\r\n\r\n');
  await held.arrived(1);
  t.equal(upstream.count('/free'), 0, 'the second request waits for the first');
  held.release();
  t.equal((await client.answer())?.text, '{"path":"/held","call":1}');
  t.equal((await client.answer())?.text, '{"path":"/free","call":1}');
  t.equal(upstream.connections, 1);
});

t.test('every framing of an answer arrives whole', async (t) => {
  const upstream = await startUpstream(t);
  for (const framing of ['length', 'chunked', 'until-close'] as const) {
    upstream.on('/', answers({ content: 'hello', framing, trailers: framing === 'chunked' ? ['X-Sum', '5'] : [] }));
    const answer = await request(upstream.url);
    t.equal(answer.text, 'hello', framing);
    t.equal(answer.cut, false, framing);
    t.same(answer.trailers, framing === 'chunked' ? ['X-Sum', '5'] : []);
  }
  upstream.on('/', answers({ status: 204, reason: 'No Content', framing: 'none' }));
  t.equal((await request(upstream.url)).status, 204);
});

t.test('every misbehaviour is what its name says', async (t) => {
  const upstream = await startUpstream(t);
  const reset = { code: 'ECONNRESET' };
  upstream.on('/', resetsBeforeReading);
  await t.rejects(request(upstream.url, { method: 'POST', body: 'x' }), reset);
  upstream.on('/', resetsAfterReading);
  await t.rejects(request(upstream.url), reset);
  upstream.on('/', hangsUpAfterReading);
  await t.rejects(request(upstream.url), { message: 'socket hang up' });
  upstream.on('/', answersGarbage);
  await t.rejects(request(upstream.url), { code: /^HPE_/ });
  for (const cuts of [cutsContentLength, cutsChunked]) {
    const gate = new Gate();
    upstream.on('/', cuts(gate));
    const sent = send(upstream.url);
    await sent.started;
    gate.open();
    const answer = await sent.answer;
    t.equal(answer.cut, true);
    t.equal(answer.text, '0123456789');
  }
  upstream.on('/', answersSlowly([Buffer.from('ab'), Buffer.from('cd')], 20));
  t.equal((await request(upstream.url)).text, 'abcd');
  upstream.on('/', inTurn(answers({ content: 'never' }), stalls));
  const sent = send(upstream.url);
  await upstream.arrived(8);
  sent.leave();
  await t.rejects(sent.answer);
  await upstream.calls[7]!.closed;
  t.equal(upstream.calls[7]!.aborted, true, 'a client that leaves is seen');
  upstream.resetAtAccept(true);
  await t.rejects(request(upstream.url), reset);
  await upstream.refuse();
  await t.rejects(request(upstream.url), { code: 'ECONNREFUSED' });
  upstream.resetAtAccept(false);
  await upstream.listen();
  upstream.on('/', answers({ content: 'back' }));
  t.equal((await request(upstream.url)).text, 'back');
});

t.test('a port lies where no connection takes it, and one that is taken for a moment is waited for', async (t) => {
  const server = createServer();
  const port = await listenOn(server, 0);
  t.ok(port < 32_768);
  const next = createServer();
  t.teardown(() => next.close());
  const taken = listenOn(next, port);
  await delay(50);
  t.notOk(next.listening);
  server.close();
  t.equal(await taken, port);
  await t.rejects(listenOn(createServer(), 1_000_000), { code: 'ERR_SOCKET_BAD_PORT' });
});

t.test('connecting to the unconnectable hangs until it is opened', async (t) => {
  const port = await startUnconnectable(t);
  await t.rejects(request(port.url, { signal: AbortSignal.timeout(300) }), { name: 'AbortError' });
  t.equal(port.received(), '');
  port.open();
  const sent = send(port.url, { path: '/now' });
  await eventually('the request', () => port.received().includes('GET /now'));
  sent.leave();
  await t.rejects(sent.answer);
  t.equal(port.received().split('GET').length, 2, 'the one that gave up sent nothing');
});

t.test('the client keeps order, spelling and repeats of fields, and a burst is whole', async (t) => {
  const server = createServer((_, response) => {
    response.writeHead(200, ['Set-Cookie', 'a=1', 'X-b', '2', 'Set-Cookie', 'c=3', 'Content-Length', '2']);
    response.end('ok');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => server.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const all = await burst(200, (index) => request(url, { path: `/${index}` }));
  t.equal(all.length, 200);
  t.same(all[7]?.headerLines('set-cookie'), ['a=1', 'c=3']);
  t.same(all[7]?.rawHeaders.slice(0, 6), ['Set-Cookie', 'a=1', 'X-b', '2', 'Set-Cookie', 'c=3']);
  t.ok(all.every((answer) => answer.text === 'ok' && !answer.cut));
});

t.test('the proxy delays, swallows, cuts, refuses and loses a reply', async (t) => {
  const upstream = await startUpstream(t);
  const proxy = await TcpProxy.start(t, upstream.port);
  const url = `http://127.0.0.1:${proxy.port}`;
  t.equal((await request(url)).status, 200);
  proxy.delayMs = 60;
  t.ok((await request(url)).elapsedMs >= 100);
  proxy.delayMs = 0;
  const lost = proxy.loseReplyTo('/lost');
  await t.rejects(request(url, { path: '/lost' }), { code: 'ECONNRESET' });
  await lost;
  t.equal(upstream.count('/lost'), 1, 'the request itself arrived');
  const held = upstream.holds('/held');
  const sent = send(url, { path: '/held' });
  await held.arrived(1);
  proxy.cut();
  await t.rejects(sent.answer, { code: 'ECONNRESET' });
  proxy.blackHole = true;
  await t.rejects(request(url, { path: '/hole', signal: AbortSignal.timeout(100) }), { name: 'AbortError' });
  t.equal(upstream.count('/hole'), 0);
  proxy.blackHole = false;
  await proxy.refuse();
  await t.rejects(request(url), { code: 'ECONNREFUSED' });
  await proxy.listen();
  t.equal((await request(url)).status, 200);
});

t.test('the proxy holds requests back and deafens subscribers, on the connections that are open', async (t) => {
  const upstream = await startUpstream(t);
  const proxy = await TcpProxy.start(t, upstream.port);
  const url = `http://127.0.0.1:${proxy.port}`;
  const [subscriber, other] = [await RawClient.connect(url), await RawClient.connect(url)];
  t.teardown(() => subscriber.close());
  const asks = (client: RawClient, path: string) => client.write(`GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`);
  asks(subscriber, '/subscribe');
  asks(other, '/other');
  for (const client of [subscriber, other]) t.equal((await client.answer())?.status, 200);

  proxy.deafenSubscribers();
  const { bytesRead } = subscriber.socket;
  asks(subscriber, '/unheard');
  await upstream.arrived(1, '/unheard');
  asks(other, '/heard');
  t.equal((await other.answer())?.text, '{"path":"/heard","call":1}');
  t.equal(subscriber.socket.bytesRead, bytesRead);

  const letGo = proxy.holdRequests();
  asks(other, '/late');
  other.close();
  t.equal((await request(url)).status, 200, 'a new connection is not held');
  t.equal(upstream.count('/late'), 0);
  letGo();
  await upstream.arrived(1, '/late');
});

t.test('a proxy at another address is what its server names, wherever a reply is broken', async (t) => {
  const said = 'at 127.0.0.1:7000, 127.0.0.11 and 127.0.0.127.0.0.1, 127.\r\n';
  for (let broken = 1; broken < said.length; broken += 1) {
    const server = createTcpServer((socket) => {
      socket.on('error', () => {}).setNoDelay();
      socket.write(said.slice(0, broken));
      socket.once('data', () => socket.end(said.slice(broken)));
    });
    const port = await listenDuring(t, server);
    const proxy = await TcpProxy.startAt(t, '127.0.0.9', port);
    t.equal(proxy.port, port);
    const client = connect({ host: '127.0.0.9', port });
    const pieces: Buffer[] = [];
    client.on('data', (piece) => pieces.push(piece)).once('data', () => client.write('on'));
    await once(client, 'end');
    t.equal(String(Buffer.concat(pieces)), said.replaceAll('127.0.0.1', '127.0.0.9'), `broken at ${broken}`);
  }
  await t.rejects(TcpProxy.startAt(t, '127.0.0.10', 7_000), /does not fit/);
});

t.test('samples are read with their labels', async (t) => {
  const samples = new Samples(
    [
      '# HELP oneflight_requests_total Requests.',
      'oneflight_requests_total{route="a",outcome="led"} 1',
      'oneflight_requests_total{route="a",outcome="collapsed"} 99',
      'oneflight_requests_total{route="b",outcome="led"} 7',
      'oneflight_follower_wait_seconds_count 99',
      'oneflight_follower_wait_seconds_sum 1.5e+1',
    ].join('\n'),
  );
  t.equal(samples.sum('oneflight_requests_total'), 107);
  t.equal(samples.sum('oneflight_requests_total', { route: 'a' }), 100);
  t.same(samples.outcomes('a'), { led: 1, collapsed: 99 });
  t.equal(samples.sum('oneflight_follower_wait_seconds_sum'), 15);
  t.equal(samples.sum('no_such_thing'), 0);
});
