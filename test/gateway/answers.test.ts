/** The answers that the gateway makes itself, and what it never tells. */

import t from 'tap';
import { burst } from '../support/client.js';
import { allEqual, BYPASSED, HIT, isProblem, LED, problemOf, tally } from '../support/expect.js';
import { configOf, metricsOf, startGateways } from '../support/gateway.js';
import { startRedis } from '../support/redis.js';
import { answers, startUpstream } from '../support/upstream.js';

t.setTimeout(90_000);

const SECRET = 'sEcReT-7f3a91';
const redis = await startRedis();
t.teardown(() => redis.stop());
const upstream = await startUpstream(t);
const route = (name: string, more: string) => `
  - name: ${name}
    match: { methods: [POST], path: /${name} }
    policy: coalesce
    lease: 9s
    ${more}`;
const routes = [
  route('strict', 'key: [ { body: /token } ]\n    onMissingKey: reject'),
  route('lenient', 'key: [ { body: /token } ]'),
  route('by-header', 'key: [ { header: x-token } ]\n    onMissingKey: reject'),
  route('optional', 'key: [ { header: x-token, optional: true } ]\n    onMissingKey: reject'),
  route('small', 'key: [ { body: /token } ]\n    maxKeyBody: 1KiB'),
  route('everything', 'key: [ { header: x-token }, { query: q }, { cookie: c }, { body: /token } ]\n    keep: 5s'),
].join('');
const config = configOf({
  upstream: upstream.url,
  store: `{ kind: redis, url: "${redis.url}", commandTimeout: 2s }`,
  routes: `${routes}
  - name: locked
    match: { path: /locked/:id }
    policy: reject
    key: [ { param: id } ]
    lease: 9s`,
  unmatched: 'false',
});
const gateways = await startGateways(t, 2, { config });
const [here, there] = gateways as [(typeof gateways)[0], (typeof gateways)[0]];

t.test('no key: 400 where the rule says so, and nothing is forwarded', async (t) => {
  const contents = [
    '',
    '{}',
    '{"token"',
    '[]',
    'null',
    '{"token":1,"token":2}',
    '{"other":1,"other":2,"token":1}',
    '\xff\xfe',
  ];
  for (const body of contents) {
    const answer = await here.request({
      method: 'POST',
      path: '/strict',
      headers: ['Content-Type', 'application/json'],
      body,
    });
    t.match(problemOf(answer), /^key-(missing|malformed)$/, body);
    isProblem(t, answer, problemOf(answer) ?? 'key-missing');
    t.match(answer.cacheStatus, /^oneflight/);
  }
  isProblem(t, await here.request({ method: 'POST', path: '/by-header' }), 'key-missing');
  t.equal(upstream.count('/strict'), 0);
  t.equal(upstream.count('/by-header'), 0);
  t.equal((await here.post('/strict', { token: null }).answer).cacheStatus, LED, 'null is a value');
  t.equal((await here.request({ method: 'POST', path: '/optional' })).cacheStatus, LED, 'so is optional absence');
});

t.test('no key: forwarded unprotected and said so where the rule passes', async (t) => {
  const all = await burst(5, () => here.request({ method: 'POST', path: '/lenient', body: '{"to' }));
  t.equal(upstream.count('/lenient'), 5);
  t.equal(new Set(all.map((answer) => answer.text)).size, 5, 'each has an answer of its own');
  for (const answer of all) {
    t.equal(answer.status, 200);
    t.match(answer.cacheStatus, BYPASSED);
  }
  for (const call of upstream.callsOf('/lenient')) t.equal(call.content?.toString(), '{"to');
  const metrics = await here.metrics();
  t.equal(metrics.sum('oneflight_unprotected_requests_total', { route: 'lenient' }), 5);
  t.same(metrics.outcomes('lenient'), { bypassed: 5 });
});

t.test('more content than a key is read from: 413, however it is delimited', async (t) => {
  const body = JSON.stringify({ token: 'x'.repeat(2_000) });
  for (const headers of [[], ['Transfer-Encoding', 'chunked']]) {
    isProblem(t, await here.request({ method: 'POST', path: '/small', headers, body }), 'content-too-large');
  }
  t.equal(upstream.count('/small'), 0);
  t.equal((await here.request({ method: 'POST', path: '/small', body: '{"token":"x"}' })).status, 200);
  t.same((await here.metrics()).outcomes('small'), { led: 1, 'content-too-large': 2 });
});

t.test('no route: 404', async (t) => {
  for (const path of ['/nowhere', '/', '//strict/x', '/Strict']) {
    const answer = await here.request({ method: 'POST', path });
    isProblem(t, answer, 'no-route');
  }
  isProblem(t, await here.request({ path: '/strict' }), 'no-route');
  t.equal(upstream.count('/nowhere'), 0);
});

t.test('a kept response says how long it is kept and how old it is', async (t) => {
  upstream.on('/optional', answers({ content: 'kept' }));
  const ask = () => there.request({ method: 'POST', path: '/optional', headers: ['X-Token', 'kept'] });
  t.equal((await ask()).cacheStatus, LED);
  const again = await ask();
  t.match(again.cacheStatus, HIT);
  t.match(again.cacheStatus, /ttl=[2345]$/);
  t.match(again.header('age'), /^[012]$/);
  allEqual(t, [again], 200, 'kept');
});

t.test('no key, value or content is ever told: not in answers, metrics, logs or the store', async (t) => {
  const held = upstream.holds('/everything', { content: `made for ${SECRET}` });
  const ask = (at: number) =>
    gateways[at % 2]!.request({
      method: 'POST',
      path: `/everything?q=${SECRET}`,
      headers: ['X-Token', SECRET, 'Cookie', `c=${SECRET}`, 'Authorization', `Bearer ${SECRET}`],
      body: JSON.stringify({ token: SECRET, other: SECRET }),
    });
  const pending = burst(6, ask);
  await held.arrived(1);
  await Promise.all(gateways.map((gateway) => gateway.caughtUp()));
  held.release();
  const all = [...(await pending), await ask(0), await ask(1)];
  const lock = upstream.holds(`/locked/${SECRET}`);
  const leader = here.request({ path: `/locked/${SECRET}` });
  await lock.arrived(1);
  all.push(await there.request({ path: `/locked/${SECRET}` }));
  lock.release();
  all.push(await leader);
  t.equal(tally(all)['oneflight; fwd=miss; collapsed'], 5);
  t.equal(upstream.count('/everything'), 1);
  isProblem(t, all[8]!, 'in-flight', 9);
  for (const answer of all) t.notMatch(answer.rawHeaders.join('\n'), SECRET);
  t.notMatch(all[8]!.text, SECRET);
  t.notMatch((await metricsOf(gateways)).text, SECRET);
  for (const gateway of gateways) {
    t.notMatch(gateway.output, SECRET, 'log');
    t.ok(
      gateway.logs.some((line) => line.route === 'everything'),
      'there is a log',
    );
    t.same(gateway.noise, [], 'and it is JSON only');
  }
  const keys = (await redis.command('KEYS', '*')) as string[];
  const channels = (await redis.command('PUBSUB', 'CHANNELS')) as string[];
  t.ok(keys.length > 0);
  t.notMatch([...keys, ...channels].join('\n'), SECRET, 'store');
});
