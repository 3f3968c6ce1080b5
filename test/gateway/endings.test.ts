/** How a flight ends when the upstream does not answer: every row of the contract's table, for all who are there. */

import { type AddressInfo, createServer } from 'node:net';
import t, { type Test } from 'tap';
import { type Answered, burst } from '../support/client.js';
import { allEqual, COLLAPSED, isProblem, LED, PROMPT_MS, problemOf, slowestMs, tally } from '../support/expect.js';
import { eventually, Gate } from '../support/gate.js';
import { allCaughtUp, configOf, type Gateway, startGateway, startGateways } from '../support/gateway.js';
import { startRedis } from '../support/redis.js';
import {
  answers,
  answersGarbage,
  type Behaviour,
  cutsChunked,
  cutsContentLength,
  gated,
  hangsUpAfterReading,
  inTurn,
  resetsAfterReading,
  stalls,
  startUnconnectable,
  startUpstream,
} from '../support/upstream.js';

t.setTimeout(180_000);

const redis = await startRedis();
t.teardown(() => redis.stop());
const upstream = await startUpstream(t);
const closed = await startUpstream(t);
const unconnectable = await startUnconnectable(t);
const notTls = createServer((socket) =>
  socket.on('error', () => {}).once('data', () => socket.end('HTTP/1.1 400 No\r\n\r\n')),
);
await new Promise<void>((resolve) => notTls.listen(0, '127.0.0.1', resolve));
t.teardown(() => notTls.close());

function route(name: string, to: string, more = ''): string {
  return `
  - name: ${name}
    match: { path: /${name}/* }
    upstream: ${to}
    policy: coalesce
    key: [ { request: path }, { header: x-id } ]
    lease: 30s
    wait: { max: 25s, poll: 15s }
    ${more}`;
}

const routes = [
  route('ends', 'api'),
  route('elects', 'api', 'onLeaderFailure: elect'),
  route('closed', 'closed'),
  route('unconnectable', 'unconnectable'),
  route('not-tls', 'not-tls'),
].join('');
const upstreams = `
  closed: { url: "${closed.url}" }
  unconnectable: { url: "${unconnectable.url}", timeouts: { connect: 1200ms, headers: 5s, body: 5s } }
  not-tls: { url: "https://127.0.0.1:${(notTls.address() as AddressInfo).port}" }`;
const gateways = await startGateways(t, 2, {
  config: configOf({
    upstream: upstream.url,
    upstreams,
    timeouts: '{ connect: 2s, headers: 1500ms, body: 1500ms }',
    store: `{ kind: redis, url: "${redis.url}", commandTimeout: 2s }`,
    routes,
  }),
});
const [here, there] = gateways as [Gateway, Gateway];

function ask(gateway: Gateway, path: string, body?: Buffer): Promise<Answered> {
  return gateway.request({ method: 'POST', path, headers: ['X-Id', '1'], ...(body === undefined ? {} : { body }) });
}

/** Three followers in the leader's process and three in the other one; resolves when all have joined. */
async function followers(path: string): Promise<{ readonly answers: Promise<Answered[]> }> {
  const answers = burst(6, (index) => ask(index % 2 === 0 ? here : there, path));
  await allCaughtUp(gateways);
  return { answers };
}

/** The key is free: a request in the other process leads at once and gets the upstream's answer. */
async function isFree(t: Test, path: string, calls: number): Promise<void> {
  upstream.on(path, answers({ content: 'at last' }));
  const next = await ask(there, path);
  t.equal(next.text, 'at last', 'the next request may run');
  t.equal(next.cacheStatus, LED, 'and leads');
  t.ok(next.elapsedMs < PROMPT_MS, `at once (${next.elapsedMs} ms)`);
  t.equal(upstream.count(path), calls + 1, 'with one call more');
}

const resetsUnread: Behaviour = (call) => {
  call.socket.pause();
};

