/** How a running gateway learns of a changed configuration, what it answers and logs, and how it stops. */

import { mkdirSync, readFileSync, renameSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { request } from '../support/client.js';
import { isProblem, problemOf } from '../support/expect.js';
import { delay, eventually, within } from '../support/gate.js';
import { configOf, Gateway, startGateway } from '../support/gateway.js';
import { answers, startUpstream } from '../support/upstream.js';
import { configFor, post, startSite } from './reloading.js';

t.setTimeout(120_000);

const START_MS = 20_000;
const RELOADED = 'configuration reloaded';
const NEEDS_RESTART = 'configuration reloaded, but some of it needs a restart';
const REFUSED = 'configuration refused: the one in use stays';

const STATIC = (name: string) => `
  - { name: ${name}, match: { path: /${name} }, upstream: api }`;

/** Waits until a route is in use: `unmatched: false`, so that what has no route is 404. */
const inUse = (gateway: Gateway, name: string, status = 200) =>
  eventually(`/${name} is ${status}`, async () => (await gateway.request({ path: `/${name}` })).status === status);

t.test('a changed file is taken into use by itself, once; a bad one changes nothing and is told', async (t) => {
  const stub = await startUpstream(t);
  const config = (routes: string) => configOf({ upstream: stub.url, routes, unmatched: 'false' });
  const site = await startSite(t, config(STATIC('one')));
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
  const site = await startSite(t, config(STATIC('one')));
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
  const site = await startSite(
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
  const site = await startSite(t, config);
  t.same((await site.reload()).json(), { reloaded: false, changed: [], needsRestart: [] });

  const token = 'a-token-of-some-length';
  const next = `${config
    .replace('listen: { host: 127.0.0.1, port: 0 }', 'listen: { host: 127.0.0.1, port: 1, http2: false }')
    .replace('admin: { host: 127.0.0.1, port: 0 }', `admin: { port: 0, token: ${token} }`)
    .replace('{ kind: memory }', '{ kind: memory, maxMemory: 1MiB }')
    .replace('name: one, match: { path: /one }', 'name: two, match: { path: /two }')}
drain: 5s
limits: { maxFields: 32KiB, maxContent: 10B }
`;
  t.same(await site.change(next), {
    changed: ['routes.one', 'routes.two', 'drain', 'limits.maxContent'],
    needsRestart: ['listen', 'admin', 'store', 'limits.maxFields'],
  });
  t.equal((await site.gateway.request({ path: '/two' })).status, 200, 'in use when it is answered');
  t.equal((await post(site.gateway, '/two')).status, 200);
  const long = await site.gateway.request({ method: 'POST', path: '/two', body: 'x'.repeat(11) });
  isProblem(t, long, 'content-too-large');
  await eventually('it is logged', () => site.logged(NEEDS_RESTART) === 1);
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

  t.same(await site.change(config), {
    changed: ['routes.two', 'routes.one', 'drain', 'limits.maxContent'],
    needsRestart: [],
  });
});

type ReadyBody = { readonly config: { readonly needsRestart: string[] } };

t.test('POST /reload needs what the other admin requests need', async (t) => {
  const stub = await startUpstream(t);
  const token = 'a-token-of-some-length';
  const config = configFor(stub).replace('admin: { host: 127.0.0.1,', `admin: { token: ${token}, host: 127.0.0.1,`);
  const site = await startSite(t, config);
  t.equal((await site.reload()).status, 401);
  const headers = ['Authorization', `Bearer ${token}`];
  const { status } = await request(site.gateway.adminUrl, { method: 'POST', path: '/reload', headers });
  t.equal(status, 200);
});

t.test('SIGHUP has the files read, good or bad, and ends nothing', async (t) => {
  const stub = await startUpstream(t);
  const site = await startSite(t, configFor(stub));
  const { gateway } = site;
  gateway.signal('SIGHUP');
  await eventually('unchanged', () => site.logged('configuration unchanged') === 1);
  writeFileSync(join(site.folder, 'gateway.yaml'), 'routes: {}\n');
  gateway.signal('SIGHUP');
  await eventually('refused', () => site.logged(REFUSED) >= 1);
  // Once more at most, where the change was seen before the signal came.
  await delay(400);
  const before = site.logged(REFUSED);
  t.ok(before <= 2);
  gateway.signal('SIGHUP');
  await eventually('refused again, as it was asked for', () => site.logged(REFUSED) === before + 1);
  t.equal((await gateway.request({})).status, 200);
  await gateway.stop();
});

t.test('a SIGHUP that comes while it starts is not lost, and does not end it', async (t) => {
  const stub = await startUpstream(t);
  // Without what a test runner adds, which listens for SIGHUP itself.
  const gateway = new Gateway({ config: configFor(stub), alone: [] });
  t.teardown(() => gateway.kill9());
  await eventually('it listens for SIGHUP', () => catchesHangUp(gateway.pid));
  gateway.signal('SIGHUP');
  await eventually('read again when it runs', () => gateway.logs.some(({ msg }) => msg === 'reloading'), START_MS);
  t.equal((await gateway.request({})).status, 200);
});

/** Whether the process has a handler for SIGHUP, as proc_pid_status(5) tells it. */
function catchesHangUp(pid: number): boolean {
  const caught = /^SigCgt:\s*([0-9a-f]+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? '0';
  return (BigInt(`0x${caught}`) & 1n) === 1n;
}

t.test('while it drains, it is not ready, and reads nothing', async (t) => {
  const stub = await startUpstream(t);
  const held = stub.holds('/slow');
  const site = await startSite(t, configFor(stub, '', 'drain: { delay: 2s, timeout: 20s }'));
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
  const site = await startSite(t, configFor(stub, '', 'drain: { delay: 60s }'));
  site.gateway.signal('SIGTERM');
  await eventually('stopping', () => site.logged('stopping') === 1);
  t.equal((await site.gateway.request({ path: '/slow' })).status, 200);
  site.gateway.signal('SIGTERM');
  t.same(await within(10_000, 'the end', site.gateway.exited), { code: 1, signal: null });
});
