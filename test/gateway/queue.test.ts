/** `queue`: requests of one key are forwarded one after the other, in their order, each on its own. */

import t, { type Test } from 'tap';
import type { Answered, Sent } from '../support/client.js';
import { BYPASSED, isProblem, PROMPT_MS, problemOf } from '../support/expect.js';
import { delay, eventually, Gate } from '../support/gate.js';
import { allCaughtUp, configOf, type Gateway, metricsOf, startGateways } from '../support/gateway.js';
import { inEachStore } from '../support/stores.js';
import {
  answers,
  answersGarbage,
  type Behaviour,
  type Call,
  cutsChunked,
  cutsContentLength,
  gated,
  hangsUpAfterReading,
  resetsAfterReading,
  startUpstream,
} from '../support/upstream.js';

t.setTimeout(150_000);

const LEASE_SECONDS = 20;
/** Longer than any test: only a push can be what hands a turn over. */
const WAIT = 'wait: { max: 60s, poll: 30s }';

const route = (name: string, more: string, lease = `${LEASE_SECONDS}s`) => `
  - name: ${name}
    match: { path: "/${name}/:sku" }
    upstream: api
    policy: queue
    key: [ { param: sku } ]
    lease: ${lease}
    ${more}`;

/** What an upstream saw of one path: how many at a time, and in which order. */
function judge(ms: number): { most: number; readonly order: string[]; readonly behaviour: Behaviour } {
  let now = 0;
  const seen = {
    most: 0,
    order: [] as string[],
    behaviour: async (call: Call) => {
      seen.order.push(call.header('x-n') ?? '');
      seen.most = Math.max(seen.most, ++now);
      await delay(ms);
      now -= 1;
      await answers({ content: `answer ${call.header('x-n')}` })(call);
    },
  };
  return seen;
}

