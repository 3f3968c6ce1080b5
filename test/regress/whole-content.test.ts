/** Content that flows, stalls or is not read on routes with a key: it arrives whole or is seen to be cut. */

import type { Socket } from 'node:net';
import t from 'tap';
import { type Answered, burst, RawClient, request } from '../support/client.js';
import { isProblem } from '../support/expect.js';
import { delay, eventually } from '../support/gate.js';
import { configOf, startGateway } from '../support/gateway.js';
import { type Answer, answers, type Call, startUpstream } from '../support/upstream.js';

t.setTimeout(90_000);

const MiB = 1_048_576;
/** The upstream's deadlines of these tests, and what the gateway adds before it ends a silent exchange. */
const CONNECT_MS = 500;
const HEADERS_MS = 1_000;
const BODY_MS = 1_000;
const MARGIN_MS = 2_000;
const LEASE_S = 2;
/** What a busy machine may add. */
const LATE_MS = 8_000;

const upstream = await startUpstream(t);
const gateway = await startGateway(t, {
  config: configOf({
    upstream: upstream.url,
    timeouts: `{ connect: ${CONNECT_MS}ms, headers: ${HEADERS_MS}ms, body: ${BODY_MS}ms }`,
    routes: `
  - name: shared
    match: { path: /shared/* }
    policy: coalesce
    key: [ { request: path }, { header: x-key } ]
    lease: ${LEASE_S}s
    keep: 0
  - name: lock
    match: { path: /lock/* }
    policy: reject
    key: [ { request: path }, { header: x-key } ]
    lease: ${LEASE_S}s`,
  }),
});

/** Answers with what was read, so that every client can compare it with what it sent. */
const echoes = answers((call: Call): Answer => ({ content: call.content ?? '' }));

type Upload = { readonly size: number; readonly chunked: boolean };

/** Small and large, announced and chunked. */
function uploadOf(index: number): Upload {
  return { size: [14, 300_000, 65_536, 1][index % 4]!, chunked: index % 8 >= 4 };
}

async function upload(path: string, key: string, { size, chunked }: Upload): Promise<boolean> {
  const body = Buffer.alloc(size, `${key},`);
  const headers = ['X-Key', key, ...(chunked ? ['Transfer-Encoding', 'chunked'] : [])];
  const answer = await request(gateway.url, { method: 'PUT', path, headers, body });
  return answer.status === 200 && answer.body.equals(body);
}

t.test('content that the key does not read arrives whole, on new connections and on old ones', async (t) => {
  for (const path of ['/shared/echo', '/lock/echo']) {
    upstream.on(path, echoes);
    for (const round of ['cold', 'warm']) {
      const uploads = Array.from({ length: 40 }, (_, index) =>
        upload(path, `${round}-${index}`, uploadOf(index)).then((whole) => (whole ? [] : [index])),
      );
      t.same((await Promise.all(uploads)).flat(), [], `${path}, ${round}: uploads that did not arrive whole`);
    }
    t.equal(upstream.count(path), 80);
  }
});

t.test('content that comes after its fields arrives whole', async (t) => {
  for (const path of ['/shared/late', '/lock/late']) {
    upstream.on(path, echoes);
    const client = await RawClient.connect(gateway.url);
    client.write(`POST ${path} HTTP/1.1\r\nHost: a\r\nX-Key: 1\r\nContent-Length: 14\r\n\r\n`);
    await gateway.caughtUp();
    client.write('{"amount"');
    await upstream.arrived(1, path);
    client.write(':100}');
    t.equal((await client.answer())?.text, '{"amount":100}');
    client.close();
  }
});

t.test('uploads with one key: the leader’s content arrives whole, and everybody gets its answer', async (t) => {
  const path = '/shared/one';
  upstream.on(path, async (call) => {
    await call.received;
    await delay(500);
    call.answer({ content: `${call.ordinal}:${call.content?.length}` });
  });
  const body = Buffer.alloc(200_000, 'x');
  const all = await burst(10, () => request(gateway.url, { method: 'PUT', path, headers: ['X-Key', '1'], body }));
  t.same(new Set(all.map((answer) => answer.text)), new Set(['1:200000']));
  t.equal(upstream.count(path), 1);
});

/** Reads a connection only as far as it is told to. */
class SlowReader {
  readonly #socket: Socket;
  bytes = 0;
  #until = 0;

