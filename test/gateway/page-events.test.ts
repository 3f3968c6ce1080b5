/** `GET /` and `GET /events` as the admin listener serves them. */

import { once } from 'node:events';
import http, { type IncomingMessage } from 'node:http';
import t, { type Test } from 'tap';
import { eventsOf } from '../../src/page/event-stream.js';
import type { Snapshot } from '../../src/page/snapshot.js';
import { request } from '../support/client.js';
import { delay, eventually, within } from '../support/gate.js';
import { configOf, type Gateway, startGateway } from '../support/gateway.js';
import { startUpstream } from '../support/upstream.js';

t.setTimeout(120_000);

const TOKEN = 'this-is-the-token-of-operators';
const routes = `
  - { name: locked, match: { path: "/locked/*" }, upstream: api, policy: reject, key: [ { request: path } ] }`;

type Watching = { readonly response: IncomingMessage; next(): Promise<Snapshot | 'stopped'>; leave(): void };

async function watch(t: Test, gateway: Gateway, headers: Record<string, string> = {}): Promise<Watching> {
  const asked = http.get(`${gateway.adminUrl}/events`, { headers, agent: false }).on('error', () => {});
  const leave = () => void asked.destroy();
  t.teardown(leave);
  const [response] = (await within(10_000, 'the stream', once(asked, 'response'))) as [IncomingMessage];
  response.on('error', () => {});
  const events = eventsOf(response)[Symbol.asyncIterator]();
  const next = async (): Promise<Snapshot | 'stopped'> => {
    const { value, done } = await within(10_000, 'an event', events.next());
    if (done === true) throw new Error('the stream has ended');
    return value.name === 'stopped' ? 'stopped' : (JSON.parse(value.data) as Snapshot);
  };
  return { response, next, leave };
}

async function start(t: Test, more: { admin?: string; more?: string } = {}): Promise<Gateway> {
  const upstream = await startUpstream(t);
  const config = configOf({ upstream: upstream.url, routes, more: more.more ?? '' });
  const gateway = await startGateway(t, {
    config: config.replace(/^admin: .*$/m, `admin: { port: 0${more.admin === undefined ? '' : `, ${more.admin}`} }`),
  });
  return gateway;
}

t.test('the page is for everybody who may speak with the listener, what it shows is for operators', async (t) => {
  const gateway = await start(t, { admin: `token: ${TOKEN}` });
  for (const [path, type] of [
    ['/', 'text/html'],
    ['/page.js', 'text/javascript'],
    ['/page.css', 'text/css'],
    ['/page.svg', 'image/svg+xml'],
  ] as const) {
    const answer = await gateway.admin(path);
    t.equal(answer.status, 200, path);
    t.match(answer.header('content-type'), type);
    t.match(answer.header('content-security-policy'), /^default-src 'none'; script-src 'self'; style-src 'self';/);
    t.notMatch(answer.header('content-security-policy'), /unsafe|\*|data:|http/);
    t.match(answer.header('cache-control'), 'no-store');
    t.notMatch(answer.text, /locked|https?:\/\/(?!www\.w3\.org)[a-z]/, 'it names no rule and no other host');
  }
  t.equal((await gateway.admin('/events')).status, 401);
  const bearer = { authorization: `Bearer ${TOKEN}` };
  const watching = await watch(t, gateway, bearer);
  t.match(watching.response.headers, { 'content-type': /^text\/event-stream/, 'cache-control': 'no-store' });
  t.match(await watching.next(), { health: { ready: true }, flights: { kind: 'listed' }, figures: { version: /\d/ } });
  const evil = { ...bearer, origin: 'http://evil.example' };
  t.equal((await request(gateway.adminUrl, { path: '/events', headers: Object.entries(evil).flat() })).status, 403);
  t.equal((await request(gateway.adminUrl, { path: '/', headers: ['Origin', 'http://evil.example'] })).status, 403);
  t.equal((await request(gateway.adminUrl, { method: 'HEAD', path: '/events' })).status, 401);
});

t.test('without a token, a name that somebody has made point here gets no page either', async (t) => {
  const gateway = await start(t);
  for (const path of ['/', '/page.js', '/events']) {
    const answer = await request(gateway.adminUrl, { path, headers: ['Host', 'evil.example'] });
    t.equal(answer.status, 421, path);
  }
  t.equal((await gateway.admin('/')).status, 200);
});

t.test('a window that a page of others has opened is no viewer', async (t) => {
  const gateway = await start(t);
  const navigation = await gateway.sendAdmin({ path: '/events', headers: ['Sec-Fetch-Mode', 'navigate'] });
  t.equal(navigation.status, 403);
});

t.test('viewers: few, made for once, and nothing without them', async (t) => {
  const gateway = await start(t);
  const looks = async () => (await gateway.metrics()).sum('oneflight_store_seconds_count', { operation: 'taken' });
  t.equal(await looks(), 0);
  const all = await Promise.all(Array.from({ length: 16 }, () => watch(t, gateway)));
  const snapshots = await Promise.all(all.map(({ next }) => next()));
  t.ok(snapshots.every((one) => one !== 'stopped'));
  t.ok((await looks()) <= 2 * 3, 'so many viewers cost as much as one');
  const refused = await gateway.admin('/events');
  t.equal(refused.status, 503);
  t.match(refused.header('retry-after'), /^\d+$/);
  for (const { leave } of all) leave();
  await eventually('there is room again', async () => {
    const [next] = await Promise.all([watch(t, gateway).then((one) => one.response.statusCode), delay(100)]);
    return next === 200;
  });
});

for (const workers of [1, 2]) {
  t.test(`a gateway of ${workers} workers: figures and flights, to the end of its drain`, async (t) => {
    const upstream = await startUpstream(t);
    const config = configOf({ upstream: upstream.url, routes, more: `workers: ${workers}` });
    const gateway = await startGateway(t, { config });
    const watching = await watch(t, gateway);
    await watching.next();
    const held = upstream.holds('/locked/a');
    const led = gateway.request({ method: 'POST', path: '/locked/a' });
    await held.arrived(1);
    for (let i = 0; i < 3; i += 1) await gateway.request({ method: 'POST', path: '/locked/a' });
    const shows = async (what: string, ask: (snapshot: Snapshot) => boolean): Promise<void> => {
      await eventually(what, async () => {
        const snapshot = await watching.next();
        return snapshot !== 'stopped' && ask(snapshot);
      });
    };
    const routeOf = ({ figures }: Snapshot) => figures.routes.find(({ route }) => route === 'locked');
    await shows('the flight', ({ flights }) => flights.kind === 'listed' && flights.inFlight[0]?.route === 'locked');
    await shows('the refused', (snapshot) => routeOf(snapshot)?.outcomes['in-flight'] === 3);
    const stopped = gateway.stop();
    await shows(
      'draining',
      ({
        health: {
          ready,
          checks: { draining },
        },
      }) => !ready && draining === 'yes',
    );
    held.release();
    t.equal((await led).status, 200);
    let last: Snapshot | 'stopped' = await watching.next();
    while (last !== 'stopped') last = await watching.next();
    await within(10_000, 'a viewer keeps nobody from ending', stopped);
  });
}
