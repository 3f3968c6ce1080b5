/** `verify`: some of those who are given somebody else's response are compared with what they would have got themselves. */

import t, { type Test } from 'tap';
import { burst } from '../support/client.js';
import { allEqual } from '../support/expect.js';
import { delay, eventually, Gate } from '../support/gate.js';
import { allCaughtUp, configOf, type Gateway, metricsOf, startGateway, startGateways } from '../support/gateway.js';
import { inEachStore } from '../support/stores.js';
import {
  answers,
  answersSlowly,
  type Call,
  gated,
  inTurn,
  resetsAfterReading,
  startUpstream,
} from '../support/upstream.js';

t.setTimeout(120_000);

async function haveResults(gateways: readonly Gateway[], route: string, wanted: Record<string, number>): Promise<void> {
  const all = Object.values(wanted).reduce((sum, one) => sum + one, 0);
  const count = async (labels: object) =>
    (await metricsOf(gateways)).sum('oneflight_verified_responses_total', { route, ...labels });
  await eventually(`${all} of ${route} are verified`, async () => (await count({})) >= all);
  for (const [result, times] of Object.entries(wanted)) {
    const seen = await count({ result });
    if (seen !== times) throw new Error(`${route}: ${result} ${seen} times, ${times} were wanted`);
  }
}

