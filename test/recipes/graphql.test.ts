/** docs/recipes/graphql.md: equal queries of one caller are one call, and a mutation is never a duplicate. */

import t, { type Test } from 'tap';
import type { Answered } from '../support/client.js';
import { COLLAPSED, LED, tally } from '../support/expect.js';
import type { Gateway } from '../support/gateway.js';
import { type Running, startRecipe } from './recipe.js';

t.setTimeout(60_000);

const PATH = '/graphql';
const DOCUMENT = 'query A($a:Int,$b:Int){x(a:$a,b:$b)} query B{y}';
const CALLER = ['Authorization', 'Bearer a'];

function get(gateway: Gateway, parameters: Record<string, string>, headers = CALLER): Promise<Answered> {
  return gateway.request({ path: `${PATH}?${new URLSearchParams(parameters)}`, headers });
}

function post(gateway: Gateway, content: unknown, headers: string[]): Promise<Answered> {
  return gateway.post(PATH, content, [...CALLER, ...headers]).answer;
}

/** Sends the leader, then the others while its call is held; `led` of them all are calls of their own. */
async function together(
  t: Test,
  { upstream, first }: Running,
  led: number,
  ...requests: readonly (() => Promise<Answered>)[]
): Promise<Answered[]> {
  const before = upstream.count(PATH);
  const held = upstream.holds(PATH);
  const [leader, ...others] = requests;
  const pending = [leader!()];
  await held.arrived(before + 1);
  pending.push(...others.map((request) => request()));
  await held.arrived(before + led);
  await first.caughtUp();
  held.release();
  const all = await Promise.all(pending);
  t.equal(upstream.count(PATH), before + led);
  return all;
}

t.test('queries by GET', async (t) => {
  const running = await startRecipe(t, 'graphql.md');
  const { upstream, first } = running;
  const query = { query: DOCUMENT, operationName: 'A', variables: '{"a":1}' };
  const { query: document, operationName, variables } = query;

  await t.test('are one call, in whatever order the parameters are', async (t) => {
    const all = await together(
      t,
      running,
      1,
      () => get(first, query),
      () => get(first, query),
      () => get(first, { variables, operationName, query: document }),
    );
    t.same(tally(all), { [LED]: 1, [COLLAPSED]: 2 });
    const before = upstream.count(PATH);
    t.equal((await get(first, query)).cacheStatus, LED, 'nothing is kept');
    t.equal(upstream.count(PATH), before + 1);
  });

  await t.test('are calls of their own by operation, variables, hash and caller', async (t) => {
    const all = await together(
      t,
      running,
      6,
      () => get(first, query),
      () => get(first, { ...query, variables: '{"a":2}' }),
      () => get(first, { ...query, operationName: 'B' }),
      () => get(first, query, ['Authorization', 'Bearer b']),
      () => get(first, { operationName: 'A', extensions: '{"persistedQuery":{"sha256Hash":"1"}}' }),
      () => get(first, { operationName: 'A', extensions: '{"persistedQuery":{"sha256Hash":"2"}}' }),
    );
    t.same(tally(all), { [LED]: 6 });
  });
});

t.test('content that is posted', async (t) => {
  const running = await startRecipe(t, 'graphql.md');
  const { first } = running;
  const named = ['X-Operation-Type', 'query'];
  const query = { query: DOCUMENT, operationName: 'A', variables: { a: 1, b: 2 } };

  await t.test('is one call where it is a query, variables compared by value', async (t) => {
    const all = await together(
      t,
      running,
      2,
      () => post(first, query, named),
      () => post(first, { ...query, variables: { b: 2, a: 1 } }, named),
      () => post(first, { ...query, variables: { a: 2, b: 1 } }, named),
    );
    t.same(tally(all), { [LED]: 2, [COLLAPSED]: 1 });
    t.equal((await post(first, query, named)).cacheStatus, LED, 'nothing is kept');
  });

  await t.test('is never shared where it is a mutation', async (t) => {
    const mutation = { query: 'mutation{add(sku:42){count}}' };
    const all = await together(
      t,
      running,
      3,
      () => post(first, mutation, ['X-Operation-Type', 'mutation']),
      () => post(first, mutation, ['X-Operation-Type', 'mutation']),
      () => post(first, mutation, []),
    );
    t.same(tally(all), { none: 3 });
  });

  await t.test('is never shared where it is a batch, or a persisted query', async (t) => {
    const persisted = { operationName: 'A', extensions: { persistedQuery: { sha256Hash: '1' } } };
    const all = await together(
      t,
      running,
      3,
      () => post(first, [query], named),
      () => post(first, [{ ...query, operationName: 'B' }], named),
      () => post(first, persisted, named),
    );
    t.same(tally(all), { 'oneflight; fwd=bypass; detail=key-missing': 3 });
  });
});

t.test('were the query optional too, two different batches would share an answer', async (t) => {
  const running = await startRecipe(t, 'graphql.md', (route) =>
    route.name === 'posted-queries' ? { ...route, key: [{ body: '/query', optional: true }] } : route,
  );
  const named = ['X-Operation-Type', 'query'];
  const { first } = running;
  const all = await together(
    t,
    running,
    1,
    () => post(first, [{ query: '{a}' }], named),
    () => post(first, [{ query: '{b}' }], named),
  );
  t.same(tally(all), { [LED]: 1, [COLLAPSED]: 1 });
});
