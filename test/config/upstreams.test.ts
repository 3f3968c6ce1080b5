/** Upstreams as they are written: what is refused, where, and what is made of the rest. */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { type LoadResult, loadConfig } from '../../src/config/load.js';
import { tlsFile } from '../support/dial.js';
import { haveErrorsAtMarks, type Marked } from '../support/marked.js';

const directory = t.testdir();
let files = 0;
function load(text: string | Buffer): LoadResult {
  const file = join(directory, `${files++}.yaml`);
  writeFileSync(file, text);
  return loadConfig(file, {});
}

const api = (fields: string) => `upstreams:\n  api: { ${fields} }\n`;

function configOf(fields: string) {
  const loaded = load(api(fields));
  if (loaded.kind !== 'loaded') throw new Error(JSON.stringify(loaded));
  return loaded.config.upstreams.get('api')!;
}

const CASES: Marked[] = [
  [api('url: http://a, urls: ▶[http://b]'), 'upstreams.api.urls', 'one of url and urls', 'both'],
  [api('urls: ▶[]'), 'upstreams.api.urls', 'at least one address', 'an empty list'],
  [
    api('urls: [http://a, http://b, ▶http://a]'),
    'upstreams.api.urls[2]',
    'an address that the list',
    'that of urls[0]',
  ],
  [
    api('urls: [http://a, https://a:80, "http://[::1]", ▶http://A:80/]'),
    'upstreams.api.urls[3]',
    'an address that the list',
    'that of urls[0]',
  ],
  [
    api('urls: ["http://[::1]:81", ▶"http://[0:0:0:0:0:0:0:1]:81"]'),
    'upstreams.api.urls[1]',
    'an address that the list',
    'that of urls[0]',
  ],
  [api('urls: [http://a, ▶ftp://b]'), 'upstreams.api.urls[1]', 'an http:// or https:// URL', '"ftp://b"'],
  [api('url: ▶unix:relative.sock'), 'upstreams.api.url', 'an http:// or https:// URL', '"unix:relative.sock"'],
  [api('url: http://a, balance: ▶random'), 'upstreams.api.balance', 'round-robin or least-pending', '"random"'],
  [api('url: http://a, retries: ▶11'), 'upstreams.api.retries', 'a number of attempts from 0 to 10', '11'],
  [api('url: http://a, eject: ▶true'), 'upstreams.api.eject', '', 'true'],
  [api('url: http://a, breaker: { failures: ▶0 }'), 'upstreams.api.breaker.failures', 'a number of failures', '0'],
  [
    api('url: http://a, failureStatuses: [5xx, ▶503]'),
    'upstreams.api.failureStatuses[1]',
    'a status that the list',
    '503',
  ],
  [api('url: http://a, ▶health: { every: 1s }'), 'upstreams.api.health.path', 'a path such as /healthz', 'nothing'],
  [
    api('url: http://a, health: { path: ▶healthz }'),
    'upstreams.api.health.path',
    'a path such as /healthz',
    '"healthz"',
  ],
  [api('url: http://a, ▶connections: { queue: 3 }'), 'upstreams.api.connections.max', 'a number of conn', 'nothing'],
  [api('url: http://a, stripPrefix: ▶/api/'), 'upstreams.api.stripPrefix', 'a path such as /api', '"/api/"'],
  [api('url: http://a, stripPrefix: ▶/a/../b'), 'upstreams.api.stripPrefix', 'a path such as /api', '"/a/../b"'],
  [
    api('url: http://a, headers: { request: { set: { ▶Host: b } } }'),
    'upstreams.api.headers.request.set.Host',
    'a field that edits may concern',
    '"Host"',
  ],
  [
    api('url: http://a, headers: { response: { remove: [Server, ▶Content-Length] } }'),
    'upstreams.api.headers.response.remove[1]',
    'a field that edits may concern',
    '"Content-Length"',
  ],
  [
    api('url: http://a, headers: { request: { set: { x-a: b, X-A: ▶c } } }'),
    'upstreams.api.headers.request.set.X-A',
    'x-a once',
    'it in two spellings',
  ],
  [
    api('url: http://a, headers: { request: { set: { x-a: b }, remove: [▶X-A] } }'),
    'upstreams.api.headers.request.remove[0]',
    'a field that is not set as well',
    '"X-A"',
  ],
  [api('url: http://a, tls: ▶{ verify: false }'), 'upstreams.api.tls', 'no tls without an https:// address', 'it'],
  [
    api(`url: https://a, ▶tls: { cert: "${tlsFile('one.pem')}" }`),
    'upstreams.api.tls.key',
    'the key of tls.cert',
    'nothing',
  ],
  [
    api(`url: https://a, tls: { cert: "${tlsFile('one.pem')}", key: ▶"${tlsFile('two.key')}" }`),
    'upstreams.api.tls.key',
    'the private key of the certificate',
    'that of another one',
  ],
  [
    api('url: https://a, tls: { ca: ▶/nowhere/ca.pem }'),
    'upstreams.api.tls.ca',
    'the PEM file /nowhere/ca.pem',
    'no such file',
  ],
  [
    api(`url: https://a, tls: { ca: ▶"${tlsFile('broken.key')}" }`),
    'upstreams.api.tls.ca',
    'certificates in PEM',
    'what OpenSSL refuses (no start line)',
  ],
];
t.test('faults are told at their place', async (t) => haveErrorsAtMarks(t, CASES, load));

t.test('defaults that depend on other fields', async (t) => {
  t.equal(configOf('url: http://a').eject, null);
  t.same(configOf('urls: [http://a, http://b]').eject, { failures: 3, forMs: 10_000 });
  t.equal(configOf('urls: [http://a, http://b], eject: false').eject, null);
  t.same(configOf('url: http://a, eject: {}').eject, { failures: 3, forMs: 10_000 });
});

t.test('addresses have names for logs and metrics', async (t) => {
  const { addresses } = configOf('urls: [http://a, https://b, "http://[::1]:81", "unix:/run/api.sock"]');
  t.same(
    addresses.map(({ name }) => name),
    ['a:80', 'b:443', '[::1]:81', 'unix:/run/api.sock'],
  );
  t.equal(addresses[3]?.socketPath, '/run/api.sock');
});

t.test('an edit that sets replaces whatever the spelling', async (t) => {
  const { edits } = configOf(
    'url: http://a, headers: { request: { set: { X-A: b }, add: { X-B: [c, d] }, remove: [X-C] } }',
  );
  t.same([...(edits.request?.removed ?? [])].sort(), ['x-a', 'x-c']);
  t.same(edits.request?.added, ['X-A', 'b', 'X-B', 'c', 'X-B', 'd']);
  t.equal(edits.response, null);
});
