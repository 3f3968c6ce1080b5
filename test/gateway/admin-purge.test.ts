/** What is kept, removed by an operator: by key and by rule, over all processes. */

import t, { type Test } from 'tap';
import { type Answered, request } from '../support/client.js';
import { allEqual, HIT, isProblem } from '../support/expect.js';
import { eventually } from '../support/gate.js';
import { configOf, type Gateway, startGateways } from '../support/gateway.js';
import { inEachStore } from '../support/stores.js';
import { answers, hangsUpAfterReading, startUpstream } from '../support/upstream.js';

t.setTimeout(120_000);

const ROUTES = `
  - name: calm
    match: { path: /calm/* }
    policy: coalesce
    key: [ { request: path } ]
    identity: public
    keep: 20s
  - name: other
    match: { path: /other/* }
    policy: coalesce
    key: [ { request: path } ]
    keep: 20s
  - name: orders
    match: { methods: [POST], path: /orders/* }
    policy: replay
    maxShared: 1KiB
  - name: stock
    match: { path: /stock/* }
    policy: queue
    key: [ { request: path } ]`;

type Taken = { readonly key: string; readonly route: string; readonly state: string };

async function scenarios(t: Test, store: string, processes: number): Promise<void> {
  const upstream = await startUpstream(t);
  const gateways = await startGateways(t, processes, {
    config: configOf({ upstream: upstream.url, store, routes: ROUTES }),
  });
  const first = gateways[0]!;
  const last = gateways[gateways.length - 1]!;
  const post = (gateway: Gateway, path: string, headers: readonly string[] = []) =>
    gateway.request({ method: 'POST', path, headers });
  const order = (gateway: Gateway, path: string) => post(gateway, path, ['Idempotency-Key', path.replaceAll('/', '-')]);
  const remove = (path: string): Promise<Answered> => request(last.adminUrl, { method: 'DELETE', path });
  const digest = async (route: string): Promise<string> => {
    const { flights } = (await first.admin('/flights')).json() as { flights: Taken[] };
    const found = flights.filter((one) => one.route === route);
    t.equal(found.length, 1, `${route}: one key is taken`);
    return found[0]!.key;
  };
  /** A line of the log comes over a pipe: not before the answer. */
  const logged = (part: Readonly<Record<string, string | number>>) =>
    eventually(`a line in the log with ${JSON.stringify(part)}`, () =>
      last.logs.some((line) =>
        Object.entries({ msg: 'purged by an operator', ...part }).every(
          ([name, value]) => (line as Record<string, unknown>)[name] === value,
        ),
      ),
    );

  await t.test('a kept response is removed: the next request runs, in every process', async (t) => {
    allEqual(t, [await post(first, '/calm/a')], 200, '{"path":"/calm/a","call":1}');
    t.match((await post(last, '/calm/a')).cacheStatus, HIT);
    const key = await digest('calm');
    const removed = await remove(`/flights/${key}`);
    t.equal(removed.status, 200);
    t.same(removed.json(), { purged: key });
    const again = await remove(`/flights/${key}`);
    t.equal(again.status, 404);
    t.same(again.json(), { error: 'nothing is kept under this key' });
    allEqual(t, [await post(first, '/calm/a')], 200, '{"path":"/calm/a","call":2}');
    for (const result of ['purged', 'absent']) await logged({ key, result });
    t.equal((await remove(`/flights/${await digest('calm')}`)).status, 200);
  });

  await t.test('its variants are removed with it, in every process', async (t) => {
    const path = '/calm/vary';
    upstream.on(
      path,
      answers((call) => ({
        fields: ['Vary', 'accept-language'],
        content: `${call.header('accept-language')} ${call.ordinal}`,
      })),
    );
    const ask = (gateway: Gateway, language: string) => post(gateway, path, ['Accept-Language', language]);
    for (const language of ['en', 'de', 'fr']) await ask(first, language);
    for (const language of ['en', 'de', 'fr']) t.match((await ask(last, language)).cacheStatus, HIT);
    const { flights } = (await first.admin('/flights')).json() as { flights: Taken[] };
    const keys = flights.map(({ key }) => key).sort((one, other) => one.length - other.length);
    t.equal(keys.length, 3);
    t.same((await remove(`/flights/${keys[2]}`)).json(), { purged: keys[2] }, 'one of them alone');
    t.equal((await remove(`/flights/${keys[0]}`)).status, 200);
    t.equal((await remove(`/flights/${keys[0]}`)).status, 404);
    const texts = [];
    for (const language of ['en', 'de', 'fr']) texts.push((await ask(last, language)).text);
    t.same(texts, ['en 4', 'de 5', 'fr 6']);
    await remove(`/flights/${keys[0]}`);
  });

  await t.test('a flight that is up is left alone', async (t) => {
    const held = upstream.holds('/calm/up');
    const leader = post(first, '/calm/up');
    await held.arrived(1);
    const key = await digest('calm');
    const refused = await remove(`/flights/${key}`);
    t.equal(refused.status, 409);
    t.match((refused.json() as { error: string }).error, `POST /flights/${key}/settle`);
    const follower = post(last, '/calm/up');
    await last.caughtUp();
    held.release();
    allEqual(t, [await leader, await follower], 200, '{"path":"/calm/up","call":1}');
    t.equal((await remove(`/flights/${key}`)).status, 200);
  });

  await t.test('an outcome that nobody knows is left alone', async (t) => {
    upstream.on('/orders/unknown', hangsUpAfterReading);
    isProblem(t, await order(first, '/orders/unknown'), 'outcome-unknown');
    const key = await digest('orders');
    t.equal((await remove(`/flights/${key}`)).status, 409);
    t.same((await remove('/routes/orders/kept')).json(), { route: 'orders', purged: 0 });
    isProblem(t, await order(last, '/orders/unknown'), 'outcome-unknown');
    t.equal(upstream.count('/orders/unknown'), 1);
  });

  await t.test('a turn of a queue is left alone', async (t) => {
    const held = upstream.holds('/stock/a');
    const turn = post(first, '/stock/a');
    await held.arrived(1);
    t.equal((await remove(`/flights/${await digest('stock')}`)).status, 409);
    held.release();
    t.equal((await turn).status, 200);
  });

  await t.test('a rule: everything it keeps is removed, and nothing else', async (t) => {
    for (const name of ['a', 'b', 'c']) await post(first, `/calm/of-rule-${name}`);
    await post(last, '/other/a');
    t.same((await remove('/routes/calm/kept')).json(), { route: 'calm', purged: 3 });
    t.same((await remove('/routes/calm/kept')).json(), { route: 'calm', purged: 0 });
    for (const name of ['a', 'b', 'c']) {
      const path = `/calm/of-rule-${name}`;
      allEqual(t, [await post(last, path)], 200, JSON.stringify({ path, call: 2 }));
    }
    t.match((await post(first, '/other/a')).cacheStatus, HIT);
    const slip = await remove('/routes/clam/kept');
    t.equal(slip.status, 404);
    t.match(slip.json(), { error: 'no rule has this name, and nothing is kept by it' });
    await logged({ route: 'calm', count: 3 });
    await logged({ route: 'clam', count: 0 });
  });

  await t.test('on a replay route it frees the Idempotency-Key: the next repeat is executed', async (t) => {
    upstream.on(
      '/orders/a',
      answers((call) => ({ content: `order ${call.ordinal}` })),
    );
    upstream.on(
      '/orders/large',
      answers((call) => ({ content: `${call.ordinal}${'x'.repeat(4_096)}` })),
    );
    for (const path of ['/orders/a', '/orders/large']) await order(first, path);
    t.equal((await order(last, '/orders/a')).header('idempotent-replayed'), 'true');
    isProblem(t, await order(last, '/orders/large'), 'response-not-kept');
    t.same((await remove('/routes/orders/kept')).json(), { route: 'orders', purged: 2 });
    t.equal((await order(last, '/orders/a')).text, 'order 2');
    t.equal((await order(last, '/orders/large')).text[0], '2');
  });

  await t.test('a mark is removed with the key', async (t) => {
    const path = '/calm/marked';
    upstream.on(path, answers({ fields: ['Cache-Control', 'private'] }));
    await post(first, path);
    const held = upstream.holds(path);
    const leader = post(first, path);
    await held.arrived(2);
    const key = await digestInFlight();
    isProblem(t, await post(last, path), 'not-shareable');
    held.release();
    await leader;
    upstream.on(path, answers({ fields: ['Cache-Control', 'private'] }));
    await remove(`/flights/${key}`);
    await post(first, path);
    t.equal((await remove(`/flights/${key}`)).status, 200, 'nothing but the mark is there');
    t.equal((await remove(`/flights/${key}`)).status, 404);
    const next = upstream.holds(path);
    const leads = post(first, path);
    await next.arrived(4);
    const follower = post(last, path);
    await last.caughtUp();
    next.release();
    t.equal((await leads).text, (await follower).text, 'who comes then waits');
  });

  async function digestInFlight(): Promise<string> {
    const { flights } = (await first.admin('/flights?state=in-flight')).json() as { flights: Taken[] };
    t.equal(flights.length, 1);
    return flights[0]!.key;
  }
}

inEachStore(t, 2, scenarios);
