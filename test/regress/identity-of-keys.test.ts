/** Keys, identities and variants are made of what the upstream sees: nobody plants a response for somebody else. */

import t from 'tap';
import { type Answered, rawRequest, request } from '../support/client.js';
import { COLLAPSED, HIT, LED } from '../support/expect.js';
import { configOf, startGateway } from '../support/gateway.js';
import { answers, type Call, startUpstream } from '../support/upstream.js';

t.setTimeout(60_000);

const upstream = await startUpstream(t);
const routes = `
  - name: by-key
    match: { path: /by-key/* }
    policy: coalesce
    identity: public
    key: [ { request: path }, { header: x-tenant, optional: true } ]
    keep: 30s
  - name: by-identity
    match: { path: /by-identity/* }
    policy: coalesce
    identity: [ { header: x-tenant } ]
    key: [ { request: path } ]
    keep: 30s
  - name: by-vary
    match: { path: /by-vary/* }
    policy: coalesce
    identity: public
    key: [ { request: path } ]
    keep: 30s
  - name: by-caller
    match: { path: /by-caller/* }
    policy: coalesce
    key: [ { request: path } ]
    keep: 30s
  - name: by-host
    match: { path: /by-host/* }
    policy: coalesce
    identity: public
    key: [ { request: host }, { request: path } ]
    keep: 30s
  - name: by-address
    match: { path: /by-address/* }
    policy: coalesce
    identity: public
    key: [ { header: x-forwarded-for } ]
    keep: 30s`;
const config = configOf({ upstream: upstream.url, routes });
const gateway = await startGateway(t, { config });

/** Tells what the upstream sees of the tenant, so that a response for one tenant is never mistaken for another's. */
function forTenant(fields: readonly string[] = []) {
  return answers((call: Call) => ({ fields, content: `call ${call.ordinal} for ${call.header('x-tenant')}` }));
}

function plant(path: string): string {
  return `GET ${path} HTTP/1.1\r\nHost: a\r\nX-Tenant: victim\r\nConnection: close, X-Tenant\r\n\r\n`;
}

function asVictim(path: string): Promise<Answered> {
  return request(gateway.url, { path, headers: ['Host', 'a', 'X-Tenant', 'victim'] });
}

for (const name of ['by-key', 'by-identity', 'by-vary']) {
  t.test(`a field that Connection names makes no key, no identity and no variant (${name})`, async (t) => {
    const fields = name === 'by-vary' ? ['Vary', 'X-Tenant'] : [];
    const kept = `/${name}/kept`;
    upstream.on(kept, forTenant(fields));
    t.equal((await rawRequest(gateway.url, plant(kept)))?.text, 'call 1 for null', 'the upstream sees no tenant');
    const victim = await asVictim(kept);
    t.equal(victim.text, 'call 2 for victim', 'from the store');
    t.equal(victim.cacheStatus, LED);
    t.match((await asVictim(kept)).cacheStatus, HIT);

    const flying = `/${name}/flying`;
    const held = upstream.holds(flying, (call) => ({ fields, content: `for ${call.header('x-tenant')}` }));
    const planter = rawRequest(gateway.url, plant(flying));
    await held.arrived(1);
    const joined = asVictim(flying);
    await gateway.caughtUp();
    held.release();
    t.equal((await planter)?.text, 'for null');
    t.equal((await joined).text, 'for victim', 'from a flight');
    t.equal(upstream.count(flying), 2);
  });
}

t.test('what Connection may not take away is forwarded and stays part of the identity', async (t) => {
  const path = '/by-caller/named';
  upstream.on(
    path,
    answers((call) => ({ content: `for ${call.header('authorization')}` })),
  );
  const named = `GET ${path} HTTP/1.1\r\nHost: a\r\nAuthorization: A\r\nConnection: close, Authorization\r\n\r\n`;
  t.equal((await rawRequest(gateway.url, named))?.text, 'for A');
  t.equal((await request(gateway.url, { path })).text, 'for null');
  t.equal((await request(gateway.url, { path, headers: ['Authorization', 'B'] })).text, 'for B');
  t.equal(upstream.count(path), 3);
});

t.test('a target and a Host field that contradict each other are refused, and nothing is forwarded', async (t) => {
  const before = upstream.count();
  for (const path of ['/by-host/1', '/plain']) {
    for (const host of ['attacker.example', 'victim.example:81', 'victim.example.', '']) {
      const head = `GET http://victim.example${path} HTTP/1.1\r\nHost: ${host}\r\n\r\n`;
      const answer = await rawRequest(gateway.url, head);
      t.equal(answer?.status, 400, `${path} ${host}`);
      t.match(answer?.header('proxy-status'), /^oneflight/);
    }
  }
  t.equal(upstream.count(), before);
});

t.test('a target in absolute form with its own host is the same request as in origin form', async (t) => {
  const path = '/by-host/2';
  const ask = (target: string, host: string) =>
    rawRequest(gateway.url, `GET ${target} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
  const absolute = await ask(`http://victim.example${path}`, 'victim.example');
  t.equal(absolute?.status, 200);
  t.equal(absolute?.cacheStatus, LED);
  const [call] = upstream.calls.slice(-1);
  t.equal(call?.target, `http://victim.example${path}`, 'as it came');
  t.equal(call?.header('host'), 'victim.example');
  t.match((await ask(`http://Victim.example${path}`, 'victim.EXAMPLE'))?.cacheStatus, HIT);
  const origin = await ask(path, 'victim.example');
  t.match(origin?.cacheStatus, HIT);
  t.equal(origin?.text, absolute?.text);
  t.equal((await ask(path, 'other.example'))?.cacheStatus, LED);
});

t.test('X-Forwarded-For of a peer that is not trusted makes no keys', async (t) => {
  const claiming = (origin: string, path: string, address?: string) =>
    request(origin, { path, headers: address === undefined ? [] : ['X-Forwarded-For', address] });
  upstream.on(
    '/by-address/1',
    answers((call) => ({ content: `for ${call.header('x-forwarded-for')}` })),
  );
  t.equal((await claiming(gateway.url, '/by-address/1', '9.9.9.9')).text, 'for 127.0.0.1');
  for (const address of ['9.9.9.9', '8.8.8.8', undefined]) {
    const answer = await claiming(gateway.url, '/by-address/1', address);
    t.match(answer.cacheStatus, HIT, `claims ${address}`);
    t.equal(answer.text, 'for 127.0.0.1');
  }
  t.equal(upstream.count('/by-address/1'), 1);

  const trusting = await startGateway(t, { config: `${config}\ntrustedProxies: [127.0.0.1/32]\n` });
  const path = '/by-address/2';
  for (const address of ['9.9.9.9', '8.8.8.8']) {
    t.equal((await claiming(trusting.url, path, address)).cacheStatus, LED);
    t.match((await claiming(trusting.url, path, address)).cacheStatus, HIT);
  }
  t.equal(upstream.count(path), 2);
});

t.test('a field that Connection names does not reach into a flight of those who sent it openly', async (t) => {
  const path = '/by-key/openly';
  const held = upstream.holds(path);
  const victim = asVictim(path);
  await held.arrived(1);
  const thief = rawRequest(gateway.url, plant(path));
  await held.arrived(2);
  held.release();
  t.equal((await victim).cacheStatus, LED);
  t.not((await thief)?.cacheStatus, COLLAPSED, 'gets nothing of the victim');
});
