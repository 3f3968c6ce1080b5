/** TLS and HTTP/2 towards the upstream: who it is taken for, what passes, and what a stream costs. */

import { createHash, randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import {
  createServer as createHttp2Server,
  createSecureServer,
  type Http2Server,
  type IncomingHttpHeaders,
  type ServerHttp2Stream,
} from 'node:http2';
import { createServer as createHttpsServer } from 'node:https';
import { connect, type Server } from 'node:net';
import type { TLSSocket } from 'node:tls';
import t, { type Test } from 'tap';
import { tlsFile } from '../support/dial.js';
import { isProblem } from '../support/expect.js';
import { eventually, Gate } from '../support/gate.js';
import { listenDuring } from '../support/ports.js';
import { gatewayBefore } from '../support/upstreams.js';

t.setTimeout(120_000);

const pair = (name: string) => ({
  cert: readFileSync(tlsFile(`${name}.pem`)),
  key: readFileSync(tlsFile(`${name}.key`)),
});
const CA = readFileSync(tlsFile('ca.pem'));

t.test('the certificate is checked against the name of the configuration, never one that a client sends', async (t) => {
  const names: unknown[] = [];
  const peers: unknown[] = [];
  const server = createHttpsServer(
    { ...pair('one'), ca: CA, requestCert: true, rejectUnauthorized: false },
    (req, res) => {
      const socket = req.socket as TLSSocket;
      names.push(socket.servername);
      peers.push(socket.getPeerCertificate().subject?.CN ?? null);
      res.end(`${req.headers.host}`);
    },
  );
  const port = await listenDuring(t, server as Server);
  const own = `cert: "${tlsFile('client.pem')}", key: "${tlsFile('client.key')}"`;
  const trusting = await gatewayBefore(
    t,
    `{ url: "https://localhost:${port}", tls: { ca: "${tlsFile('ca.pem')}", ${own} } }`,
  );
  for (const headers of [[], ['Transfer-Encoding', 'chunked']]) {
    for (const host of ['attacker.example', 'localhost', 'other.example']) {
      const answer = await trusting.request({
        method: 'POST',
        path: '/a',
        headers: ['Host', host, ...headers],
        body: 'x',
      });
      t.equal(answer.text, host);
    }
  }
  t.same(new Set(names), new Set(['localhost']));
  t.same(new Set(peers), new Set(['client']));
  t.equal((await trusting.admin('/readyz')).status, 200);

  const distrusting = await gatewayBefore(t, `{ url: "https://localhost:${port}" }`);
  const misnamed = await gatewayBefore(
    t,
    `{ url: "https://localhost:${port}", tls: { ca: "${tlsFile('ca.pem')}", serverName: api.example } }`,
  );
  const before = names.length;
  for (const gateway of [distrusting, misnamed]) {
    for (const headers of [[], ['Transfer-Encoding', 'chunked'], ['Connection', 'upgrade', 'Upgrade', 'x']]) {
      for (const path of ['/a', '/pay/a']) {
        const all = ['Host', 'localhost', ...headers];
        const answer = await gateway.request({ method: 'POST', path, headers: all, body: 'x' });
        isProblem(t, answer, 'upstream-unreachable');
        t.match(answer.header('proxy-status'), /tls_certificate_error/);
      }
    }
  }
  t.equal(names.length, before, 'nothing was sent');
  const careless = await gatewayBefore(t, `{ url: "https://127.0.0.1:${port}", tls: { verify: false } }`);
  t.equal((await careless.request({ path: '/a', headers: ['Host', 'h'] })).text, 'h');
  const byAddress = await gatewayBefore(t, `{ url: "https://127.0.0.1:${port}", tls: { ca: "${tlsFile('ca.pem')}" } }`);
  t.equal((await byAddress.request({ path: '/a', headers: ['Host', 'h'] })).text, 'h');
});

t.test('connections are kept whatever the Host of the requests', async (t) => {
  let connections = 0;
  const server = createHttpsServer(pair('one'), (_req, res) => res.end('x'));
  server.on('secureConnection', () => connections++);
  const port = await listenDuring(t, server as Server);
  const gateway = await gatewayBefore(t, `{ url: "https://localhost:${port}", tls: { ca: "${tlsFile('ca.pem')}" } }`);
  for (let i = 0; i < 10; i++) await gateway.request({ path: '/a', headers: ['Host', `h${i}.example`] });
  t.equal(connections, 1);
});

type Streams = {
  readonly url: string;
  sessions: number;
  calls: number;
  on: (stream: ServerHttp2Stream, fields: Record<string, unknown>, raw: string[]) => void;
};

async function startHttp2(t: Test, secure: boolean, options = {}): Promise<Streams> {
  const server: Http2Server = secure ? createSecureServer({ ...pair('one'), ...options }) : createHttp2Server(options);
  const port = await listenDuring(t, server as Server);
  const streams: Streams = {
    url: secure ? `https://localhost:${port}` : `http://127.0.0.1:${port}`,
    sessions: 0,
    calls: 0,
    on: (stream) => {
      stream.respond({ ':status': 200 });
      stream.end('x');
    },
  };
  server.on('session', () => streams.sessions++);
  server.on('stream', (stream: ServerHttp2Stream, fields: IncomingHttpHeaders, _flags: number, raw: string[]) => {
    streams.calls++;
    stream.on('error', () => {});
    streams.on(stream, fields, raw);
  });
  return streams;
}

const h2 = (streams: Streams, more = '') =>
  `{ url: "${streams.url}", http2: true, tls: { ca: "${tlsFile('ca.pem')}" }${more} }`.replace(
    /, tls: \{[^}]*\}/,
    (tls) => (streams.url.startsWith('https') ? tls : ''),
  );