async function scenarios(t: Test, store: string, processes: number): Promise<void> {
  const upstream = await startUpstream(t);
  const route = (name: string, more = 'verify: 100%') => `
  - name: ${name}
    match: { path: "/${name}/:id", methods: [GET] }
    policy: coalesce
    key: [ { param: id }, { query: page, optional: true } ]
    ${more}`;
  const routes = [
    route('same'),
    route('kept', 'keep: 1m\n    verify: { share: 100%, fields: [X-Tenant] }'),
    route('coarse', 'identity: public\n    verify: 100%'),
    route('streamed'),
    route('broken'),
    route('never', ''),
    route('busy'),
    route('spare', 'keep: 1m\n    maxRequests: 1\n    verify: 100%'),
    route('faulty', 'keep: 1m\n    verify: 100%'),
    `
  - name: twice
    match: { path: "/twice/:id", methods: [POST] }
    policy: coalesce
    key: [ { body: /id } ]
    verify: { share: 100%, unsafeMethods: execute-twice }`,
  ].join('');
  const gateways = await startGateways(t, processes, { config: configOf({ upstream: upstream.url, store, routes }) });
  const of = (index: number) => gateways[index % processes]!;
  const get = (index: number, path: string, headers: readonly string[] = []) => of(index).request({ path, headers });

  /** So many at once: one call, whose answer the test gives; every later one is a comparison. */
  async function together(path: string, count: number, behave: (call: Call) => void | Promise<void>) {
    const gate = new Gate();
    upstream.on(path, (call) => (call.ordinal === 1 ? gated(gate, behave)(call) : behave(call)));
    const all = burst(count, (index) => get(index, path));
    await upstream.arrived(1, path);
    await allCaughtUp(gateways);
    gate.open();
    return all;
  }

  await t.test('equal answers are counted as such, with calls of their own count', async (t) => {
    const all = await together('/same/1', 4, answers({ content: 'x' }));
    allEqual(t, all, 200, 'x');
    await haveResults(gateways, 'same', { same: 3 });
    t.equal(upstream.count('/same/1'), 4);
    const metrics = await metricsOf(gateways);
    t.same(metrics.outcomes('same'), { led: 1, collapsed: 3 });
    t.equal(metrics.sum('oneflight_upstream_calls_total', { route: 'same' }), 1);
    t.equal(metrics.sum('oneflight_verify_calls_total', { route: 'same' }), 3);
  });

  await t.test('what differs is logged with the names of the key parts, and without values', async (t) => {
    const path = '/coarse/secret-id';
    const gate = new Gate();
    const own = answers((call) => ({ content: `of ${call.header('authorization')}` }));
    upstream.on(path, (call) => (call.ordinal === 1 ? gated(gate, own)(call) : own(call)));
    const all = burst(2, (index) => get(index, path, ['Authorization', `secret-${index}`]));
    await upstream.arrived(1, path);
    await allCaughtUp(gateways);
    gate.open();
    t.equal(new Set((await all).map(({ text }) => text)).size, 1, 'the key is too coarse');
    await haveResults(gateways, 'coarse', { different: 1 });
    const line = () => gateways.flatMap(({ logs }) => logs).find(({ msg }) => /^verify: /.test(String(msg)));
    await eventually('a line', () => line() !== undefined);
    t.match(line(), { level: 40, as: 'collapsed', differs: ['content'], keyParts: ['param: id', 'query: page'] });
    t.notMatch(JSON.stringify(line()), /secret/);
  });

  await t.test('kept responses are compared as well, by the fields that are named', async (t) => {
    const path = '/kept/1';
    upstream.on(
      path,
      inTurn(
        answers({ fields: ['X-Tenant', 'a', 'Content-Type', 'text/plain'], content: 'x' }),
        answers({ fields: ['X-Tenant', 'a', 'Content-Type', 'text/html'], content: 'x' }),
        answers({ status: 404, fields: ['X-Tenant', 'b'], content: 'x' }),
      ),
    );
    for (let turn = 0; turn < 3; turn += 1) {
      const answer = await get(turn, path);
      t.equal(answer.header('content-type'), 'text/plain', 'all have the first');
      await upstream.arrived(turn + 1, path);
    }
    await haveResults(gateways, 'kept', { same: 1, different: 1 });
    const line = () => gateways.flatMap(({ logs }) => logs).find((log) => (log as { as?: string }).as === 'hit');
    await eventually('a line', () => line() !== undefined);
    t.match(line(), { differs: ['status', 'x-tenant'] });
  });

  await t.test('who read the response as it came is compared at its end', async () => {
    const pieces = [Buffer.from('one'), Buffer.from('two')];
    await together('/streamed/1', 3, answersSlowly(pieces, 50));
    await haveResults(gateways, 'streamed', { same: 2 });
  });

  await t.test("a comparison that fails is nobody else's failure", async (t) => {
    const path = '/broken/1';
    const gate = new Gate();
    upstream.on(path, inTurn(gated(gate, answers({ content: 'x' })), resetsAfterReading));
    const all = burst(2, (index) => get(index, path));
    await upstream.arrived(1, path);
    await allCaughtUp(gateways);
    gate.open();
    allEqual(t, await all, 200, 'x');
    await haveResults(gateways, 'broken', { failed: 1 });
  });

  await t.test('an answer that the upstream cannot give just now says nothing of the key', async () => {
    upstream.on('/faulty/1', inTurn(answers({ content: 'x' }), answers({ status: 503 }), answers({ status: 404 })));
    for (let turn = 1; turn <= 3; turn += 1) {
      await get(0, '/faulty/1');
      await upstream.arrived(turn, '/faulty/1');
    }
    await haveResults(gateways, 'faulty', { failed: 1, different: 1 });
  });

  await t.test("a call of a client takes a comparison's place", async (t) => {
    const gate = new Gate();
    const done = answers({ content: 'x' });
    upstream.on('/spare/1', (call) => (call.ordinal === 1 ? done(call) : gated(gate, done)(call)));
    upstream.on('/spare/2', done);
    await get(0, '/spare/1');
    t.equal((await get(0, '/spare/1')).text, 'x', 'what is kept');
    await upstream.arrived(2, '/spare/1');
    t.equal((await get(0, '/spare/2')).status, 200);
    await haveResults(gateways, 'spare', { skipped: 1 });
    gate.open();
  });

  await t.test('nobody waits for it, and only so many are made at a time', async (t) => {
    const path = '/busy/1';
    const [first, others] = [new Gate(), new Gate()];
    const done = answers({ content: 'x' });
    upstream.on(path, (call) => gated(call.ordinal === 1 ? first : others, done)(call));
    const all = burst(40, (index) => get(index, path));
    await upstream.arrived(1, path);
    await allCaughtUp(gateways);
    first.open();
    allEqual(t, await all, 200, 'x');
    await upstream.arrived(1 + 8, path);
    others.open();
    await eventually('all are told of', async () => {
      return (await metricsOf(gateways)).sum('oneflight_verified_responses_total', { route: 'busy' }) === 39;
    });
    const metrics = await metricsOf(gateways);
    const skipped = metrics.sum('oneflight_verified_responses_total', { route: 'busy', result: 'skipped' });
    t.ok(skipped >= 39 - 8 * processes, `${skipped} are left out`);
    t.equal(upstream.count(path), 1 + 39 - skipped);
  });

  await t.test('unsafe methods where it is written out, with their content', async (t) => {
    const path = '/twice/1';
    const gate = new Gate();
    upstream.on(path, (call) => (call.ordinal === 1 ? gated(gate, answers({}))(call) : answers({})(call)));
    const all = burst(2, (index) => of(index).request({ method: 'POST', path, body: '{"id":1}' }));
    await upstream.arrived(1, path);
    await allCaughtUp(gateways);
    gate.open();
    await all;
    await haveResults(gateways, 'twice', { same: 1 });
    t.strictSame(
      upstream.callsOf(path).map(({ content }) => content?.toString()),
      ['{"id":1}', '{"id":1}'],
    );
  });

  await t.test('without verify nothing is asked twice', async (t) => {
    await together('/never/1', 4, answers({ content: 'x' }));
    t.equal(upstream.count('/never/1'), 1);
  });
}

inEachStore(t, 2, scenarios);

t.test('a stop lets a comparison end', async (t) => {
  const upstream = await startUpstream(t);
  const routes = `
  - name: read
    match: { path: "/read", methods: [GET] }
    policy: coalesce
    keep: 1m
    verify: 100%
    key: [ { request: path } ]`;
  const gateway = await startGateway(t, { config: configOf({ upstream: upstream.url, routes }) });
  const gate = new Gate();
  upstream.on('/read', (call) => (call.ordinal === 1 ? answers({})(call) : gated(gate, answers({}))(call)));
  for (let turn = 0; turn < 2; turn += 1) await gateway.request({ path: '/read' });
  await upstream.arrived(2, '/read');
  gateway.signal('SIGTERM');
  await eventually('it accepts nothing more', () =>
    gateway.request({ path: '/read' }).then(
      () => false,
      () => true,
    ),
  );
  // It would have ended by now.
  await delay(700);
  t.ok(gateway.running);
  gate.open();
  const { code } = await gateway.exited;
  t.equal(code, 0);
  t.equal(upstream.callsOf('/read')[1]?.aborted, false);
});
