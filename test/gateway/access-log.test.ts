/** The line of each request, in every form, and the level of the log at run time. */

import { Agent } from 'node:http';
import t from 'tap';
import { type Answered, request } from '../support/client.js';
import { eventually } from '../support/gate.js';
import { configOf, type Gateway, startGateway } from '../support/gateway.js';
import { startUpstream } from '../support/upstream.js';
import { linesOf, pinEach, watchOver } from '../support/workers.js';
import { startSite } from './reloading.js';

t.setTimeout(120_000);

const SECRET = 'hunter2';
const CLF = /^(\S+) - - \[\d\d\/[A-Z][a-z]{2}\/\d{4}:\d\d:\d\d:\d\d \+0000\] "([^"]*)" (\S+) (\S+)(.*)$/;
const routes = `
  - name: session
    match: { path: /sessions/:id }
    policy: coalesce
    key: [ { param: id } ]
  - name: open
    match: { path: /open/* }`;

const upstream = await startUpstream(t);
upstream.on('/open/sized', (call) => call.answer({ content: 'x'.repeat(1_234) }));
upstream.on('/open/chunked', (call) => call.answer({ content: 'x'.repeat(70_000), framing: 'chunked' }));
upstream.on('/open/head', (call) => call.answer({ fields: ['Content-Length', '99'], framing: 'none' }));
upstream.on('/open/500', (call) => call.answer({ status: 500, content: 'oh' }));

const config = (log: string, more = '') => configOf({ upstream: upstream.url, routes, more: `log: ${log}\n${more}` });

/** The access lines once there are so many: request, status, bytes, and what follows. */
async function commonLines(gateway: Gateway, count: number): Promise<string[][]> {
  const read = () => gateway.noise.flatMap((line) => [CLF.exec(line)?.slice(1) ?? []]);
  await eventually(`${count} lines`, () => read().length >= count);
  return read();
}

const exchanges = (gateway: Gateway) => gateway.logs.filter(({ msg }) => msg === 'exchange');

t.test('in the Common Log Format, without values of keys and without queries', async (t) => {
  const gateway = await startGateway(t, { config: config('{ access: clf }') });
  await gateway.request({ path: `/sessions/${SECRET}?token=${SECRET}` });
  await gateway.request({ path: '/open/sized?a=b' });
  await gateway.request({ path: '/open/chunked' });
  await gateway.request({ method: 'HEAD', path: '/open/head' });
  await gateway.request({ path: '/open/"x' });
  const lines = await commonLines(gateway, 5);
  t.same(
    lines.map((line) => line.slice(0, 4)).map(([client, asked, status, bytes]) => [client, asked, status, bytes]),
    [
      ['127.0.0.1', 'GET /sessions/:id HTTP/1.1', '200', lines[0]?.[3]],
      ['127.0.0.1', 'GET /open/sized?redacted HTTP/1.1', '200', '1234'],
      ['127.0.0.1', 'GET /open/chunked HTTP/1.1', '200', '70000'],
      ['127.0.0.1', 'HEAD /open/head HTTP/1.1', '200', '-'],
      ['127.0.0.1', 'GET /open/\\x22x HTTP/1.1', '200', lines[4]?.[3]],
    ],
  );
  t.notMatch(gateway.output, SECRET);
  t.same(exchanges(gateway), [], 'one line a request');
});

t.test('the combined format, of clients behind a proxy, with as much of the target as is asked for', async (t) => {
  const fields = [
    'User-Agent',
    'shop/1 "beta"',
    'X-Forwarded-For',
    '203.0.113.77',
    'Referer',
    `https://shop.example/cart/${SECRET}?t=1`,
  ];
  const combined = (more: string) => config(`{ access: { format: combined, ${more} } }`, 'trustedProxies: [127.0.0.1]');
  const lineWith = async (more: string) => {
    const gateway = await startGateway(t, { config: combined(more) });
    await gateway.request({ path: `/sessions/${SECRET}?q=1`, headers: fields });
    return (await commonLines(gateway, 1))[0]!;
  };
  const [client, asked, , , more] = await lineWith('client: truncated');
  t.equal(client, '203.0.113.0');
  t.equal(asked, 'GET /sessions/:id HTTP/1.1');
  t.equal(more, ' "https://shop.example" "shop/1 \\x22beta\\x22"');
  const whole = await lineWith('target: full');
  t.equal(whole[0], '203.0.113.77');
  t.equal(whole[1], `GET /sessions/${SECRET}?q=1 HTTP/1.1`);
  t.match(whole[4], `"https://shop.example/cart/${SECRET}?t=1"`);
});

t.test('followers and those that are answered from memory have the bytes that they were given', async (t) => {
  const gateway = await startGateway(t, { config: config('{ access: clf }') });
  const held = upstream.holds('/sessions/many', { content: 'y'.repeat(321) });
  // Over connections that stay open, followers of one turn are given the same bytes.
  const agent = new Agent({ keepAlive: true });
  t.teardown(() => agent.destroy());
  const sent = Array.from({ length: 5 }, () => gateway.send({ path: '/sessions/many', agent }));
  await held.arrived(1);
  await gateway.caughtUp();
  held.release();
  await Promise.all(sent.map(({ answer }) => answer));
  const lines = await commonLines(gateway, 5 + 2);
  const many = lines.filter(([, asked]) => asked?.startsWith('GET /sessions'));
  t.same(new Set(many.map((line) => line[3])), new Set(['321']));
  t.equal(many.length, 5);
});

