/** Valid files: what they become. */

// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the configuration's own syntax.

import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { findAndLoadConfig, findConfig, type LoadResult, loadConfig } from '../../src/config/load.js';
import type { CoalescePolicy, RejectPolicy, ReplayPolicy } from '../../src/core/rule.js';

const MINIMAL = 'upstreams:\n  api:\n    url: http://127.0.0.1:3000\n';

const directory = t.testdir();
let files = 0;
function load(text: string, env: NodeJS.ProcessEnv = {}): LoadResult {
  const file = join(directory, `${files++}.yaml`);
  writeFileSync(file, text);
  return loadConfig(file, env);
}

function loaded(text: string, env: NodeJS.ProcessEnv = {}) {
  const result = load(text, env);
  if (result.kind === 'invalid') throw new Error(JSON.stringify(result.errors, null, 2));
  return result;
}

function coalesceOf(route: string): CoalescePolicy {
  const policy = loaded(`${MINIMAL}routes:\n  - ${route}\n`).config.rules[0]?.policy;
  if (policy?.kind !== 'coalesce') throw new Error('not a coalesce route');
  return policy;
}

function rejectOf(route: string): RejectPolicy {
  const policy = loaded(`${MINIMAL}routes:\n  - ${route}\n`).config.rules[0]?.policy;
  if (policy?.kind !== 'reject') throw new Error('not a reject route');
  return policy;
}

function replayOf(fields: string): ReplayPolicy {
  const route = `{ name: a, match: { path: "/a/:id" }, policy: replay${fields} }`;
  const policy = loaded(`${MINIMAL}routes:\n  - ${route}\n`).config.rules[0]?.policy;
  if (policy?.kind !== 'replay') throw new Error('not a replay route');
  return policy;
}

t.test('a file with one upstream and nothing else gets every default', async (t) => {
  const { config, warnings } = loaded(MINIMAL);
  t.same(config.listen, { host: '0.0.0.0', port: 8080, tls: null, http2: false, proxyProtocol: false });
  t.same(config.admin, { kind: 'on', host: '127.0.0.1', port: 9090, token: null });
  t.same(config.store, { kind: 'memory', maxMemoryBytes: 256 * 1024 * 1024, secrets: [] });
  t.same(config.rules, []);
  t.same(config.unmatched, { kind: 'upstream', name: 'api' });
  t.same(config.trustedProxies, []);
  const access = { format: 'json', share: 1, target: 'none', client: 'none' };
  t.same(config.log, { level: 'info', format: 'json', access });
  t.equal(config.drainMs, 30_000);
  const { addresses, ...api } = config.upstreams.get('api')!;
  t.equal(addresses.length, 1);
  t.match(addresses[0], { name: '127.0.0.1:3000', url: new URL('http://127.0.0.1:3000'), socketPath: null });
  t.same(api, {
    name: 'api',
    balance: 'round-robin',
    protocol: 'http/1.1',
    connectTimeoutMs: 2_000,
    headersTimeoutMs: 60_000,
    bodyTimeoutMs: 30_000,
    maxConnectionAgeMs: 300_000,
    retries: 2,
    eject: null,
    breaker: null,
    failureStatuses: [],
    health: null,
    connections: null,
    tls: { ca: null, cert: null, key: null, serverName: null, verify: true },
    preserveHost: true,
    stripPrefix: null,
    edits: { request: null, response: null },
  });
  t.same(warnings, []);
});

t.test('a coalesce route gets the defaults of its policy', async (t) => {
  t.same(coalesceOf('{ name: a, match: { path: /a }, policy: coalesce, key: [{ request: target }] }'), {
    kind: 'coalesce',
    mode: 'protects',
    scope: 'a',
    key: [{ from: 'request', name: 'target', optional: false }],
    identity: {
      kind: 'parts',
      parts: [
        { from: 'header', name: 'authorization', optional: true },
        { from: 'header', name: 'cookie', optional: true },
      ],
    },
    onMissingKey: 'pass',
    onStoreDown: 'local',
    leaseMs: 30_000,
    maxKeyBodyBytes: 1024 * 1024,
    waitMs: 10_000,
    pollMs: 500,
    keep: { kind: 'by-method' },
    keepStatuses: [
      { from: 200, to: 299 },
      { from: 300, to: 399 },
    ],
    maxSharedBytes: 8 * 1024 * 1024,
    maxFollowers: 10_000,
    stallMs: 10_000,
    stream: 'in-process',
    onLeaderFailure: { kind: 'fail' },
    onUnshareable: 'by-method',
    unshareableForMs: 60_000,
    verify: null,
    unknownForMs: 0,
    reconcile: null,
    forward: { fence: null, idempotencyKey: null },
  });
});

