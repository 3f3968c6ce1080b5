/** `stream: true`: who reads on another gateway is never left hanging, whoever has gone silent. */

import t, { type Test } from 'tap';
import { Watching } from '../support/client.js';
import { COLLAPSED, LED } from '../support/expect.js';
import { eventually, Gate, within } from '../support/gate.js';
import { configOf, type Gateway, startGateway } from '../support/gateway.js';
import { startRedis } from '../support/redis.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { type Call, startUpstream } from '../support/upstream.js';
import { chunkBytes, lastChunkBytes } from '../support/wire.js';

t.setTimeout(120_000);

const LEASE_MS = 1_000;
const BODY_MS = 3_000;
/** The leader's silence that is the longest a reader bears: its upstream's, its lease's and a margin of 3 s. */
const SILENCE_MS = BODY_MS + LEASE_MS + 3_000;
/** A busy machine. */
const MARGIN_MS = 8_000;
const HALF = 'data: half\n\n';

/** A leader and a gateway whose way to Redis can be broken. What follows is one answer, of which half is read by both. */
async function halfRead(t: Test) {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  const proxy = await TcpProxy.start(t, redis.port);
  const upstream = await startUpstream(t);
  const routes = `
  - name: llm
    match: { path: "/llm/*" }
    policy: coalesce
    key: [ { request: path } ]
    identity: public
    stream: true
    keep: 0s
    lease: ${LEASE_MS}ms
    wait: { max: 60s, poll: 30s }`;
  const timeouts = `{ connect: 2s, headers: 20s, body: ${BODY_MS}ms }`;
  const start = (port: number): Promise<Gateway> => {
    const store = `{ kind: redis, url: "redis://127.0.0.1:${port}", commandTimeout: 300ms }`;
    return startGateway(t, { config: configOf({ upstream: upstream.url, store, routes, timeouts }) });
  };
  const [leading, far] = await Promise.all([start(redis.port), start(proxy.port)]);
  const arrived = new Gate();
  const calls: Call[] = [];
  upstream.on('/llm/a', async (call) => {
    await call.received;
    calls.push(call);
    call.head(200, 'OK', ['Content-Type', 'text/event-stream', 'Transfer-Encoding', 'chunked']);
    arrived.open();
    await call.over;
  });
  const watch = (gateway: Gateway) => new Watching(gateway.url, { method: 'POST', path: '/llm/a' });
  const leader = watch(leading);
  await arrived.opened;
  const reader = watch(far);
  await far.caughtUp();
  const send = (call: number, text: string) => calls[call]!.raw(chunkBytes(Buffer.from(text)));
  send(0, HALF);
  await Promise.all([leader.received(HALF.length), reader.received(HALF.length)]);
  return { upstream, proxy, leading, far, leader, reader, calls, send, watch };
}

/** The reader is cut where it was, and the next request on its gateway has an answer of its own, with the store or without. */
async function endsWithin(
  t: Test,
  ms: number,
  { far, reader, calls, send, watch }: Awaited<ReturnType<typeof halfRead>>,
) {
  const answer = await within(ms, 'the cut', reader.answer);
  t.equal(answer.cut, true);
  t.equal(answer.text, HALF);
  t.equal(answer.cacheStatus, COLLAPSED);
  const next = watch(far);
  await eventually('the second call', () => calls.length === 2);
  send(1, 'data: all\n\n');
  calls[1]!.raw(lastChunkBytes());
  calls[1]!.finish();
  const again = await within(MARGIN_MS, 'the next answer', next.answer);
  t.equal(again.text, 'data: all\n\n');
  t.equal(again.cacheStatus, LED);
}

t.test('the leader freezes: its lease ends what is read elsewhere', async (t) => {
  const scene = await halfRead(t);
  scene.leading.pause();
  t.teardown(() => scene.leading.resume());
  // The lease, not the silence.
  await endsWithin(t, SILENCE_MS - 1_000, scene);
});

for (const [name, breakIt] of [
  ['refuses', (proxy: TcpProxy) => proxy.refuse()],
  [
    'swallows everything',
    async (proxy: TcpProxy) => {
      proxy.blackHole = true;
    },
  ],
] as const) {
  t.test(`the leader is killed and the store ${name}: its silence ends what is read elsewhere`, async (t) => {
    const scene = await halfRead(t);
    await breakIt(scene.proxy);
    await scene.leading.kill9();
    await endsWithin(t, SILENCE_MS + MARGIN_MS, scene);
  });
}

t.test(
  'a leader that only this gateway does not hear of any more ends what is read there, and nothing else',
  async (t) => {
    const scene = await halfRead(t);
    await scene.proxy.refuse();
    const cut = within(SILENCE_MS + MARGIN_MS, 'the cut', scene.reader.answer);
    // The leader itself is not silent: its upstream goes on all the time.
    const beat = setInterval(() => scene.send(0, '.'), BODY_MS / 6);
    t.teardown(() => clearInterval(beat));
    t.equal((await cut).cut, true);
    clearInterval(beat);
    scene.calls[0]!.raw(lastChunkBytes());
    scene.calls[0]!.finish();
    const whole = await scene.leader.answer;
    t.equal(whole.cut, false);
    t.ok(whole.text.startsWith(`${HALF}.`));
  },
);
