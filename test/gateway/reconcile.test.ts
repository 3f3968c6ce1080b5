/** The gateway asks the API what became of an operation, and settles by the answer. */

import t, { type Test } from 'tap';
import { HIT, isProblem } from '../support/expect.js';
import { delay, eventually, Gate } from '../support/gate.js';
import { type Gateway, metricsOf, startGateways } from '../support/gateway.js';
import { inEachStore } from '../support/stores.js';
import {
  answers,
  gated,
  hangsUpAfterReading,
  inTurn,
  ordinalAnswer,
  resetsAfterReading,
  startUpstream,
} from '../support/upstream.js';
import { configFor, EVERY_MS, Operation, RAW, settle, settledBy, TOKEN } from './reconciling.js';

t.setTimeout(170_000);

const FOUND = Buffer.from('{"id":"\u00e4","status":"succeeded"}');
const found = answers({
  fields: ['Content-Type', 'application/json', 'Link', '<a>', 'Link', '<b>', 'Set-Cookie', 'of=the-gateway'],
  content: FOUND,
});
const runsOnceLost = inTurn(resetsAfterReading, answers(ordinalAnswer));
const saying = (status: number) => answers({ status, content: '{}' });

async function scenarios(t: Test, store: string, processes: number): Promise<void> {
  const upstream = await startUpstream(t);
  const other = await startUpstream(t);
  const config = configFor(upstream.url, store, other.url);
  const gateways = await startGateways(t, processes, { config, env: { API_TOKEN: TOKEN } });
  const first = gateways[0]!;
  const last = gateways[processes - 1]!;
  /** How many questions of a route are over and said that. */
  const said = async (route: string, verdict: string) =>
    (await metricsOf(gateways)).sum('oneflight_reconcile_questions_total', { route, verdict });

  t.test('what the API knows becomes the answer of the repeats', async (t) => {
    const operation = new Operation(upstream, 'found', 'done');
    const gate = new Gate();
    operation.is(runsOnceLost, gated(gate, found));
    await operation.lose(t, first);
    await operation.asked(1);
    for (const gateway of gateways) await operation.isHeld(t, gateway);
    const [question] = operation.questions;
    t.match(question, { method: 'GET', target: operation.question });
    t.equal(question!.header('authorization'), `Bearer ${TOKEN}`);
    t.equal(question!.header('host'), `127.0.0.1:${upstream.port}`);
    t.equal(question!.header('idempotency-key'), null, 'it is no repeat');
    gate.open();
    const known = await operation.known(last);
    for (const answer of [known, await operation.run(first)]) {
      t.equal(answer.status, 200);
      t.ok(answer.body.equals(FOUND), 'bytes are equal');
      t.equal(answer.header('idempotent-replayed'), 'true');
      t.match(answer.cacheStatus, HIT);
      t.same(answer.headerLines('link'), ['<a>', '<b>']);
      t.equal(answer.header('set-cookie'), null, 'a cookie of the gateway is for nobody else');
    }
    t.equal(operation.runs, 1);
    await eventually('it being in the log', () => settledBy(gateways, 'found').length > 0);
    t.match(settledBy(gateways, 'found'), [
      { as: 'response', result: 'settled', key: /^[\w-]{43}$/, flight: /^[\w-]{22}$/ },
    ]);
    t.equal((await metricsOf(gateways)).sum('oneflight_reconciled_total', { route: 'found', as: 'response' }), 1);
  });

  t.test('404: it was not done, and the next one runs', async (t) => {
    const operation = new Operation(upstream, 'found', 'not-done');
    const gate = new Gate();
    operation.is(runsOnceLost, gated(gate, saying(404)));
    await operation.lose(t, first);
    await operation.asked(1);
    await operation.isHeld(t, last);
    t.equal(operation.runs, 1);
    gate.open();
    t.equal((await operation.known(last)).text, '{"path":"/found/not-done","call":2}');
    t.equal((await operation.run(first)).header('idempotent-replayed'), 'true');
    t.equal(operation.runs, 2);
    const freed = () => settledBy(gateways, 'found').filter(({ as }) => as === 'free').length;
    await eventually('it being in the log', () => freed() === 1);
  });

  t.test('errors, cut answers and what is still pending are asked again until it is done', async (t) => {
    const operation = new Operation(upstream, 'judged', 'slow');
    const pending = answers({ content: '{"status":"pending"}' });
    const asked = inTurn(
      saying(500),
      hangsUpAfterReading,
      saying(202),
      answers({ content: 'no JSON' }),
      pending,
      found,
    );
    operation.is(runsOnceLost, asked);
    // The process that led asks; the other one knows nothing of it.
    await operation.lose(t, first);
    await operation.asked(6);
    t.equal(operation.runs, 1);
    t.ok((await operation.known(first)).body.equals(FOUND), 'only the last one is an answer');
    t.equal(operation.runs, 1);
    t.same([await said('judged', 'no-answer'), await said('judged', 'pending')], [3, 2]);
    const gaps = operation.questions.map(({ startedAtMs }) => startedAtMs);
    for (const [i, at] of gaps.slice(1).entries()) t.ok(at - gaps[i]! >= EVERY_MS - 20, `${at - gaps[i]!} ms`);
  });

  t.test('an operator settles meanwhile: nothing is overwritten, and nobody asks any more', async (t) => {
    const operation = new Operation(upstream, 'found', 'by-word');
    const gate = new Gate();
    operation.is(runsOnceLost, gated(gate, found));
    await operation.lose(t, first);
    await operation.asked(1);
    await settle(t, last, operation, { as: 'response', status: 201, content: 'by word' });
    const before = await said('found', 'done');
    gate.open();
    await eventually('the late answer being read', async () => (await said('found', 'done')) > before);
    await delay(3 * EVERY_MS);
    t.equal(operation.questions.length, 1);
    t.equal((await operation.run(last)).text, 'by word');
    t.equal(operation.runs, 1);
  });

  t.test('an operator settles between two questions: no more are asked', async (t) => {
    const operation = new Operation(upstream, 'found', 'between');
    operation.is(runsOnceLost, saying(503));
    await operation.lose(t, first);
    await operation.asked(2);
    await settle(t, last, operation, { as: 'response', status: 201, content: 'by word' });
    const asked = operation.questions.length;
    await delay(4 * EVERY_MS);
    t.ok(operation.questions.length <= asked + 1, 'none but one that was under way');
    t.equal((await operation.run(last)).text, 'by word');
  });

  for (const [status, verdict] of [
    [200, 'done'],
    [404, 'absent'],
  ] as const) {
    t.test(`a late ${status} does not touch the flight that has the key now`, async (t) => {
      const operation = new Operation(upstream, 'found', `late-${status}`);
      const [late, second] = [new Gate(), new Gate()];
      operation.is(
        inTurn(resetsAfterReading, gated(second, answers(ordinalAnswer))),
        gated(late, status === 200 ? found : saying(404)),
      );
      await operation.lose(t, first);
      await operation.asked(1);
      await settle(t, last, operation, { as: 'free' });
      const running = operation.run(last);
      await upstream.arrived(2, operation.path);
      const before = await said('found', verdict);
      late.open();
      await eventually('the late answer being read', async () => (await said('found', verdict)) > before);
      isProblem(t, await operation.run(first), 'in-flight');
      second.open();
      const ran = await running;
      t.equal(ran.text, `{"path":"${operation.path}","call":2}`);
      t.equal((await operation.run(first)).text, ran.text);
      t.equal(operation.runs, 2);
    });
  }

  t.test('after unknownFor nobody asks any more', async (t) => {
    const operation = new Operation(upstream, 'short', 'over');
    operation.is(runsOnceLost, saying(503));
    await operation.lose(t, first);
    await operation.asked(1);
    await delay(2_500);
    const asked = operation.questions.length;
    await delay(3 * EVERY_MS);
    t.equal(operation.questions.length, asked);
    t.equal((await operation.run(last)).status, 200, 'the next one runs');
    t.equal(operation.runs, 2);
  });

  t.test('an answer larger than maxShared is known, and not kept', async (t) => {
    const operation = new Operation(upstream, 'small', 'large');
    operation.is(runsOnceLost, found);
    await operation.lose(t, first);
    await operation.asked(1);
    await eventually('the answer being read', async () => (await said('small', 'done')) > 0);
    for (const gateway of gateways) isProblem(t, await operation.run(gateway), 'response-not-kept');
    t.equal(operation.runs, 1);
  });

  t.test('coalesce keeps the answer for its keep', async (t) => {
    const operation = new Operation(upstream, 'shared', 'kept');
    operation.is(runsOnceLost, found);
    isProblem(t, await operation.run(first), 'outcome-unknown');
    const known = await operation.known(last);
    t.ok(known.body.equals(FOUND));
    t.match(known.cacheStatus, HIT);
    t.equal(known.header('idempotent-replayed'), null);
    t.equal(operation.runs, 1);
  });

  t.test('a lock is free when the operation is known to be over', async (t) => {
    const operation = new Operation(upstream, 'locked', 'over');
    const gate = new Gate();
    operation.is(runsOnceLost, gated(gate, found));
    await operation.lose(t, first);
    await operation.asked(1);
    await operation.isHeld(t, last);
    gate.open();
    t.equal((await operation.known(last)).text, '{"path":"/locked/over","call":2}');
  });

  t.test('the derived key asks about what it was sent with', async (t) => {
    const operation = new Operation(upstream, 'derived', 'key');
    operation.is(runsOnceLost, found);
    upstream.on('/by', found);
    await operation.lose(t, first);
    await upstream.arrived(1, '/by');
    const [sent] = upstream.callsOf(operation.path);
    t.equal(upstream.callsOf('/by')[0]!.target, `/by?k=${sent!.header('x-derived')}`);
    t.ok((await operation.known(last)).body.equals(FOUND));
  });

  t.test('another server can be asked', async (t) => {
    const operation = new Operation(upstream, 'elsewhere', 'status');
    operation.is(runsOnceLost, saying(404));
    other.on(operation.question, found);
    await operation.lose(t, first);
    t.ok((await operation.known(last)).body.equals(FOUND));
    t.equal(other.callsOf(operation.question)[0]!.header('host'), `127.0.0.1:${other.port}`);
    t.equal(operation.questions.length, 0);
  });

  t.test('no value of a key and no credential is in a log or a metric', async (t) => {
    t.ok(settledBy(gateways, 'found').length > 0);
    const written = [...gateways.map(({ output }: Gateway) => output), (await metricsOf(gateways)).text].join('\n');
    for (const secret of [RAW, TOKEN]) t.notOk(written.includes(secret), secret);
  });
}

inEachStore(t, 2, scenarios);