t.test('a queue route gets the defaults of its policy: one queue for all callers, one at a time', async (t) => {
  const policyOf = (fields: string) =>
    loaded(
      `${MINIMAL}routes:\n  - { name: a, match: { path: "/a/:id" }, policy: queue, key: [ { param: id } ]${fields} }\n`,
    ).config.rules[0]?.policy;
  t.same(policyOf(''), {
    kind: 'queue',
    mode: 'protects',
    scope: 'a',
    key: [{ from: 'param', name: 'id', optional: false }],
    identity: { kind: 'public' },
    onMissingKey: 'pass',
    onStoreDown: 'reject',
    leaseMs: 30_000,
    maxKeyBodyBytes: 1_048_576,
    unknownForMs: 0,
    forward: { fence: null, idempotencyKey: null },
    reconcile: null,
    waitMs: 10_000,
    pollMs: 500,
    concurrency: 1,
    maxQueue: 100,
  });
  t.match(policyOf(', wait: { max: 1m, poll: 2s }, concurrency: 3, maxQueue: 7, onUnknown: hold'), {
    waitMs: 60_000,
    pollMs: 2_000,
    concurrency: 3,
    maxQueue: 7,
    unknownForMs: 300_000,
  });
});

t.test('a replay route gets the defaults of its policy: Idempotency-Key, a day, and callers kept apart', async (t) => {
  t.same(replayOf(''), {
    kind: 'replay',
    mode: 'protects',
    scope: 'a',
    key: [{ from: 'idempotency-key', name: 'idempotency-key', optional: false }],
    identity: {
      kind: 'parts',
      parts: [
        { from: 'header', name: 'authorization', optional: true },
        { from: 'header', name: 'cookie', optional: true },
      ],
    },
    onMissingKey: 'pass',
    onStoreDown: 'reject',
    leaseMs: 30_000,
    maxKeyBodyBytes: 1024 * 1024,
    unknownForMs: 86_400_000,
    reconcile: null,
    forward: { fence: null, idempotencyKey: null },
    keepMs: 86_400_000,
    wait: { kind: 'none' },
    maxSharedBytes: 8 * 1024 * 1024,
    fingerprint: 'exact',
    release: [401, 407, 408, 421, 425, 429, 503],
    keepContent: { kind: 'full' },
  });
});

t.test('every field of a replay route arrives in its unit', async (t) => {
  const fields =
    ', key: [{ param: id }, { header: X-Request }], identity: public, keep: 1s, wait: { max: 3s, poll: 50ms }, ' +
    'maxShared: 1KiB, fingerprint: canonical, release: [503, 429, 503], keepContent: [/id, /a~1b/0], ' +
    'onStoreDown: local, onMissingKey: reject, unknownFor: 2h, lease: 5s, maxKeyBody: 2MiB, scope: orders, ' +
    'forward: { fence: X-Fence, idempotencyKey: Idempotency-Key }';
  t.same(replayOf(fields), {
    kind: 'replay',
    mode: 'protects',
    scope: 'orders',
    key: [
      { from: 'param', name: 'id', optional: false },
      { from: 'header', name: 'x-request', optional: false },
    ],
    identity: { kind: 'public' },
    onMissingKey: 'reject',
    onStoreDown: 'local',
    leaseMs: 5_000,
    maxKeyBodyBytes: 2 * 1024 * 1024,
    unknownForMs: 7_200_000,
    reconcile: null,
    forward: { fence: 'X-Fence', idempotencyKey: 'Idempotency-Key' },
    keepMs: 1_000,
    wait: { kind: 'bounded', waitMs: 3_000, pollMs: 50 },
    maxSharedBytes: 1_024,
    fingerprint: 'canonical',
    release: [503, 429],
    keepContent: { kind: 'members', pointers: ['/id', '/a~1b/0'] },
  });
  t.same(replayOf(', wait: 2s').wait, { kind: 'bounded', waitMs: 2_000, pollMs: 500 });
  t.same(replayOf(', wait: { poll: 1s }').wait, { kind: 'bounded', waitMs: 10_000, pollMs: 1_000 });
  t.same(replayOf(', keepContent: none').keepContent, { kind: 'none' });
  t.same(replayOf(', release: []').release, []);
  t.equal(replayOf(', keep: 168h').keepMs, 604_800_000);
});

