/** Requests that come back to the gateway that sent them: they end at once, and nobody waits for himself. */

import { connect, createServer } from 'node:net';
import t, { type Test } from 'tap';
import { type Answered, burst, rawRequest } from '../support/client.js';
import { isProblem, problemOf } from '../support/expect.js';
import { eventually } from '../support/gate.js';
import { configOf, type Gateway, metricsOf, startGateway } from '../support/gateway.js';
import { listenDuring } from '../support/ports.js';
import { startRedis } from '../support/redis.js';
import { resetsAfterReading, startUpstream } from '../support/upstream.js';

t.setTimeout(120_000);

/** Much longer than any of it takes: who waits for himself is found out. */
const WAIT = 'wait: 30s, lease: 60s';
const ROUTES = `
  - { name: shared, match: { path: "/shared/*" }, upstream: api, policy: coalesce, key: [ { request: path } ], ${WAIT}, keep: 0s }
  - { name: locked, match: { path: "/locked/*" }, upstream: api, policy: reject, key: [ { request: path } ] }
  - { name: once, match: { path: "/once/*" }, upstream: api, policy: replay, ${WAIT}, onMissingKey: reject }
  - { name: turns, match: { path: "/turns/*" }, upstream: api, policy: queue, key: [ { request: path } ], wait: 30s }`;
const PROMPT_MS = 8_000;

/** Leads each connection to the next of its targets, in turn, and counts them. */
class Balancer {
  connections = 0;
  readonly #targets: number[] = [];

  private constructor(readonly url: string) {}

  static async start(t: Test): Promise<Balancer> {
    let balancer: Balancer | null = null;
    const server = createServer({ noDelay: true }, (near) => {
      const port = balancer?.next() ?? 0;
      const far = connect({ host: '127.0.0.1', port, noDelay: true });
      near.on('error', () => {}).on('close', () => far.destroy());
      far.on('error', () => {}).on('close', () => near.destroy());
      near.pipe(far).pipe(near);
    });
    balancer = new Balancer(`http://127.0.0.1:${await listenDuring(t, server)}`);
    return balancer;
  }

  leadTo(...gateways: readonly Gateway[]): void {
    this.#targets.push(...gateways.map(({ url }) => Number(new URL(url).port)));
  }

  next(): number {
    const target = this.#targets[this.connections % this.#targets.length];
    this.connections += 1;
    return target ?? 0;
  }
}

function isEnded(t: Test, answers: readonly Answered[], allowed: readonly (string | null)[]): void {
  const codes = new Set(answers.map(problemOf));
  t.same(
    [...codes].filter((code) => !allowed.includes(code)),
    [],
    `${answers.length} answers: ${[...codes].join()}`,
  );
  for (const answer of answers) t.ok(answer.elapsedMs < PROMPT_MS, `after ${Math.round(answer.elapsedMs)} ms`);
}

async function allPolicies(t: Test, entry: Gateway, gateways: readonly Gateway[]): Promise<void> {
  isProblem(t, await entry.request({ path: '/passed' }), 'loop-detected');
  const upgrade = 'GET /socket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n';
  isProblem(t, (await rawRequest(entry.url, upgrade))!, 'loop-detected');
  isEnded(t, await burst(10, () => entry.request({ path: '/shared/a' })), ['loop-detected']);
  isEnded(t, await burst(3, () => entry.request({ method: 'POST', path: '/locked/a' })), [
    'loop-detected',
    'in-flight',
  ]);
  const key = ['Idempotency-Key', 'k1'];
  const once = () => entry.request({ method: 'POST', path: '/once/a', headers: key });
  // The answer is nobody's: a duplicate that waited for it is told that its leader has none.
  isEnded(t, await burst(3, once), ['loop-detected', 'leader-failed']);
  isProblem(t, await once(), 'loop-detected');
  isEnded(t, await burst(3, () => entry.request({ method: 'POST', path: '/turns/a' })), ['loop-detected']);
  await eventually('no flight in progress', async () => {
    return (await metricsOf(gateways)).sum('oneflight_flights_in_progress') === 0;
  });
}

