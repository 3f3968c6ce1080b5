/** `stream: true`: followers on every gateway get the response as it comes; event streams are shared like this only. */

import t, { type Test } from 'tap';
import { Watching } from '../support/client.js';
import { COLLAPSED, isProblem, LED } from '../support/expect.js';
import { eventually, Gate, within } from '../support/gate.js';
import { allCaughtUp, configOf, type Gateway, metricsOf, startGateways } from '../support/gateway.js';
import { inEachStore } from '../support/stores.js';
import { type Call, startUpstream } from '../support/upstream.js';
import { chunkBytes, lastChunkBytes } from '../support/wire.js';

t.setTimeout(120_000);

const EVENTS = ['Content-Type', 'text/event-stream'];

const route = (name: string, more: string) => `
  - name: ${name}
    match: { path: "/${name}/*" }
    policy: coalesce
    key: [ { request: path } ]
    identity: public
    lease: 20s
    wait: { max: 25s, poll: 15s }
    ${more}`;

async function scenarios(t: Test, store: string, processes: number): Promise<void> {
  const upstream = await startUpstream(t);
  const routes = [route('llm', 'stream: true'), route('kept', 'stream: true\n    keep: 20s'), route('plain', '')].join(
    '',
  );
  const gateways = await startGateways(t, processes, { config: configOf({ upstream: upstream.url, store, routes }) });
  const first = gateways[0]!;
  const last = gateways[gateways.length - 1]!;
  const watch = (gateway: Gateway, path: string, method = 'POST') =>
    new Watching(gateway.url, { method, path, headers: ['X-A', '1'] });

  /** An upstream that sends a token for each call of `token`, and then the end. */
  function tokens(path: string, fields: readonly string[] = EVENTS) {
    let call: Call | null = null;
    const arrived = new Gate();
    upstream.on(path, async (one) => {
      await one.received;
      call = one;
      one.head(200, 'OK', [...fields, 'Transfer-Encoding', 'chunked']);
      arrived.open();
      await one.over;
    });
    return {
      arrived: arrived.opened,
      token: (text: string) => call!.raw(chunkBytes(Buffer.from(text))),
      end: () => {
        call!.raw(lastChunkBytes());
        call!.finish();
      },
      cut: () => call!.hangUp(),
    };
  }

  await t.test('50 followers on all processes read each event before the next one comes', async (t) => {
    const path = '/llm/answer';
    const source = tokens(path);
    const leader = watch(first, path);
    await source.arrived;
    const clients = [leader, ...Array.from({ length: 50 }, (_, i) => watch(gateways[i % processes]!, path))];
    let sent = '';
    for (let i = 0; i < 12; i += 1) {
      const event = `data: token ${i}\n\n`;
      sent += event;
      source.token(event);
      await Promise.all(clients.map((client) => client.received(sent.length)));
      if (i === 5) clients.push(watch(last, path), watch(first, path));
    }
    source.end();
    for (const client of clients) {
      const answer = await client.answer;
      t.equal(answer.text, sent);
      t.equal(answer.cut, false);
      t.equal(answer.cacheStatus, client === leader ? LED : COLLAPSED);
    }
    t.equal(upstream.count(path), 1);
  });

  await t.test('a cut upstream cuts whoever had the fields, in every process', async (t) => {
    const path = '/llm/cut';
    const source = tokens(path);
    const leader = watch(first, path);
    await source.arrived;
    const clients = [leader, watch(first, path), watch(last, path)];
    await last.caughtUp();
    source.token('data: half\n\n');
    await Promise.all(clients.map((client) => client.received(12)));
    source.cut();
    for (const { answer } of clients) t.equal((await answer).cut, true);
    t.equal(upstream.count(path), 1);
  });

  await t.test('an operator settles what is being read: who reads elsewhere is cut, and gets no mixture', async (t) => {
    if (last === first) return;
    const path = '/kept/settled';
    const source = tokens(path);
    const leader = watch(first, path);
    await source.arrived;
    const far = watch(last, path);
    await last.caughtUp();
    source.token('data: half\n\n');
    await Promise.all([leader.received(12), far.received(12)]);
    const { flights } = JSON.parse((await first.admin('/flights?state=in-flight')).text);
    const [{ key, flight }] = flights;
    const word = { as: 'response', status: 200, content: 'a longer content than what was read before', flight };
    const settled = await fetch(`${last.adminUrl}/flights/${key}/settle`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(word),
    });
    t.equal(settled.status, 200);
    const answer = await within(10_000, 'the cut', far.answer);
    t.equal(answer.cut, true);
    t.equal(answer.text, 'data: half\n\n');
    source.end();
    t.equal((await leader.answer).text, 'data: half\n\n', 'the leader has its own');
  });

  await t.test("the leader's process dies: whoever reads elsewhere is cut, nobody hangs", async (t) => {
    if (last === first) return;
    const path = '/llm/dies';
    const source = tokens(path);
    const victim = gateways[1]!;
    const leader = watch(victim, path);
    await source.arrived;
    const far = watch(last, path);
    await last.caughtUp();
    source.token('data: half\n\n');
    await far.received(12);
    await victim.kill9();
    t.equal((await within(25_000, 'the cut', far.answer)).cut, true);
    await leader.answer.catch(() => {});
  });

  await t.test('without stream: true an event stream is for its own client alone, and says so', async (t) => {
    const gate = new Gate();
    upstream.on('/plain/x', async (call) => {
      await gate.opened;
      call.head(200, 'OK', [...EVENTS, 'Transfer-Encoding', 'chunked']);
      call.raw(chunkBytes(Buffer.from('data: 1\n\n')));
      call.raw(lastChunkBytes());
      call.finish();
    });
    const leader = watch(first, '/plain/x');
    await upstream.arrived(1, '/plain/x');
    const followers = [watch(first, '/plain/x'), watch(last, '/plain/x')];
    await allCaughtUp(gateways.filter((gateway) => gateway.running));
    gate.open();
    for (const { answer } of followers) isProblem(t, await answer, 'not-shareable', 20);
    t.equal((await leader.answer).cacheStatus, 'oneflight; fwd=miss');
    t.equal(upstream.count('/plain/x'), 1);
  });

  await t.test('everybody leaves: a safe call ends', async (t) => {
    const path = '/llm/leave';
    const source = tokens(path);
    const leader = watch(first, path, 'GET');
    await source.arrived;
    const far = watch(last, path, 'GET');
    await last.caughtUp();
    source.token('data: 1\n\n');
    await Promise.all([leader.received(9), far.received(9)]);
    leader.leave();
    await first.caughtUp();
    const [call] = upstream.callsOf(path);
    t.equal(call!.aborted, false, 'somebody still reads');
    far.leave();
    await within(15_000, 'the upstream hears of it', call!.closed);
    t.equal(call!.aborted, true);
  });

  await t.test('nothing is left over', async () => {
    const running = gateways.filter((gateway) => gateway.running);
    await eventually('no flight', async () => {
      return (await metricsOf(running)).sum('oneflight_flights_in_progress') === 0;
    });
  });
}

inEachStore(t, 3, scenarios);
