/** More than the gateway may take: what is too much is refused at once, and everything else goes on. */

import t, { type Test } from 'tap';
import { type Answered, burst, RawClient } from '../support/client.js';
import { isProblem, LED, problemOf } from '../support/expect.js';
import { delay, eventually, Gate } from '../support/gate.js';
import { configOf, type Gateway, startGateway, startGateways } from '../support/gateway.js';
import { RawEnd } from '../support/raw-end.js';
import { startRedis } from '../support/redis.js';
import {
  answers,
  answersGarbage,
  type Behaviour,
  type Call,
  cutsContentLength,
  gated,
  hangsUpAfterReading,
  resetsAfterReading,
  startUpstream,
} from '../support/upstream.js';

t.setTimeout(170_000);

const stub = await startUpstream(t);
const ROUTES = `
  - { name: shared, match: { path: "/shared/*" }, upstream: api, policy: coalesce, key: [ { request: path } ], keep: 20s, wait: 30s MAX }
  - { name: by-content, match: { path: /by-content }, upstream: api, policy: coalesce, key: [ { body: /id } ], keep: 0s MAX }
  - { name: locked, match: { path: "/locked/*" }, upstream: api, policy: reject, key: [ { request: path } ] MAX }
  - { name: once, match: { path: "/once/*" }, upstream: api, policy: replay MAX }
  - { name: turns, match: { path: "/turns/*" }, upstream: api, policy: queue, key: [ { request: path } ], wait: 30s MAX }
  - { name: open, match: { path: "/open/*" }, upstream: api MAX }
  - { name: free, match: { path: "/free/*" }, upstream: api }`;

function configWith(limits: string, { max = '', store }: { max?: string; store?: string } = {}): string {
  const routes = ROUTES.replaceAll(' MAX', max === '' ? '' : `, maxRequests: ${max}`);
  const more = limits === '' ? '' : `limits: { ${limits} }`;
  return configOf({ upstream: stub.url, routes, more, ...(store === undefined ? {} : { store }) });
}

const codes = (answers: readonly Answered[]) => answers.map((answer) => problemOf(answer) ?? String(answer.status));

async function reasons(gateway: Gateway): Promise<Record<string, number>> {
  const metrics = await gateway.metrics();
  const all = ['event-loop', 'requests', 'route'].map(
    (reason) => [reason, metrics.sum('oneflight_overloaded_requests_total', { reason })] as const,
  );
  return Object.fromEntries(all.filter(([, count]) => count > 0));
}

t.test('a route has no more upstream calls than maxRequests; followers and kept responses need none', async (t) => {
  const gateway = await startGateway(t, { config: configWith('', { max: '2' }) });
  const post = (path: string, headers: readonly string[] = []) => gateway.request({ method: 'POST', path, headers });
  for (const [route, keys] of [
    ['shared', []],
    ['locked', []],
    ['turns', []],
    ['open', []],
    ['once', ['Idempotency-Key', 'KEY']],
  ] as const) {
    const ask = (name: string) =>
      post(
        `/${route}/${name}`,
        keys.map((text) => text.replace('KEY', name)),
      );
    const kept = await ask('kept');
    t.equal(kept.status, 200);
    const held = ['a', 'b'].map((name) => stub.holds(`/${route}/${name}`));
    const leaders = ['a', 'b'].map(ask);
    for (const one of held) await one.arrived(1);

    isProblem(t, await ask('c'), 'overloaded');
    t.equal(stub.count(`/${route}/c`), 0, `${route}: one more is not sent`);
    t.equal((await post('/free/a')).status, 200, 'another route has its own');
    const again = route === 'turns' ? null : ask('a');
    if (route === 'locked' || route === 'once') t.same(codes([await again!]), ['in-flight'], 'a duplicate is one');
    if (route === 'open') isProblem(t, await again!, 'overloaded');
    const repeat = await ask('kept');
    if (route === 'shared' || route === 'once') {
      t.equal(repeat.text, kept.text, 'what is kept is given');
    } else {
      isProblem(t, repeat, 'overloaded');
    }
    for (const one of held) one.release();
    t.same(codes(await Promise.all(leaders)), ['200', '200']);
    if (route === 'shared') t.equal((await again!).text, '{"path":"/shared/a","call":1}', 'a follower is one of them');
    t.equal((await ask('c')).status, 200, `${route}: there is room again, and the key is free`);
    t.equal(stub.count(`/${route}/c`), 1);
  }
  t.equal((await gateway.metrics()).sum('oneflight_flights_in_progress'), 0);
  const shed = (await gateway.metrics()).sum('oneflight_overloaded_requests_total', { reason: 'route' });
  const { overloaded } = (await gateway.metrics()).outcomes('shared') as { overloaded: number };
  t.equal(overloaded, 1);
  t.equal(shed, 1 + 2 + 2 + 3 + 1);
});