for (const secure of [true, false]) {
  t.test(`HTTP/2 ${secure ? 'over TLS' : 'in the clear'}: messages arrive as they were sent`, async (t) => {
    const streams = await startHttp2(t, secure);
    const gateway = await gatewayBefore(t, h2(streams));
    let seen: string[] = [];
    let trailers: Record<string, unknown> = {};
    streams.on = (stream, fields, raw) => {
      seen = raw;
      const hash = createHash('sha256');
      stream.on('trailers', (fields) => {
        trailers = { ...fields };
      });
      stream.on('data', (chunk) => hash.update(chunk));
      stream.on('end', () => {
        if (fields[':path'] === '/none') return stream.respond({ ':status': 204 }, { endStream: true });
        stream.additionalHeaders({ ':status': 103, link: '</a.css>; rel=preload' });
        const response = { ':status': 299, 'set-cookie': ['a=1', 'b=2'], 'x-latin': 'caf\xe9', 'x-empty': '' };
        stream.respond(response, { waitForTrailers: true });
        stream.on('wantTrailers', () => stream.sendTrailers({ 'x-sum': 'late' }));
        stream.end(hash.digest('hex'));
      });
    };
    const content = randomBytes(900_000);
    const digest = createHash('sha256').update(content).digest('hex');
    const sent = ['Host', 'api.example', 'X-A', '1', 'x-a', '2', 'Cookie', 'a=1', 'Accept', 'caf\xe9', 'X-Empty', ''];
    for (const [path, framing] of [
      ['/a%2Fb//?q', []],
      ['/pay/1', []],
      ['/a', ['Transfer-Encoding', 'chunked', 'Trailer', 'X-T']],
    ] as const) {
      const answer = await gateway.request({ method: 'PUT', path, headers: [...sent, ...framing], body: content });
      t.equal(answer.status, 299, path);
      t.equal(answer.text, digest, path);
      t.same(answer.headerLines('set-cookie'), ['a=1', 'b=2'], path);
      t.equal(answer.header('x-latin'), 'caf\xe9', path);
      t.equal(answer.header('x-empty'), '', path);
      t.same(answer.trailers, ['x-sum', 'late'], path);
      const pairs = new Map<string, string[]>();
      for (let i = 0; i < seen.length; i += 2) pairs.set(seen[i]!, [...(pairs.get(seen[i]!) ?? []), seen[i + 1]!]);
      t.same(pairs.get(':path'), [path]);
      t.same(pairs.get(':method'), ['PUT']);
      t.same(pairs.get(':authority'), ['api.example']);
      t.same(pairs.get(':scheme'), [secure ? 'https' : 'http']);
      t.same(pairs.get('x-a'), ['1', '2']);
      t.same(pairs.get('accept'), ['caf\xe9']);
      t.same(pairs.get('x-empty'), ['']);
      t.equal(pairs.get('host'), undefined);
      t.equal(pairs.get('transfer-encoding'), undefined);
    }
    t.same(trailers, {});
    const none = await gateway.request({ path: '/none' });
    t.equal(none.status, 204);
    t.equal(streams.sessions, 2, 'one connection for calls with a key and one for others');
  });
}

