/** One request over several addresses: what is tried again, what is told of it, and what is given back. */

import { readFileSync } from 'node:fs';
import {
  createServer as createHttp2Server,
  type Http2Server,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2';
import { createServer as createHttpsServer } from 'node:https';
import { createServer, type Server, type Socket } from 'node:net';
import { Readable } from 'node:stream';
import t, { type Test } from 'tap';
import { upstreamOf } from '../../src/config/resolve-upstream.js';
import { upstream as schema } from '../../src/config/upstream-schema.js';
import type { UpstreamEvent } from '../../src/core/upstream-event.js';
import { ContentLost, type UpstreamFailure } from '../../src/upstream/failure.js';
import { type ForwardSink, Upstream, type UpstreamRequest } from '../../src/upstream/upstream.js';
import { tlsFile } from '../support/dial.js';
import { delay, eventually, Gate, within } from '../support/gate.js';
import { freePort, listenOn } from '../support/ports.js';
import { startUpstream } from '../support/upstream.js';

t.setTimeout(120_000);

/** Hears how an exchange goes. */
class Listener implements ForwardSink {
  readonly #over = new Gate();
  sent = 0;
  interims: string[][] = [];
  status: number | null = null;
  fields: string[] = [];
  text = '';
  trailers: string[] = [];
  ends = 0;
  failure: UpstreamFailure | null = null;

  get over(): Promise<void> {
    return within(20_000, 'the end', this.#over.opened);
  }

  onSend(): boolean {
    this.sent++;
    return true;
  }

  onInterim(_status: number, fields: string[]): void {
    this.interims.push(fields);
  }

  onFields(status: number, _reason: string, fields: string[]): void {
    this.status = status;
    this.fields = fields;
  }

  onContent(chunk: Buffer): boolean {
    this.text += chunk.toString('latin1');
    return true;
  }

  onEnd(trailers: string[]): void {
    this.trailers = trailers;
    this.ends++;
    this.#over.open();
  }

  onFailure(failure: UpstreamFailure): void {
    this.failure = failure;
    this.ends++;
    this.#over.open();
  }
}

function made(t: Test, config: Record<string, unknown>, events: UpstreamEvent[] = []): Upstream {
  const upstream = new Upstream(upstreamOf('api', schema.parse(config), '/'), (event) => events.push(event));
  t.teardown(() => upstream.destroy());
  return upstream;
}

const request = (more: Partial<UpstreamRequest> = {}): UpstreamRequest => ({
  method: 'GET',
  target: '/a',
  fields: ['Host', 'h'],
  content: null,
  trailers: null,
  ...more,
});

async function asked(
  upstream: Upstream,
  more: Partial<UpstreamRequest> = {},
  kind: 'keyed' | 'open' = 'open',
): Promise<Listener> {
  const sink = new Listener();
  upstream.forward(request(more), sink, kind);
  await sink.over;
  return sink;
}

const gone = async () => `http://127.0.0.1:${await freePort()}`;

t.test('when the breaker opens, everybody who waits is told so, however many they are', async (t) => {
  const stub = await startUpstream(t);
  const upstream = made(t, {
    url: stub.url,
    breaker: { failures: 1 },
    connections: { max: 1, queue: 50_000, wait: '1h' },
  });
  const first = new Listener();
  stub.on('/a', async (call) => {
    await gate.opened;
    call.reset();
  });
  const gate = new Gate();
  upstream.forward(request(), first, 'open');
  await stub.arrived(1, '/a');
  const waiting = Array.from({ length: 30_000 }, () => new Listener());
  for (const sink of waiting) upstream.forward(request(), sink, 'open');
  t.equal(upstream.state.waiting, 30_000);
  gate.open();
  await first.over;
  await eventually('none waits', () => upstream.state.waiting === 0);
  t.ok(waiting.every(({ ends, failure }) => ends === 1 && failure?.cause === 'unavailable'));
  t.equal(upstream.state.addresses[0]?.pending, 0);
});

t.test('answers that break off are failures in a row, whatever they begin with', async (t) => {
  const [bad, good] = await Promise.all([startUpstream(t), startUpstream(t)]);
  bad.on('/a', (call) => {
    call.head(200, 'OK', ['Content-Length', '10']);
    call.raw('12345');
    call.reset();
  });
  const events: UpstreamEvent[] = [];
  const upstream = made(t, { urls: [bad.url, good.url], eject: { failures: 3, for: '1h' } }, events);
  for (let i = 0; i < 12; i++) await asked(upstream);
  t.equal(bad.count(), 3);
  t.match(events, [{ kind: 'ejected' }]);
  const mixed = made(t, { urls: [bad.url], eject: { failures: 3 }, breaker: { failures: 3 } }, events);
  for (let i = 0; i < 6; i++) {
    await asked(mixed);
    if (i % 2 === 1) t.equal((await asked(mixed, { target: '/whole' })).status, 200);
  }
  t.equal(events.length, 1, 'a whole answer ends the row');
  const alone = made(t, { url: bad.url, breaker: { failures: 3, for: '1h' } });
  for (let i = 0; i < 6; i++) await asked(alone);
  t.equal(bad.count('/a'), 12);
});

t.test('the end of the trial decides, over as many addresses as it takes', async (t) => {
  const stub = await startUpstream(t);
  const urls = [await gone(), stub.url];
  const events: UpstreamEvent[] = [];
  const upstream = made(t, { urls, eject: false, breaker: { failures: 1, for: '100ms' } }, events);
  const fine = await asked(upstream);
  t.equal(fine.status, 200);
  t.equal(upstream.state.isOpen, false, 'a request that was answered is no failure');
  stub.on('/b', (call) => call.reset());
  await asked(upstream, { target: '/b' });
  t.equal(upstream.state.isOpen, true);
  await eventually('a trial', async () => (await asked(upstream)).status === 200);
  t.equal(upstream.state.isOpen, false);
});

t.test('what may have been executed once is not told to be certainly unexecuted', async (t) => {
  const stub = await startUpstream(t);
  const upstream = made(t, { urls: [stub.url, await gone()], eject: false, balance: 'least-pending' });
  let calls = 0;
  stub.on('/a', async (call) => {
    if (calls++ === 0) return call.answer({});
    await stub.refuse();
    call.reset();
  });
  await eventually('an answer', async () => (await asked(upstream)).status === 200);
  let sink = await asked(upstream);
  while (sink.sent === 0) sink = await asked(upstream);
  t.match(sink.failure, { kind: 'unanswered' });
});

const pair = (name: string) => ({
  cert: readFileSync(tlsFile(`${name}.pem`)),
  key: readFileSync(tlsFile(`${name}.key`)),
});

async function listening(t: Test, server: Server | Http2Server): Promise<number> {
  const sockets = new Set<Socket>();
  (server as Server).on('connection', (socket: Socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket)).on('error', () => {});
  });
  const port = await listenOn(server as Server, 0);
  t.teardown(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return port;
}

async function h2(t: Test, on: (stream: ServerHttp2Stream, fields: Record<string, unknown>) => void, options = {}) {
  const server = createHttp2Server(options);
  const stats = { calls: 0, open: 0, sessions: 0, url: '' };
  server.on('session', (session: ServerHttp2Session) => {
    stats.open++;
    stats.sessions++;
    session.on('error', () => {}).on('close', () => stats.open--);
  });
  server.on('stream', (stream: ServerHttp2Stream, fields) => {
    stats.calls++;
    stream.on('error', () => {});
    on(stream, fields);
  });
  stats.url = `http://127.0.0.1:${await listening(t, server)}`;
  return stats;
}

const answers = (stream: ServerHttp2Stream) => {
  stream.respond({ ':status': 200 });
  stream.end('x');
};

t.test('HTTP/2: a server that allows few streams is not sent more, from the first request on', async (t) => {
  for (const maxConcurrentStreams of [1, 3]) {
    const stats = await h2(t, (stream) => setTimeout(() => answers(stream), 30), {
      settings: { maxConcurrentStreams },
    });
    const upstream = made(t, { url: stats.url, http2: true });
    const all = await Promise.all(
      Array.from({ length: 10 }, () => asked(upstream, { method: 'POST', content: Buffer.from('x') })),
    );
    t.same(
      all.map(({ status, failure }) => status ?? failure),
      Array(10).fill(200),
    );
    t.equal(stats.calls, 10);
  }
});

t.test('HTTP/2: nothing is sent to a server that allows no streams, or does not speak it', async (t) => {
  const stats = await h2(t, answers, { settings: { maxConcurrentStreams: 0 } });
  const stub = await startUpstream(t);
  for (const url of [stats.url, stub.url]) {
    const one = await asked(made(t, { url, http2: true }), { method: 'POST', content: Buffer.from('x') });
    t.match([one.failure?.kind, one.sent], ['not-sent', 0]);
  }
  t.equal(stats.calls, 0);
});

t.test('health checks over HTTP/2 leave no connections behind', async (t) => {
  const stats = await h2(t, answers);
  const upstream = made(t, { url: stats.url, http2: true, health: { path: '/h', every: '100ms' } });
  upstream.open();
  await eventually('some checks', () => stats.calls >= 6);
  t.ok(stats.open <= 2, `${stats.open} connections`);
});

/** A frame of HTTP/2 (RFC 9113 section 4.1). */
const frame = (type: number, flags: number, stream: number, payload: Buffer) => {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
};

t.test('HTTP/2: a response is whole when its end came, whatever resets the stream', async (t) => {
  for (let i = 0; i < 5; i++) {
    const stats = await h2(t, (stream) => {
      stream.respond({ ':status': 413 });
      stream.end('too much', () => stream.close(0));
    });
    const upstream = made(t, { url: stats.url, http2: true });
    const content = () => new Readable({ read() {} });
    const one = await asked(upstream, { method: 'POST', content });
    t.match([one.status, one.text, one.failure], [413, 'too much', null]);
  }
  for (const [end, how] of [
    [0, 'cut'],
    [1, 'whole'],
  ] as const) {
    const server = createServer((socket) => {
      socket.write(frame(4, 0, 0, Buffer.alloc(0)));
      let got = Buffer.alloc(0);
      socket.on('data', (chunk) => {
        got = Buffer.concat([got, chunk]);
        // HEADERS of stream 1, whose payload begins with `:method: GET`.
        if (!got.includes(Buffer.from([0, 0, 0, 1, 0x82]))) return;
        got = Buffer.alloc(0);
        const status = frame(1, 4, 1, Buffer.from([0x88]));
        const content = frame(0, end, 1, Buffer.from('abc'));
        socket.write(Buffer.concat([status, content, frame(3, 0, 1, Buffer.alloc(4))]));
      });
      socket.on('error', () => {});
    });
    const upstream = made(t, { url: `http://127.0.0.1:${await listening(t, server)}`, http2: true });
    const one = await asked(upstream);
    t.match([one.text, one.failure?.kind ?? 'whole'], ['abc', how]);
  }
});

t.test('HTTP/2: a stream whose content nobody takes ends with its response', async (t) => {
  const reset = new Gate();
  const server = createServer((socket) => {
    socket.write(frame(4, 0, 0, Buffer.alloc(0)));
    let got = Buffer.alloc(0);
    let isAnswered = false;
    socket.on('data', (chunk) => {
      got = Buffer.concat([got, chunk]);
      // HEADERS of stream 1 begin with `:method: POST`.
      if (!isAnswered && got.includes(Buffer.from([0, 0, 0, 1, 0x83]))) {
        isAnswered = true;
        socket.write(Buffer.concat([frame(1, 4, 1, Buffer.from([0x88])), frame(0, 1, 1, Buffer.from('x'))]));
      }
      // RST_STREAM of stream 1.
      if (got.includes(Buffer.from([0, 0, 4, 3, 0, 0, 0, 0, 1]))) reset.open();
    });
    socket.on('error', () => {});
  });
  const upstream = made(t, { url: `http://127.0.0.1:${await listening(t, server)}`, http2: true });
  const one = await asked(upstream, { method: 'POST', content: Buffer.alloc(1_000_000) });
  t.equal(one.text, 'x');
  await within(5_000, 'the end of the stream', reset.opened);
});

t.test('a kept connection over TLS that its upstream has closed costs a safe request nothing', async (t) => {
  for (const how of ['destroy', 'end'] as const) {
    const served = new WeakSet<object>();
    let calls = 0;
    const server = createHttpsServer(pair('one'), (req, res) => {
      calls++;
      if (served.has(req.socket)) return void req.socket[how]();
      served.add(req.socket);
      res.end('x');
    });
    const port = await listening(t, server);
    const upstream = made(t, { url: `https://localhost:${port}`, tls: { ca: tlsFile('ca.pem') } });
    t.equal((await asked(upstream)).status, 200);
    await delay(20);
    const one = await asked(upstream);
    t.match([one.status, one.failure], [200, null], how);
    t.equal(calls, 3, how);
  }
});

t.test('HTTP/2: fields that mean the same in one line are sent in one, and large ones pass', async (t) => {
  const stats = await h2(t, (stream) => {
    answers(stream);
  });
  const upstream = made(t, { url: stats.url, http2: true });
  for (const fields of [
    ['If-None-Match', '"a"', 'If-None-Match', '"b"'],
    ['If-Match', '"a"', 'If-Match', '"b"'],
    ['HTTP2-Settings', 'AAMAAABk'],
    ['X', 'a'.repeat(60_000)],
    ['__proto__', 'a', 'constructor', 'b'],
  ]) {
    const one = await asked(upstream, { fields: ['Host', 'h', ...fields] });
    t.match([one.status, one.failure], [200, null], String(fields).slice(0, 60));
  }
  const big = await asked(upstream, {
    fields: ['Host', 'h', ...Array.from({ length: 16 }, (_, i) => [`X-${i}`, 'ab\xe9'.repeat(1_400)]).flat()],
  });
  t.match([big.status, big.failure], [200, null]);
  t.equal((await asked(upstream)).status, 200);
});

t.test(
  'what is set or removed is not said by a trailer, another spelling, an interim response or Connection',
  async (t) => {
    const stub = await startUpstream(t);
    const upstream = made(t, {
      url: stub.url,
      headers: {
        request: { set: { 'X-Api-Key': 'own' }, remove: ['X-Internal'] },
        response: { set: { 'X-Frame-Options': 'DENY' }, remove: ['X-Secret'] },
      },
    });
    let trailers: unknown;
    stub.on('/a', async (call) => {
      trailers = (await call.received).trailers;
      call.head(103, 'Early Hints', ['X-Secret', '1', 'Link', 'x']);
      call.answer({ fields: ['Connection', 'X-Frame-Options'] });
    });
    const one = await asked(upstream, {
      method: 'POST',
      fields: ['Host', 'h', 'X_Api_Key', 'mine', 'x_internal', '1'],
      content: () => Readable.from([Buffer.from('x')]),
      trailers: () => ['X-Api-Key', 'mine', 'x-internal', '1', 'X-Sum', '1'],
    });
    t.same(trailers, ['X-Sum', '1']);
    t.same(stub.calls[0]?.headerLines('x_api_key'), []);
    t.same(stub.calls[0]?.headerLines('x_internal'), []);
    t.same(one.fields, ['Content-Length', '0', 'X-Frame-Options', 'DENY']);
    t.same(one.interims, [['Link', 'x']]);
  },
);

t.test('a target that names a host names the address’s own, where the client’s Host is not kept', async (t) => {
  const stub = await startUpstream(t);
  const upstream = made(t, { url: stub.url, preserveHost: false });
  await asked(upstream, { target: 'http://public.example/a?x', fields: ['Host', 'public.example'] });
  t.same([stub.calls[0]?.target, stub.calls[0]?.header('host')], [`${stub.url}/a?x`, new URL(stub.url).host]);
});

t.test('kept connections that were closed all at once eject nothing', async (t) => {
  const stub = await startUpstream(t);
  const events: UpstreamEvent[] = [];
  const upstream = made(
    t,
    { url: stub.url, eject: { failures: 2, for: '1h' }, breaker: { failures: 2, for: '1h' } },
    events,
  );
  const held = stub.holds('/a');
  const first = Array.from({ length: 5 }, () => asked(upstream));
  await stub.arrived(5, '/a');
  held.release();
  await Promise.all(first);
  await delay(20);
  const served = new Set(stub.callsOf('/a').map(({ socket }) => socket));
  stub.on('/b', (call) => (served.has(call.socket) ? call.reset() : call.answer({})));
  const second = await Promise.all(Array.from({ length: 5 }, () => asked(upstream, { target: '/b' })));
  t.ok(second.every(({ status }) => status === 200));
  t.ok(stub.count('/b') > 5, `${stub.count('/b')} calls`);
  t.same(
    events.filter(({ kind }) => kind !== 'retried'),
    [],
  );
});

t.test('uploads that clients break off are nobody’s failure', async (t) => {
  const stub = await startUpstream(t);
  stub.on('/a', () => {});
  const events: UpstreamEvent[] = [];
  const upstream = made(
    t,
    { url: stub.url, eject: { failures: 1, for: '1h' }, breaker: { failures: 1, for: '1h' } },
    events,
  );
  for (const trailers of [null, () => []]) {
    const content = new Readable({ read() {} });
    content.push('x');
    const sink = new Listener();
    upstream.forward(
      request({
        method: 'POST',
        fields: ['Host', 'h', ...(trailers === null ? ['Content-Length', '5'] : [])],
        content: () => content,
        trailers,
      }),
      sink,
      'open',
    );
    await eventually('sent', () => sink.sent === 1);
    content.destroy(new ContentLost('left'));
    await sink.over;
    t.same(sink.failure, { kind: 'unanswered', cause: 'content-lost' });
  }
  t.same(events, []);
});

t.test('HTTP/2: a connection that ends behind its response takes nothing from a slow reader', async (t) => {
  for (const size of [200_000, 900_000]) {
    const ended = new Gate();
    const stats = await h2(t, (stream) => {
      stream.respond({ ':status': 200 }, { waitForTrailers: true });
      stream.on('wantTrailers', () => stream.sendTrailers({ 'x-sum': '1' }));
      stream.end(Buffer.alloc(size, 'x'));
      const { session } = stream;
      session?.on('close', () => ended.open());
      session?.close();
      stream.on('close', () => setTimeout(() => session?.destroy(), 50));
    });
    const upstream = made(t, { url: stats.url, http2: true });
    class Slow extends Listener {
      override onContent(chunk: Buffer): boolean {
        super.onContent(chunk);
        return false;
      }
    }
    const sink = new Slow();
    const exchange = upstream.forward(request(), sink, 'open');
    await ended.opened;
    await delay(50);
    t.equal(sink.failure, null);
    while (sink.ends === 0) {
      exchange.resume();
      await delay(1);
    }
    t.match([sink.failure, sink.text.length, sink.trailers], [null, size, ['x-sum', '1']]);
  }
});

t.test('a request that is aborted waits no longer, and its call ends', async (t) => {
  const stub = await startUpstream(t);
  stub.holds('/a');
  const upstream = made(t, { url: stub.url, connections: { max: 1 } });
  const [first, second] = [new Listener(), new Listener()];
  const running = upstream.forward(request(), first, 'open');
  await stub.arrived(1, '/a');
  const waiting = upstream.forward(request(), second, 'open');
  t.same([running.sent, waiting.sent, upstream.state.waiting], [true, false, 1]);
  waiting.abort();
  t.equal(upstream.state.waiting, 0);
  running.abort();
  await stub.callsOf('/a')[0]!.closed;
  t.equal((await asked(upstream, { target: '/b' })).status, 200);
  t.same([first.ends, second.ends, stub.count('/a')], [0, 0, 1]);
});

t.test('there are as many further attempts as retries, and none after a failure of the client’s own', async (t) => {
  const urls = await Promise.all([1, 2, 3, 4].map(gone));
  for (const retries of [0, 1, 2, 10]) {
    const events: UpstreamEvent[] = [];
    await asked(made(t, { urls, retries, eject: false }, events));
    t.equal(events.filter(({ kind }) => kind === 'retried').length, Math.min(retries, urls.length - 1));
  }
  const [one, other] = await Promise.all([startUpstream(t), startUpstream(t)]);
  const refused = await asked(made(t, { urls: [one.url, other.url] }), { method: 'no method' });
  t.match(refused.failure, { kind: 'not-sent', cause: 'unsendable' });
  t.equal(one.count() + other.count(), 0);
});

t.test('a safe request that met one of many connections that were closed goes over a new one', async (t) => {
  const stub = await startUpstream(t);
  const upstream = made(t, { url: stub.url, retries: 1 });
  const held = stub.holds('/a');
  const first = Array.from({ length: 5 }, () => asked(upstream));
  await stub.arrived(5, '/a');
  held.release();
  await Promise.all(first);
  const served = new Set(stub.callsOf('/a').map(({ socket }) => socket));
  stub.on('/b', (call) => (served.has(call.socket) ? call.reset() : call.answer({})));
  await eventually('a connection that is kept', async () => {
    const before = stub.count('/b');
    t.equal((await asked(upstream, { target: '/b' })).status, 200);
    return stub.count('/b') === before + 2;
  });
});

t.test('who gives up waiting gives back no place', async (t) => {
  const stub = await startUpstream(t);
  const held = stub.holds('/a');
  const upstream = made(t, { url: stub.url, connections: { max: 1, wait: '10ms' } });
  const first = asked(upstream);
  await stub.arrived(1, '/a');
  for (let i = 0; i < 3; i++) t.match((await asked(upstream)).failure, { kind: 'not-sent', cause: 'limit' });
  t.equal(stub.count('/a'), 1);
  held.release();
  t.equal((await first).status, 200);
});

t.test('an address alone is tried once, and not at all while it is down', async (t) => {
  const events: UpstreamEvent[] = [];
  const upstream = made(t, { url: await gone(), health: { path: '/h', every: '100ms', unhealthy: 1 } }, events);
  t.match((await asked(upstream)).failure, { kind: 'not-sent', cause: 'refused' });
  t.same(events, []);
  upstream.open();
  await eventually('it is down', () => events.length === 1);
  t.match((await asked(upstream)).failure, { kind: 'not-sent', cause: 'unavailable' });
});

t.test('aborted requests give everything back', async (t) => {
  const stub = await startUpstream(t);
  stub.on('/a', () => {});
  const upstream = made(t, {
    urls: [await gone(), stub.url],
    eject: false,
    connections: { max: 50, queue: 100_000, wait: '1h' },
  });
  for (let round = 0; round < 20; round++) {
    const all = Array.from({ length: 200 }, (_, i) => {
      const sink = new Listener();
      const content = i % 3 === 0 ? () => new Readable({ read() {} }) : null;
      return upstream.forward(
        request({ method: 'POST', content, trailers: i % 6 === 0 ? () => [] : null }),
        sink,
        i % 2 ? 'keyed' : 'open',
      );
    });
    if (round % 2) await delay(10);
    for (const one of all) one.abort();
    for (const one of all) one.abort();
  }
  t.same(
    upstream.state.addresses.map(({ pending }) => pending),
    [0, 0],
  );
  t.equal(upstream.state.waiting, 0);
  stub.on('/b', (call) => call.answer({}));
  const all = await Promise.all(
    Array.from({ length: 50 }, (_, i) => asked(upstream, { target: '/b' }, i % 2 ? 'keyed' : 'open')),
  );
  t.ok(all.every(({ status }) => status === 200));
});
