/** Whose request id the upstream and the log get. */

import t from 'tap';
import { request } from '../support/client.js';
import { eventually } from '../support/gate.js';
import { configOf, startGateway } from '../support/gateway.js';
import { startUpstream } from '../support/upstream.js';

const stub = await startUpstream(t);
const MADE = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

const rows = [
  ['', 'kept'],
  ['requestId: { trust: always }', 'kept'],
  ['requestId: { trust: never }', 'made'],
  ['requestId: { trust: never }\ntrustedProxies: [127.0.0.0/8]', 'made'],
  ['requestId: { trust: trusted-proxies }', 'made'],
  ['requestId: { trust: trusted-proxies }\ntrustedProxies: [192.0.2.0/24]', 'made'],
  ['requestId: { trust: trusted-proxies }\ntrustedProxies: [127.0.0.0/8]', 'kept'],
] as const;

for (const [more, outcome] of rows) {
  t.test(`${more.replace('\n', ', ') || 'nothing configured'}: the id is ${outcome}`, async (t) => {
    const gateway = await startGateway(t, { config: configOf({ upstream: stub.url, routes: '', more }) });
    const answer = await request(gateway.url, { path: '/id', headers: ['X-Request-ID', 'mine-1'] });
    const [sent, ...others] = stub.callsOf('/id').at(-1)!.headerLines('x-request-id');
    t.same(others, []);
    if (outcome === 'kept') t.equal(sent, 'mine-1');
    else t.match(sent, MADE);
    t.equal(answer.header('x-request-id'), null, 'the response is the upstream’s own: it gets none');
    await eventually('the log has the same', () =>
      gateway.logs.some((line) => 'requestId' in line && line.requestId === sent),
    );
    for (const bad of ['a b', 'a'.repeat(201), 'caf\xe9']) {
      await request(gateway.url, { path: '/id', headers: ['X-Request-ID', bad] });
      t.match(stub.callsOf('/id').at(-1)!.headerLines('x-request-id')[0], MADE, 'what is no id is replaced');
    }
    await request(gateway.url, { path: '/id', headers: ['X-Request-ID', 'a', 'X-Request-ID', 'b'] });
    t.match(stub.callsOf('/id').at(-1)!.headerLines('x-request-id'), [MADE], 'nor are two of them one');
  });
}
