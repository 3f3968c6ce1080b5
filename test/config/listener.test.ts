/** Options of the client's side: what is accepted, what is refused and where. */

import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { limits } from '../../src/config/listener-schema.js';
import { type LoadResult, loadConfig } from '../../src/config/load.js';
import { tlsFile } from '../support/dial.js';
import { haveErrorsAtMarks, type Marked } from '../support/marked.js';

const API = 'upstreams: { api: { url: http://127.0.0.1:3000 } }\n';
const directory = t.testdir();
for (const name of ['one.pem', 'one.key', 'two.key', 'broken.pem', 'broken.key'])
  copyFileSync(tlsFile(name), join(directory, name));
mkdirSync(join(directory, 'folder'));
let files = 0;

function load(text: string | Buffer, env: NodeJS.ProcessEnv = {}): LoadResult {
  const file = join(directory, `${files++}.yaml`);
  writeFileSync(file, text);
  return loadConfig(file, env);
}

function loaded(text: string, env: NodeJS.ProcessEnv = {}) {
  const result = load(API + text, env);
  if (result.kind === 'invalid') throw new Error(JSON.stringify(result.errors));
  return result.config;
}

function testCases(name: string, cases: readonly Marked[]): void {
  t.test(name, async (t) => haveErrorsAtMarks(t, cases, load));
}

function tls(fields: string): string {
  return `${API}listen:\n  tls: { ${fields} }\n`;
}

testCases('TLS material', [
  [`${API}listen:\n  ▶tls: { key: one.key }\n`, 'listen.tls.cert', 'a PEM file, or PEM text', 'nothing'],
  [tls('cert: one.pem, key: ▶5'), 'listen.tls.key', 'a PEM file, or PEM text', '5'],
  [
    tls('cert: one.pem, ▶keys: one.key, key: one.key'),
    'listen.tls.keys',
    'one of cert, key, minVersion',
    '"keys"',
    'key',
  ],
  [
    tls('cert: one.pem, key: one.key, minVersion: ▶TLSv1.1'),
    'listen.tls.minVersion',
    'TLSv1.2 or TLSv1.3',
    '"TLSv1.1"',
    'TLSv1.2',
  ],
  [
    tls('cert: ▶none.pem, key: one.key'),
    'listen.tls.cert',
    `the PEM file ${join(directory, 'none.pem')}`,
    'no such file',
  ],
  [tls('cert: one.pem, key: ▶folder'), 'listen.tls.key', `the PEM file ${join(directory, 'folder')}`, 'a directory'],
  [
    tls('cert: ▶broken.pem, key: one.key'),
    'listen.tls.cert',
    'a certificate in PEM',
    'what OpenSSL refuses (too long)',
  ],
  [
    tls('cert: one.pem, key: ▶broken.key'),
    'listen.tls.key',
    'a private key in PEM, not encrypted',
    'what OpenSSL refuses (unsupported)',
  ],
  [
    tls('cert: ▶one.key, key: one.key'),
    'listen.tls.cert',
    'a certificate in PEM',
    'what OpenSSL refuses (no start line)',
  ],
  [tls('cert: one.pem, key: ▶two.key'), 'listen.tls.key', 'the private key of the certificate', 'that of another one'],
  [
    tls('cert: one.pem, key: ▶"-----BEGIN PRIVATE KEY-----"'),
    'listen.tls.key',
    'a private key in PEM, not encrypted',
    'what OpenSSL refuses (unsupported)',
  ],
]);

t.test('material is a path beside the configuration, or text', async (t) => {
  const file = (name: string) => ({ kind: 'file', path: join(directory, name) });
  t.same(loaded('listen: { tls: { cert: one.pem, key: ./one.key } }').listen.tls, {
    cert: file('one.pem'),
    key: file('one.key'),
    minVersion: 'TLSv1.2',
  });
  const env = { CERT: readFileSync(tlsFile('one.pem'), 'latin1'), KEY: readFileSync(tlsFile('one.key'), 'latin1') };
  // biome-ignore lint/suspicious/noTemplateCurlyInString: the configuration's own syntax.
  const { listen } = loaded('listen: { tls: { cert: "${CERT}", key: "${KEY}", minVersion: TLSv1.3 } }', env);
  t.same(listen.tls, {
    cert: { kind: 'text', pem: env.CERT },
    key: { kind: 'text', pem: env.KEY },
    minVersion: 'TLSv1.3',
  });
  t.equal(loaded('').listen.tls, null);
});

