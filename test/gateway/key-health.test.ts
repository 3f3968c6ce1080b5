/** Key health of gateways: each counter moves by what it is for and by nothing else, and none tells a value. */

import t, { type Test } from 'tap';
import { burst } from '../support/client.js';
import { HIT, LED } from '../support/expect.js';
import { allCaughtUp, configOf, type Gateway, startGateway, startGateways } from '../support/gateway.js';
import { startRedis } from '../support/redis.js';
import { type StubUpstream, startUpstream } from '../support/upstream.js';
import { pinEach, watchOver } from '../support/workers.js';

t.setTimeout(120_000);

const route = (name: string, policy: string, more: string) => `
  - name: ${name}
    match: { path: "/${name}/*" }
    upstream: api
    policy: ${policy}
    ${more}`;
const KEEP = 'wait: { max: 30s, poll: 15s }\n    keep: 20s';
const ROUTES = [
  route('good', 'coalesce', `key: [ { request: path }, { body: /id } ]\n    ${KEEP}`),
  route('reads', 'coalesce', `key: [ { request: path } ]\n    ${KEEP}`),
  route('coarse', 'coalesce', `key: [ { body: /id } ]\n    ${KEEP}`),
  route('fine', 'coalesce', `key: [ { body: /id }, { header: x-try }, { query: q, optional: true } ]\n    ${KEEP}`),
  route('lock', 'reject', 'key: [ { request: path }, { header: x-try, optional: true } ]'),
  route('orders', 'replay', 'fingerprint: canonical'),
  route('careless', 'replay', 'fingerprint: none'),
  route('line', 'queue', 'key: [ { request: path } ]'),
].join('');

type Health = {
  readonly route: string;
  readonly flightsWithDuplicates: { readonly here: number; readonly elsewhere: number };
  readonly tooCoarse: readonly { readonly differsIn: string; readonly compared: string; readonly count: number }[];
  readonly tooFine: readonly { readonly part: string; readonly compared: string; readonly count: number }[];
  readonly forgotten: number;
};

/** As `GET /flights` tells it, which `GET /metrics` must say as well. */
async function healthOf(t: Test, gateway: Gateway, name: string): Promise<Health | null> {
  const { keyHealth } = (await gateway.admin('/flights')).json() as { keyHealth: Health[] };
  const health = keyHealth.find((one) => one.route === name) ?? null;
  const samples = await gateway.metrics();
  const sum = (metric: string, labels = {}) => samples.sum(`oneflight_${metric}`, { route: name, ...labels });
  const { here = 0, elsewhere = 0 } = health?.flightsWithDuplicates ?? {};
  t.equal(sum('flights_with_duplicates_total', { leader: 'here' }), here, `${name}: flights with duplicates`);
  t.equal(sum('flights_with_duplicates_total', { leader: 'elsewhere' }), elsewhere, `${name}: those led elsewhere`);
  for (const [metric, all] of [
    ['keys_too_coarse_total', health?.tooCoarse],
    ['keys_too_fine_total', health?.tooFine],
  ] as const) {
    const counted = (all ?? []).reduce((total, { count }) => total + count, 0);
    t.equal(sum(metric), counted, `${name}: ${metric}`);
  }
  for (const { differsIn, compared, count } of health?.tooCoarse ?? []) {
    t.equal(sum('keys_too_coarse_total', { differs_in: differsIn, compared }), count);
  }
  for (const { part, compared, count } of health?.tooFine ?? []) {
    t.equal(sum('keys_too_fine_total', { part, compared }), count);
  }
  return health;
}

const found = (name: string, more: Partial<Health> = {}): Health => ({
  route: name,
  flightsWithDuplicates: { here: 0, elsewhere: 0 },
  tooCoarse: [],
  tooFine: [],
  forgotten: 0,
  ...more,
});
const HERE = { here: 1, elsewhere: 0 };
const MADE_PER_ATTEMPT = ['X-Request-Id', 'traceparent', 'Date', 'X-Anything', 'User-Agent'];
let attempts = 0;

/** What differs with every attempt at one operation. */
function perAttempt(): string[] {
  attempts += 1;
  return MADE_PER_ATTEMPT.flatMap((name) => [name, `${name} ${attempts}`]);
}

async function startOne(t: Test): Promise<{ readonly gateway: Gateway; readonly upstream: StubUpstream }> {
  const upstream = await startUpstream(t);
  return { upstream, gateway: await startGateway(t, { config: configOf({ upstream: upstream.url, routes: ROUTES }) }) };
}