t.test('written, then no whole answer: the leader learns "outcome-unknown", followers fail at once', async (t) => {
  const rows: Record<string, { ends: Behaviour; code?: string; silent?: true }> = {
    'reset-after-reading': { ends: resetsAfterReading },
    'hang-up': { ends: hangsUpAfterReading },
    garbage: { ends: answersGarbage, code: 'bad-upstream-response' },
    stall: { ends: stalls, silent: true },
  };
  for (const [name, { ends, code = 'outcome-unknown', silent }] of Object.entries(rows)) {
    await t.test(name, async (t) => {
      const path = `/ends/${name}`;
      const gate = new Gate();
      upstream.on(path, gated(gate, ends));
      const leader = ask(here, path);
      await upstream.arrived(1, path);
      const waiting = await followers(path);
      const opened = performance.now();
      gate.open();
      const told = await leader;
      const all = await waiting.answers;
      const latency = performance.now() - opened;
      t.ok(latency < PROMPT_MS + (silent ? 1_500 : 0), `all know after ${Math.round(latency)} ms`);
      // What came back was no answer: whether it is called unknown or bad, it is never a success.
      if (name === 'garbage' && problemOf(told) === 'outcome-unknown') isProblem(t, told, 'outcome-unknown');
      else isProblem(t, told, code);
      for (const answer of all) isProblem(t, answer, 'leader-failed');
      t.equal(upstream.count(path), 1, 'no second call');
      await isFree(t, path, 1);
    });
  }
});

t.test('reset before the request is read: the outcome is unknown too', async (t) => {
  const path = '/ends/unread';
  upstream.on(path, resetsUnread);
  const leader = ask(here, path, Buffer.alloc(16 * 1024 * 1024));
  await upstream.arrived(1, path);
  const waiting = await followers(path);
  const began = performance.now();
  upstream.callsOf(path)[0]!.reset();
  isProblem(t, await leader, 'outcome-unknown');
  for (const answer of await waiting.answers) isProblem(t, answer, 'leader-failed');
  t.ok(performance.now() - began < PROMPT_MS);
  t.equal(upstream.count(path), 1, 'no second call');
  await isFree(t, path, 1);
});

t.test('reset when the connection is made: an answer at once, no second call, the key free', async (t) => {
  upstream.resetAtAccept(true);
  await upstream.refuse();
  await upstream.listen();
  const all = await burst(6, (index) => ask(gateways[index % 2]!, '/ends/accept'));
  upstream.resetAtAccept(false);
  for (const answer of all) t.match(problemOf(answer), /^(outcome-unknown|upstream-unreachable|leader-failed)$/);
  t.ok(slowestMs(all) < PROMPT_MS);
  t.equal(upstream.count('/ends/accept'), 0);
  await isFree(t, '/ends/accept', 0);
});

t.test('refused: 502 for the leader, 503 for followers, at once, and the key is free', async (t) => {
  await closed.refuse();
  const all = await burst(20, (index) => ask(gateways[index % 2]!, '/closed/a'));
  const led = all.filter((answer) => problemOf(answer) === 'upstream-unreachable');
  t.ok(led.length >= 1);
  for (const answer of led) isProblem(t, answer, 'upstream-unreachable');
  for (const answer of all) if (!led.includes(answer)) isProblem(t, answer, 'leader-failed');
  t.ok(slowestMs(all) < PROMPT_MS, `slowest ${slowestMs(all)} ms`);
  t.equal(closed.count(), 0);
  await closed.listen();
  const next = await ask(there, '/closed/a');
  t.equal(next.status, 200);
  t.equal(next.cacheStatus, LED);
  t.equal(closed.count('/closed/a'), 1);
});

t.test('no connection in time: 504 "upstream-timeout", followers fail with it, the key is free', async (t) => {
  const leader = ask(here, '/unconnectable/a');
  await here.caughtUp();
  const waiting = await followers('/unconnectable/a');
  isProblem(t, await leader, 'upstream-timeout');
  const failed = performance.now();
  for (const answer of await waiting.answers) isProblem(t, answer, 'leader-failed');
  t.ok(performance.now() - failed < PROMPT_MS);
  const again = await ask(there, '/unconnectable/a');
  isProblem(t, again, 'upstream-timeout');
});

t.test('no TLS: 502, nothing was sent', async (t) => {
  const answer = await ask(here, '/not-tls/a');
  isProblem(t, answer, 'upstream-unreachable');
  isProblem(t, await ask(there, '/not-tls/a'), 'upstream-unreachable');
});