t.test('an outcome that nobody knows holds the key for a while, or not at all', async (t) => {
  const held = (policy: string) =>
    loaded(`${MINIMAL}routes:\n  - { name: a, match: { path: /a }, key: [{ request: path }], ${policy} }\n`).config
      .rules[0]?.policy;
  t.match(held('policy: replay, onUnknown: release'), { unknownForMs: 0 });
  t.match(held('policy: replay, onUnknown: hold'), { unknownForMs: 86_400_000 });
  t.match(held('policy: replay, keep: 1h'), { unknownForMs: 86_400_000 }, 'keep is another time');
  for (const kind of ['coalesce', 'reject']) {
    t.match(held(`policy: ${kind}`), { kind, unknownForMs: 0 });
    t.match(held(`policy: ${kind}, onUnknown: release`), { kind, unknownForMs: 0 });
    t.match(held(`policy: ${kind}, onUnknown: hold`), { kind, unknownForMs: 300_000 });
    t.match(held(`policy: ${kind}, onUnknown: hold, unknownFor: 1s`), { kind, unknownForMs: 1_000 });
    t.match(held(`policy: ${kind}, forward: { fence: Fence }`), { forward: { fence: 'Fence', idempotencyKey: null } });
  }
});

t.test('a reject route gets the defaults of its policy: one lock for all callers', async (t) => {
  t.same(rejectOf('{ name: a, match: { path: "/a/:id" }, policy: reject, key: [{ param: id }] }'), {
    kind: 'reject',
    mode: 'protects',
    scope: 'a',
    key: [{ from: 'param', name: 'id', optional: false }],
    identity: { kind: 'public' },
    onMissingKey: 'pass',
    onStoreDown: 'reject',
    leaseMs: 30_000,
    maxKeyBodyBytes: 1024 * 1024,
    conflict: { status: 409, retryAfter: { kind: 'computed' } },
    unknownForMs: 0,
    reconcile: null,
    forward: { fence: null, idempotencyKey: null },
  });
});