t.test('a place is given back however a call ends', async (t) => {
  const routes = `
  - { name: open, match: { path: "/open/*" }, upstream: api, maxRequests: 1 }`;
  const upstream = await startUpstream(t);
  const gateway = await startGateway(t, { config: configOf({ upstream: upstream.url, routes }) });
  const full = async () => isProblem(t, await gateway.request({ path: '/open/more' }), 'overloaded');
  /** Sends it until there is a place for it. */
  const placed = async (path: string) => {
    let sent = gateway.send({ path });
    await eventually('a place', async () => {
      const arrival = upstream.arrived(1, path).then(() => null);
      if ((await Promise.race([arrival, sent.answer.then(problemOf, () => null)])) !== 'overloaded') return true;
      sent = gateway.send({ path });
      return false;
    });
    await upstream.arrived(1, path);
    return sent;
  };
  const open = new Gate();
  open.open();
  const ends: Record<string, Behaviour> = {
    reset: resetsAfterReading,
    hung: hangsUpAfterReading,
    garbage: answersGarbage,
    cut: cutsContentLength(open),
    whole: answers({ content: 'ok' }),
  };
  for (const [name, behaviour] of Object.entries(ends)) {
    const gate = new Gate();
    upstream.on(`/open/${name}`, gated(gate, behaviour));
    const sent = await placed(`/open/${name}`);
    await full();
    gate.open();
    await sent.answer.catch(() => null);
  }

  upstream.holds('/open/left');
  const left = await placed('/open/left');
  left.answer.catch(() => {});
  await full();
  left.leave();

  upstream.on('/open/socket', (call) => {
    call.raw('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n');
    return call.closed;
  });
  await placed('/open/free').then(({ answer }) => answer);
  const client = await RawEnd.connect(gateway.url);
  client.head('GET /open/socket HTTP/1.1', ['Host', 'a', 'Connection', 'Upgrade', 'Upgrade', 'echo']);
  t.match((await client.nextHead()).startLine, /101/);
  await full();
  client.socket.destroy();
  t.equal((await (await placed('/open/last')).answer).status, 200, 'after an upgrade as well');
});

t.test('over several gateways: who waits elsewhere for a leader that had no room is not left waiting', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  const store = `{ kind: redis, url: "${redis.url}", commandTimeout: 2s }`;
  const [here, there] = (await startGateways(t, 2, { config: configWith('', { max: '1', store }) })) as [
    Gateway,
    Gateway,
  ];
  const held = stub.holds('/shared/first');
  const first = here.request({ path: '/shared/first' });
  await held.arrived(1);
  let refused = 0;
  for (let round = 0; round < 10; round += 1) {
    const path = `/shared/second-${round}`;
    const full = here.request({ path });
    const others = await burst(5, () => there.request({ path }));
    t.same(codes(others), Array(5).fill('200'), 'there is room there');
    for (const answer of others) t.ok(answer.elapsedMs < 8_000);
    const answer = await full;
    t.ok(answer.status === 200 || problemOf(answer) === 'overloaded');
    if (answer.status === 503) refused += 1;
    t.equal(stub.count(path), 1);
  }
  t.ok(refused > 0, `${refused} leaders had no room`);
  held.release();
  t.equal((await first).status, 200);
  t.equal((await here.request({ path: '/shared/third' })).cacheStatus, LED);
});

t.test('beyond limits.maxRequests the next one is refused, whatever the others wait for', async (t) => {
  const gateway = await startGateway(t, { config: configWith('maxRequests: 5') });
  const held = stub.holds('/shared/held');
  const waiting = [gateway.send({ path: '/shared/held' })];
  await held.arrived(1);
  for (let follower = 0; follower < 4; follower += 1) waiting.push(gateway.send({ path: '/shared/held' }));
  await eventually('five of them', async () => (await gateway.metrics()).sum('oneflight_requests_in_progress') === 5);
  isProblem(t, await gateway.request({ path: '/free/b' }), 'overloaded');
  isProblem(t, await gateway.request({ path: '/shared/held' }), 'overloaded');
  t.same(await reasons(gateway), { requests: 2 });
  held.release();
  t.same(codes(await Promise.all(waiting.map(({ answer }) => answer))), ['200', '200', '200', '200', '200']);
  t.equal((await gateway.request({ path: '/free/b' })).status, 200);
});

