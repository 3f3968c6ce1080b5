/** Requests and upstreams while the configuration changes: what ends under the old rules, and what begins under the new. */

import { readdir, readFile } from 'node:fs/promises';
import { Agent } from 'node:http';
import { join } from 'node:path';
import t from 'tap';
import { RawClient, request } from '../support/client.js';
import { allEqual, COLLAPSED, isProblem, LED } from '../support/expect.js';
import { eventually } from '../support/gate.js';
import { configOf } from '../support/gateway.js';
import {
  type Answer,
  answers,
  type Call,
  ordinalAnswer,
  type StubUpstream,
  startUpstream,
} from '../support/upstream.js';
import { configFor, post, startSite } from './reloading.js';

t.setTimeout(120_000);

const shared = (more: string) => `
  - name: shared
    match: { methods: [POST], path: /shared/* }
    policy: coalesce
    key: [ { request: path } ]
    lease: 20s
    wait: { max: 25s, poll: 10s }
    ${more}`;

/** Which call it is, over a connection that is not closed for its idleness: what ends it is the gateway. */
const onKept = (call: Call): Answer => {
  const { fields = [], ...answer } = ordinalAnswer(call);
  return { ...answer, fields: [...fields, 'Keep-Alive', 'timeout=600'] };
};

t.test('a flight ends under the rule that it began with, and who joins it meanwhile shares it', async (t) => {
  const [before, after] = [await startUpstream(t), await startUpstream(t)];
  const held = before.holds('/shared/one', onKept);
  const site = await startSite(t, configFor(before, shared('keep: 30s')));
  const { gateway } = site;
  const leader = post(gateway, '/shared/one');
  await held.arrived(1);
  const early = post(gateway, '/shared/one');
  await gateway.caughtUp();

  const change = await site.change(configFor(after, shared('keep: 0')));
  t.same(change, { changed: ['upstreams.api', 'routes.shared'], needsRestart: [] });

  const late = post(gateway, '/shared/one');
  const other = await post(gateway, '/shared/other');
  t.equal(other.cacheStatus, LED);
  t.same([before.count('/shared/other'), after.count('/shared/other')], [0, 1], 'the new rule for new flights');
  await gateway.caughtUp();
  held.release();
  const all = [await leader, await early, await late];
  allEqual(t, all, 200, '{"path":"/shared/one","call":1}');
  t.same(
    all.map(({ cacheStatus }) => cacheStatus),
    [LED, COLLAPSED, COLLAPSED],
  );
  t.same([before.count('/shared/one'), after.count('/shared/one')], [1, 0], 'one upstream call');
  t.match((await post(gateway, '/shared/one')).cacheStatus, /hit/, 'kept as its own rule said');
  await post(gateway, '/shared/other');
  t.equal(after.count('/shared/other'), 2, 'and not kept as the new one says');
  await eventually('nobody is connected to the upstream of before', () => before.open === 0);
});

t.test('a turn, and a question about an unknown outcome, are those of the generation that began them', async (t) => {
  const [before, after] = [await startUpstream(t), await startUpstream(t)];
  const [asked, never] = [await startUpstream(t), await startUpstream(t)];
  const rules = (elsewhere: StubUpstream) => `
  - name: line
    match: { methods: [POST], path: /line }
    policy: queue
    key: [ { request: path } ]
    wait: 20s
  - name: order
    match: { methods: [POST], path: /order }
    policy: replay
    wait: 20s
    reconcile: { url: "${elsewhere.url}/op/{key}", every: 1s }`;
  const line = before.holds('/line', onKept);
  const order = before.holds('/order');
  const site = await startSite(t, configFor(before, rules(asked)));
  const { gateway } = site;
  const first = post(gateway, '/line');
  await line.arrived(1);
  const second = post(gateway, '/line');
  const sent = gateway.request({ method: 'POST', path: '/order', headers: ['Idempotency-Key', 'one'] });
  const call = await order.arrived(1);
  await gateway.caughtUp();

  await site.change(configFor(after, rules(never)));
  const third = post(gateway, '/line');
  await gateway.caughtUp();
  line.release();
  t.same([(await first).status, (await second).status, (await third).status], [200, 200, 200]);
  t.same([before.count('/line'), after.count('/line')], [2, 1], 'who waited goes where it was to go');
  call.reset();
  isProblem(t, await sent, 'outcome-unknown');
  await asked.arrived(1, '/op/one');
  t.equal(never.count(), 0);
  await eventually('the upstream of before is left', () => before.open === 0);
});