t.test('every field of a file arrives in its unit', async (t) => {
  const { config } = loaded(`
listen: { host: "::1", port: 0 }
admin: { host: 0.0.0.0, port: 0, token: 0123456789abcdef }
store: { kind: redis, url: "rediss://u:p@redis:6380/2", prefix: "o:", commandTimeout: 50ms, maxMemory: 1GiB, secret: 0123456789abcdefg }
upstreams:
  a: { url: "https://a.example:8443/", timeouts: { connect: 250ms, headers: 5m, body: 1h }, preserveHost: false }
  b: { url: http://b.example }
routes:
  - name: c
    match: { methods: [GET, M-SEARCH], path: "/a/:x/*", host: "*.Example.com", headers: { X-Version: "2", x-beta: "*.yes", accept: "*/*" } }
    upstream: b
    policy: coalesce
    scope: shared
    key: [{ header: X-Id, optional: true }, { body: "" }, { form: "a b" }, { query: q }, { cookie: sid }, { param: x }]
    identity: [{ header: X-User }, { cookie: sid, optional: false }]
    onMissingKey: reject
    lease: 100ms
    wait: { max: 4s }
    keep: 0
    keepStatuses: [404, 2xx, 410]
    maxKeyBody: 512
    maxShared: 64KiB
    onLeaderFailure: elect
    elections: 3
    onStoreDown: pass
    onUnshareable: forward
    unshareableFor: 2m
    maxFollowers: 7
    stream: true
    stallTimeout: 1s
  - { name: r, match: { path: /r }, upstream: a, policy: reject, key: [{ request: path }], conflict: { status: 429, retryAfter: 2m } }
  - { name: p, match: { path: /p }, upstream: a }
unmatched: false
trustedProxies: [10.0.0.0/8, "fd00::/8", 192.0.2.1]
log: { level: warn }
drain: 0s
`);
  t.same(config.listen, { host: '::1', port: 0, tls: null, http2: false, proxyProtocol: false });
  t.same(config.admin, { kind: 'on', host: '0.0.0.0', port: 0, token: '0123456789abcdef' });
  t.same(config.store, {
    kind: 'redis',
    access: {
      servers: { kind: 'single', at: { host: 'redis', port: 6380 } },
      username: 'u',
      password: 'p',
      tls: { ca: null, cert: null, key: null, serverName: null, verify: true },
      db: 2,
    },
    prefix: 'o:',
    commandTimeoutMs: 50,
    waitReplicas: 0,
    maxMemoryBytes: 1024 ** 3,
    secrets: ['0123456789abcdefg'],
  });
  t.match(config.upstreams.get('a'), { connectTimeoutMs: 250, headersTimeoutMs: 300_000, bodyTimeoutMs: 3_600_000 });
  t.equal(config.upstreams.get('a')?.preserveHost, false);
  const [c, r, p] = config.rules;
  t.same(c?.match, {
    methods: ['GET', 'M-SEARCH'],
    path: '/a/:x/*',
    host: '*.example.com',
    headers: [
      { name: 'x-version', value: '2' },
      { name: 'x-beta', value: '*.yes' },
      { name: 'accept', value: '*/*' },
    ],
  });
  t.same(c?.policy, {
    kind: 'coalesce',
    mode: 'protects',
    scope: 'shared',
    key: [
      { from: 'header', name: 'x-id', optional: true },
      { from: 'body', name: '', optional: false },
      { from: 'form', name: 'a b', optional: false },
      { from: 'query', name: 'q', optional: false },
      { from: 'cookie', name: 'sid', optional: false },
      { from: 'param', name: 'x', optional: false },
    ],
    identity: {
      kind: 'parts',
      parts: [
        { from: 'header', name: 'x-user', optional: true },
        { from: 'cookie', name: 'sid', optional: false },
      ],
    },
    onMissingKey: 'reject',
    onStoreDown: 'pass',
    leaseMs: 100,
    maxKeyBodyBytes: 512,
    waitMs: 4_000,
    pollMs: 500,
    keep: { kind: 'fixed', keepMs: 0 },
    keepStatuses: [
      { from: 404, to: 404 },
      { from: 200, to: 299 },
      { from: 410, to: 410 },
    ],
    maxSharedBytes: 65_536,
    maxFollowers: 7,
    stallMs: 1_000,
    stream: 'to-all-processes',
    onLeaderFailure: { kind: 'elect', elections: 3 },
    onUnshareable: 'forward',
    unshareableForMs: 120_000,
    verify: null,
    unknownForMs: 0,
    reconcile: null,
    forward: { fence: null, idempotencyKey: null },
  });
  t.match(r?.policy, { conflict: { status: 429, retryAfter: { kind: 'fixed', seconds: 120 } } });
  t.same(p?.policy, { kind: 'pass' });
  t.same([c?.upstream, r?.upstream, p?.upstream], ['b', 'a', 'a']);
  t.same(config.unmatched, { kind: 'not-found' });
  t.same(config.trustedProxies, ['10.0.0.0/8', 'fd00::/8', '192.0.2.1']);
  t.equal(config.log.level, 'warn');
  t.equal(config.drainMs, 0);
});

t.test('paths may be spelled as requests spell them, and end in any star', async (t) => {
  const paths = ['/ä', '/caf%c3%a9', '/%61', '/a b', '/a*', '/a/', '/v1/orders:cancel'];
  for (const path of paths) {
    const { config } = loaded(`${MINIMAL}routes:\n  - { name: a, match: { path: "${path}" } }\n`);
    t.equal(config.rules[0]?.match.path, path);
  }
  const key = loaded(
    `${MINIMAL}routes:\n  - { name: a, match: { path: "/:user-id" }, policy: reject, key: [{ param: user-id }] }\n`,
  );
  t.equal(key.config.rules.length, 1, 'names of parameters may have a hyphen');
});

