/** A rule that only observes forwards everything, and counts what it would have done. */

import http from 'node:http';
import t, { type Test } from 'tap';
import { type Answered, burst } from '../support/client.js';
import { delay, eventually, Gate } from '../support/gate.js';
import { allCaughtUp, configOf, type Gateway, metricsOf, startGateway, startGateways } from '../support/gateway.js';
import { inEachStore } from '../support/stores.js';
import { answers, gated, inTurn, resetsAfterReading, startUpstream } from '../support/upstream.js';

t.setTimeout(120_000);

const OBSERVED = 'oneflight; fwd=bypass; detail=observe';

/** What became of the observed requests of a route, by label. */
async function fatesOf(gateways: readonly Gateway[], route: string): Promise<Record<string, number>> {
  const { text } = await metricsOf(gateways);
  const fates: Record<string, number> = {};
  const line = /^oneflight_observed_requests_total\{route="([^"]*)",outcome="([^"]*)"\} (\d+)$/gm;
  for (const [, name, label = '', count] of text.matchAll(line)) {
    if (name === route) fates[label] = (fates[label] ?? 0) + Number(count);
  }
  return fates;
}

async function haveFates(gateways: readonly Gateway[], route: string, fates: Record<string, number>): Promise<void> {
  const wanted = JSON.stringify(Object.entries(fates).sort());
  let seen = '';
  const isSo = async () => {
    seen = JSON.stringify(Object.entries(await fatesOf(gateways, route)).sort());
    return seen === wanted;
  };
  await eventually('', isSo).catch(() => {
    throw new Error(`${route}: ${wanted} is wanted, ${seen} was counted`);
  });
}