t.test(
  'a call whose client has left goes on over a reload, and its outcome is asked about where it went',
  async (t) => {
    const [before, after] = [await startUpstream(t), await startUpstream(t)];
    const rule = `
  - name: order
    match: { methods: [POST], path: /order/* }
    policy: replay
    reconcile: { url: "/op/{key}", every: 1s }`;
    const [kept, lost] = [before.holds('/order/kept', onKept), before.holds('/order/lost')];
    before.on('/op/lost', answers(onKept));
    const site = await startSite(t, configFor(before, rule));
    const { gateway } = site;
    const order = (key: string, signal?: AbortSignal) =>
      gateway.request({
        method: 'POST',
        path: `/order/${key}`,
        headers: ['Idempotency-Key', key],
        ...(signal === undefined ? {} : { signal }),
      });
    const leaving = new AbortController();
    const left = [order('kept', leaving.signal), order('lost', leaving.signal)].map((sent) => sent.catch(() => null));
    await kept.arrived(1);
    const call = await lost.arrived(1);
    leaving.abort();
    await Promise.all(left);
    await eventually(
      'they have left',
      async () => (await gateway.metrics()).sum('oneflight_requests_total', { route: 'order', outcome: 'left' }) === 2,
    );
    site.put('gateway.yaml', configFor(after, rule));
    t.equal((await site.reload()).status, 200);
    kept.release();
    await eventually('recorded', async () => (await order('kept')).status === 200);
    t.same([before.count('/order/kept'), after.count('/order/kept')], [1, 0]);
    call.reset();
    await before.arrived(1, '/op/lost');
    t.equal(after.count('/op/lost'), 0);
    await eventually('the upstream of before is left', () => before.open === 0);
  },
);

t.test('a rule that stopped waiting refuses whoever meets a flight of before', async (t) => {
  const stub = await startUpstream(t);
  const rule = (wait: string) => `
  - name: order
    match: { methods: [POST], path: /order }
    policy: replay${wait}`;
  const held = stub.holds('/order');
  const site = await startSite(t, configFor(stub, rule('\n    wait: 20s')));
  const send = () => site.gateway.request({ method: 'POST', path: '/order', headers: ['Idempotency-Key', 'a'] });
  const leader = send();
  await held.arrived(1);
  await site.change(configFor(stub, rule('')));
  isProblem(t, await send(), 'in-flight');
  held.release();
  t.equal((await leader).status, 200);
  t.match((await send()).cacheStatus, /hit/);
});

t.test('an upstream that stays the same keeps its connections, its failures and its breaker', async (t) => {
  const [stub, other] = [await startUpstream(t), await startUpstream(t)];
  const down = await startUpstream(t);
  await down.refuse();
  const config = (to: StubUpstream, more: string) =>
    configOf({
      upstream: to.url,
      routes: `
  - { name: broken, match: { path: /broken }, upstream: broken }${more}`,
      upstreams: `  broken: { url: "${down.url}", retries: 0, breaker: { failures: 2, for: 1h } }`,
    });
  const site = await startSite(t, config(stub, ''));
  const { gateway } = site;
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  t.teardown(() => agent.destroy());
  for (let i = 0; i < 2; i += 1) await gateway.request({ path: '/broken' });
  isProblem(t, await gateway.request({ path: '/broken' }), 'upstream-unavailable');
  await gateway.request({ path: '/a', agent });
  const { connections } = stub;
  t.same(await site.change(config(stub, '\n  - { name: more, match: { path: /more }, upstream: api }')), {
    changed: ['routes.more'],
    needsRestart: [],
  });
  isProblem(t, await gateway.request({ path: '/broken' }), 'upstream-unavailable');
  await gateway.request({ path: '/a', agent });
  t.equal(stub.connections, connections, 'the connection from before is used');
  const { text } = await gateway.metrics();
  t.match(text, `oneflight_upstream_usable{upstream="api",address="127.0.0.1:${stub.port}"} 1`);
  t.match(text, 'oneflight_upstream_breaker_opened_total{upstream="broken"} 1');

  await site.change(configOf({ upstream: other.url, routes: '' }));
  const now = (await gateway.metrics()).text;
  t.match(now, `oneflight_upstream_usable{upstream="api",address="127.0.0.1:${other.port}"} 1`);
  t.notMatch(now, `127.0.0.1:${stub.port}`, 'what is gone is shown no more');
  t.notMatch(now, 'upstream="broken"');
});

