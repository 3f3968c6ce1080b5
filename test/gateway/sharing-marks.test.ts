/** What is remembered of a key whose response was for one client alone, and when that is forgotten. */

import t, { type Test } from 'tap';
import { type Answered, burst } from '../support/client.js';
import { allEqual, COLLAPSED, HIT, isProblem, LED, PROMPT_MS, tally } from '../support/expect.js';
import { delay, Gate, within } from '../support/gate.js';
import { allCaughtUp, configOf, metricsOf, startGateways } from '../support/gateway.js';
import { inEachStore } from '../support/stores.js';
import { type Answer, answers, type Call, gated, startUpstream } from '../support/upstream.js';

t.setTimeout(120_000);

const BRIEF_MS = 1_500;
const APART = 'oneflight; fwd=bypass; detail=not-shareable';
const ALONE = 'oneflight; fwd=miss';
const PRIVATE = ['Cache-Control', 'private'];

const ROUTES = [
  ['marked', ''],
  ['brief', `unshareableFor: ${BRIEF_MS}ms`],
  ['off', 'unshareableFor: 0s'],
  ['small', 'maxShared: 64KiB'],
  ['kept', 'keep: 20s'],
]
  .map(
    ([name, more]) => `
  - name: ${name}
    match: { path: /${name}/* }
    policy: coalesce
    key: [ { request: path }, { query: id } ]
    identity: public
    lease: 30s
    wait: { max: 25s, poll: 15s }
    ${more}`,
  )
  .join('');

type Options = { readonly method?: string; readonly headers?: readonly string[] };
type Burst = { readonly leader: Answered; readonly others: Answered[]; readonly calls: number };