async function scenarios(t: Test, store: string, processes: number): Promise<void> {
  const upstream = await startUpstream(t);
  const route = (name: string, policy: string, more: string) => `
  - name: ${name}
    match: { path: "/${name}/:id" }
    policy: ${policy}
    observe: true
    ${more}`;
  const byPath = 'key: [ { request: path } ]';
  const routes = [
    route('burst', 'coalesce', `${byPath}\n    keep: 1m`),
    route('apart', 'coalesce', `${byPath}\n    identity: public`),
    route('varies', 'coalesce', `${byPath}\n    identity: public\n    keep: 1m`),
    route('elects', 'coalesce', `${byPath}\n    onLeaderFailure: elect`),
    route('impatient', 'coalesce', `${byPath}\n    wait: 50ms`),
    route('lock', 'reject', 'key: [ { param: id } ]\n    scope: lock'),
    route('orders', 'replay', 'forward: { idempotencyKey: X-Derived }'),
    route('patient', 'replay', 'wait: 20s'),
    route('strict', 'replay', 'onMissingKey: reject\n    maxKeyBody: 1KiB'),
    route('turns', 'queue', `${byPath}\n    maxQueue: 2`),
    route('hurried', 'queue', `${byPath}\n    wait: 50ms`),
    route('body', 'coalesce', 'key: [ { body: /id } ]\n    maxKeyBody: 1KiB\n    keep: 0'),
    `
  - name: locked
    match: { path: "/locked/:id" }
    policy: reject
    key: [ { param: id } ]
    scope: lock`,
  ].join('');
  const config = configOf({ upstream: upstream.url, store, routes });
  const gateways = await startGateways(t, processes, { config });
  const of = (index: number) => gateways[index % processes]!;
  const get = (index: number, path: string, headers: readonly string[] = []) => of(index).request({ path, headers });
  const post = (index: number, path: string, key: string, body = '{}') =>
    of(index).request({ method: 'POST', path, body, headers: ['Idempotency-Key', key] });

  /** So many requests of a path at once, all of them upstream before one is answered. */
  async function atOnce(path: string, count: number): Promise<Answered[]> {
    const before = upstream.count(path);
    const held = upstream.holds(path);
    const all = burst(count, (index) => get(index, path));
    await held.arrived(before + count);
    await allCaughtUp(gateways);
    held.release();
    return all;
  }

  await t.test('a burst is forwarded whole, and counted as what would have been one call', async (t) => {
    const all = await atOnce('/burst/1', 8);
    t.equal(upstream.count('/burst/1'), 8);
    t.equal(new Set(all.map(({ text }) => text)).size, 8, 'everybody has an answer of its own');
    t.strictSame([...new Set(all.map(({ cacheStatus }) => cacheStatus))], [OBSERVED]);
    await haveFates(gateways, 'burst', { led: 1, collapsed: 7 });
    await burst(2, (index) => get(index, '/burst/1'));
    t.equal(upstream.count('/burst/1'), 10, 'no kept response answers');
    await haveFates(gateways, 'burst', { led: 1, collapsed: 7, hit: 2 });
    const metrics = await metricsOf(gateways);
    t.same(metrics.outcomes('burst'), { observed: 10 });
    t.equal(metrics.sum('oneflight_upstream_calls_total', { route: 'burst' }), 10);
    t.equal(metrics.sum('oneflight_unprotected_requests_total', { route: 'burst' }), 0, 'nobody is alarmed');
    t.equal(metrics.sum('oneflight_observed_saved_calls_total', { route: 'burst' }), 9);
    t.ok(metrics.sum('oneflight_observed_saved_seconds_total', { route: 'burst' }) > 0);
    t.equal(metrics.sum('oneflight_observed_wait_seconds_count', { route: 'burst' }), 7);
  });

  await t.test('the log says it of each, without values', async (t) => {
    const lines = () =>
      gateways.flatMap(({ logs }) => logs).filter(({ msg, route }) => msg === 'observed' && route === 'burst');
    await eventually('nine lines', () => lines().length === 9);
    const words = lines().map((line) => (line as { would?: string }).would);
    t.equal(words.filter((word) => word === 'collapsed').length, 7);
    t.notMatch(JSON.stringify(lines()), /burst\/1/);
  });

  await t.test('a response that is for one client alone would have been shared with nobody', async (t) => {
    const path = '/apart/1';
    const gate = new Gate();
    upstream.on(path, gated(gate, answers({ fields: ['Set-Cookie', 'a=b'], content: 'x' })));
    const all = burst(3, (index) => get(index, path));
    await upstream.arrived(3, path);
    await allCaughtUp(gateways);
    gate.open();
    t.strictSame(new Set((await all).map((answer) => answer.header('set-cookie'))), new Set(['a=b']));
    await haveFates(gateways, 'apart', { led: 1, bypassed: 2 });
  });

  await t.test('variants are kept apart', async () => {
    const path = '/varies/1';
    upstream.on(path, answers({ fields: ['Vary', 'Accept-Language'], content: 'x' }));
    for (const language of ['en', 'de', 'en', 'de', 'de']) await get(0, path, ['Accept-Language', language]);
    await haveFates(gateways, 'varies', { led: 2, hit: 3 });
  });

  await t.test('of the followers of a leader that fails one would have taken over', async (t) => {
    const path = '/elects/1';
    const [first, others] = [new Gate(), new Gate()];
    upstream.on(path, inTurn(gated(first, resetsAfterReading), gated(others, answers({ content: 'x' }))));
    const leader = get(0, path);
    await upstream.arrived(1, path);
    await allCaughtUp(gateways);
    const followers = burst(2, (index) => get(index, path));
    await upstream.arrived(3, path);
    await allCaughtUp(gateways);
    first.open();
    t.equal((await leader).status, 502, 'its own failure, as without a policy');
    await haveFates(gateways, 'elects', { led: 1 });
    await allCaughtUp(gateways);
    others.open();
    t.strictSame(
      (await followers).map(({ status }) => status),
      [200, 200],
    );
    await haveFates(gateways, 'elects', { led: 2, collapsed: 1 });
  });

  await t.test('who would have waited for too long is told apart', async () => {
    const path = '/impatient/1';
    const held = upstream.holds(path);
    const all = burst(2, (index) => get(index, path));
    await held.arrived(2);
    await delay(300);
    held.release();
    await all;
    await haveFates(gateways, 'impatient', { led: 1, 'wait-timeout': 1 });
  });

  await t.test('reject: duplicates are forwarded, and the key is free afterwards', async (t) => {
    const all = await atOnce('/lock/1', 4);
    t.ok(all.every(({ status }) => status === 200));
    await haveFates(gateways, 'lock', { led: 1, 'in-flight': 3 });
    for (let turn = 0; turn < 4; turn += 1) await get(0, '/lock/1');
    await haveFates(gateways, 'lock', { led: 5, 'in-flight': 3 });
  });

  await t.test('what only observes holds up nobody who is protected', async (t) => {
    const held = upstream.holds('/lock/2');
    const observed = get(0, '/lock/2');
    await held.arrived(1);
    await allCaughtUp(gateways);
    // The same scope, and the same value of the key.
    const protectedOne = await of(1).request({ path: '/locked/2' });
    t.equal(protectedOne.status, 200);
    held.release();
    await observed;
  });

  await t.test('replay: repeats, other requests and requests without a key', async (t) => {
    const path = '/orders/1';
    const held = upstream.holds(path);
    const first = post(0, path, 'k1');
    await held.arrived(1);
    await allCaughtUp(gateways);
    const repeat = post(1, path, 'k1');
    const other = post(0, path, 'k1', '{"other":true}');
    await held.arrived(3);
    await allCaughtUp(gateways);
    held.release();
    await Promise.all([first, repeat, other]);
    await haveFates(gateways, 'orders', { led: 1, 'in-flight': 1, 'key-reused': 1 });
    const late = await post(1, path, 'k1');
    t.equal(late.header('idempotent-replayed'), null);
    t.equal(upstream.callsOf(path)[3]?.header('x-derived'), null, "the request is the client's own");
    await of(0).request({ method: 'POST', path, body: '{}' });
    const odd = await post(0, path, '');
    t.equal(odd.status, 200, 'not even a malformed key is refused');
    await haveFates(gateways, 'orders', {
      ...{ led: 1, 'in-flight': 1, 'key-reused': 1, hit: 1 },
      ...{ bypassed: 1, 'key-malformed': 1 },
    });
  });

  await t.test('replay: a repeat that would have waited has the response of the first', async () => {
    const held = upstream.holds('/patient/1');
    const all = burst(2, (index) => post(index, '/patient/1', 'k1'));
    await held.arrived(2);
    await allCaughtUp(gateways);
    held.release();
    await all;
    await haveFates(gateways, 'patient', { led: 1, collapsed: 1 });
  });

  await t.test('replay: what is not recorded, and what nobody knows', async (t) => {
    upstream.on('/orders/2', inTurn(answers({ status: 503 }), answers({}), answers({})));
    for (let turn = 0; turn < 3; turn += 1) await post(0, '/orders/2', 'k2');
    upstream.on('/orders/3', inTurn(resetsAfterReading, answers({})));
    t.equal((await post(0, '/orders/3', 'k3')).status, 502);
    t.equal((await post(0, '/orders/3', 'k3')).status, 200, 'nothing is held');
    await haveFates(gateways, 'orders', {
      ...{ led: 4, 'in-flight': 1, 'key-reused': 1, hit: 2, bypassed: 1, 'key-malformed': 1 },
      'outcome-unknown': 1,
    });
  });

  await t.test('what would have been refused for its own sake is no call saved', async (t) => {
    t.equal((await of(0).request({ method: 'POST', path: '/strict/1', body: '{}' })).status, 200);
    t.equal((await post(0, '/strict/1', 'k', 'x'.repeat(2_000))).status, 200);
    await haveFates(gateways, 'strict', { 'key-missing': 1, 'content-too-large': 1 });
    const metrics = await metricsOf(gateways);
    t.equal(metrics.sum('oneflight_observed_saved_calls_total', { route: 'strict' }), 0);
  });

  await t.test('queue: who would have waited for its turn, and who would have been turned away', async (t) => {
    const path = '/turns/1';
    const all = await atOnce(path, 4);
    t.ok(all.every(({ status }) => status === 200));
    await haveFates(gateways, 'turns', { led: 1, queued: 2, 'queue-full': 1 });
    const metrics = await metricsOf(gateways);
    t.equal(metrics.sum('oneflight_observed_wait_seconds_count', { route: 'turns' }), 2);
    t.equal(metrics.sum('oneflight_observed_saved_calls_total', { route: 'turns' }), 1);
    await eventually('the turn is free', async () => {
      await get(0, '/turns/1');
      const { led = 0 } = await fatesOf(gateways, 'turns');
      return led > 1;
    });
  });

  await t.test('queue: who would have waited for too long', async () => {
    const held = upstream.holds('/hurried/1');
    const all = burst(2, (index) => get(index, '/hurried/1'));
    await held.arrived(2);
    await delay(300);
    held.release();
    await all;
    await haveFates(gateways, 'hurried', { led: 1, 'wait-timeout': 1 });
  });

  await t.test('content goes on as it comes, whatever the key is made of', async (t) => {
    const path = '/body/1';
    const held = upstream.holds(path);
    const { hostname, port } = new URL(of(0).url);
    const uploading = http.request({
      hostname,
      port,
      path,
      method: 'POST',
      headers: { 'Transfer-Encoding': 'chunked' },
    });
    const answered = new Promise((resolve) => uploading.once('response', (res) => resolve(res.resume())));
    uploading.write('{"id":');
    await held.arrived(1);
    const whole = of(1).request({ method: 'POST', path, body: '{ "id": 7 }' });
    await held.arrived(2);
    await allCaughtUp(gateways);
    uploading.end(' 7.0e0}');
    const same = of(1).request({ method: 'POST', path, body: '{"id":7}' });
    await held.arrived(3);
    await allCaughtUp(gateways);
    held.release();
    await Promise.all([answered, whole, same]);
    t.equal(upstream.callsOf(path)[0]?.content?.toString(), '{"id": 7.0e0}', 'byte for byte');
    t.equal(upstream.callsOf(path)[0]?.header('transfer-encoding'), 'chunked');
    await haveFates(gateways, 'body', { led: 2, collapsed: 1 });
    await of(0).request({ method: 'POST', path, body: '{"other":1}' });
    await of(0).request({ method: 'POST', path, body: `{"id":"${'x'.repeat(2_000)}"}` });
    await haveFates(gateways, 'body', { led: 2, collapsed: 1, bypassed: 1, 'content-too-large': 1 });
  });

  await t.test('a leader whose client leaves takes its call along, as without a policy', async () => {
    const path = '/burst/left';
    const held = upstream.holds(path);
    const leaving = of(0).send({ path });
    leaving.answer.catch(() => {});
    const call = await held.arrived(1);
    await allCaughtUp(gateways);
    const before = await fatesOf(gateways, 'burst');
    const staying = get(1, path);
    await held.arrived(2);
    await allCaughtUp(gateways);
    leaving.leave();
    await call.closed;
    held.release();
    await staying;
    const { led = 0 } = before;
    await haveFates(gateways, 'burst', { ...before, led: led + 2 });
  });
}

inEachStore(t, 2, scenarios);

t.test('a stop waits for nothing that only would have waited', async (t) => {
  const upstream = await startUpstream(t);
  const routes = `
  - name: turns
    match: { path: "/turns" }
    policy: queue
    observe: true
    wait: 1h
    key: [ { request: path } ]`;
  const gateway = await startGateway(t, { config: configOf({ upstream: upstream.url, routes }) });
  const held = upstream.holds('/turns');
  const all = burst(3, () => gateway.request({ path: '/turns' }));
  await held.arrived(3);
  held.release();
  await all;
  await gateway.stop();
  t.notMatch(gateway.output, /internal error/);
});