t.test('health checks of a new upstream run, those of one that is gone do not', async (t) => {
  const [before, after] = [await startUpstream(t), await startUpstream(t)];
  const config = (stub: StubUpstream) =>
    configOf({
      upstream: stub.url,
      routes: '',
      upstreams: `  checked: { url: "${stub.url}", health: { path: /health, every: 100ms } }`,
      unmatched: 'checked',
    });
  const held = before.holds('/held');
  const site = await startSite(t, config(before));
  await before.arrived(2, '/health');
  const running = site.gateway.request({ path: '/held' });
  await held.arrived(1);
  await site.change(config(after));
  const seen = before.count('/health');
  await after.arrived(5, '/health');
  t.ok(before.count('/health') <= seen + 1, 'one at most was on its way');
  held.release();
  t.equal((await running).status, 200, 'what was under way there is answered from there');
});

t.test('no request fails while the configuration changes again and again', async (t) => {
  const stubs = [await startUpstream(t), await startUpstream(t)] as const;
  const config = (turn: number) => configFor(stubs[turn % 2 === 0 ? 0 : 1], shared(`maxFollowers: ${100 + turn}`));
  const site = await startSite(t, config(0));
  let isOver = false;
  let count = 0;
  const load = Array.from({ length: 8 }, async (_, client) => {
    const agent = new Agent({ keepAlive: client % 2 === 0, maxSockets: 1 });
    const failed: string[] = [];
    while (!isOver) {
      const path = client < 4 ? `/plain/${client}` : `/shared/${count % 3}`;
      const answer = await site.gateway.request({ method: 'POST', path, body: 'x'.repeat(2_000), agent });
      count += 1;
      if (answer.status !== 200 || answer.cut) failed.push(`${path}: ${answer.status} ${answer.text}`);
    }
    agent.destroy();
    return failed;
  });
  const reloads = 40;
  for (let turn = 1; turn <= reloads; turn += 1) {
    site.put('gateway.yaml', config(turn));
    const answer = await site.reload();
    if (answer.status !== 200) t.fail(`reload ${turn}: ${answer.text}`);
  }
  isOver = true;
  t.same((await Promise.all(load)).flat(), []);
  t.ok(count > reloads, `${count} requests over ${reloads} reloads`);
  t.ok(stubs[0].count() > 0 && stubs[1].count() > 0, 'both were in use');
});