t.test('one gateway', async (t) => {
  const { gateway, upstream } = await startOne(t);
  const post = (path: string, content: object, headers: readonly string[] = []) =>
    gateway.post(path, content, [...headers, ...perAttempt()]);

  await t.test('good keys: flights that had duplicates are counted, once each, and nothing else', async (t) => {
    const held = upstream.holds('/good/1');
    const callers = ['a', 'b'].map((name) => ['Authorization', name]);
    const all = callers.flatMap((caller) =>
      Array.from({ length: 10 }, () => post('/good/1', { id: 1 }, caller).answer),
    );
    await upstream.arrived(2, '/good/1');
    await gateway.caughtUp();
    held.release();
    await Promise.all(all);
    // Kept, other values of the key, and a flight that nobody joins.
    for (const caller of callers) await post('/good/1', { id: 1 }, caller).answer;
    for (const id of [2, 3]) await post('/good/1', { id }, callers[0]).answer;
    t.equal(upstream.count('/good/1'), 4);
    t.strictSame(
      await healthOf(t, gateway, 'good'),
      found('good', { flightsWithDuplicates: { here: 2, elsewhere: 0 } }),
    );
  });

  await t.test('what callers and parts of a representation are told apart by is no fault of the key', async (t) => {
    const get = (headers: readonly string[] = [], method = 'GET') =>
      gateway.request({ method, path: '/reads/1', headers: [...headers, ...perAttempt()] });
    for (const headers of [[], ['Range', 'bytes=0-1'], ['If-None-Match', '"a"'], ['Cookie', 'a=1']]) {
      await get(headers);
      await get(headers);
    }
    await get([], 'HEAD');
    t.equal(await healthOf(t, gateway, 'reads'), null);
  });

  await t.test('too coarse: duplicates that differ from the request whose response they get', async (t) => {
    const held = upstream.holds('/coarse/1');
    const leader = post('/coarse/1', { id: 1, a: 1 });
    await upstream.arrived(1, '/coarse/1');
    const others = [1, 1, 2, 2, 3].map((a) => post('/coarse/1', { id: 1, a }).answer);
    await gateway.caughtUp();
    held.release();
    await Promise.all([leader.answer, ...others]);
    await post('/coarse/1', { id: 1, a: 1 }).answer;
    await post('/coarse/1', { id: 1, a: 4 }).answer;
    await post('/coarse/2', { id: 1, a: 1 }).answer;
    await post('/coarse/1', { id: 1, a: 1 }, ['Host', 'other.example.com']).answer;
    // Of another key.
    await post('/coarse/1', { id: 2, a: 1 }).answer;
    t.equal(upstream.count('/coarse/1'), 2);
    t.equal(upstream.count('/coarse/2'), 0);
    const health = await healthOf(t, gateway, 'coarse');
    const whole = (differsIn: string, count: number) => ({ differsIn, compared: 'whole', count });
    const tooCoarse = [whole('content', 4), whole('target', 1), whole('host', 1)];
    t.strictSame(health, found('coarse', { flightsWithDuplicates: HERE, tooCoarse }));
  });

  await t.test('too fine: equal requests whose keys differ, by the part that does', async (t) => {
    for (const attempt of ['1', '2', '2', '3']) await post('/fine/1', { id: 1 }, ['X-Try', attempt]).answer;
    // Other requests, and another caller.
    await post('/fine/1', { id: 2 }, ['X-Try', '4']).answer;
    await post('/fine/1', { id: 1, b: 1 }, ['X-Try', '5']).answer;
    await post('/fine/1?q=1', { id: 1 }, ['X-Try', '6']).answer;
    await post('/fine/1', { id: 1 }, ['X-Try', '7', 'Authorization', 'b']).answer;
    t.equal(upstream.count('/fine/1'), 7);
    const tooFine = [{ part: 'header: x-try', compared: 'whole', count: 2 }];
    t.strictSame(await healthOf(t, gateway, 'fine'), found('fine', { tooFine }));
  });

  await t.test('reject: content that was not read is compared by its length, and that is said', async (t) => {
    const held = upstream.holds('/lock/1');
    const leader = post('/lock/1', { id: 1 });
    await upstream.arrived(1, '/lock/1');
    await post('/lock/1', { id: 2 }).answer;
    await post('/lock/1', { id: 22 }).answer;
    await gateway.request({ method: 'DELETE', path: '/lock/1' });
    held.release();
    await leader.answer;
    await post('/lock/1', { id: 2 }, ['X-Try', '2']).answer;
    const tooCoarse = [
      { differsIn: 'content', compared: 'head', count: 1 },
      { differsIn: 'method', compared: 'whole', count: 1 },
    ];
    const tooFine = [{ part: 'header: x-try', compared: 'head', count: 1 }];
    t.strictSame(
      await healthOf(t, gateway, 'lock'),
      found('lock', { flightsWithDuplicates: HERE, tooCoarse, tooFine }),
    );
  });

  await t.test('replay: a key used for another request, and a request under another key', async (t) => {
    const send = (path: string, content: string, key: string) =>
      gateway.request({ method: 'POST', path, headers: ['Idempotency-Key', key, ...perAttempt()], body: content });
    t.equal((await send('/orders/1', '{"a":1,"b":2}', 'k1')).cacheStatus, LED);
    t.match((await send('/orders/1', '{"b":2, "a":1}', 'k1')).cacheStatus, HIT);
    t.equal(await healthOf(t, gateway, 'orders'), null, 'by the fingerprint of the rule they are one request');
    t.equal((await send('/orders/1', '{"a":2}', 'k1')).status, 422);
    t.equal((await send('/orders/1', '{"b":2,"a":1}', 'k2')).status, 200);
    const coarse = [{ differsIn: 'content', compared: 'whole', count: 1 }];
    const tooFine = [{ part: 'header: idempotency-key', compared: 'whole', count: 1 }];
    t.strictSame(await healthOf(t, gateway, 'orders'), found('orders', { tooCoarse: coarse, tooFine }));

    await send('/careless/1', '{"a":1}', 'k1');
    await send('/careless/2', '{"a":1}', 'k1');
    await send('/careless/1', '{"a":10}', 'k1');
    const tooCoarse = [
      { differsIn: 'target', compared: 'head', count: 1 },
      { differsIn: 'content', compared: 'head', count: 1 },
    ];
    t.strictSame(await healthOf(t, gateway, 'careless'), found('careless', { tooCoarse }));
  });

  await t.test('queue: different requests of one key are what it is for', async (t) => {
    const held = upstream.holds('/line/1');
    const all = [1, 1, 22, 333].map((id) => post('/line/1', { id }).answer);
    await upstream.arrived(1, '/line/1');
    held.release();
    await Promise.all(all);
    t.equal(upstream.count('/line/1'), 4);
    t.equal(await healthOf(t, gateway, 'line'), null);
  });

  await t.test('no value and no key in what is told', async (t) => {
    const secret = 'S3CRET';
    for (const attempt of [1, 2]) {
      const headers = [
        'X-Try',
        `${secret}-try-${attempt}`,
        'Authorization',
        `${secret}-caller`,
        'Host',
        `${secret}.example.com`,
      ];
      await post(`/fine/${secret}-path`, { id: `${secret}-content` }, headers).answer;
      await post(`/coarse/${secret}-path`, { id: `${secret}-id`, more: `${secret}-${attempt}` }, headers).answer;
    }
    const told = [await gateway.admin('/metrics'), await gateway.admin('/flights')].map(({ text }) => text).join('\n');
    t.match(told, /keys_too_fine_total/);
    t.notMatch(told.toLowerCase(), secret.toLowerCase());
  });
});