t.test('HTTP/2: request trailers arrive, a HEAD has no content, interim responses pass', async (t) => {
  const streams = await startHttp2(t, false);
  const gateway = await gatewayBefore(t, h2(streams));
  const trailers = new Gate();
  let got: Record<string, unknown> = {};
  streams.on = (stream, fields) => {
    stream.on('trailers', (fields) => {
      got = { ...fields };
      trailers.open();
    });
    stream.on('end', () => {
      stream.respond({ ':status': 200, 'content-length': 5 }, { endStream: fields[':method'] === 'HEAD' });
      if (fields[':method'] !== 'HEAD') stream.end('12345');
    });
    stream.resume();
  };
  const head = await gateway.request({ method: 'HEAD', path: '/a' });
  t.same([head.status, head.header('content-length'), head.text], [200, '5', '']);
  const { hostname, port } = new URL(gateway.url);
  const socket = connect(Number(port), hostname);
  socket.write('POST /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-Late: yes\r\n\r\n');
  await trailers.opened;
  socket.destroy();
  t.equal(got['x-late'], 'yes');
});

t.test('HTTP/2: more streams than one connection takes make another, and none is lost', async (t) => {
  const streams = await startHttp2(t, false, { settings: { maxConcurrentStreams: 3 } });
  const gateway = await gatewayBefore(t, h2(streams));
  // The limit is known once a connection is there.
  t.equal((await gateway.request({ path: '/warm' })).status, 200);
  const gate = new Gate();
  streams.on = async (stream) => {
    await gate.opened;
    stream.respond({ ':status': 200 });
    stream.end('x');
  };
  const all = Array.from({ length: 10 }, (_, i) => gateway.send({ path: `/a/${i}` }));
  await eventually('ten calls', () => streams.calls === 11);
  t.ok(streams.sessions >= 4, `${streams.sessions} connections`);
  gate.open();
  for (const one of all) t.equal((await one.answer).status, 200);
});

t.test(
  'HTTP/2: what was sent and reset is unknown; what was refused, or met a closed connection, is repeated when safe',
  async (t) => {
    const streams = await startHttp2(t, false);
    const gateway = await gatewayBefore(t, h2(streams));
    const ok = streams.on;
    const failing = (code: number) => {
      streams.on = (stream) => {
        streams.on = ok;
        stream.close(code);
      };
    };
    const INTERNAL_ERROR = 2;
    const REFUSED_STREAM = 7;
    const calls = async (ask: () => Promise<unknown>) => {
      const before = streams.calls;
      await ask();
      return streams.calls - before;
    };
    t.equal(
      await calls(async () => {
        failing(INTERNAL_ERROR);
        isProblem(t, await gateway.request({ path: '/a' }), 'upstream-unreachable');
      }),
      1,
    );
    t.equal(
      await calls(async () => {
        failing(INTERNAL_ERROR);
        isProblem(t, await gateway.request({ method: 'POST', path: '/pay/a', body: 'x' }), 'outcome-unknown');
      }),
      1,
    );
    t.equal(
      await calls(async () => {
        failing(REFUSED_STREAM);
        t.equal((await gateway.request({ path: '/a' })).status, 200);
      }),
      2,
    );
    t.equal(
      await calls(async () => {
        failing(REFUSED_STREAM);
        isProblem(t, await gateway.request({ method: 'POST', path: '/pay/b', body: 'x' }), 'outcome-unknown');
      }),
      1,
    );
    t.equal(
      await calls(async () => {
        streams.on = (stream) => {
          streams.on = ok;
          stream.session?.destroy();
        };
        t.equal((await gateway.request({ path: '/read/a' })).status, 200, 'over a kept connection');
      }),
      2,
    );
  },
);