t.test('a hundred reloads leave no connection, watch or handle behind', async (t) => {
  const stubs = [await startUpstream(t), await startUpstream(t)] as const;
  for (const stub of stubs) stub.on('/a', answers(onKept));
  const config = (turn: number) => `include: [routes/*.yaml]\n${configFor(stubs[turn % 2 === 0 ? 0 : 1])}`;
  const site = await startSite(t, config(0), { 'routes/a.yaml': 'routes: [ { name: a, match: { path: /a } } ]\n' });
  const { gateway } = site;
  const round = async (from: number, to: number) => {
    for (let turn = from; turn < to; turn += 1) {
      site.put('gateway.yaml', config(turn));
      const { status } = await site.reload();
      if (status !== 200) t.fail(`reload ${turn}: ${status}`);
      await gateway.request({ path: '/a' });
    }
  };
  const held = async () => {
    const metrics = await gateway.metrics();
    const watches = await watchesOf(gateway.pid);
    return { fds: metrics.sum('process_open_fds'), handles: metrics.sum('nodejs_active_handles_total'), watches };
  };
  await round(1, 11);
  const before = await held();
  t.ok(before.watches > 0, 'folders are watched');
  await round(11, 111);
  await eventually('the upstream that is not in use is left', () => Math.min(stubs[0].open, stubs[1].open) === 0);
  const grown = async () => {
    const now = await held();
    return { fds: now.fds - before.fds, handles: now.handles - before.handles, watches: now.watches - before.watches };
  };
  await eventually('no more is held than before', async () => {
    const { fds, handles, watches } = await grown();
    return fds <= 3 && handles <= 3 && watches === 0;
  }).catch(async (error: Error) => t.fail(`${error.message}: ${JSON.stringify(await grown())}`));
  const { text } = await gateway.metrics();
  t.equal(text.match(/^oneflight_upstream_usable\{/gm)?.length, 1, 'one upstream is shown');
});

/** Folders that a process watches. */
async function watchesOf(pid: number): Promise<number> {
  const folder = `/proc/${pid}/fdinfo`;
  const texts = (await readdir(folder)).map((fd) => readFile(join(folder, fd), 'utf8').catch(() => ''));
  return (await Promise.all(texts)).join('\n').match(/^inotify wd:/gm)?.length ?? 0;
}

t.test('what is no rule is taken into use too, over connections that are open', async (t) => {
  const [stub, other] = [await startUpstream(t), await startUpstream(t)];
  const site = await startSite(t, configOf({ upstream: stub.url, routes: '', more: 'log: { level: warn }' }));
  const { gateway } = site;
  const client = await RawClient.connect(gateway.url);
  const id = 'an-id';
  const ask = async (path: string) => {
    client.write(`GET ${path} HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.7\r\nX-Request-Id: ${id}\r\n\r\n`);
    return (await client.answer())?.status;
  };
  t.equal(await ask('/a'), 200);
  t.equal(stub.calls.at(-1)?.header('x-forwarded-for'), '127.0.0.1');
  t.equal(stub.calls.at(-1)?.header('x-request-id'), id);
  t.equal(site.logged('exchange'), 0);
  const next = configOf({
    upstream: stub.url,
    routes: '',
    upstreams: `  other: { url: "${other.url}" }`,
    unmatched: 'other',
    more: 'log: { level: info }\ntrustedProxies: [127.0.0.0/8]\nrequestId: { trust: never }',
  });
  const changed = ['upstreams.other', 'unmatched', 'trustedProxies', 'requestId', 'log'];
  t.same(await site.change(next), { changed, needsRestart: [] });
  t.equal(await ask('/b'), 200);
  t.equal(other.calls.at(-1)?.header('x-forwarded-for'), '192.0.2.7, 127.0.0.1');
  t.not(other.calls.at(-1)?.header('x-request-id'), id);
  await eventually('requests are logged', () => site.logged('exchange') === 1);
  client.close();
});

t.test("an operator's response for a key whose rule is gone is kept as long as that rule kept", async (t) => {
  const stub = await startUpstream(t);
  stub.on('/order', (call) => call.reset());
  const rule = `
  - name: order
    match: { methods: [POST], path: /order }
    policy: replay`;
  const site = await startSite(t, configFor(stub, rule));
  const { gateway } = site;
  const send = () => gateway.request({ method: 'POST', path: '/order', headers: ['Idempotency-Key', 'a'] });
  isProblem(t, await send(), 'outcome-unknown');
  await site.change(configFor(stub));
  const { flights } = (await gateway.admin('/flights')).json() as { flights: { key: string }[] };
  const settled = await request(gateway.adminUrl, {
    method: 'POST',
    path: `/flights/${flights[0]?.key}/settle`,
    headers: ['Content-Type', 'application/json'],
    body: JSON.stringify({ as: 'response', status: 201, content: 'by hand' }),
  });
  t.equal(settled.status, 200, settled.text);
  await site.change(configFor(stub, rule));
  t.same([(await send()).text, stub.count('/order')], ['by hand', 1]);
});
