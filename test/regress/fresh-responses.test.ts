/** `keep: 0`: whoever asks after its answer gets a new one, from a call of its own. */

import t, { type Test } from 'tap';
import { type Answered, RawClient, request } from '../support/client.js';
import { eventually, Gate } from '../support/gate.js';
import { configOf, type Gateway, startGateways } from '../support/gateway.js';
import { startInProcess, storeWith } from '../support/in-process.js';
import { startRedis } from '../support/redis.js';
import { coalescePolicy, ruleOf } from '../support/rules.js';
import { startUpstream } from '../support/upstream.js';

t.setTimeout(90_000);

const TURNS = 60;
/** Traffic beside, so that the gateway's event loop is as full as in earnest. */
const BESIDE = 4;

const redis = await startRedis();
t.teardown(() => redis.stop());

const routes = `
  - name: get
    match: { methods: [GET], path: /get/* }
    policy: coalesce
    key: [ { request: path } ]
    keep: 0
  - name: post
    match: { methods: [POST], path: /post/* }
    policy: coalesce
    key: [ { body: /id }, { request: path } ]
    keep: 0s`;

function messageOf(method: 'GET' | 'POST', path: string): string {
  const content = method === 'POST' ? '{"id":"1"}' : '';
  const length = method === 'POST' ? `Content-Length: ${content.length}\r\n` : '';
  return `${method} ${path} HTTP/1.1\r\nHost: a\r\n${length}\r\n${content}`;
}

/** Keeps a gateway busy until the returned function is called. */
async function busy(gateway: Gateway): Promise<() => Promise<void>> {
  let stopping = false;
  const loops = Array.from({ length: BESIDE }, async () => {
    const client = await RawClient.connect(gateway.url);
    while (!stopping) {
      client.write('GET /beside HTTP/1.1\r\nHost: a\r\n\r\n');
      await client.answer();
    }
    client.close();
  });
  return async () => {
    stopping = true;
    await Promise.all(loops);
  };
}

/** Asks in strict sequence, over the clients in turn; answers the ordinals that came back. */
async function inSequence(clients: readonly RawClient[], message: string): Promise<number[]> {
  const ordinals: number[] = [];
  for (let turn = 0; turn < TURNS; turn += 1) {
    const client = clients[turn % clients.length]!;
    client.write(message);
    const answer = await client.answer();
    ordinals.push(callOf(answer!));
  }
  return ordinals;
}

for (const kind of ['memory', 'redis']) {
  t.test(`requests in sequence never get an earlier response (${kind})`, async (t: Test) => {
    const upstream = await startUpstream(t);
    const store = kind === 'memory' ? '{ kind: memory }' : `{ kind: redis, url: "${redis.url}", commandTimeout: 2s }`;
    const [gateway] = await startGateways(t, 1, { config: configOf({ upstream: upstream.url, store, routes }) });
    const stop = await busy(gateway!);
    for (const method of ['GET', 'POST'] as const) {
      for (const connections of [1, 2]) {
        const path = `/${method.toLowerCase()}/${connections}`;
        const clients = await Promise.all(Array.from({ length: connections }, () => RawClient.connect(gateway!.url)));
        const ordinals = await inSequence(clients, messageOf(method, path));
        const stale = ordinals.filter((ordinal, turn) => ordinal !== turn + 1);
        t.equal(stale.length, 0, `${method}, ${connections} connections: answers that are not the request's own`);
        t.equal(upstream.count(path), TURNS, 'each made a call');
        for (const client of clients) client.close();
      }
    }
    await stop();
  });
}

t.test('whoever has the answer from one process gets a new one from the other, before that one knows', async (t) => {
  const upstream = await startUpstream(t);
  const held = upstream.holds('/a');
  const heard = new Gate();
  // The leader's process is slow to hear that the store has published its response.
  const store = storeWith((real) => ({
    complete: async (...settlement) => {
      const answer = await real.complete(...settlement);
      await heard.opened;
      return answer;
    },
  }));
  const rules = [ruleOf('r', '/a', coalescePolicy({ keep: { kind: 'fixed', keepMs: 0 } }))];
  const start = () => startInProcess(t, { upstreamUrl: upstream.url, rules, store });
  const [here, there] = [await start(), await start()];
  const first = request(here.url, { path: '/a' });
  await held.arrived(1);
  const follower = request(there.url, { path: '/a' });
  await eventually('the follower waits', () => there.waiting() === 1);
  held.release();
  t.equal(callOf(await follower), 1);
  const second = request(here.url, { path: '/a' });
  await held.arrived(2);
  heard.open();
  t.same([callOf(await first), callOf(await second)], [1, 2]);
});

function callOf(answer: Answered): number {
  return (answer.json() as { call: number }).call;
}
