/**
 * A follower that arrives in the instant of publication: neither hangs nor costs a call, however the moment falls.
 *
 * The stub tells when it has written an answer; from then on followers are sent at moments that sweep over the time in
 * which the gateway records, publishes and forgets the flight. Leases and polls are far longer than the test may take.
 */

import http from 'node:http';
import t, { type Test } from 'tap';
import type { Answered } from '../support/client.js';
import { COLLAPSED, LED, PROMPT_MS } from '../support/expect.js';
import { configOf, type Gateway, startGateways } from '../support/gateway.js';
import { startRedis } from '../support/redis.js';
import { type Call, startUpstream } from '../support/upstream.js';

t.setTimeout(150_000);

const TRIES = 10_000;
const LANES = 24;

const route = (name: string, keep: string) => `
  - name: ${name}
    match: { methods: [POST], path: /${name} }
    policy: coalesce
    key: [ { request: path }, { query: id } ]
    lease: 60s
    wait: { max: 30s, poll: 30s }
    keep: ${keep}`;

/** Lets that many turns of the event loop pass, and half a millisecond each after the first few. */
async function moments(count: number): Promise<void> {
  for (let turn = 0; turn < count % 8; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  const wholeMs = Math.floor(count / 8) % 4;
  if (wholeMs > 0) await new Promise((resolve) => setTimeout(resolve, wholeMs));
}

async function tries(
  t: Test,
  store: string,
  processes: number,
  keep: 'kept' | 'not-kept',
  count: number,
): Promise<void> {
  const upstream = await startUpstream(t);
  const gateways = await startGateways(t, processes, {
    config: configOf({ upstream: upstream.url, store, routes: route('kept', '60s') + route('not-kept', '0') }),
  });
  const written = new Map<string, () => void>();
  const callsOf = new Map<string, number>();
  upstream.on(`/${keep}`, async (call: Call) => {
    await call.received;
    const id = call.target.split('=')[1]!;
    callsOf.set(id, (callsOf.get(id) ?? 0) + 1);
    call.answer({ content: `${id} ${callsOf.get(id)}` });
    written.get(id)?.();
  });
  const agents = gateways.map(() => new http.Agent({ keepAlive: true, maxSockets: LANES * 3 }));
  t.teardown(() => {
    for (const agent of agents) agent.destroy();
  });
  const ask = (at: number, id: number): Promise<Answered> => {
    const gateway = gateways[at % processes] as Gateway;
    return gateway.request({ method: 'POST', path: `/${keep}?id=${id}`, agent: agents[at % processes]! });
  };

  let slowest = 0;
  const faults: string[] = [];
  const cacheStatus: Record<string, number> = {};
  async function once(id: number): Promise<void> {
    const answered = new Promise<void>((resolve) => written.set(String(id), resolve));
    const leader = ask(id, id);
    await answered;
    await moments(id % 32);
    const followers = [ask(id + 1, id), ask(id, id)];
    const all = [await leader, ...(await Promise.all(followers))];
    const calls = callsOf.get(String(id)) ?? 0;
    written.delete(String(id));
    callsOf.delete(String(id));
    let led = 0;
    for (const answer of all) {
      slowest = Math.max(slowest, answer.elapsedMs);
      const word = answer.cacheStatus?.replace(/ttl=\d+/, 'ttl') ?? 'none';
      cacheStatus[word] = (cacheStatus[word] ?? 0) + 1;
      if (answer.cacheStatus === LED) led += 1;
      const text = keep === 'kept' ? answer.text === `${id} 1` : answer.text.startsWith(`${id} `);
      if (answer.status !== 200 || !text) faults.push(`${id}: ${answer.status} ${answer.cacheStatus} ${answer.text}`);
    }
    if (keep === 'kept' && calls !== 1) faults.push(`${id}: ${calls} calls`);
    if (calls !== led) faults.push(`${id}: ${calls} calls for ${led} leaders`);
  }
  let next = 0;
  await Promise.all(
    Array.from({ length: LANES }, async () => {
      while (next < count && faults.length < 10) await once(next++);
    }),
  );
  t.same(faults.slice(0, 10), []);
  t.ok(slowest < PROMPT_MS, `slowest ${Math.round(slowest)} ms`);
  t.ok((cacheStatus[COLLAPSED] ?? 0) > 0, 'some followers came in time');
  t.comment(JSON.stringify(cacheStatus));
}

t.test('10,000 tries over two processes with Redis', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  await tries(t, `{ kind: redis, url: "${redis.url}", commandTimeout: 2s }`, 2, 'kept', TRIES);
});

t.test('the same where nothing is kept: whoever comes too late leads', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  await tries(t, `{ kind: redis, url: "${redis.url}", commandTimeout: 2s }`, 2, 'not-kept', TRIES / 5);
});

t.test('the same in one process in memory', async (t) => {
  await tries(t, '{ kind: memory }', 1, 'kept', TRIES / 5);
  await tries(t, '{ kind: memory }', 1, 'not-kept', TRIES / 5);
});