t.test(
  'HTTP/2: a cut is a cut, a client that leaves ends its stream only, a silent upstream ends in time',
  async (t) => {
    const streams = await startHttp2(t, false);
    const gateway = await gatewayBefore(t, h2(streams, ', timeouts: { headers: 300ms, body: 300ms }'));
    const ok = streams.on;
    streams.on = (stream) => {
      stream.respond({ ':status': 200, 'content-length': 10 });
      stream.write('12345', () => stream.close(2));
    };
    t.equal((await gateway.request({ path: '/cut' })).cut, true);
    streams.on = (stream) => {
      stream.respond({ ':status': 200 });
      stream.write('12345');
    };
    t.equal((await gateway.request({ path: '/silent' })).cut, true);
    streams.on = () => {};
    isProblem(t, await gateway.request({ path: '/mute' }), 'upstream-timeout');
    const closed = new Gate();
    const arrived = new Gate();
    streams.on = (stream) => {
      stream.once('close', () => closed.open());
      arrived.open();
    };
    const leaving = new AbortController();
    gateway.send({ path: '/left', signal: leaving.signal }).answer.catch(() => {});
    await arrived.opened;
    leaving.abort();
    await closed.opened;
    streams.on = ok;
    t.equal((await gateway.request({ path: '/a' })).status, 200);
    t.equal(streams.sessions, 1, 'the connection serves on');
  },
);

t.test('HTTP/2: a slow reader holds its own stream back, and nobody else', async (t) => {
  const streams = await startHttp2(t, false);
  const gateway = await gatewayBefore(t, h2(streams));
  const piece = Buffer.alloc(65_536, 'x');
  const size = 64 * 1024 * 1024;
  let written = 0;
  streams.on = (stream, fields) => {
    stream.respond({ ':status': 200 });
    if (fields[':path'] !== '/large') {
      stream.end('x');
      return;
    }
    const more = () => {
      while (written < size) {
        written += piece.length;
        if (stream.write(piece)) continue;
        stream.once('drain', more);
        return;
      }
      stream.end();
    };
    more();
  };
  const { hostname, port } = new URL(gateway.url);
  const socket = connect(Number(port), hostname).pause();
  socket.write('GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n');
  let last = -1;
  await eventually('it is held back', () => {
    const isStill = written === last && written > 0;
    last = written;
    return isStill;
  });
  t.ok(written < size / 2, `${written} bytes were written`);
  for (let i = 0; i < 20; i++) t.equal((await gateway.request({ path: `/a/${i}` })).text, 'x');
  let received = 0;
  const ended = new Gate();
  socket.on('data', (chunk) => {
    received += chunk.length;
  });
  socket.once('end', () => ended.open());
  socket.resume();
  await ended.opened;
  t.ok(received > size, `${received} bytes`);
});

t.test('HTTP/2: an upstream that does not speak it, or is not there, is unreachable', async (t) => {
  const server = createHttpsServer(pair('one'), (_req, res) => res.end('x'));
  const port = await listenDuring(t, server as Server);
  const options = `http2: true, tls: { ca: "${tlsFile('ca.pem')}" }, timeouts: { connect: 1s }`;
  const gateway = await gatewayBefore(t, `{ url: "https://localhost:${port}", ${options} }`);
  isProblem(t, await gateway.request({ path: '/a' }), 'upstream-unreachable');
  isProblem(t, await gateway.request({ method: 'POST', path: '/pay/a' }), 'upstream-unreachable');
  server.close();
  server.closeAllConnections();
  isProblem(t, await gateway.request({ method: 'POST', path: '/pay/a' }), 'upstream-unreachable');
});