testCases('limits', [
  [`${API}limits: { ▶maxField: 1KiB }\n`, 'limits.maxField', 'one of maxFields, maxContent', '"maxField"', 'maxFields'],
  [`${API}limits: { maxFields: ▶2MiB }\n`, 'limits.maxFields', 'a size from 1KiB to 1MiB', '"2MiB"'],
  [`${API}limits: { maxContent: ▶much }\n`, 'limits.maxContent', 'a size from 0B', '"much"'],
  [`${API}limits: { maxConnections: ▶0 }\n`, 'limits.maxConnections', 'a number from 1 to 1000000', '0'],
  [`${API}limits: { fieldsTimeout: ▶0 }\n`, 'limits.fieldsTimeout', 'a duration from 100ms to 10m', '0'],
  [`${API}limits: { maxRequests: ▶0 }\n`, 'limits.maxRequests', 'a number from 1 to 10000000', '0'],
  [`${API}limits: { eventLoopDelay: ▶true }\n`, 'limits.eventLoopDelay', 'false or a duration from 10ms to 1m', 'true'],
  [`${API}limits: { eventLoopDelay: ▶1ms }\n`, 'limits.eventLoopDelay', 'a duration from 10ms to 1m', '"1ms"'],
  [`${API}limits: { minRate: ▶2MiB }\n`, 'limits.minRate', 'a size from 0B to 1MiB', '"2MiB"'],
  [
    `${API}routes: [ { name: a, match: { path: /a }, maxRequests: ▶0 } ]\n`,
    'routes[0].maxRequests',
    'a number of requests from 1 to 1000000',
    '0',
  ],
  [`${API}limits: { keepAliveTimeout: ▶500ms }\n`, 'limits.keepAliveTimeout', 'a duration from 1s to 1h', '"500ms"'],
]);

t.test('limits arrive in their units', async (t) => {
  t.same(loaded('').limits, {
    maxFieldBytes: 65_536,
    maxContentBytes: Number.POSITIVE_INFINITY,
    maxConnections: Number.POSITIVE_INFINITY,
    maxConcurrentStreams: 128,
    maxRequests: 50_000,
    eventLoopDelayMs: 2_000,
    minBytesPerSecond: 0,
    fieldsTimeoutMs: 30_000,
    contentTimeoutMs: 60_000,
    stallTimeoutMs: 60_000,
    keepAliveTimeoutMs: 65_000,
  });
  const written = loaded(
    'limits: { maxFields: 8KiB, maxContent: 1GiB, maxConnections: 5, maxConcurrentStreams: 6, maxRequests: 7, eventLoopDelay: 500ms, minRate: 1KiB, fieldsTimeout: 1s, contentTimeout: 2s, stallTimeout: 3s, keepAliveTimeout: 4s }',
  );
  t.same(Object.values(written.limits), [
    ...[8_192, 1_073_741_824, 5, 6, 7, 500, 1_024],
    ...[1_000, 2_000, 3_000, 4_000],
  ]);
  t.equal(loaded('limits: { eventLoopDelay: false }').limits.eventLoopDelayMs, Number.POSITIVE_INFINITY);
});

t.test('every limit stands in the table of the documents, with its default', async (t) => {
  const table = readFileSync(new URL('../../../docs/clients.md', import.meta.url), 'utf8');
  const defaults = limits.parse({}) as Readonly<Record<string, unknown>>;
  t.ok(Object.keys(limits.shape).length > 10);
  for (const name of Object.keys(limits.shape)) {
    const [, said] = new RegExp(`^\\| \`limits\\.${name}\` +\\|[^|]+\\| (\\S+) +\\|`, 'm').exec(table) ?? [];
    t.equal(said, String(defaults[name] ?? '–'), name);
  }
});

testCases('request ids', [
  [`${API}requestId: { trust: ▶proxies }\n`, 'requestId.trust', 'always, trusted-proxies or never', '"proxies"'],
  [`${API}requestId: { ▶header: X-Id }\n`, 'requestId.header', 'one of trust', '"header"'],
]);

t.test('a PROXY header from anybody is a warning', async (t) => {
  const warnings = (text: string) => {
    const result = load(API + text);
    return result.kind === 'loaded' ? result.warnings.map(({ path, message }) => `${path}: ${message}`) : ['invalid'];
  };
  t.match(warnings('listen: { proxyProtocol: true }'), [/^listen\.proxyProtocol: whoever can connect/]);
  t.same(warnings('listen: { proxyProtocol: true }\ntrustedProxies: [10.0.0.0/8]'), []);
});

testCases('HTTP/2', [
  [`${API}listen: { http2: ▶true }\n`, 'listen.http2', 'listen.tls to be set', 'true'],
  [`${API}listen: { http2: ▶maybe }\n`, 'listen.http2', 'true or false', '"maybe"'],
  [`${API}limits: { maxConcurrentStreams: ▶0 }\n`, 'limits.maxConcurrentStreams', 'a number from 1 to 10000', '0'],
]);