async function scenarios(t: Test, store: string, processes: number): Promise<void> {
  const upstream = await startUpstream(t);
  const config = configOf({ upstream: upstream.url, store, routes: ROUTES });
  const gateways = await startGateways(t, processes, { config });
  const first = gateways[0]!;
  const last = gateways[gateways.length - 1]!;
  const ask = (index: number, path: string, options: Options = {}) =>
    (index % 2 === 0 ? first : last).request({ ...options, path: `${path}?id=1` });
  const numbered =
    (more: Answer) =>
    (call: Call): Answer => ({ content: `call ${call.ordinal}`, ...more });

  /** The next call is held; `others` come while it is, and those that are forwarded are answered at once. */
  async function hold(path: string, answer: (call: Call) => Answer, options: Options = {}) {
    const before = upstream.count(path);
    const gate = new Gate();
    upstream.on(path, (call) => {
      const behaviour = answers(answer);
      return (call.ordinal === before + 1 ? gated(gate, behaviour) : behaviour)(call);
    });
    const leader = ask(0, path, options);
    await upstream.arrived(before + 1, path);
    return { leader, gate, others: () => burst(4, (index) => ask(index, path, options)), before };
  }

  /** One leader whose response the others wait for. */
  async function together(path: string, answer: (call: Call) => Answer, options: Options = {}): Promise<Burst> {
    const { leader, gate, others, before } = await hold(path, answer, options);
    const pending = others();
    await allCaughtUp(gateways);
    t.equal(upstream.count(path), before + 1, `${path}: the others wait`);
    gate.open();
    const [led, rest] = await Promise.all([leader, pending]);
    return { leader: led, others: rest, calls: upstream.count(path) - before };
  }

  /** One leader that is held until the others have their answers. */
  async function apart(path: string, answer: (call: Call) => Answer, options: Options = {}): Promise<Burst> {
    const { leader, gate, others, before } = await hold(path, answer, options);
    const rest = await within(PROMPT_MS, `${path}: the others, while the leader is held`, others());
    gate.open();
    return { leader: await leader, others: rest, calls: upstream.count(path) - before };
  }

  await t.test('GET: the second burst does not wait for its leader, nor does the third', async (t) => {
    const path = '/marked/get';
    const answer = numbered({ fields: PRIVATE });
    t.equal((await together(path, answer)).calls, 5);
    for (const round of [2, 3]) {
      const { leader, others, calls } = await apart(path, answer);
      t.equal(calls, 5);
      t.same(tally([leader]), { [ALONE]: 1 }, `burst ${round}`);
      t.same(tally(others), { [APART]: 4 });
      t.equal(new Set([leader, ...others].map(({ text }) => text)).size, 5, 'each has its own');
    }
  });

  await t.test('GET: of those who come in one moment one leads, and all are at the upstream together', async (t) => {
    const path = '/marked/at-once';
    const answer = numbered({ fields: PRIVATE });
    await together(path, answer);
    const gate = new Gate();
    upstream.on(path, gated(gate, answers(answer)));
    const all = burst(6, (index) => ask(index, path));
    await upstream.arrived(11, path);
    gate.open();
    t.same(tally(await all), { [ALONE]: 1, [APART]: 5 });
    t.equal(upstream.count(path), 11);
  });

  await t.test('POST: duplicates are told at once that they would wait in vain', async (t) => {
    const path = '/marked/post';
    const answer = numbered({ fields: ['Set-Cookie', 'a=1'] });
    const options = { method: 'POST' };
    const round = await together(path, answer, options);
    t.equal(round.calls, 1);
    for (const other of round.others) isProblem(t, other, 'not-shareable');
    const { leader, others, calls } = await apart(path, answer, options);
    t.equal(calls, 1);
    t.equal(leader.text, 'call 2');
    for (const other of others) isProblem(t, other, 'not-shareable');
  });

  await t.test('when the response is for everybody again, the burst after the next shares it', async (t) => {
    for (const method of ['GET', 'POST']) {
      const path = `/marked/again-${method}`;
      await together(path, numbered({ fields: PRIVATE }), { method });
      const { leader } = await apart(path, numbered({}), { method });
      t.same(tally([leader]), { [LED]: 1 });
      // Of an unsafe method it is kept for a while: who comes now has it without a call.
      if (method === 'POST') t.match((await ask(1, path, { method })).cacheStatus, HIT);
      else {
        const round = await together(path, numbered({}), { method });
        t.equal(round.calls, 1);
        t.same(tally([round.leader, ...round.others]), { [LED]: 1, [COLLAPSED]: 4 });
      }
    }
  });

  await t.test('it is forgotten after unshareableFor', async (t) => {
    const path = '/brief/a';
    await together(path, numbered({ fields: PRIVATE }));
    await apart(path, numbered({ fields: PRIVATE }));
    await delay(BRIEF_MS + 100);
    const round = await together(path, numbered({}));
    t.equal(round.calls, 1);
    t.equal(tally(round.others)[COLLAPSED], 4);
  });

  await t.test('unshareableFor: 0s remembers nothing', async (t) => {
    for (const round of [1, 2]) {
      const { calls } = await together('/off/a', numbered({ fields: PRIVATE }));
      t.equal(calls, 5, `burst ${round}`);
    }
  });

  await t.test('what turned out too large is remembered as well, announced or not', async (t) => {
    const content = Buffer.alloc(400_000, 'z');
    for (const framing of ['length', 'chunked'] as const) {
      const path = `/small/${framing}`;
      const options = { method: 'POST' };
      await together(path, () => ({ content, framing }), options);
      const { leader, others, calls } = await apart(path, () => ({ content, framing }), options);
      t.equal(calls, 1);
      allEqual(t, [leader], 200, content.toString());
      for (const other of others) isProblem(t, other, 'not-shareable');
    }
    const reasons = await metricsOf(gateways);
    t.equal(reasons.sum('oneflight_unshareable_responses_total', { route: 'small', reason: 'too-large' }), 4);
    t.ok(reasons.sum('oneflight_unshareable_responses_total', { route: 'marked', reason: 'private' }) > 0);
  });

  await t.test('a variant has a mark of its own', async (t) => {
    const path = '/kept/vary';
    const answer = (call: Call): Answer => {
      const language = call.header('accept-language');
      const more = language === 'de' ? PRIVATE : [];
      return { fields: ['Vary', 'Accept-Language', ...more], content: `${language} ${call.ordinal}` };
    };
    const speaking = (language: string) => ({ headers: ['Accept-Language', language] });
    upstream.on(path, answers(answer));
    allEqual(t, [await ask(0, path, speaking('en'))], 200, 'en 1');
    await together(path, answer, speaking('de'));
    const { others, calls } = await apart(path, answer, speaking('de'));
    t.equal(calls, 5);
    t.same(tally(others), { [APART]: 4 });
    allEqual(t, await burst(4, (index) => ask(index, path, speaking('en'))), 200, 'en 1');
    t.equal((await together(path, answer, speaking('fr'))).calls, 1);
  });

  await t.test('nobody waits for a marked flight: when its client leaves, the call ends', async (t) => {
    const path = '/marked/leaves';
    const answer = numbered({ fields: PRIVATE });
    await together(path, answer);
    const gate = new Gate();
    upstream.on(path, (call) => (call.ordinal === 6 ? gated(gate, answers(answer)) : answers(answer))(call));
    const leader = first.send({ path: `${path}?id=1` });
    leader.answer.catch(() => {});
    await upstream.arrived(6, path);
    t.equal((await ask(1, path)).cacheStatus, APART);
    leader.leave();
    await within(PROMPT_MS, 'the end of the call', upstream.callsOf(path)[5]!.closed);
    gate.open();
    t.equal(upstream.callsOf(path)[5]!.aborted, true);
  });
}

inEachStore(t, 2, (t: Test, store: string, processes: number) => scenarios(t, store, processes));
