/** What a queue costs and keeps when processes die or freeze, and when the store goes away or forgets. */

import t, { type Test } from 'tap';
import { BYPASSED, isProblem, PROMPT_MS, problemOf } from '../support/expect.js';
import { delay, eventually } from '../support/gate.js';
import { configOf, type Gateway, metricsOf, startGateways } from '../support/gateway.js';
import { type RedisServer, startRedis } from '../support/redis.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { answers, type StubUpstream, startUpstream } from '../support/upstream.js';

t.setTimeout(120_000);

const LEASE_MS = 2_000;
/** What a dead or frozen process may cost (lease + 1 s), on a machine that others use too. */
const MOST_MS = LEASE_MS + 1_000 + 500;

type Scene = {
  readonly upstream: StubUpstream;
  readonly redis: RedisServer;
  readonly gateways: Gateway[];
  readonly post: (gateway: Gateway, path: string) => ReturnType<Gateway['send']>;
  /** As many wait on a route in these processes. */
  readonly waiting: (name: string, count: number, of?: readonly Gateway[]) => Promise<void>;
};

async function scene(t: Test, processes: number, through?: (redis: RedisServer) => Promise<number>): Promise<Scene> {
  const upstream = await startUpstream(t);
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  const port = through === undefined ? redis.port : await through(redis);
  const route = (name: string, more = '') => `
  - name: ${name}
    match: { path: "/${name}/:sku" }
    policy: queue
    key: [ { param: sku } ]
    lease: ${LEASE_MS}ms
    wait: { max: 30s, poll: 20s }
    ${more}`;
  const routes = [
    route('stock'),
    route('held', 'onUnknown: hold'),
    route('local', 'onStoreDown: local'),
    route('pass', 'onStoreDown: pass'),
    route('short').replace('max: 30s, poll: 20s', 'max: 1500ms, poll: 20s'),
    route('polled').replace('poll: 20s', 'poll: 300ms'),
  ].join('');
  const store = `{ kind: redis, url: "redis://127.0.0.1:${port}", commandTimeout: 300ms }`;
  const gateways = await startGateways(t, processes, { config: configOf({ upstream: upstream.url, store, routes }) });
  return {
    upstream,
    redis,
    gateways,
    post: (gateway, path) => gateway.send({ method: 'POST', path }),
    waiting: (name, count, of = gateways) =>
      eventually(`${count} wait on ${name}`, async () => {
        return (await metricsOf(of)).sum('oneflight_queued_requests', { route: name }) === count;
      }),
  };
}

t.test('kill -9 of the process that has the turn: the next runs within lease + 1 s', async (t) => {
  const { upstream, gateways, post, waiting } = await scene(t, 2);
  const [first, last] = gateways as [Gateway, Gateway];
  const held = upstream.holds('/stock/x');
  const leader = post(first, '/stock/x');
  leader.answer.catch(() => {});
  await held.arrived(1);
  const next = post(last, '/stock/x');
  await waiting('stock', 1);
  upstream.on('/stock/x', answers({ content: 'next' }));
  const at = performance.now();
  await first.kill9();
  t.equal((await next.answer).text, 'next');
  t.ok(performance.now() - at < MOST_MS, `${performance.now() - at} ms`);
  t.equal(upstream.count('/stock/x'), 2);
});

t.test('kill -9 of a process that has the first places: they are passed over within lease + 1 s', async (t) => {
  const { upstream, gateways, post, waiting } = await scene(t, 3);
  const [first, middle, last] = gateways as [Gateway, Gateway, Gateway];
  const held = upstream.holds('/stock/x');
  const leader = post(first, '/stock/x');
  await held.arrived(1);
  for (let i = 0; i < 5; i += 1) post(middle, '/stock/x').answer.catch(() => {});
  await waiting('stock', 5);
  const next = post(last, '/stock/x');
  await waiting('stock', 6);
  const at = performance.now();
  await middle.kill9();
  upstream.on('/stock/x', answers({ content: 'next' }));
  held.release();
  t.equal((await leader.answer).status, 200);
  t.equal((await next.answer).text, 'next');
  t.ok(performance.now() - at < MOST_MS, `${performance.now() - at} ms for five places`);
  t.equal(upstream.count('/stock/x'), 2, 'nothing was sent for the dead');
});

