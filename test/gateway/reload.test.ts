/** A configuration that changes while the gateway runs: what it changes, when, and for whom. */

import { mkdirSync, readFileSync, renameSync, symlinkSync, writeFileSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { Agent } from 'node:http';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { type Answered, RawClient, request } from '../support/client.js';
import { allEqual, COLLAPSED, isProblem, LED, problemOf } from '../support/expect.js';
import { delay, eventually, within } from '../support/gate.js';
import { configOf, type Gateway, startGateway } from '../support/gateway.js';
import {
  type Answer,
  answers,
  type Call,
  ordinalAnswer,
  type StubUpstream,
  startUpstream,
} from '../support/upstream.js';

t.setTimeout(120_000);

const RELOADED = 'configuration reloaded';
const NEEDS_RESTART = 'configuration reloaded, but some of it needs a restart';
const REFUSED = 'configuration refused: the one in use stays';

type Site = {
  readonly gateway: Gateway;
  readonly folder: string;
  /** Puts a file there by renaming a new one over it, as editors do. */
  put(name: string, text: string): void;
  /** Has the gateway read its files, and answers what came of it. */
  reload(): Promise<Answered>;
  /** How often something was logged. */
  logged(message: string): number;
};

async function start(t: Test, config: string, files: Readonly<Record<string, string>> = {}): Promise<Site> {
  const folder = t.testdir({ routes: {} });
  const put = (name: string, text: string) => {
    writeFileSync(join(folder, 'new'), text);
    renameSync(join(folder, 'new'), join(folder, name));
  };
  put('gateway.yaml', config);
  for (const [name, text] of Object.entries(files)) put(name, text);
  const gateway = await startGateway(t, { config, file: join(folder, 'gateway.yaml') });
  return {
    gateway,
    folder,
    put,
    reload: () => request(gateway.adminUrl, { method: 'POST', path: '/reload' }),
    logged: (message) => gateway.logs.filter(({ msg }) => msg === message).length,
  };
}

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

const post = (gateway: Gateway, path: string) => gateway.request({ method: 'POST', path });

/** Configurations of one gateway with one upstream or another. */
function configFor(stub: StubUpstream, routes = '', more = ''): string {
  return configOf({ upstream: stub.url, routes, more });
}

t.test('a flight ends under the rule that it began with, and who joins it meanwhile shares it', async (t) => {
  const [before, after] = [await startUpstream(t), await startUpstream(t)];
  const held = before.holds('/shared/one', onKept);
  const site = await start(t, configFor(before, shared('keep: 30s')));
  const { gateway } = site;
  const leader = post(gateway, '/shared/one');
  await held.arrived(1);
  const early = post(gateway, '/shared/one');
  await gateway.caughtUp();

  site.put('gateway.yaml', configFor(after, shared('keep: 0')));
  const answer = await site.reload();
  t.equal(answer.status, 200);
  t.same(answer.json(), { reloaded: true, changed: ['upstreams.api', 'routes.shared'], needsRestart: [] });

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
  const site = await start(t, configFor(before, rules(asked)));
  const { gateway } = site;
  const first = post(gateway, '/line');
  await line.arrived(1);
  const second = post(gateway, '/line');
  const sent = gateway.request({ method: 'POST', path: '/order', headers: ['Idempotency-Key', 'one'] });
  const call = await order.arrived(1);
  await gateway.caughtUp();

  site.put('gateway.yaml', configFor(after, rules(never)));
  t.equal((await site.reload()).status, 200);
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
    const site = await start(t, configFor(before, rule));
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
  const site = await start(t, configFor(stub, rule('\n    wait: 20s')));
  const send = () => site.gateway.request({ method: 'POST', path: '/order', headers: ['Idempotency-Key', 'a'] });
  const leader = send();
  await held.arrived(1);
  site.put('gateway.yaml', configFor(stub, rule('')));
  await site.reload();
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
  const site = await start(t, config(stub, ''));
  const { gateway } = site;
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  t.teardown(() => agent.destroy());
  for (let i = 0; i < 2; i += 1) await gateway.request({ path: '/broken' });
  isProblem(t, await gateway.request({ path: '/broken' }), 'upstream-unavailable');
  await gateway.request({ path: '/a', agent });
  const { connections } = stub;
  site.put('gateway.yaml', config(stub, '\n  - { name: more, match: { path: /more }, upstream: api }'));
  t.same((await site.reload()).json(), { reloaded: true, changed: ['routes.more'], needsRestart: [] });
  isProblem(t, await gateway.request({ path: '/broken' }), 'upstream-unavailable');
  await gateway.request({ path: '/a', agent });
  t.equal(stub.connections, connections, 'the connection from before is used');
  const { text } = await gateway.metrics();
  t.match(text, `oneflight_upstream_usable{upstream="api",address="127.0.0.1:${stub.port}"} 1`);
  t.match(text, 'oneflight_upstream_breaker_opened_total{upstream="broken"} 1');

  site.put('gateway.yaml', configOf({ upstream: other.url, routes: '' }));
  t.equal((await site.reload()).status, 200);
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
  const site = await start(t, config(before));
  await before.arrived(2, '/health');
  const running = site.gateway.request({ path: '/held' });
  await held.arrived(1);
  site.put('gateway.yaml', config(after));
  await site.reload();
  const seen = before.count('/health');
  await after.arrived(5, '/health');
  t.ok(before.count('/health') <= seen + 1, 'one at most was on its way');
  held.release();
  t.equal((await running).status, 200, 'what was under way there is answered from there');
});

t.test('no request fails while the configuration changes again and again', async (t) => {
  const stubs = [await startUpstream(t), await startUpstream(t)] as const;
  const config = (turn: number) => configFor(stubs[turn % 2 === 0 ? 0 : 1], shared(`maxFollowers: ${100 + turn}`));
  const site = await start(t, config(0));
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
  const site = await start(t, config(0), { 'routes/a.yaml': 'routes: [ { name: a, match: { path: /a } } ]\n' });
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

const STATIC = (name: string) => `
  - { name: ${name}, match: { path: /${name} }, upstream: api }`;

/** Waits until a route is in use: `unmatched: false`, so that what has no route is 404. */
const inUse = (gateway: Gateway, name: string, status = 200) =>
  eventually(`/${name} is ${status}`, async () => (await gateway.request({ path: `/${name}` })).status === status);

t.test('a changed file is taken into use by itself, once; a bad one changes nothing and is told', async (t) => {
  const stub = await startUpstream(t);
  const config = (routes: string) => configOf({ upstream: stub.url, routes, unmatched: 'false' });
  const site = await start(t, config(STATIC('one')));
  const { gateway } = site;
  const ready = async () => {
    const { status, body } = await gateway.admin('/readyz');
    return { status, config: (JSON.parse(body.toString()) as { config: { errors: string[]; goodAt: string } }).config };
  };
  const samples = async () => {
    const metrics = await gateway.metrics();
    const success = metrics.sum('oneflight_config_reload_success');
    return { success, at: metrics.sum('oneflight_config_reload_success_timestamp_seconds') };
  };
  const started = await samples();
  t.equal(started.success, 1);
  t.ok(Math.abs(started.at - Date.now() / 1_000) < 60);
  t.same((await ready()).config.errors, []);

  site.put('gateway.yaml', config(STATIC('two')));
  await inUse(gateway, 'two');
  t.equal((await gateway.request({ path: '/one' })).status, 404);
  t.equal(site.logged(RELOADED), 1);
  t.ok((await samples()).at > started.at);

  site.put('gateway.yaml', config(`${STATIC('bad')}\n    polcy: pass\n`).replace('drain:', 'drian:'));
  await eventually('refused', () => site.logged(REFUSED) === 1);
  const [line] = gateway.logs.filter(({ msg }) => msg === REFUSED) as { errors: string[]; level: number }[];
  t.equal(line?.level, 50);
  t.match(line?.errors, [/gateway\.yaml:\d+:\d+: /]);
  t.equal((await samples()).success, 0);
  const { status, config: told } = await ready();
  t.equal(status, 200, 'ready all the same');
  t.same(told.errors, line?.errors);
  t.equal((await gateway.request({ path: '/two' })).status, 200, 'the rules of before');

  site.put('gateway.yaml', config(STATIC('two')));
  await eventually('good again', () => site.logged('configuration is good again, and the one in use') === 1);
  t.equal((await samples()).success, 1);
  t.same((await ready()).config.errors, []);
  // What is not a change of the files is nothing to do.
  site.put('notes.txt', 'of nobody');
  site.put('gateway.yaml', config(STATIC('two')));
  await delay(600);
  t.same([site.logged(RELOADED), site.logged(REFUSED), site.logged('configuration unchanged')], [1, 1, 0]);
});

t.test('a file that is written in two parts is refused at most, and then taken', async (t) => {
  const stub = await startUpstream(t);
  const config = (routes: string) => configOf({ upstream: stub.url, routes, unmatched: 'false' });
  const site = await start(t, config(STATIC('one')));
  const whole = config(STATIC('two'));
  const at = whole.indexOf('match: { path: /two') + 10;
  writeFileSync(join(site.folder, 'gateway.yaml'), whole.slice(0, at));
  await eventually('the half is refused', () => site.logged(REFUSED) === 1);
  t.equal((await site.gateway.request({ path: '/one' })).status, 200);
  writeFileSync(join(site.folder, 'gateway.yaml'), whole);
  await inUse(site.gateway, 'two');
  writeFileSync(join(site.folder, 'gateway.yaml'), '');
  await eventually('an empty file is refused', () => site.logged(REFUSED) === 2);
  t.equal((await site.gateway.request({ path: '/two' })).status, 200);
});

t.test('a folder that Kubernetes swaps is seen, swap after swap', async (t) => {
  const stub = await startUpstream(t);
  const config = (routes: string) => configOf({ upstream: stub.url, routes, unmatched: 'false' });
  const folder = t.testdir();
  let version = 0;
  const put = (text: string) => {
    const name = `..v${++version}`;
    mkdirSync(join(folder, name));
    writeFileSync(join(folder, name, 'gateway.yaml'), text);
    symlinkSync(name, join(folder, '..data_tmp'));
    renameSync(join(folder, '..data_tmp'), join(folder, '..data'));
  };
  put(config(STATIC('v1')));
  symlinkSync(join('..data', 'gateway.yaml'), join(folder, 'gateway.yaml'));
  const gateway = await startGateway(t, { config: config(''), file: join(folder, 'gateway.yaml') });
  for (const name of ['v2', 'v3', 'v4']) {
    put(config(STATIC(name)));
    await inUse(gateway, name);
  }
});

t.test('a link to a folder on the way to the file is followed when it is swapped', async (t) => {
  const stub = await startUpstream(t);
  const config = (routes: string) => configOf({ upstream: stub.url, routes, unmatched: 'false' });
  const folder = t.testdir({ one: {}, two: {} });
  const link = (to: string) => {
    symlinkSync(to, join(folder, 'new'));
    renameSync(join(folder, 'new'), join(folder, 'current'));
  };
  writeFileSync(join(folder, 'one', 'gateway.yaml'), config(STATIC('one')));
  writeFileSync(join(folder, 'two', 'gateway.yaml'), config(STATIC('two')));
  link('one');
  const gateway = await startGateway(t, { config: config(''), file: join(folder, 'current', 'gateway.yaml') });
  link('two');
  await inUse(gateway, 'two');
  writeFileSync(join(folder, 'two', 'gateway.yaml'), config(STATIC('three')));
  await inUse(gateway, 'three');
});

t.test('included files come, change and go', async (t) => {
  const stub = await startUpstream(t);
  const site = await start(
    t,
    `include: [routes/*.yaml]\n${configOf({ upstream: stub.url, routes: '', unmatched: 'false' })}`,
  );
  const { gateway, folder } = site;
  const put = (name: string, routes: string) =>
    writeFileSync(join(folder, 'routes', name), `routes:${routes.replace(', upstream: api', '')}\n`);
  put('a.yaml', STATIC('new'));
  await inUse(gateway, 'new');
  put('a.yaml', STATIC('changed'));
  await inUse(gateway, 'changed');
  put('b.yaml', STATIC('changed'));
  await eventually('a name twice is refused', () => site.logged(REFUSED) === 1);
  renameSync(join(folder, 'routes', 'a.yaml'), join(folder, 'routes', 'a.off'));
  await eventually('good again', async () => (await gateway.metrics()).sum('oneflight_config_reload_success') === 1);
  t.equal((await gateway.request({ path: '/changed' })).status, 200);
  renameSync(join(folder, 'routes', 'b.yaml'), join(folder, 'routes', 'b.off'));
  await inUse(gateway, 'changed', 404);
});

t.test('POST /reload answers when it is done: what changed, what needs a restart, or what is wrong', async (t) => {
  const stub = await startUpstream(t);
  const config = configOf({ upstream: stub.url, routes: STATIC('one'), unmatched: 'false' });
  const site = await start(t, config);
  t.same((await site.reload()).json(), { reloaded: false, changed: [], needsRestart: [] });

  const token = 'a-token-of-some-length';
  site.put(
    'gateway.yaml',
    `${config
      .replace('listen: { host: 127.0.0.1, port: 0 }', 'listen: { host: 127.0.0.1, port: 1, http2: false }')
      .replace('admin: { host: 127.0.0.1, port: 0 }', `admin: { port: 0, token: ${token} }`)
      .replace('{ kind: memory }', '{ kind: memory, maxMemory: 1MiB }')
      .replace('name: one, match: { path: /one }', 'name: two, match: { path: /two }')}
drain: 5s
limits: { maxFields: 32KiB, maxContent: 10B }
`,
  );
  t.same((await site.reload()).json(), {
    reloaded: true,
    changed: ['routes.one', 'routes.two', 'drain', 'limits.maxContent'],
    needsRestart: ['listen', 'admin', 'store', 'limits.maxFields'],
  });
  t.equal((await site.gateway.request({ path: '/two' })).status, 200, 'in use when it is answered');
  t.equal((await post(site.gateway, '/two')).status, 200);
  const long = await site.gateway.request({ method: 'POST', path: '/two', body: 'x'.repeat(11) });
  isProblem(t, long, 'content-too-large');
  t.equal(site.logged(NEEDS_RESTART), 1);
  const { needsRestart } = (await site.gateway.admin('/readyz').then((answer) => answer.json() as ReadyBody)).config;
  t.same(needsRestart, ['listen', 'admin', 'store', 'limits.maxFields']);

  site.put('gateway.yaml', config.replace('policy: coalesce', 'policy: coalesque').replace('path: /one', 'path: one'));
  const lines = readFileSync(join(site.folder, 'gateway.yaml'), 'utf8').split('\n');
  const lineOf = (text: string) => lines.findIndex((line) => line.includes(text)) + 1;
  const bad = await site.reload();
  t.equal(bad.status, 422);
  t.equal(bad.header('content-type'), 'application/problem+json');
  t.equal(problemOf(bad), 'bad-config');
  const { errors } = bad.json() as { errors: { message: string }[] };
  t.match(errors, [
    {
      line: lineOf('coalesque'),
      path: 'routes[0].policy',
      expected: /coalesce/,
      got: '"coalesque"',
      suggestion: 'coalesce',
    },
    { line: lineOf('path: one'), path: 'routes[1].match.path' },
  ]);
  t.match(errors[0]?.message, /gateway\.yaml:\d+:13: routes\[0\]\.policy: expected pass/);
  t.equal((await site.reload()).status, 422, 'told as often as it is asked');
  t.equal((await site.gateway.request({ path: '/two' })).status, 200);

  site.put('gateway.yaml', config);
  const back = (await site.reload()).json();
  t.same(back, {
    reloaded: true,
    changed: ['routes.two', 'routes.one', 'drain', 'limits.maxContent'],
    needsRestart: [],
  });
});

type ReadyBody = { readonly config: { readonly needsRestart: string[] } };

t.test('POST /reload needs what the other admin requests need', async (t) => {
  const stub = await startUpstream(t);
  const token = 'a-token-of-some-length';
  const config = configFor(stub).replace('admin: { host: 127.0.0.1,', `admin: { token: ${token}, host: 127.0.0.1,`);
  const site = await start(t, config);
  t.equal((await site.reload()).status, 401);
  const headers = ['Authorization', `Bearer ${token}`];
  const { status } = await request(site.gateway.adminUrl, { method: 'POST', path: '/reload', headers });
  t.equal(status, 200);
});

t.test('what is no rule is taken into use too, over connections that are open', async (t) => {
  const [stub, other] = [await startUpstream(t), await startUpstream(t)];
  const site = await start(t, configOf({ upstream: stub.url, routes: '', more: 'log: { level: warn }' }));
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
  site.put(
    'gateway.yaml',
    configOf({
      upstream: stub.url,
      routes: '',
      upstreams: `  other: { url: "${other.url}" }`,
      unmatched: 'other',
      more: 'log: { level: info }\ntrustedProxies: [127.0.0.0/8]\nrequestId: { trust: never }',
    }),
  );
  const changed = ['upstreams.other', 'unmatched', 'trustedProxies', 'requestId', 'log'];
  t.same((await site.reload()).json(), { reloaded: true, changed, needsRestart: [] });
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
  const site = await start(t, configFor(stub, rule));
  const { gateway } = site;
  const send = () => gateway.request({ method: 'POST', path: '/order', headers: ['Idempotency-Key', 'a'] });
  isProblem(t, await send(), 'outcome-unknown');
  site.put('gateway.yaml', configFor(stub));
  await site.reload();
  const { flights } = (await gateway.admin('/flights')).json() as { flights: { key: string }[] };
  const settled = await request(gateway.adminUrl, {
    method: 'POST',
    path: `/flights/${flights[0]?.key}/settle`,
    headers: ['Content-Type', 'application/json'],
    body: JSON.stringify({ as: 'response', status: 201, content: 'by hand' }),
  });
  t.equal(settled.status, 200, settled.text);
  site.put('gateway.yaml', configFor(stub, rule));
  await site.reload();
  t.same([(await send()).text, stub.count('/order')], ['by hand', 1]);
});

t.test('SIGHUP has the files read, good or bad, and ends nothing', async (t) => {
  const stub = await startUpstream(t);
  const site = await start(t, configFor(stub));
  const { gateway } = site;
  gateway.signal('SIGHUP');
  await eventually('unchanged', () => site.logged('configuration unchanged') === 1);
  writeFileSync(join(site.folder, 'gateway.yaml'), 'routes: {}\n');
  gateway.signal('SIGHUP');
  await eventually('refused', () => site.logged(REFUSED) === 1);
  const before = readFileSync(join(site.folder, 'gateway.yaml'), 'utf8');
  gateway.signal('SIGHUP');
  await eventually('refused again', () => site.logged(REFUSED) === 2);
  t.equal(before, 'routes: {}\n');
  t.equal((await gateway.request({})).status, 200);
  await gateway.stop();
});

t.test('while it drains, it is not ready, and reads nothing', async (t) => {
  const stub = await startUpstream(t);
  const held = stub.holds('/slow');
  const site = await start(t, configFor(stub, '', 'drain: { delay: 2s, timeout: 20s }'));
  const { gateway } = site;
  const slow = gateway.request({ path: '/slow' });
  await held.arrived(1);
  const stopped = gateway.stop();
  await eventually('not ready', async () => (await gateway.admin('/readyz')).status === 503);
  t.equal((await gateway.request({ path: '/late' })).status, 200, 'served during the delay');
  site.put('gateway.yaml', configFor(stub, STATIC('new')));
  gateway.signal('SIGHUP');
  await eventually('ignored', () => site.logged('reload ignored: the gateway is stopping') === 1);
  const answer = await site.reload();
  t.equal(answer.status, 503);
  t.equal(problemOf(answer), 'draining');
  const refused = async () => {
    const late = await gateway.request({ path: '/later' }).catch(() => null);
    return late === null || problemOf(late) === 'draining';
  };
  await eventually('no more requests after the delay', refused);
  t.equal(gateway.running, true, 'what is under way ends');
  held.release();
  t.equal((await slow).status, 200);
  await within(10_000, 'the end', stopped);
  t.same([site.logged(RELOADED), site.logged(REFUSED)], [0, 0]);
});

t.test('a second signal ends at once, during the delay too', async (t) => {
  const stub = await startUpstream(t);
  stub.on('/slow', answers({ content: 'x' }));
  const site = await start(t, configFor(stub, '', 'drain: { delay: 60s }'));
  site.gateway.signal('SIGTERM');
  await eventually('stopping', () => site.logged('stopping') === 1);
  t.equal((await site.gateway.request({ path: '/slow' })).status, 200);
  site.gateway.signal('SIGTERM');
  t.same(await within(10_000, 'the end', site.gateway.exited), { code: 1, signal: null });
});
