/** Faults that other gateways have when they share responses; each is a test here, over processes. */

import t, { type Test } from 'tap';
import { burst, RawClient } from '../support/client.js';
import { allEqual, COLLAPSED, LED, PROMPT_MS, tally } from '../support/expect.js';
import { Gate, within } from '../support/gate.js';
import { allCaughtUp, configOf, type Gateway, startGateways } from '../support/gateway.js';
import { inEachStore } from '../support/stores.js';
import { type Answer, type Call, chunkedInParts, gated, startUpstream } from '../support/upstream.js';

t.setTimeout(120_000);

const ROUTES = [
  ['own', 'keep: 20s'],
  ['public', 'identity: public'],
  ['small', 'identity: public\n    maxShared: 64KiB\n    stallTimeout: 500ms'],
]
  .map(
    ([name, more]) => `
  - name: ${name}
    match: { path: /${name}/* }
    policy: coalesce
    key: [ { request: path } ]
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
  const to = (index: number): Gateway => (index % 2 === 0 ? first : last);

  /** Requests of different kinds at the same time, each from every process: one call for each kind. */
  async function apart(
    path: string,
    answer: (call: Call) => Answer,
    kinds: readonly { readonly method?: string; readonly headers?: readonly string[] }[],
  ) {
    const held = upstream.holds(path, answer);
    const pending = kinds.map((kind) => burst(4, (index) => to(index).request({ ...kind, path })));
    await held.arrived(kinds.length);
    await allCaughtUp(gateways);
    t.equal(upstream.count(path), kinds.length, `${path}: one call for each kind`);
    held.release();
    return Promise.all(pending);
  }

  await t.test("one caller's Set-Cookie is given to no other caller", async (t) => {
    const cookie = (call: Call): Answer => ({
      fields: ['Set-Cookie', `session=${call.header('authorization')}`],
      content: String(call.header('authorization')),
    });
    const kinds = ['a', 'b'].map((name) => ({ headers: ['Authorization', name] }));
    const all = await apart('/own/cookie', cookie, kinds);
    all.forEach((answers, index) => {
      const name = ['a', 'b'][index]!;
      allEqual(t, answers, 200, name);
      t.ok(answers.every((answer) => answer.header('set-cookie') === `session=${name}`));
    });
    const held = upstream.holds('/public/cookie', (call) => ({ fields: ['Set-Cookie', `n=${call.ordinal}`] }));
    const pending = burst(6, (index) => to(index).request({ path: '/public/cookie' }));
    await held.arrived(1);
    await allCaughtUp(gateways);
    held.release();
    const cookies = (await pending).map((answer) => answer.header('set-cookie'));
    t.equal(new Set(cookies).size, 6, 'where everybody shares, each has a cookie of its own');
  });

  await t.test("a 304 to the leader's condition is given to nobody without that condition", async (t) => {
    const conditional = (call: Call): Answer =>
      call.header('if-none-match') === '"x"' || call.header('if-modified-since') !== null
        ? { status: 304, reason: 'Not Modified', framing: 'none', fields: ['ETag', '"x"'] }
        : { fields: ['ETag', '"x"'], content: 'whole' };
    const path = '/public/304';
    const gate = new Gate();
    upstream.on(path, async (call) => {
      await gate.opened;
      call.answer(conditional(call));
    });
    const leader = first.request({ path, headers: ['If-None-Match', '"x"'] });
    await upstream.arrived(1, path);
    const plain = burst(4, (index) => to(index).request({ path }));
    const other = burst(2, (index) => to(index).request({ path, headers: ['If-None-Match', '"y"'] }));
    const since = burst(2, (index) =>
      to(index).request({ path, headers: ['If-Modified-Since', 'Sun, 06 Nov 1994 08:49:37 GMT'] }),
    );
    await upstream.arrived(4, path);
    await allCaughtUp(gateways);
    t.equal(upstream.count(path), 4, 'a flight for each condition');
    gate.open();
    t.equal((await leader).status, 304);
    allEqual(t, await plain, 200, 'whole');
    t.same(tally(await plain), { [LED]: 1, [COLLAPSED]: 3 });
    allEqual(t, await other, 200, 'whole');
    allEqual(t, await since, 304, '');
  });

  await t.test('a part of a response is given to nobody who asked for another, or for the whole', async (t) => {
    const ranges = ['bytes=0-1', 'bytes=2-3'];
    const part = (call: Call): Answer => {
      const range = call.header('range');
      if (range === null) return { content: 'abcd' };
      const content = range === ranges[0] ? 'ab' : 'cd';
      return { status: 206, reason: 'Partial Content', fields: ['Content-Range', 'bytes 0-1/4'], content };
    };
    const kinds = [{}, ...ranges.map((range) => ({ headers: ['Range', range] }))];
    const all = await apart('/public/range', part, kinds);
    allEqual(t, all[0]!, 200, 'abcd');
    allEqual(t, all[1]!, 206, 'ab');
    allEqual(t, all[2]!, 206, 'cd');
    t.equal(upstream.count('/public/range'), 1 + 4 + 4, 'those who asked for one part are sent on as well');
  });

  await t.test('HEAD and GET never answer each other', async (t) => {
    const answer = (call: Call): Answer =>
      call.method === 'HEAD' ? { framing: 'none', fields: ['Content-Length', '4'] } : { content: 'abcd' };
    const [head, get] = await apart('/public/head', answer, [{ method: 'HEAD' }, { method: 'GET' }]);
    allEqual(t, get!, 200, 'abcd');
    t.ok(head!.every(({ status, text, cut }) => status === 200 && text === '' && !cut));
    t.ok(head!.every((one) => one.header('content-length') === '4'));
    t.equal(upstream.count('/public/head'), 2);
  });

  await t.test('what must not be shared does not drain one by one', async (t) => {
    const path = '/public/drain';
    const [begin, rest] = [new Gate(), new Gate()];
    upstream.on(path, async (call) => {
      await (call.ordinal === 1 ? begin : rest).opened;
      call.answer({ fields: ['Cache-Control', 'no-store'], content: String(call.ordinal) });
    });
    const all = burst(20, (index) => to(index).request({ path }));
    await upstream.arrived(1, path);
    await allCaughtUp(gateways);
    t.equal(upstream.count(path), 1);
    begin.open();
    await within(PROMPT_MS, 'all of them at the upstream at the same time', upstream.arrived(20, path));
    rest.open();
    t.equal(new Set((await all).map(({ text }) => text)).size, 20);
  });

  await t.test("the leader's client leaves: its followers get the answer", async (t) => {
    const path = '/own/leader-leaves';
    const held = upstream.holds(path, { content: 'for all' });
    const leader = first.send({ path });
    leader.answer.catch(() => {});
    await held.arrived(1);
    const followers = burst(4, (index) => to(index).request({ path }));
    await allCaughtUp(gateways);
    leader.leave();
    await first.caughtUp();
    held.release();
    allEqual(t, await followers, 200, 'for all');
    t.equal(upstream.count(path), 1);
  });

  await t.test('one reader that takes nothing holds up nobody whose response is kept whole', async (t) => {
    const path = '/own/slow';
    const content = Buffer.alloc(6 * 1_048_576, 'x');
    const held = upstream.holds(path, { content });
    const leader = first.request({ path });
    await held.arrived(1);
    const slow = await RawClient.connect(first.url);
    t.teardown(() => slow.close());
    slow.socket.pause();
    slow.write(`GET ${path} HTTP/1.1\r\nHost: ${new URL(first.url).host}\r\n\r\n`);
    const followers = burst(4, (index) => to(index).request({ path }));
    await allCaughtUp(gateways);
    held.release();
    allEqual(t, await within(10_000, 'the others', Promise.all([leader, ...(await followers)])), 200, String(content));
    slow.socket.resume();
    t.equal((await slow.answer())?.body.length, content.length);
    t.equal(upstream.count(path), 1);
  });

  await t.test('of a longer one it holds the others up for stallTimeout, and is cut', async (t) => {
    const path = '/small/slow';
    const pieces = Array.from({ length: 32 }, () => Buffer.alloc(1_048_576, 'x'));
    const [begin, rest] = [new Gate(), new Gate()];
    upstream.on(path, gated(begin, chunkedInParts([Buffer.from('begin'), ...pieces], rest)));
    const leader = first.send({ path });
    await upstream.arrived(1, path);
    const slow = await RawClient.connect(first.url);
    t.teardown(() => slow.close());
    slow.write(`GET ${path} HTTP/1.1\r\nHost: ${new URL(first.url).host}\r\n\r\n`);
    const follower = first.send({ path });
    await allCaughtUp(gateways);
    begin.open();
    await Promise.all([leader.started, follower.started]);
    slow.socket.pause();
    rest.open();
    const whole = 5 + 32 * 1_048_576;
    for (const { answer } of [leader, follower])
      t.equal((await within(15_000, 'the others', answer)).body.length, whole);
    slow.socket.resume();
    t.equal((await slow.answer())?.cut, true);
    t.equal(upstream.count(path), 1);
  });
}

inEachStore(t, 2, scenarios);
