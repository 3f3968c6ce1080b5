/** Who may ask the admin listener: programs on this machine, whoever has the token, and no page of anybody's. */

import { connect } from 'node:net';
import t, { type Test } from 'tap';
import { type Answered, rawRequest, request } from '../support/client.js';
import { eventually, within } from '../support/gate.js';
import { configOf, Gateway, startGateway } from '../support/gateway.js';
import { startUpstream } from '../support/upstream.js';

t.setTimeout(120_000);

const TOKEN = 'this-is-the-token-of-operators';
const stub = await startUpstream(t);
const routes = `
  - { name: locked, match: { path: "/locked/*" }, upstream: api, policy: reject, key: [ { request: path } ] }`;

function configWith(admin: string, more = ''): string {
  const config = configOf({ upstream: stub.url, routes, more });
  return config.replace(/^admin: .*$/m, `admin: { port: 0, ${admin} }`);
}

/** What shows or changes state, a path that nobody has, and an odd method. */
const PATHS = [
  ['GET', '/metrics'],
  ['GET', '/flights'],
  ['HEAD', '/flights'],
  ['POST', `/flights/${'0'.repeat(64)}/settle`],
  ['DELETE', `/flights/${'0'.repeat(64)}`],
  ['DELETE', '/routes/locked/kept'],
  ['GET', '/nothing-here'],
  ['OPTIONS', '/flights'],
] as const;
const JSON_BODY = ['Content-Type', 'application/json'];

function ask(url: string, method: string, path: string, headers: readonly string[]): Promise<Answered> {
  const body = method === 'POST' ? '{"as":"free"}' : undefined;
  const typed = method === 'POST' ? JSON_BODY : [];
  return request(url, { method, path, headers: [...headers, ...typed], ...(body === undefined ? {} : { body }) });
}

async function statuses(url: string, headers: readonly string[]): Promise<number[]> {
  const answers = await Promise.all(PATHS.map(([method, path]) => ask(url, method, path, headers)));
  return [...new Set(answers.map(({ status }) => status))];
}

async function isOpen(t: Test, url: string, headers: readonly string[], why: string): Promise<void> {
  t.same(
    (await statuses(url, headers)).filter((status) => [401, 403, 421].includes(status)),
    [],
    `${why}: open`,
  );
}

t.test('without a token: a name that somebody has made point here is told nothing', async (t) => {
  const { adminUrl } = await startGateway(t, { config: configWith('host: 127.0.0.1') });
  const { port } = new URL(adminUrl);
  for (const host of [
    'evil.example',
    `evil.example:${port}`,
    'localhost.evil.example',
    '127.0.0.1.evil.example',
    'a@b',
  ])
    t.same(await statuses(adminUrl, ['Host', host]), [421], host);
  for (const host of [`127.0.0.1:${port}`, `localhost:${port}`, 'LOCALHOST', 'localhost.', `[::1]:${port}`, '10.1.2.3'])
    await isOpen(t, adminUrl, ['Host', host], host);
  const refused = await request(adminUrl, { path: '/metrics', headers: ['Host', 'evil.example'] });
  t.notMatch(refused.text, /oneflight_/);
});

t.test('without a token: a page from elsewhere is told nothing, and changes nothing', async (t) => {
  const gateway = await startGateway(t, { config: configWith('host: 127.0.0.1') });
  const { adminUrl } = gateway;
  const { host, port } = new URL(adminUrl);
  for (const origin of ['http://evil.example', `http://localhost:${port}`, `http://127.0.0.1:1`, 'null', 'http://'])
    t.same(await statuses(adminUrl, ['Origin', origin]), [403], `Origin: ${origin}`);
  for (const site of ['cross-site', 'same-site']) {
    t.same(await statuses(adminUrl, ['Sec-Fetch-Site', site, 'Sec-Fetch-Mode', 'no-cors']), [403], site);
    const frame = ['Sec-Fetch-Site', site, 'Sec-Fetch-Mode', 'navigate', 'Sec-Fetch-Dest', 'iframe'];
    t.same(await statuses(adminUrl, frame), [403], `${site}, in a frame`);
  }
  const visit = ['Sec-Fetch-Site', 'cross-site', 'Sec-Fetch-Mode', 'navigate', 'Sec-Fetch-Dest', 'document'];
  t.equal((await ask(adminUrl, 'GET', '/flights', visit)).status, 200, 'a link leads here');
  t.equal(
    (await ask(adminUrl, 'POST', PATHS[3][1], [...visit, 'Origin', 'http://evil.example'])).status,
    403,
    'a form not',
  );
  await isOpen(t, adminUrl, ['Origin', `http://${host}`, 'Sec-Fetch-Site', 'same-origin'], 'its own pages');
  await isOpen(t, adminUrl, ['Sec-Fetch-Site', 'none'], 'an address that was typed');

  const held = stub.holds('/locked/a');
  const locked = gateway.request({ method: 'POST', path: '/locked/a' });
  await held.arrived(1);
  const { flights } = (await gateway.admin('/flights')).json() as { flights: { key: string; flight: string }[] };
  const { key, flight } = flights[0]!;
  const headers = ['Origin', 'http://evil.example', 'Content-Type', 'text/plain'];
  const body = JSON.stringify({ as: 'free', flight });
  t.equal((await request(adminUrl, { method: 'POST', path: `/flights/${key}/settle`, headers, body })).status, 403);
  t.equal((await gateway.request({ method: 'POST', path: '/locked/a' })).status, 409, 'the key is still taken');
  held.release();
  t.equal((await locked).status, 200);
});