t.test('off, and of a sample, errors are told all the same', async (t) => {
  const [off, sampled, json] = await Promise.all(
    ['{ access: off }', '{ access: { sample: 0% } }', '{ access: { target: path, client: full } }'].map((log) =>
      startGateway(t, { config: config(log) }),
    ) as [Promise<Gateway>, Promise<Gateway>, Promise<Gateway>],
  );
  for (const gateway of [off, sampled, json]) {
    for (const path of ['/open/sized?a=b', '/open/500', '/sessions/one']) await gateway.request({ path });
    await eventually('counted', async () => (await gateway.metrics()).sum('oneflight_requests_total') === 3);
  }
  t.same(exchanges(off), []);
  await eventually('what went wrong', () => exchanges(sampled).length > 0);
  t.match(exchanges(sampled), [{ route: 'open', status: 500 }]);
  t.equal(exchanges(sampled).length, 1);
  await eventually('all lines', () => exchanges(json).length >= 3);
  t.match(exchanges(json), [
    { target: '/open/sized?redacted', client: '127.0.0.1', status: 200 },
    { target: '/open/500', status: 500 },
    { target: '/sessions/one', status: 200 },
  ]);
});

t.test('the form changes with the file, for people too', async (t) => {
  const site = await startSite(t, config('{ access: json }'));
  const { gateway } = site;
  await gateway.request({ path: '/open/a' });
  await eventually('a line', () => exchanges(gateway).length === 1);
  await site.change(config('{ access: clf }'));
  await gateway.request({ path: '/open/b' });
  t.match((await commonLines(gateway, 1))[0], ['127.0.0.1', 'GET /open/b HTTP/1.1']);
  site.put('gateway.yaml', config('{ format: text }'));
  t.equal((await site.reload()).status, 200);
  await gateway.request({ path: '/open/c' });
  const text = () => gateway.noise.find((line) => line.includes(' exchange '));
  await eventually('a line of text', () => text() !== undefined);
  t.match(text(), /^\d{4}-\d\d-\d\dT\S+Z info {2}exchange route=open policy=pass .*\bstatus=200\b/);
  t.equal(exchanges(gateway).length, 1, 'and no other');
});

const setLevel = (gateway: Gateway, body: unknown): Promise<Answered> =>
  request(gateway.adminUrl, {
    method: 'PUT',
    path: '/log-level',
    headers: ['Content-Type', 'application/json'],
    body: JSON.stringify(body),
  });

async function levelOf(gateway: Gateway): Promise<unknown> {
  return (await gateway.admin('/log-level')).json();
}

t.test('an operator sets the level; it stays until the file has another one', async (t) => {
  const site = await startSite(t, config('{ level: warn }'));
  const { gateway } = site;
  let sent = 0;
  const lines = () => exchanges(gateway).filter(({ route }) => route === 'open').length;
  /** A request adds so many lines. */
  const adds = async (count: 0 | 1) => {
    const before = lines();
    sent += 1;
    await gateway.request({ path: '/open/a' });
    const counted = async () => (await gateway.metrics()).sum('oneflight_requests_total', { route: 'open' });
    await eventually('counted', async () => (await counted()) === sent);
    await eventually(`${count} lines more`, () => lines() >= before + count);
    t.equal(lines(), before + count);
  };
  t.same(await levelOf(gateway), { level: 'warn' });
  await adds(0);
  const answer = await setLevel(gateway, { level: 'info' });
  t.equal(answer.status, 200);
  t.same(answer.json(), { level: 'info' });
  t.same(await levelOf(gateway), { level: 'info' });
  await adds(1);
  t.match(linesOf(gateway, 'log level set by an operator'), [{ level: 40, from: 'warn', to: 'info' }]);
  for (const body of [{ level: 'loud' }, { level: 'info', more: 1 }, {}, 'info']) {
    const refused = await setLevel(gateway, body);
    t.equal(refused.status, 400, JSON.stringify(body));
    t.match(refused.text, 'trace, debug, info');
  }
  t.same(await levelOf(gateway), { level: 'info' }, 'what was refused changed nothing');
  await site.change(config('{ level: warn }', 'drain: 7s'));
  t.same(await levelOf(gateway), { level: 'info' }, 'a change of something else');
  // That it was taken is not logged any more.
  site.put('gateway.yaml', config('{ level: error }', 'drain: 7s'));
  t.equal((await site.reload()).status, 200);
  t.same(await levelOf(gateway), { level: 'error' });
  await adds(0);
});

t.test('of all workers, those that come later too', async (t) => {
  const gateway = await startGateway(t, { config: config('{ level: info }', 'workers: 2') });
  watchOver(gateway);
  const pins = await pinEach(t, gateway, 2);
  t.equal((await setLevel(gateway, { level: 'warn' })).status, 200);
  const before = exchanges(gateway).length;
  for (const { request } of pins) await request({ path: '/open/a' });
  process.kill(pins[0]!.pid, 'SIGKILL');
  await eventually('another one', () => linesOf(gateway, 'worker ended: another one takes its place').length === 1);
  await eventually('both serve', async () => (await gateway.admin('/readyz')).status === 200, 20_000);
  for (let i = 0; i < 10; i += 1) await gateway.request({ path: '/open/a' });
  t.same(await levelOf(gateway), { level: 'warn' });
  t.equal(exchanges(gateway).length, before);
  t.equal((await setLevel(gateway, { level: 'info' })).status, 200);
  await pinEach(t, gateway, 2);
  t.ok(exchanges(gateway).length > before);
});

t.test('nobody but operators sets it', async (t) => {
  const token = 'a-token-of-some-length';
  const whole = config('{ level: info }').replace(
    /^admin: .*$/m,
    `admin: { host: 127.0.0.1, port: 0, token: ${token} }`,
  );
  const gateway = await startGateway(t, { config: whole });
  t.equal((await setLevel(gateway, { level: 'debug' })).status, 401);
  t.equal((await gateway.admin('/log-level')).status, 401);
});
