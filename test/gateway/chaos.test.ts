/**
 * Everything at once, by a seed: upstream calls that end in every way, clients that leave at every moment, few keys,
 * two processes. What must hold, holds for every order of events.
 */

import t, { type Test } from 'tap';
import type { Answered, Sent } from '../support/client.js';
import { LED, problemOf } from '../support/expect.js';
import { delay, eventually, Gate } from '../support/gate.js';
import { configOf, type Gateway, metricsOf, startGateways } from '../support/gateway.js';
import { Random } from '../support/random.js';
import { startRedis } from '../support/redis.js';
import {
  answers,
  answersGarbage,
  answersSlowly,
  type Behaviour,
  type Call,
  cutsChunked,
  cutsContentLength,
  hangsUpAfterReading,
  resetsAfterReading,
  startUpstream,
} from '../support/upstream.js';

t.setTimeout(120_000);

const REQUESTS = 1_500;
const LANES = 30;
const KEYS = 6;

const route = (name: string, policy: string, more = '') => `
  - name: ${name}
    match: { methods: [POST], path: /${name}/* }
    policy: ${policy}
    key: [ { request: path } ]
    lease: 20s
    ${more}`;
const WAIT = 'wait: { max: 20s, poll: 15s }';
const routes = [
  route('fresh', 'coalesce', `${WAIT}\n    keep: 0`),
  route('kept', 'coalesce', `${WAIT}\n    keep: 100ms`),
  route('elects', 'coalesce', `${WAIT}\n    keep: 0\n    onLeaderFailure: elect`),
  route('lock', 'reject'),
].join('');
const NAMES = ['fresh', 'kept', 'elects', 'lock'];

async function chaos(t: Test, store: string, processes: number, seed: number): Promise<void> {
  const random = new Random(seed);
  const upstream = await startUpstream(t);
  const gateways = await startGateways(t, processes, { config: configOf({ upstream: upstream.url, store, routes }) });

  const open = new Gate();
  open.open();
  const fine: Behaviour = answers(({ path, ordinal }: Call) => ({ content: `${path} ${ordinal}` }));
  const endings: Behaviour[] = [
    fine,
    fine,
    fine,
    fine,
    answers({ status: 500, content: 'broken' }),
    answers({ status: 204, framing: 'none' }),
    answersSlowly([Buffer.from('a'), Buffer.from('b')], 3),
    resetsAfterReading,
    hangsUpAfterReading,
    answersGarbage,
    cutsContentLength(open),
    cutsChunked(open),
  ];
  const running = new Map<string, number>();
  const overlaps: string[] = [];
  for (const name of NAMES) {
    for (let key = 0; key < KEYS; key += 1) {
      const path = `/${name}/${key}`;
      upstream.on(path, async (call) => {
        const now = (running.get(path) ?? 0) + 1;
        running.set(path, now);
        if (now > 1) overlaps.push(`${path}: ${now} at once`);
        await delay(random.whole(0, 11));
        // Over before the gateway can know it: what comes then may be called at once.
        running.set(path, (running.get(path) ?? 1) - 1);
        await random.pick(endings)(call);
      });
    }
  }

  const counts = { answered: 0, left: 0, cut: 0 };
  const odd: string[] = [];
  let led = 0;
  async function one(): Promise<void> {
    const path = `/${random.pick(NAMES)}/${random.whole(0, KEYS - 1)}`;
    const gateway: Gateway = random.pick(gateways);
    const sent: Sent = gateway.send({ method: 'POST', path, body: '{}' });
    if (random.chance(0.25)) {
      await delay(random.whole(0, 9));
      sent.leave();
    }
    const answer: Answered | null = await sent.answer.catch(() => null);
    if (answer === null) counts.left += 1;
    else if (answer.cut) counts.cut += 1;
    else {
      counts.answered += 1;
      if (answer.cacheStatus === LED) led += 1;
      const problem = problemOf(answer);
      const known = /^(in-flight|leader-failed|outcome-unknown|bad-upstream-response)$/;
      if (problem === null ? ![200, 204, 500].includes(answer.status) : !known.test(problem)) {
        odd.push(`${path}: ${answer.status} ${answer.text}`);
      }
      if (answer.status === 200 && problem === null && answer.text !== 'ab' && !answer.text.startsWith(`${path} `)) {
        odd.push(`${path}: ${answer.text}`);
      }
    }
  }
  let begun = 0;
  await Promise.all(
    Array.from({ length: LANES }, async () => {
      while (begun++ < REQUESTS) await one();
    }),
  );

  t.same(odd, [], 'every answer is one of those that the contract knows, and of its own key');
  t.same(overlaps, [], 'never two upstream calls of one key at once');
  t.ok(led > 0 && counts.answered > REQUESTS / 3);
  await eventually(
    'no flight in progress',
    async () => (await metricsOf(gateways)).sum('oneflight_flights_in_progress') === 0,
  );
  const total = async () => (await metricsOf(gateways)).sum('oneflight_requests_total');
  // A request whose client left while it was still on its way may never have been seen.
  await eventually('every request counted', async () => (await total()) >= counts.answered + counts.cut);
  t.ok((await total()) <= REQUESTS);
  const metrics = await metricsOf(gateways);
  t.equal(metrics.sum('oneflight_upstream_calls_total'), upstream.count(), 'every call is counted');
  t.equal(metrics.sum('oneflight_leases_lost_total'), 0);

  // What is kept is forgotten by then.
  await delay(150);
  for (const name of NAMES) {
    for (let key = 0; key < KEYS; key += 1) {
      const path = `/${name}/${key}`;
      upstream.on(path, answers({ content: 'calm again' }));
      for (const gateway of gateways) {
        const answer = await gateway.request({ method: 'POST', path });
        t.equal(answer.status, 200, `${path} is free`);
      }
    }
  }
  for (const gateway of gateways) t.ok(gateway.running);
  t.ok(gateways.every((gateway) => gateway.logs.every((line) => line.level !== 'error' && line.level !== 50)));
  t.comment(JSON.stringify({ seed, calls: upstream.count(), ...counts }));
}

const SEEDS = [1, 20260];

t.test('two processes with Redis', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  for (const seed of SEEDS) await chaos(t, `{ kind: redis, url: "${redis.url}", commandTimeout: 300ms }`, 2, seed);
  const keys = (await redis.command('KEYS', '*')) as string[];
  for (const key of keys)
    t.ok(
      Number(await redis.command('PTTL', key)) >= 0 || Number(await redis.command('EXISTS', key)) === 0,
      'nothing stays for ever',
    );
});

t.test('one process in memory', async (t) => {
  for (const seed of SEEDS) await chaos(t, '{ kind: memory }', 1, seed);
});