t.test('with a token: nobody is told anything without it, by whatever name', async (t) => {
  const gateway = await startGateway(t, {
    config: configWith(`host: 0.0.0.0, token: ${TOKEN}`, 'log: { level: trace }'),
  });
  const adminUrl = gateway.adminUrl.replace('0.0.0.0', '127.0.0.1');
  const bearer = (token: string) => ['Authorization', `Bearer ${token}`];
  for (const wrong of [
    [],
    bearer('x'),
    bearer(TOKEN.slice(0, -1)),
    bearer(`${TOKEN}x`),
    bearer(TOKEN.toUpperCase()),
    bearer(''),
  ]) {
    t.same(await statuses(adminUrl, wrong), [401], wrong.join(' '));
  }
  for (const scheme of ['Basic', 'Token', ''])
    t.same(await statuses(adminUrl, ['Authorization', `${scheme} ${TOKEN}`]), [401]);
  await isOpen(t, adminUrl, bearer(TOKEN), 'with it');
  await isOpen(
    t,
    adminUrl,
    [...bearer(TOKEN), 'Host', 'oneflight-admin.monitoring.svc:9090'],
    'by the name of a service',
  );
  t.same(
    await statuses(adminUrl, [...bearer(TOKEN), 'Origin', 'http://evil.example']),
    [403],
    'from a page all the same',
  );
  t.notMatch(gateway.output, TOKEN, 'it is in no line of the log');
  const answers = await Promise.all(PATHS.map(([method, path]) => ask(adminUrl, method, path, bearer('wrong'))));
  for (const answer of answers) t.notMatch(`${answer.rawHeaders.join()}${answer.text}`, TOKEN);
});

t.test(
  'probes have no token and name the address of the pod: they are told yes or no, and why is for operators',
  async (t) => {
    const own = await startUpstream(t);
    const config = configWith(`host: 127.0.0.1, token: ${TOKEN}`).replace(stub.url, own.url);
    const { adminUrl } = await startGateway(t, { config });
    const probe = (path: string, headers: readonly string[] = ['Host', '10.1.2.3:9090']) =>
      request(adminUrl, { path, headers });
    t.same((await probe('/livez')).json(), { live: true });
    t.same((await probe('/readyz')).json(), { ready: true });
    t.equal((await probe('/readyz', ['Host', 'evil.example', 'Origin', 'http://evil.example'])).text, '{"ready":true}');
    const bearer = ['Authorization', `Bearer ${TOKEN}`];
    t.match((await probe('/readyz', bearer)).json(), { ready: true, checks: { store: 'ok', 'upstream api': 'ok' } });
    await own.refuse();
    await eventually('not ready', async () => (await probe('/readyz')).status === 503);
    t.same((await probe('/readyz')).json(), { ready: false });
    t.match((await probe('/readyz', bearer)).json(), { ready: false, checks: { 'upstream api': /refused/i } });
  },
);

t.test('a host that others can reach needs a token', async (t) => {
  for (const host of ['0.0.0.0', '"::"', '10.0.0.1', 'gateway.internal', '127.0.0.1.nip.io']) {
    const gateway = new Gateway({ config: configWith(`host: ${host}`) });
    t.equal((await within(20_000, 'its end', gateway.exited)).code, 78, host);
    t.match(gateway.stderr, /a loopback host, or admin\.token to be set/);
  }
});

t.test('who opens connections and says nothing takes none from operators for long', async (t) => {
  const gateway = await startGateway(t, { config: configWith('host: 127.0.0.1') });
  const { port } = new URL(gateway.adminUrl);
  const sockets = Array.from({ length: 300 }, () =>
    connect({ host: '127.0.0.1', port: Number(port) }).on('error', () => {}),
  );
  t.teardown(() => sockets.forEach((socket) => void socket.destroy()));
  await eventually(
    'those beyond the limit being closed',
    () => sockets.filter(({ destroyed }) => destroyed).length >= 40,
  );
  for (const socket of sockets.slice(0, 50)) socket.destroy();
  await eventually('an answer', async () => (await gateway.admin('/livez').catch(() => null))?.status === 200);
});

t.test('a request that cannot be read says nothing of what is behind', async (t) => {
  const { adminUrl } = await startGateway(t, { config: configWith('host: 127.0.0.1') });
  const twice = await rawRequest(adminUrl, 'GET /flights HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n');
  t.equal(twice?.status, 421, "one of two hosts is nobody's");
  const none = await rawRequest(adminUrl, 'GET /flights HTTP/1.1\r\n\r\n');
  t.equal(none?.status, 400);
});