async function scenarios(t: Test, store: string, processes: number): Promise<void> {
  const upstream = await startUpstream(t);
  const closed = await startUpstream(t);
  const routes = [
    route('stock', WAIT),
    route('two', `${WAIT}\n    concurrency: 2`),
    route('short', 'wait: { max: 600ms, poll: 30s }\n    maxQueue: 2'),
    route('few', `${WAIT}\n    maxQueue: 2`),
    route('held', `${WAIT}\n    onUnknown: hold`),
    route('renewed', WAIT, '1s'),
    route('fenced', `${WAIT}\n    forward: { fence: X-Fence, idempotencyKey: X-Key }`),
    route('closed', WAIT).replace('upstream: api', 'upstream: closed'),
    route('scope-a', `${WAIT}\n    scope: shared`),
    route('scope-b', `${WAIT}\n    scope: shared`),
    route('callers', `${WAIT}\n    identity: [ { header: authorization } ]`),
    route('strict', `${WAIT}\n    onMissingKey: reject`).replace('{ param: sku }', '{ header: x-sku }'),
    route('lax', WAIT).replace('{ param: sku }', '{ header: x-sku }'),
  ].join('');
  const config = configOf({
    upstream: upstream.url,
    upstreams: `  closed: { url: "${closed.url}" }`,
    timeouts: '{ connect: 2s, headers: 6s, body: 1s }',
    store,
    routes,
  });
  const gateways = await startGateways(t, processes, { config });
  const first = gateways[0]!;
  const last = gateways[gateways.length - 1]!;
  const post = (gateway: Gateway, path: string) => gateway.send({ method: 'POST', path });

  /** As many wait for their turn on a route, in all processes. */
  async function waiting(name: string, count: number): Promise<void> {
    await eventually(`${count} wait on ${name}`, async () => {
      return (await metricsOf(gateways)).sum('oneflight_queued_requests', { route: name }) === count;
    });
  }

  await t.test(
    '50 at once over all processes: never two upstream, each process in its order, each its own answer',
    async (t) => {
      const seen = judge(3);
      upstream.on('/stock/many', seen.behaviour);
      const held = upstream.holds('/stock/many');
      const opener = post(first, '/stock/many');
      await held.arrived(1);
      upstream.on('/stock/many', seen.behaviour);
      const sent: Sent[] = [];
      for (let i = 0; i < 50; i += 1) {
        const gateway = gateways[i % processes]!;
        const headers = ['X-N', String(i)];
        sent.push(gateway.send({ method: i % 2 === 0 ? 'POST' : 'PATCH', path: '/stock/many', headers }));
        // The order of arrival is that of sending only when the one before has arrived.
        await gateway.caughtUp();
      }
      await waiting('stock', 50);
      held.release();
      await opener.answer;
      const all = await Promise.all(sent.map(({ answer }) => answer));
      all.forEach((answer, i) => {
        t.equal(answer.text, `answer ${i}`);
        t.equal(answer.cacheStatus, 'oneflight; fwd=miss; detail=queued');
      });
      t.equal(seen.most, 1);
      t.equal(seen.order.length, 50);
      for (let own = 0; own < processes; own += 1) {
        const order = seen.order.map(Number).filter((i) => i % processes === own);
        t.same(
          order,
          [...order].sort((a, b) => a - b),
          `process ${own}`,
        );
      }
      t.equal(upstream.count('/stock/many'), 51);
      t.equal((await metricsOf(gateways)).sum('oneflight_queue_wait_seconds_count', { route: 'stock' }), 50);
    },
  );

  await t.test('the turn is handed over by one push', async (t) => {
    const held = upstream.holds('/stock/push');
    const leader = post(first, '/stock/push');
    await held.arrived(1);
    const next = post(last, '/stock/push');
    await waiting('stock', 1);
    held.release();
    await leader.answer;
    const at = performance.now();
    await next.answer;
    t.ok(performance.now() - at < PROMPT_MS, 'long before lease and poll');
  });

  await t.test('concurrency: as many at a time, and no more', async (t) => {
    const seen = judge(20);
    upstream.on('/two/x', seen.behaviour);
    await Promise.all(Array.from({ length: 24 }, (_, i) => post(gateways[i % processes]!, '/two/x').answer));
    t.equal(seen.most, 2);
    t.equal(seen.order.length, 24);
  });

  await t.test('other keys, and other callers where told apart, do not wait', async (t) => {
    const held = upstream.holds('/stock/a');
    const leader = post(first, '/stock/a');
    await held.arrived(1);
    t.equal((await post(last, '/stock/b').answer).status, 200);
    held.release();
    await leader.answer;
    const heldForOne = upstream.holds('/callers/a');
    const one = first.send({ path: '/callers/a', headers: ['Authorization', 'one'] });
    await heldForOne.arrived(1);
    upstream.on('/callers/a', answers({ content: 'two' }));
    t.equal((await last.request({ path: '/callers/a', headers: ['Authorization', 'two'] })).text, 'two');
    heldForOne.release();
    await one.answer;
  });

  await t.test('routes of one scope have one queue', async (t) => {
    const held = upstream.holds('/scope-a/x');
    const leader = post(first, '/scope-a/x');
    await held.arrived(1);
    const next = post(last, '/scope-b/x');
    await waiting('scope-b', 1);
    t.equal(upstream.count('/scope-b/x'), 0);
    held.release();
    t.equal((await next.answer).status, 200);
    await leader.answer;
  });

  await t.test('a full queue: 429 at once, and nothing is sent', async (t) => {
    const held = upstream.holds('/few/x');
    const leader = post(first, '/few/x');
    await held.arrived(1);
    const queued = [post(last, '/few/x'), post(first, '/few/x')];
    await waiting('few', 2);
    for (const gateway of [first, last]) {
      const refused = await post(gateway, '/few/x').answer;
      isProblem(t, refused, 'queue-full', LEASE_SECONDS);
      t.equal(refused.status, 429);
      t.ok(refused.elapsedMs < PROMPT_MS);
      t.match(refused.cacheStatus, /^oneflight; detail=queue-full$/);
    }
    t.equal(upstream.count('/few/x'), 1);
    held.release();
    for (const { answer } of [leader, ...queued]) t.equal((await answer).status, 200);
    t.equal(upstream.count('/few/x'), 3);
  });

  await t.test('out of patience: 504 with nothing sent, and its place is free', async (t) => {
    const held = upstream.holds('/short/x');
    const leader = post(first, '/short/x');
    await held.arrived(1);
    const timedOut = await Promise.all([post(first, '/short/x').answer, post(last, '/short/x').answer]);
    for (const answer of timedOut) {
      isProblem(t, answer, 'wait-timeout');
      t.equal(answer.status, 504);
      t.ok(answer.elapsedMs >= 590, `${answer.elapsedMs}`);
    }
    // With room for two, others find a place again.
    const again = await Promise.all([post(first, '/short/x').answer, post(last, '/short/x').answer]);
    for (const answer of again) isProblem(t, answer, 'wait-timeout');
    held.release();
    t.equal((await leader.answer).status, 200);
    t.equal((await post(last, '/short/x').answer).status, 200);
    t.equal(upstream.count('/short/x'), 2, 'nothing was sent for those who gave up');
  });

  await t.test('a client that leaves gives up its place at once, and nothing is sent for it', async (t) => {
    const held = upstream.holds('/few/left');
    const leader = post(first, '/few/left');
    await held.arrived(1);
    const leaving = [post(last, '/few/left'), post(first, '/few/left')];
    await waiting('few', 2);
    for (const sent of leaving) {
      sent.leave();
      await t.rejects(sent.answer);
    }
    await waiting('few', 0);
    await allCaughtUp(gateways);
    const next = post(last, '/few/left');
    await waiting('few', 1);
    held.release();
    await leader.answer;
    t.equal((await next.answer).status, 200);
    t.equal(upstream.count('/few/left'), 2);
  });

  await t.test('the client of the turn leaves: the call goes on, and the next waits for its end', async (t) => {
    const held = upstream.holds('/stock/leader-left');
    const leader = post(first, '/stock/leader-left');
    const call = await held.arrived(1);
    leader.leave();
    await t.rejects(leader.answer);
    const next = post(last, '/stock/leader-left');
    await waiting('stock', 1);
    t.equal(call.aborted, false);
    t.equal(upstream.count('/stock/leader-left'), 1);
    held.release();
    t.equal((await next.answer).status, 200);
  });

  await t.test('the turn is given up on every way out', async (t) => {
    const open = new Gate();
    open.open();
    const ways: Record<string, { ends: Behaviour; wanted: (answer: Answered) => boolean }> = {
      ok: { ends: answers({ content: 'ok' }), wanted: ({ text }) => text === 'ok' },
      empty: { ends: answers({ status: 204, framing: 'none' }), wanted: ({ status }) => status === 204 },
      500: { ends: answers({ status: 500 }), wanted: ({ status }) => status === 500 },
      reset: { ends: resetsAfterReading, wanted: (answer) => problemOf(answer) === 'outcome-unknown' },
      'hang-up': { ends: hangsUpAfterReading, wanted: (answer) => problemOf(answer) === 'outcome-unknown' },
      garbage: { ends: answersGarbage, wanted: ({ status }) => status === 502 || status === 504 },
      'cut-length': { ends: cutsContentLength(open), wanted: ({ cut }) => cut },
      'cut-chunked': { ends: cutsChunked(open), wanted: ({ cut }) => cut },
    };
    await Promise.all(
      Object.entries(ways).map(async ([name, { ends, wanted }]) => {
        const path = `/stock/way-${name}`;
        const gate = new Gate();
        upstream.on(path, gated(gate, ends));
        const leader = post(first, path);
        await upstream.arrived(1, path);
        const queued = post(last, path);
        await last.caughtUp();
        upstream.on(path, answers({ content: 'mine' }));
        gate.open();
        const answer = await leader.answer;
        t.ok(wanted(answer), `${name}: ${answer.status} ${problemOf(answer)}`);
        t.equal((await queued.answer).text, 'mine', name);
        t.equal(upstream.count(path), 2, name);
      }),
    );
  });

  await t.test('nothing was sent: each is told so, and the next has its turn at once', async (t) => {
    await closed.refuse();
    const all = await Promise.all(
      Array.from({ length: 6 }, (_, i) => post(gateways[i % processes]!, '/closed/1').answer),
    );
    for (const answer of all) isProblem(t, answer, 'upstream-unreachable');
    await closed.listen();
    t.equal((await post(last, '/closed/1').answer).status, 200);
    t.equal(closed.count(), 1);
  });

  await t.test(
    'an outcome that nobody knows, held: 504 first, 409 to who waits and who comes, until it is settled',
    async (t) => {
      const gate = new Gate();
      upstream.on('/held/x', gated(gate, resetsAfterReading));
      const leader = post(first, '/held/x');
      await upstream.arrived(1, '/held/x');
      const queued = [post(first, '/held/x'), post(last, '/held/x')];
      await waiting('held', 2);
      gate.open();
      const answer = await leader.answer;
      isProblem(t, answer, 'outcome-unknown');
      t.equal(answer.status, 504);
      for (const { answer: waited } of queued) {
        t.equal((await waited).status, 409);
        t.equal(problemOf(await waited), 'outcome-unknown');
      }
      t.equal((await post(last, '/held/x').answer).status, 409);
      t.equal(upstream.count('/held/x'), 1, 'no second execution');
      const listed = JSON.parse((await last.admin('/flights?state=unknown')).text).flights;
      t.match(listed, [{ route: 'held', state: 'unknown', waiting: 0 }]);
      const settled = await fetch(`${first.adminUrl}/flights/${listed[0].key}/settle`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ as: 'free', flight: listed[0].flight, state: 'unknown' }),
      });
      t.equal(settled.status, 200);
      upstream.on('/held/x', answers({ content: 'free' }));
      t.equal((await post(last, '/held/x').answer).text, 'free');
      t.equal(upstream.count('/held/x'), 2);
    },
  );

  await t.test('the lease of the turn is renewed while the upstream works, and places stand as long', async (t) => {
    const held = upstream.holds('/renewed/1');
    const leader = post(first, '/renewed/1');
    await held.arrived(1);
    const queued = [post(last, '/renewed/1'), post(first, '/renewed/1')];
    await waiting('renewed', 2);
    await delay(2_500);
    t.equal(upstream.count('/renewed/1'), 1);
    held.release();
    for (const { answer } of [leader, ...queued]) t.equal((await answer).status, 200);
    t.equal((await metricsOf(gateways)).sum('oneflight_leases_lost_total'), 0);
  });

  await t.test('fences grow from turn to turn; the derived key is that of the queue', async (t) => {
    const seen = judge(1);
    upstream.on('/fenced/x', seen.behaviour);
    await Promise.all(Array.from({ length: 12 }, (_, i) => post(gateways[i % processes]!, '/fenced/x').answer));
    const fences = upstream.callsOf('/fenced/x').map((call) => Number(call.header('x-fence')));
    for (let i = 1; i < fences.length; i += 1) t.ok(fences[i]! > fences[i - 1]!, `${fences[i - 1]} ${fences[i]}`);
    t.equal(new Set(upstream.callsOf('/fenced/x').map((call) => call.header('x-key'))).size, 1);
  });

  await t.test('without a key: forwarded unprotected and marked, or refused', async (t) => {
    isProblem(t, await post(first, '/strict/x').answer, 'key-missing');
    t.equal(upstream.count('/strict/x'), 0);
    const answer = await post(first, '/lax/x').answer;
    t.equal(answer.status, 200);
    t.match(answer.cacheStatus, BYPASSED);
  });

  await t.test('who waits at a stop has its turn, and the process ends cleanly', async (t) => {
    const held = upstream.holds('/stock/stop');
    const leader = post(first, '/stock/stop');
    await held.arrived(1);
    const queued = post(last, '/stock/stop');
    await waiting('stock', 1);
    const stopped = last.stop();
    await delay(100);
    held.release();
    t.equal((await queued.answer).status, 200);
    t.equal((await leader.answer).status, 200);
    await stopped;
    if (last !== first) t.equal((await post(first, '/stock/stop').answer).status, 200);
  });

  if (last !== first) {
    await t.test('nothing is left over', async (t) => {
      const metrics = await metricsOf(gateways.filter((gateway) => gateway !== last));
      t.equal(metrics.sum('oneflight_flights_in_progress'), 0);
      t.equal(metrics.sum('oneflight_queued_requests'), 0);
      const { flights } = JSON.parse((await first.admin('/flights')).text);
      t.same(flights, []);
    });
  }
}

inEachStore(t, 3, scenarios);