t.test('an answer that is cut is never ended cleanly and never kept', async (t) => {
  const stallsInside: Behaviour = async (call) => {
    await call.received;
    call.head(200, 'OK', ['Content-Length', '1000']);
    call.raw('0123456789');
    await call.closed;
  };
  const rows: Record<string, (gate: Gate) => Behaviour> = {
    'content-length': cutsContentLength,
    chunked: cutsChunked,
    'silence inside': () => stallsInside,
  };
  for (const [name, cuts] of Object.entries(rows)) {
    await t.test(name, async (t) => {
      const path = `/ends/cut-${name.replace(' ', '-')}`;
      const gate = new Gate();
      const begin = new Gate();
      upstream.on(path, gated(begin, cuts(gate)));
      const leader = here.send({ method: 'POST', path, headers: ['X-Id', '1'] });
      await upstream.arrived(1, path);
      const waiting = await followers(path);
      begin.open();
      await leader.started;
      const opened = performance.now();
      gate.open();
      const told = await leader.answer;
      t.equal(told.status, 200, 'the fields were out');
      t.equal(told.cut, true, 'the connection is cut');
      for (const answer of await waiting.answers) {
        if (!answer.cut) isProblem(t, answer, 'leader-failed');
        else t.equal(answer.status, 200);
      }
      t.ok(performance.now() - opened < PROMPT_MS + 1_500);
      t.equal(upstream.count(path), 1, 'no second call');
      await isFree(t, path, 1);
    });
  }
});

t.test('nothing that may have been sent is sent again, whatever the method', async (t) => {
  for (const method of ['GET', 'POST', 'PUT', 'DELETE']) {
    const path = `/plain/${method}`;
    upstream.on(path, inTurn(answers({ content: 'warm' }), hangsUpAfterReading));
    t.equal((await here.request({ method, path })).text, 'warm');
    const answer = await here.request({ method, path });
    t.match(String(answer.status), /^50[24]$/, `${method}: ${answer.status}`);
    t.ok(problemOf(answer) !== null);
    t.equal(upstream.count(path), 2, method);
  }
});

t.test('elect: exactly one follower takes over, and once only', async (t) => {
  const inOne = await startGateway(t, {
    config: configOf({ upstream: upstream.url, upstreams, routes }),
  });
  for (const [name, processes] of [
    ['one process in memory', [inOne, inOne]],
    ['two processes', [here, there]],
    ['followers elsewhere only', [here, there, there]],
  ] as const) {
    const choice = processes.slice(processes.length - 2);
    /** The leader's call is reset when six followers have joined; the second one does what the test says. */
    const losesLeader = async (t: Test, path: string, second: Behaviour) => {
      const gate = new Gate();
      upstream.on(path, inTurn(gated(gate, resetsAfterReading), second));
      const leader = ask(processes[0], path);
      await upstream.arrived(1, path);
      const followers = burst(6, (index) => ask(choice[index % 2]!, path));
      await allCaughtUp(choice);
      const opened = performance.now();
      gate.open();
      isProblem(t, await leader, 'outcome-unknown');
      return { followers, opened };
    };

    await t.test(`${name}: the second call succeeds`, async (t) => {
      const path = `/elects/then-well-${processes.length}-${name.length}`;
      const gate = new Gate();
      const { followers, opened } = await losesLeader(t, path, gated(gate, answers({ content: 'second' })));
      await upstream.arrived(2, path);
      await allCaughtUp(choice);
      gate.open();
      const all = await followers;
      t.ok(performance.now() - opened < PROMPT_MS);
      allEqual(t, all, 200, 'second');
      t.same(tally(all), { [LED]: 1, [COLLAPSED]: 5 });
      t.equal(upstream.count(path), 2);
    });

    await t.test(`${name}: the second call fails too`, async (t) => {
      const path = `/elects/then-badly-${processes.length}-${name.length}`;
      const { followers, opened } = await losesLeader(t, path, resetsAfterReading);
      const all = await followers;
      t.ok(performance.now() - opened < PROMPT_MS);
      const elected = all.filter((answer) => problemOf(answer) === 'outcome-unknown');
      t.equal(elected.length, 1, 'one was elected');
      for (const answer of all) if (!elected.includes(answer)) isProblem(t, answer, 'leader-failed');
      t.equal(upstream.count(path), 2);
    });
  }
});

t.test('after all of this no flight is left', async (t) => {
  for (const gateway of gateways) {
    await eventually(
      'no flight in progress',
      async () => (await gateway.metrics()).sum('oneflight_flights_in_progress') === 0,
    );
  }
  t.pass('none');
});