t.test('over several processes each counts the flights that it knows of', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  const upstream = await startUpstream(t);
  const store = `{ kind: redis, url: "${redis.url}", commandTimeout: 2s }`;
  const gateways = await startGateways(t, 2, { config: configOf({ upstream: upstream.url, store, routes: ROUTES }) });
  const [first, last] = gateways as [Gateway, Gateway];
  const held = upstream.holds('/good/1');
  const leader = first.post('/good/1', { id: 1 });
  await upstream.arrived(1, '/good/1');
  const followers = burst(6, () => last.post('/good/1', { id: 1 }).answer);
  await allCaughtUp(gateways);
  t.equal(await healthOf(t, first, 'good'), null, 'nobody has come to its leader');
  t.strictSame(
    await healthOf(t, last, 'good'),
    found('good', { flightsWithDuplicates: { here: 0, elsewhere: 1 } }),
    'one flight, however many follow it',
  );
  const joined = first.post('/good/1', { id: 1 });
  await first.caughtUp();
  held.release();
  await Promise.all([leader.answer, joined.answer, followers]);
  t.equal(upstream.count('/good/1'), 1);
  t.strictSame(await healthOf(t, first, 'good'), found('good', { flightsWithDuplicates: HERE }));

  const send = (gateway: Gateway, content: string) =>
    gateway.request({ method: 'POST', path: '/orders/1', headers: ['Idempotency-Key', 'k'], body: content });
  await send(first, '{"a":1}');
  t.equal((await send(last, '{"a":2}')).status, 422);
  const tooCoarse = [{ differsIn: 'unknown', compared: 'whole', count: 1 }];
  t.strictSame(await healthOf(t, last, 'orders'), found('orders', { tooCoarse }), 'the store says that it differs');
});

t.test('of several workers all is added up', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startGateway(t, {
    config: configOf({ upstream: upstream.url, routes: ROUTES, more: 'workers: 2' }),
  });
  watchOver(gateway);
  for (const worker of await pinEach(t, gateway, 2)) {
    for (const attempt of ['1', '2', '3']) {
      const headers = ['X-Try', `${worker.worker} ${attempt}`];
      await worker.request({ method: 'POST', path: '/fine/1', headers, body: '{"id":1}' });
    }
  }
  const tooFine = [{ part: 'header: x-try', compared: 'whole', count: 4 }];
  t.strictSame(await healthOf(t, gateway, 'fine'), found('fine', { tooFine }), 'each knows its own requests alone');
});
