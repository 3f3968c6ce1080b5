/** Which responses are given to others, and what becomes of followers of one that is not. */

import t, { type Test } from 'tap';
import { type Answered, burst } from '../support/client.js';
import { allEqual, COLLAPSED, isProblem, LED, PROMPT_MS, tally } from '../support/expect.js';
import { Gate, within } from '../support/gate.js';
import { allCaughtUp, configOf, type Gateway, startGateways } from '../support/gateway.js';
import { inEachStore } from '../support/stores.js';
import { type Answer, answers, type Call, chunkedInParts, gated, inTurn, startUpstream } from '../support/upstream.js';

t.setTimeout(120_000);

const ROUTES = [
  ['public', 'identity: public'],
  ['personal', 'keep: 20s'],
  ['small', 'maxShared: 64KiB'],
  ['forwards', 'identity: public\n    onUnshareable: forward'],
  ['fails', 'identity: public\n    onUnshareable: fail'],
]
  .map(
    ([name, more]) => `
  - name: ${name}
    match: { path: /${name}/* }
    policy: coalesce
    key: [ { request: path }, { query: id } ]
    lease: 30s
    wait: { max: 25s, poll: 15s }
    ${more}`,
  )
  .join('');

async function scenarios(t: Test, store: string, processes: number): Promise<void> {
  const upstream = await startUpstream(t);
  const config = configOf({ upstream: upstream.url, store, routes: ROUTES });
  const gateways = await startGateways(t, processes, { config });
  const first = gateways[0]!;
  const last = gateways[gateways.length - 1]!;

  type Flight = { leader: Answered; followers: Answered[]; latencyMs: number };

  /** One leader, two followers in its process and two in the last; calls of the path made after the first are answered at once. */
  async function flight(
    path: string,
    answer: (call: Call) => Answer,
    options: { method: string; headers?: string[] },
  ): Promise<Flight> {
    const held = upstream.holds(path, answer);
    const ask = (gateway: Gateway) => gateway.request({ ...options, path: `${path}?id=1` });
    const leader = ask(first);
    await held.arrived(1);
    const followers = burst(4, (index) => ask(index % 2 === 0 ? first : last));
    await allCaughtUp(gateways);
    const released = performance.now();
    held.release();
    const all = await Promise.all([leader, followers]);
    return { leader: all[0], followers: all[1], latencyMs: performance.now() - released };
  }

  const numbered =
    (more: Answer) =>
    (call: Call): Answer => ({ content: `call ${call.ordinal}`, ...more });
  const NOT_FOR_OTHERS: Record<string, string[]> = {
    cookie: ['Set-Cookie', 'session=1'],
    private: ['Cache-Control', 'private'],
    'no-store': ['Cache-Control', 'max-age=5, NO-STORE'],
    'vary-all': ['Vary', '*'],
  };

  await t.test('GET: what is for one caller is not given to others: each follower forwards by itself', async (t) => {
    for (const [name, fields] of Object.entries(NOT_FOR_OTHERS)) {
      const path = `/public/get-${name}`;
      const { leader, followers, latencyMs } = await flight(path, numbered({ fields }), { method: 'GET' });
      t.equal(leader.text, 'call 1', name);
      t.match(leader.cacheStatus, /^oneflight; fwd=miss/);
      t.same(new Set(followers.map((answer) => answer.text)), new Set(['call 2', 'call 3', 'call 4', 'call 5']), name);
      t.ok(followers.every((answer) => answer.status === 200 && answer.cacheStatus !== COLLAPSED));
      t.equal(upstream.count(path), 5, name);
      t.ok(latencyMs < PROMPT_MS, `${name}: ${Math.round(latencyMs)} ms`);
    }
  });

  await t.test('POST: followers are told that it cannot be shared, and nothing is called for them', async (t) => {
    for (const [name, fields] of Object.entries(NOT_FOR_OTHERS)) {
      const path = `/public/post-${name}`;
      const { leader, followers, latencyMs } = await flight(path, numbered({ fields }), { method: 'POST' });
      t.equal(leader.text, 'call 1', name);
      for (const answer of followers) isProblem(t, answer, 'not-shareable');
      t.equal(upstream.count(path), 1, name);
      t.ok(latencyMs < PROMPT_MS, `${name}: ${Math.round(latencyMs)} ms`);
      t.equal((await last.request({ method: 'POST', path: `${path}?id=1` })).text, 'call 2', 'kept for nobody');
    }
  });

  await t.test('a rule may say otherwise', async (t) => {
    const fields = ['Set-Cookie', 'a=1'];
    const forwarded = await flight('/forwards/a', numbered({ fields }), { method: 'POST' });
    t.equal(new Set([forwarded.leader, ...forwarded.followers].map((answer) => answer.text)).size, 5);
    t.equal(upstream.count('/forwards/a'), 5);
    const failed = await flight('/fails/a', numbered({ fields }), { method: 'GET' });
    for (const answer of failed.followers) isProblem(t, answer, 'not-shareable');
    t.equal(upstream.count('/fails/a'), 1);
  });

  await t.test('one caller gets its own Set-Cookie and private responses, however often it asked', async (t) => {
    for (const [name, fields] of Object.entries(NOT_FOR_OTHERS)) {
      if (name === 'vary-all') continue;
      const path = `/personal/${name}`;
      const headers = ['Authorization', 'Bearer me'];
      const { leader, followers } = await flight(path, numbered({ fields }), { method: 'POST', headers });
      allEqual(t, [leader, ...followers], 200, 'call 1');
      t.ok(
        followers.every((answer) => answer.header(fields[0]!) === fields[1]),
        name,
      );
      t.equal(upstream.count(path), 1);
    }
  });

  await t.test('206 and 304 answer the condition of one request only', async (t) => {
    const partial = numbered({ status: 206, reason: 'Partial Content', fields: ['Content-Range', 'bytes 0-5/9'] });
    const range = await flight('/personal/206', partial, { method: 'GET', headers: ['Range', 'bytes=0-5'] });
    t.same(new Set([range.leader, ...range.followers].map((answer) => `${answer.status} ${answer.text}`)).size, 5);
    t.equal(upstream.count('/personal/206'), 5);
    const unchanged = numbered({
      status: 304,
      reason: 'Not Modified',
      framing: 'none',
      fields: ['ETag', '"x"', 'Content-Length', '99'],
    });
    const conditional = await flight('/personal/304', unchanged, { method: 'GET', headers: ['If-None-Match', '"x"'] });
    allEqual(t, [conditional.leader, ...conditional.followers], 304, '');
    t.equal(upstream.count('/personal/304'), 5);
  });

  await t.test('a follower whose fields differ in what Vary names is not given the response', async (t) => {
    const path = '/public/vary';
    const held = upstream.holds(path, (call) => ({
      fields: ['Vary', 'Accept-Language'],
      content: `in ${call.header('accept-language')}`,
    }));
    const ask = (gateway: Gateway, language: string) =>
      gateway.request({ path: `${path}?id=1`, headers: ['Accept-Language', language] });
    const leader = ask(first, 'en');
    await held.arrived(1);
    const same = burst(4, (index) => ask(index % 2 === 0 ? first : last, 'en'));
    const other = burst(4, (index) => ask(index % 2 === 0 ? first : last, 'de'));
    await allCaughtUp(gateways);
    t.equal(upstream.count(path), 1);
    held.release();
    allEqual(t, [await leader, ...(await same)], 200, 'in en');
    t.same(tally(await same), { [COLLAPSED]: 4 });
    allEqual(t, await other, 200, 'in de');
    t.ok(upstream.count(path) >= 2 && upstream.count(path) <= 5, `${upstream.count(path)} calls`);
  });

  await t.test('a kept response is not given to another variant either', async (t) => {
    const path = '/personal/vary';
    upstream
      .holds(path, (call) => ({ fields: ['Vary', 'accept-language'], content: `in ${call.header('accept-language')}` }))
      .release();
    for (const language of ['en', 'de', 'en', 'fr']) {
      const headers = ['Accept-Language', language];
      allEqual(t, [await last.request({ method: 'POST', path: `${path}?id=1`, headers })], 200, `in ${language}`);
    }
  });

  await t.test('a response that is too big for sharing reaches its leader whole and holds nobody up', async (t) => {
    const content = Buffer.alloc(1_000_000, 'z');
    for (const framing of ['length', 'chunked'] as const) {
      const get = await flight(`/small/get-${framing}`, () => ({ content, framing }), { method: 'GET' });
      allEqual(t, [get.leader, ...get.followers], 200, content.toString());
      t.equal(upstream.count(`/small/get-${framing}`), 5);
      const post = await flight(`/small/post-${framing}`, () => ({ content, framing }), { method: 'POST' });
      allEqual(t, [post.leader], 200, content.toString());
      t.equal(upstream.count(`/small/post-${framing}`), 1);
      for (const answer of post.followers) {
        // In the leader's process it may be read as it comes, before it turns out to be too long: then it is theirs as well.
        const isWhole = framing === 'chunked' && answer.status === 200 && answer.body.equals(content);
        if (!answer.cut && !isWhole) isProblem(t, answer, 'not-shareable');
      }
    }
    const just = await flight('/small/just', () => ({ content: Buffer.alloc(64 * 1024, 'y') }), { method: 'POST' });
    t.same(tally([just.leader, ...just.followers]), { [LED]: 1, [COLLAPSED]: 4 }, 'exactly as big as allowed');
  });

  await t.test("followers are let go at the response's fields, not at its end", async (t) => {
    const path = '/public/early';
    const begin = new Gate();
    const gate = new Gate();
    const parts = chunkedInParts([Buffer.from('first'), Buffer.from('last')], gate, ['Cache-Control', 'private']);
    upstream.on(path, inTurn(gated(begin, parts), answers({ content: 'own' })));
    const leader = first.send({ path: `${path}?id=1` });
    await upstream.arrived(1, path);
    const followers = burst(4, (index) => (index % 2 === 0 ? first : last).request({ path: `${path}?id=1` }));
    await allCaughtUp(gateways);
    begin.open();
    allEqual(t, await within(PROMPT_MS, 'the followers', followers), 200, 'own');
    gate.open();
    t.equal((await leader.answer).text, 'firstlast');
    t.equal(upstream.count(path), 5);
  });
}

inEachStore(t, 2, scenarios);