t.test('with onUnknown: hold, the places of a dead process hold nothing', async (t) => {
  const { upstream, gateways, post, waiting } = await scene(t, 3);
  const [first, middle, last] = gateways as [Gateway, Gateway, Gateway];
  const held = upstream.holds('/held/x');
  const leader = post(first, '/held/x');
  await held.arrived(1);
  post(middle, '/held/x').answer.catch(() => {});
  await waiting('held', 1);
  const next = post(last, '/held/x');
  await waiting('held', 2);
  await middle.kill9();
  held.release();
  t.equal((await leader.answer).status, 200);
  const answer = await next.answer;
  t.equal(answer.status, 200, `${problemOf(answer)}`);
  t.equal(upstream.count('/held/x'), 2);
});

t.test('with onUnknown: hold, kill -9 of the process that has the turn holds it', async (t) => {
  const { upstream, gateways, post, waiting } = await scene(t, 2);
  const [first, last] = gateways as [Gateway, Gateway];
  const held = upstream.holds('/held/x');
  post(first, '/held/x').answer.catch(() => {});
  await held.arrived(1);
  const next = post(last, '/held/x');
  await waiting('held', 1);
  const at = performance.now();
  await first.kill9();
  const answer = await next.answer;
  isProblem(t, answer, 'outcome-unknown');
  t.equal(answer.status, 409);
  t.ok(performance.now() - at < MOST_MS, `${performance.now() - at} ms`);
  t.equal((await post(last, '/held/x').answer).status, 409);
  t.equal(upstream.count('/held/x'), 1);
});

t.test("frozen past its lease and resumed: it cannot give up what is another one's turn by then", async (t) => {
  const { upstream, gateways, post, waiting } = await scene(t, 2);
  const [first, last] = gateways as [Gateway, Gateway];
  const held = upstream.holds('/stock/x');
  const leader = post(first, '/stock/x');
  await held.arrived(1);
  const second = post(last, '/stock/x');
  await waiting('stock', 1);
  const heldAgain = upstream.holds('/stock/x');
  first.pause();
  await heldAgain.arrived(2);
  const third = post(last, '/stock/x');
  await waiting('stock', 1, [last]);
  first.resume();
  held.release();
  t.equal((await leader.answer).status, 200, 'its client has the answer');
  await first.caughtUp();
  await last.caughtUp();
  t.equal(upstream.count('/stock/x'), 2, 'the third still waits for the second');
  t.equal((await first.metrics()).sum('oneflight_leases_lost_total', { route: 'stock' }), 1);
  heldAgain.release();
  t.equal((await second.answer).status, 200);
  t.equal((await third.answer).status, 200);
  t.equal(upstream.count('/stock/x'), 3);
});

t.test('frozen with a place past its lease and resumed: nothing is sent on a turn that has passed', async (t) => {
  const { upstream, gateways, post, waiting } = await scene(t, 3);
  const [first, middle, last] = gateways as [Gateway, Gateway, Gateway];
  const held = upstream.holds('/stock/x');
  const leader = post(first, '/stock/x');
  await held.arrived(1);
  const frozen = post(middle, '/stock/x');
  await waiting('stock', 1);
  const next = post(last, '/stock/x');
  await waiting('stock', 2);
  middle.pause();
  const heldAgain = upstream.holds('/stock/x');
  held.release();
  t.equal((await leader.answer).status, 200);
  await heldAgain.arrived(2);
  middle.resume();
  await middle.caughtUp();
  await delay(200);
  t.equal(upstream.count('/stock/x'), 2, 'it goes on waiting, for another turn');
  heldAgain.release();
  t.equal((await next.answer).status, 200);
  t.equal((await frozen.answer).status, 200);
  t.equal(upstream.count('/stock/x'), 3);
});