t.test('pipelined requests of one connection: no more at a time than streams of HTTP/2', async (t) => {
  const gateway = await startGateway(t, { config: configWith('maxConcurrentStreams: 4') });
  const held = stub.holds('/free/piped');
  const client = await RawClient.connect(gateway.url);
  client.write('GET /free/piped HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(20));
  await held.arrived(4);
  await gateway.caughtUp();
  t.equal(stub.count('/free/piped'), 4);
  held.release();
  for (let answer = 0; answer < 20; answer += 1) t.equal((await client.answer())?.status, 200);
  t.equal(stub.count('/free/piped'), 20);
  t.same(await reasons(gateway), {});
  client.close();
});

/** Keeps the event loop of a gateway busy: SIGUSR2 begins it, SIGWINCH ends it. */
function busyWith(turnMs: number): { NODE_OPTIONS: string } {
  const program = `
    let timer = null;
    const work = () => { const end = Date.now() + ${turnMs}; while (Date.now() < end); timer = setTimeout(work, 1); };
    process.on('SIGUSR2', () => { timer ??= setTimeout(work, 0); });
    process.on('SIGWINCH', () => { clearTimeout(timer); timer = null; });`;
  return { NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(program)}` };
}

const shedShare = async (gateway: Gateway) => (await gateway.metrics()).sum('oneflight_shed_share');

async function untilAllShed(gateway: Gateway): Promise<void> {
  await eventually('everything being refused', async () => (await shedShare(gateway)) === 1, 60_000);
}

t.test('while the event loop is late new requests are refused, and what is under way goes on', async (t) => {
  const gateway = await startGateway(t, { config: configWith('eventLoopDelay: 120ms'), env: busyWith(400) });
  const post = (path: string, body = '{}') => gateway.request({ method: 'POST', path, body });
  const held = ['/shared/flight', '/locked/flight', '/by-content', '/free/long'].map((path) => stub.holds(path));
  const leaders = [post('/shared/flight'), post('/locked/flight'), post('/by-content', '{"id":1}'), post('/free/long')];
  for (const one of held) await one.arrived(1);
  const kept = await post('/shared/kept');
  t.equal(kept.status, 200);
  t.equal((await gateway.admin('/readyz')).status, 200);

  gateway.signal('SIGUSR2');
  await untilAllShed(gateway);
  for (const path of [
    '/free/shed',
    '/open/shed',
    '/shared/shed',
    '/locked/shed',
    '/turns/shed',
    '/caught-up',
    '/no-rule',
  ])
    isProblem(t, await post(path), 'overloaded');
  t.equal(
    (await gateway.request({ method: 'POST', path: '/once/shed', headers: ['Idempotency-Key', 'c'] })).status,
    503,
  );
  isProblem(t, await post('/by-content', JSON.stringify({ id: 1, more: 'x'.repeat(20_000) })), 'overloaded');
  t.equal(stub.calls.filter(({ path }: Call) => path.endsWith('/shed')).length, 0, 'nothing of it is sent');

  const follower = post('/shared/flight');
  const byContent = post('/by-content', '{"id":1}');
  t.equal((await post('/locked/flight')).status, 409, 'a duplicate is told that it is one');
  const ready = await gateway.admin('/readyz');
  t.equal(ready.status, 503);
  t.match(ready.json(), { ready: false, checks: { 'event loop': /refused/ } });
  t.equal((await gateway.admin('/livez')).status, 200, 'the admin listener answers');
  await eventually('the followers waiting', async () => {
    return (await gateway.metrics()).sum('oneflight_requests_in_progress') === 6;
  });
  for (const one of held) one.release();
  t.same(codes(await Promise.all(leaders)), ['200', '200', '200', '200'], 'what was taken is served');
  t.equal((await follower).text, '{"path":"/shared/flight","call":1}', 'so are the followers of what is under way');
  t.equal((await byContent).status, 200);

  gateway.signal('SIGWINCH');
  await eventually('nothing being refused', async () => (await shedShare(gateway)) === 0);
  t.same(codes(await burst(20, (index) => post(`/free/after-${index}`))), Array(20).fill('200'));
  t.equal((await gateway.admin('/readyz')).status, 200);
  t.ok((await reasons(gateway))['event-loop']! >= 9);
});

t.test('eventLoopDelay: false serves everybody, however late', async (t) => {
  const gateway = await startGateway(t, { config: configWith('eventLoopDelay: false'), env: busyWith(200) });
  gateway.signal('SIGUSR2');
  for (let round = 0; round < 8; round += 1) {
    t.same(codes(await burst(5, (index) => gateway.request({ path: `/free/late-${index}` }))), Array(5).fill('200'));
  }
  t.same(await reasons(gateway), {});
});

t.test('a gateway that was stopped for a while refuses nobody afterwards', async (t: Test) => {
  const gateway = await startGateway(t, { config: configWith('eventLoopDelay: 600ms') });
  for (let round = 0; round < 3; round += 1) {
    gateway.pause();
    const answers = burst(5, (index) => gateway.request({ path: `/free/paused-${index}` }));
    await delay(2_500);
    gateway.resume();
    t.same(codes(await answers), Array(5).fill('200'));
    // It is on time again, and has seen so.
    await delay(1_000);
  }
  t.same(await reasons(gateway), {});
});