t.test('a gateway that is its own upstream', async (t) => {
  const balancer = await Balancer.start(t);
  const gateway = await startGateway(t, { config: configOf({ upstream: balancer.url, routes: ROUTES }) });
  balancer.leadTo(gateway);
  await allPolicies(t, gateway, [gateway]);
  t.ok(balancer.connections <= 20, `each request went round once: ${balancer.connections} connections`);
});

t.test('two gateways that are the upstream of each other', async (t) => {
  const [toOne, toOther] = [await Balancer.start(t), await Balancer.start(t)];
  const one = await startGateway(t, { config: configOf({ upstream: toOther.url, routes: ROUTES }) });
  const other = await startGateway(t, { config: configOf({ upstream: toOne.url, routes: ROUTES }) });
  toOne.leadTo(one);
  toOther.leadTo(other);
  await allPolicies(t, one, [one, other]);
});

t.test('processes of one store: a request that comes to another of them has been here as well', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  const balancer = await Balancer.start(t);
  const store = `{ kind: redis, url: "${redis.url}", commandTimeout: 2s }`;
  const config = configOf({ upstream: balancer.url, store, routes: ROUTES });
  const here = await startGateway(t, { config });
  const there = await startGateway(t, { config });
  balancer.leadTo(there, here);
  await allPolicies(t, here, [here, there]);
});

t.test('what a gateway behind it answers itself is never recorded', async (t) => {
  const stub = await startUpstream(t);
  stub.on('/once/sent', resetsAfterReading);
  const LOCK = '{ name: lock, match: { path: /once/sent }, upstream: api, policy: reject, key: [ { request: path } ] }';
  const inner = await startGateway(t, {
    config: configOf({ upstream: stub.url, routes: `\n  - ${LOCK}`, unmatched: 'false' }),
  });
  const outer = await startGateway(t, { config: configOf({ upstream: inner.url, routes: ROUTES }) });
  const post = (path: string) => outer.request({ method: 'POST', path, headers: ['Idempotency-Key', path] });
  for (const time of ['first', 'second']) {
    const answer = await post('/once/nowhere');
    isProblem(t, answer, 'no-route');
    t.equal(answer.header('cache-status'), 'oneflight; fwd=miss', `${time}: not executed, and not recorded`);
  }
  const unknown = await post('/once/sent');
  isProblem(t, unknown, 'outcome-unknown');
  t.match(unknown.header('cache-status'), /, oneflight; fwd=miss$/);
  const repeat = await post('/once/sent');
  isProblem(t, repeat, 'outcome-unknown');
  t.equal(repeat.status, 409, 'by its own word: nobody knows');
  t.equal(stub.count('/once/sent'), 1);
});

t.test('gateways in front of each other are no loop, whatever clients say of their way', async (t) => {
  const stub = await startUpstream(t);
  const inner = await startGateway(t, { config: configOf({ upstream: stub.url, routes: ROUTES }) });
  const outer = await startGateway(t, { config: configOf({ upstream: inner.url, routes: ROUTES }) });
  const claims = ['1.1 oneflight', '1.1 oneflight-00000000, 1.0 edge (oneflight)', 'oneflight', ',', ''];
  for (const claim of claims) {
    const headers = ['Via', claim];
    t.equal((await outer.request({ path: '/passed', headers })).status, 200, `Via: ${claim}`);
    t.equal((await outer.request({ path: '/shared/b', headers })).status, 200, `Via: ${claim}`);
  }
  const via = stub.calls[0]!.headerLines('via').join();
  t.match(via, /^1\.1 oneflight,1\.1 oneflight-[0-9a-f]{8},1\.1 oneflight-[0-9a-f]{8}$/);
  const [, first, second] = via.split(',');
  t.not(first, second, 'each has a name of its own');
  const own = ['Via', `1.0 edge, HTTP/1.1 ${second?.split(' ')[1]?.toUpperCase()} (who said it)`];
  isProblem(t, await inner.request({ path: '/passed', headers: own }), 'loop-detected');
});