t.test('small choices', async (t) => {
  t.same(loaded(`${MINIMAL}admin: false\n`).config.admin, { kind: 'off' });
  const two = `${MINIMAL}  b:\n    url: http://b\n`;
  t.same(loaded(two).config.unmatched, { kind: 'not-found' }, 'with several upstreams nothing passes by itself');
  t.same(loaded(`${two}unmatched: b\n`).config.unmatched, { kind: 'upstream', name: 'b' });
  const conflict =
    '{ name: a, match: { path: /a }, policy: reject, key: [{ request: path }], conflict: { retryAfter: 7 } }';
  t.match(rejectOf(conflict), { conflict: { status: 409, retryAfter: { kind: 'fixed', seconds: 7 } } });
  const elect = '{ name: a, match: { path: /a }, policy: coalesce, key: [{ request: path }], onLeaderFailure: elect }';
  t.same(coalesceOf(elect).onLeaderFailure, { kind: 'elect', elections: 1 });
});

t.test('the configuration is frozen all the way down', async (t) => {
  const { config } = loaded(`${MINIMAL}routes:\n  - { name: a, match: { path: /a, methods: [GET] } }\n`);
  t.throws(() => Object.assign(config.listen, { port: 1 }), TypeError);
  t.throws(() => (config.rules[0]!.match.methods as string[]).push('PUT'), TypeError);
  t.throws(() => Object.assign(config.upstreams.get('api')!, { preserveHost: false }), TypeError);
});

t.test('variables', async (t) => {
  const port = (text: string, env: NodeJS.ProcessEnv) =>
    loaded(`${MINIMAL}listen:\n  port: ${text}\n`, env).config.listen.port;
  t.equal(port('${PORT:-8081}', {}), 8081, 'a default counts when the variable is unset');
  t.equal(port('${PORT:-8081}', { PORT: '' }), 8081, 'or empty');
  t.equal(port('"${PORT}"', { PORT: '81' }), 81);
  t.equal(port('${A:-${B:-82}}', {}), 82, 'defaults nest');
  t.equal(port('${A:-${MISSING}}', { A: '83' }), 83, 'a default that is not needed may not be computable');
  t.equal(port('8${TWO_DIGITS}4', { TWO_DIGITS: '08' }), 8084);

  const { config } = loaded(
    `${MINIMAL}    preserveHost: \${KEEP}\n` +
      'admin: ${ADMIN}\nlog: { level: "${LEVEL:-debug}" }\n' +
      'routes:\n  - name: a\n    match:\n      path: /a\n    policy: reject\n    key: [{ request: path }]\n    conflict:\n      status: ${STATUS}\n      retryAfter: ${SECONDS}\n',
    { KEEP: 'false', ADMIN: 'false', STATUS: '429', SECONDS: '5' },
  );
  t.equal(config.upstreams.get('api')?.preserveHost, false);
  t.same(config.admin, { kind: 'off' });
  t.equal(config.log.level, 'debug');
  t.match(config.rules[0]?.policy, { conflict: { status: 429, retryAfter: { seconds: 5 } } });

  const secretOf = (text: string, env: NodeJS.ProcessEnv = {}) =>
    loaded(`${MINIMAL}store:\n  secret: ${text}\n`, env).config.store.secrets[0];
  t.equal(
    secretOf('${S}', { S: '01234567890123456789' }),
    '01234567890123456789',
    'digits stay text where text is wanted',
  );
  t.equal(secretOf('${S}', { S: '${X} is not expanded again' }), '${X} is not expanded again');
  t.equal(
    secretOf('${S}', { S: 'a: b\nroutes: [x] #0' }),
    'a: b\nroutes: [x] #0',
    'a value cannot change the structure',
  );
  t.equal(secretOf('"a literal $${NAME} here"'), 'a literal ${NAME} here');
  t.equal(secretOf('"dollars $ and $1 stay 0123"'), 'dollars $ and $1 stay 0123');
  writeFileSync(join(directory, 'secret'), '0123456789abcdef\n\n');
  writeFileSync(join(directory, 'crlf'), '0123456789abcdef\r\n');
  const file = join(directory, 'secret');
  t.equal(secretOf(`\${file:${file}}`), '0123456789abcdef\n', 'one trailing newline is no part of a secret');
  t.equal(secretOf('${file:crlf}'), '0123456789abcdef', 'relative paths begin at the configuration');
  const list = loaded(`${MINIMAL}store:\n  secret:\n    - \${file:crlf}\n    - \${S}\n`, { S: '01234567890123456789' });
  t.same(list.config.store.secrets, ['0123456789abcdef', '01234567890123456789'], 'a list, for rotation');
});