  constructor({ socket }: RawClient) {
    this.#socket = socket;
    socket.on('data', (piece: Buffer) => {
      this.bytes += piece.length;
      if (this.bytes >= this.#until) socket.pause();
    });
    socket.pause();
  }

  readOn(bytes: number): void {
    this.#until = this.bytes + bytes;
    this.#socket.resume();
  }
}

t.test('exchanges that do not move', { jobs: 4 }, async (t) => {
  for (const name of ['shared', 'lock']) {
    t.test(`a stalled upload ends with the upstream's deadlines and never executes later (${name})`, async (t) => {
      const path = `/${name}/stalled`;
      const executed: string[] = [];
      upstream.on(path, async (call) => {
        const { whole } = await call.received;
        if (!whole) return;
        executed.push(String(call.content));
        call.answer({ content: 'executed' });
      });
      const stalled = await RawClient.connect(gateway.url);
      t.teardown(() => stalled.close());
      stalled.write(`POST ${path} HTTP/1.1\r\nHost: a\r\nX-Key: 1\r\nContent-Length: 10\r\n\r\n12345`);
      await upstream.arrived(1, path);
      const [first] = upstream.callsOf(path);
      const began = performance.now();
      const again = () => request(gateway.url, { method: 'POST', path, headers: ['X-Key', '1'], body: 'second' });

      let second: Answered = await again();
      while (second.status !== 200 && performance.now() - began < CONNECT_MS + HEADERS_MS + MARGIN_MS + LATE_MS) {
        // Before that: a duplicate is refused, a follower learns that its leader failed.
        if (second.status !== 409) isProblem(t, second, 'leader-failed', LEASE_S);
        await delay(50);
        second = await again();
      }
      t.equal(second.text, 'executed', `the key is free after ${Math.round(performance.now() - began)} ms`);
      t.ok(performance.now() - began > HEADERS_MS, 'not before the deadline');

      stalled.write('67890');
      const told = await stalled.answer();
      if (told !== null) isProblem(t, told, 'outcome-unknown');
      await first!.closed;
      t.equal((await first!.received).whole, false, 'the upstream sees the stalled content cut');
      const [, next] = upstream.callsOf(path);
      // Two connections: the order in which their ends and beginnings are seen is not exact.
      t.ok(first!.endedAtMs! <= next!.startedAtMs + 500, 'the next one runs after it');
      t.same(executed, ['second']);
    });
  }

  t.test('a client that does not read keeps a lock no longer than the deadlines', async (t) => {
    const path = '/lock/unread';
    upstream.on(path, answers({ content: Buffer.alloc(32 * MiB, 'a') }));
    const idle = await RawClient.connect(gateway.url);
    t.teardown(() => idle.close());
    idle.socket.pause();
    idle.write(`POST ${path} HTTP/1.1\r\nHost: a\r\nX-Key: 1\r\nContent-Length: 0\r\n\r\n`);
    await upstream.arrived(1, path);
    const again = () => request(gateway.url, { method: 'POST', path, headers: ['X-Key', '1'] });
    isProblem(t, await again(), 'in-flight', LEASE_S);
    upstream.on(path, answers({ content: 'free' }));
    await eventually('the lock free', async () => (await again()).text === 'free', BODY_MS + MARGIN_MS + LATE_MS);
    t.equal(upstream.count(path), 2);
  });

  t.test('a client that reads slowly keeps its lock until it has everything', async (t) => {
    const path = '/lock/slow';
    const length = 32 * MiB;
    upstream.on(path, answers({ content: Buffer.alloc(length, 'a') }));
    const slow = await RawClient.connect(gateway.url);
    t.teardown(() => slow.close());
    const reader = new SlowReader(slow);
    slow.write(`POST ${path} HTTP/1.1\r\nHost: a\r\nX-Key: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`);
    await upstream.arrived(1, path);
    const again = () => request(gateway.url, { method: 'POST', path, headers: ['X-Key', '1'] });
    const began = performance.now();
    // Longer in all than a client that does not read at all would be borne.
    while (performance.now() - began < BODY_MS + MARGIN_MS + 2_000) {
      reader.readOn(MiB);
      await delay(400);
      if (reader.bytes < length / 3) isProblem(t, await again(), 'in-flight', LEASE_S);
    }
    t.ok(reader.bytes < length, `read slowly: ${reader.bytes} bytes`);
    reader.readOn(2 * length);
    await slow.closed;
    t.ok(reader.bytes > length, `all of it: ${reader.bytes} bytes`);
    t.equal(upstream.count(path), 1);
    t.equal((await again()).status, 200, 'free again');
  });
});

t.test('no flight is left behind', async (t) => {
  t.equal((await gateway.metrics()).sum('oneflight_flights_in_progress'), 0);
});