t.test('a store that is away: 503, or on in this process, or unprotected, as the rule says', async (t) => {
  const { upstream, redis, gateways, post } = await scene(t, 1);
  const [only] = gateways as [Gateway];
  await redis.kill();
  isProblem(t, await post(only, '/stock/x').answer, 'store-unavailable');
  t.equal(upstream.count('/stock/x'), 0);
  const passed = await post(only, '/pass/x').answer;
  t.equal(passed.status, 200);
  t.match(passed.cacheStatus, BYPASSED);
  let now = 0;
  let most = 0;
  upstream.on('/local/x', async (call) => {
    most = Math.max(most, ++now);
    await delay(20);
    now -= 1;
    await answers({ content: 'local' })(call);
  });
  const all = await Promise.all(Array.from({ length: 10 }, () => post(only, '/local/x').answer));
  for (const answer of all) t.equal(answer.text, 'local');
  t.equal(most, 1, 'one at a time in this process');
});

t.test('a store that goes away under those who wait: in time they are told, and nothing was sent', async (t) => {
  const { upstream, redis, gateways, post, waiting } = await scene(t, 2);
  const [first, last] = gateways as [Gateway, Gateway];
  const held = upstream.holds('/short/x');
  const leader = post(first, '/short/x');
  await held.arrived(1);
  const next = post(last, '/short/x');
  await waiting('short', 1);
  await redis.kill();
  isProblem(t, await next.answer, 'wait-timeout');
  held.release();
  t.equal((await leader.answer).status, 200, 'whoever had the turn has its answer');
  t.equal(upstream.count('/short/x'), 1);
});

t.test('a store that comes back empty: those who wait find their place again', async (t) => {
  const { upstream, redis, gateways, post, waiting } = await scene(t, 3);
  const [first, middle, last] = gateways as [Gateway, Gateway, Gateway];
  const held = upstream.holds('/polled/x');
  const leader = post(first, '/polled/x');
  await held.arrived(1);
  const queued = [middle, last, middle, last].map((gateway) => post(gateway, '/polled/x'));
  await waiting('polled', 4);
  let now = 0;
  let most = 0;
  upstream.on('/polled/x', async (call) => {
    most = Math.max(most, ++now);
    await delay(100);
    now -= 1;
    await answers({ content: 'again' })(call);
  });
  await redis.command('FLUSHALL');
  for (const { answer } of queued) t.equal((await answer).text, 'again');
  t.equal(most, 1, 'one at a time among those who came after the loss');
  held.release();
  t.equal((await leader.answer).status, 200);
  t.equal(upstream.count('/polled/x'), 5);
});

t.test('a push that is lost: the poll finds the turn', async (t) => {
  const { upstream, redis, gateways, post, waiting } = await scene(t, 2);
  const [first, last] = gateways as [Gateway, Gateway];
  const held = upstream.holds('/polled/x');
  const leader = post(first, '/polled/x');
  await held.arrived(1);
  const next = post(last, '/polled/x');
  await waiting('polled', 1);
  await redis.command('CLIENT', 'KILL', 'TYPE', 'pubsub');
  held.release();
  t.equal((await leader.answer).status, 200);
  t.equal((await next.answer).status, 200);
});

t.test('the reply to a place is lost: asked again it is the same place, given up it holds up nobody', async (t) => {
  let proxy: TcpProxy | undefined;
  const { upstream, gateways, post } = await scene(t, 1, async (redis) => {
    proxy = await TcpProxy.start(t, redis.port);
    return proxy.port;
  });
  const [only] = gateways as [Gateway];
  const held = upstream.holds('/stock/x');
  const leader = post(only, '/stock/x');
  await held.arrived(1);
  const lost = proxy!.loseReplyTo('enter');
  const first = post(only, '/stock/x').answer;
  await lost;
  const others = Promise.all(Array.from({ length: 3 }, () => delay(1_000).then(() => post(only, '/stock/x').answer)));
  await eventually('the others wait', async () => {
    return (await only.metrics()).sum('oneflight_queued_requests', { route: 'stock' }) >= 3;
  });
  held.release();
  t.equal((await leader.answer).status, 200);
  const at = performance.now();
  const answer = await first;
  if (answer.status !== 200) isProblem(t, answer, 'store-unavailable');
  for (const { status } of await others) t.equal(status, 200);
  t.ok(performance.now() - at < PROMPT_MS, 'no place is waited for that nobody has');
  t.equal(upstream.count('/stock/x'), answer.status === 200 ? 5 : 4);
});