t.test('anchors and aliases are values like any others', async (t) => {
  const { config } = loaded(
    `${MINIMAL}routes:\n` +
      '  - { name: a, match: { path: /a }, policy: reject, key: &key [{ request: path }] }\n' +
      '  - { name: b, match: { path: /b }, policy: reject, key: *key }\n',
  );
  t.same(
    config.rules.map((rule) => rule.policy.kind === 'reject' && rule.policy.key),
    [[{ from: 'request', name: 'path', optional: false }], [{ from: 'request', name: 'path', optional: false }]],
  );
});

t.test('a byte-order mark, Windows line ends and a document marker are harmless', async (t) => {
  t.equal(load(`\uFEFF---\r\n${MINIMAL.replaceAll('\n', '\r\n')}...\r\n`).kind, 'loaded');
});

t.test('the example works without any variable, and without warnings', async (t) => {
  const result = loadConfig('config/gateway.yaml', {});
  if (result.kind === 'invalid') throw new Error(JSON.stringify(result.errors));
  t.same(result.warnings, []);
  t.same(
    result.config.rules.map((rule) => [rule.name, rule.policy.kind]),
    [
      ['session-refresh', 'coalesce'],
      ['step-proceed', 'reject'],
      ['orders', 'replay'],
      ['stock', 'queue'],
      ['catalog-item', 'coalesce'],
    ],
  );
});

t.test('the other configurations that are shown are free of warnings too', async (t) => {
  const compose = loadConfig('config/gateway.compose.yaml', {});
  t.same(compose.kind === 'loaded' ? compose.warnings : compose, []);
  const blocks = [...readFileSync('README.md', 'utf8').matchAll(/^```yaml\n([\s\S]*?)^```/gm)].map(
    ([, yaml = '']) => yaml,
  );
  const [whole = '', ...additions] = blocks;
  t.ok(whole.includes('routes:'));
  t.same(loaded(whole).warnings, []);
  for (const addition of additions)
    t.same(loaded(whole + addition, { ONEFLIGHT_SECRET: '0123456789abcdefg' }).warnings, [], addition);
  for (const page of readdirSync('docs').filter((name) => name.endsWith('.md'))) {
    for (const [, yaml = ''] of readFileSync(`docs/${page}`, 'utf8').matchAll(/^```yaml\n(routes:[\s\S]*?)^```/gm)) {
      t.same(loaded(MINIMAL + yaml, { API_TOKEN: 'token' }).warnings, [], `docs/${page}`);
    }
  }
});

t.test('the file is looked for where -c, ONEFLIGHT_CONFIG and the defaults say, in this order', async (t) => {
  const before = process.cwd();
  t.teardown(() => process.chdir(before));
  process.chdir(t.testdir({ config: { 'gateway.yaml': MINIMAL } }));
  t.equal(findConfig('x.yaml', { ONEFLIGHT_CONFIG: 'y.yaml' }), 'x.yaml');
  t.equal(findConfig(undefined, { ONEFLIGHT_CONFIG: 'y.yaml' }), 'y.yaml');
  t.equal(findConfig(undefined, { ONEFLIGHT_CONFIG: '' }), './config/gateway.yaml');
  t.match(findAndLoadConfig(undefined, {}), { kind: 'loaded', file: './config/gateway.yaml' });
  t.match(findAndLoadConfig('x.yaml', {}), { kind: 'invalid', file: 'x.yaml', errors: [{ got: 'no such file' }] });
  mkdirSync('elsewhere');
  process.chdir('elsewhere');
  const none = findAndLoadConfig(undefined, {});
  if (none.kind === 'invalid') t.match(none.errors, [{ file: './config/gateway.yaml', got: 'none' }]);
});
