/** What is valid but probably not meant, and what `oneflight validate` says of it. */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { validate } from '../../src/cli/validate.js';
import { loadConfig } from '../../src/config/load.js';
import { covering } from '../../src/config/shadowing.js';
import type { Match } from '../../src/core/rule.js';
import { CHECK_ONLY } from '../support/check-only.js';

const API = 'upstreams: { api: { url: http://127.0.0.1:3000 } }\n';
const IN_REDIS = 'kind: redis, url: "redis://h", secret: 0123456789abcdefg';
const REDIS = `${API}store: { ${IN_REDIS} }\n`;

const directory = t.testdir();
let files = 0;
function fileOf(text: string): string {
  const file = join(directory, `${files++}.yaml`);
  writeFileSync(file, text);
  return file;
}

/** `line:column path` of every warning. */
function warningsOf(text: string): string[] {
  const result = loadConfig(fileOf(text), {});
  if (result.kind === 'invalid') throw new Error(JSON.stringify(result.errors));
  return result.warnings.map(({ line, column, path }) => `${line}:${column} ${path}`);
}

function coalesce(fields: string, match = 'path: "/a/:id"'): string {
  return `${API}routes:\n  - name: a\n    match: { ${match} }\n    policy: coalesce\n${fields.replace(/^/gm, '    ')}\n`;
}

t.test('a public identity is doubtful where nothing in the key tells callers apart', async (t) => {
  const doubtful = [
    '{ param: id }',
    '{ request: target }',
    '{ query: user }',
    '{ body: /orderId }',
    '{ header: accept }',
  ];
  for (const part of doubtful) {
    t.same(warningsOf(coalesce(`identity: public\nkey: [${part}]`)), ['6:15 routes[0].identity'], part);
  }
  const apart = [
    '{ header: Authorization }',
    '{ header: cookie }',
    '{ header: x-user-id }',
    '{ header: x-api-key }',
    '{ cookie: anything }',
    '{ body: /refreshToken }',
    '{ query: access_token }',
    '{ form: session }',
  ];
  for (const part of apart)
    t.same(warningsOf(coalesce(`identity: public\nkey: [{ request: path }, ${part}]`)), [], part);
  t.same(warningsOf(coalesce('key: [{ param: id }]')), [], 'the default separates callers');
  const reject = 'policy: reject, identity: public, key: [{ request: path }]';
  t.same(warningsOf(`${API}routes: [{ name: a, match: { path: /a }, ${reject} }]\n`), [], 'a lock shares no response');
});

t.test('a wait beyond the deadline of its upstream is doubtful', async (t) => {
  t.same(warningsOf(coalesce('key: [{ param: id }]\nwait: 62001ms')), ['7:11 routes[0].wait']);
  t.same(warningsOf(coalesce('key: [{ param: id }]\nwait: { poll: 1s, max: 2m }')), ['7:28 routes[0].wait.max']);
  t.same(warningsOf(coalesce('key: [{ param: id }]\nwait: 62s')), []);
  const quick = 'upstreams: { api: { url: http://127.0.0.1:3000, timeouts: { headers: 1s } } }\n';
  t.same(warningsOf(coalesce('key: [{ param: id }]').replace(API, quick)), [], 'a default wait promises nothing');
});

function replay(fields: string): string {
  return coalesce(fields).replace('policy: coalesce', 'policy: replay');
}

function messagesOf(text: string): string[] {
  const result = loadConfig(fileOf(text), {});
  return result.kind === 'invalid' ? [] : result.warnings.map(({ message }) => message);
}

t.test('replay across callers is doubtful, and without a fingerprint the danger is named', async (t) => {
  t.same(warningsOf(replay('keep: 24h')), [], 'the defaults keep callers apart and compare requests');
  t.same(warningsOf(replay('fingerprint: none')), []);
  t.same(warningsOf(replay('identity: public')), ['6:15 routes[0].identity']);
  t.match(messagesOf(replay('identity: public')), [/^public replays one caller's response to every caller/]);
  t.same(warningsOf(replay('fingerprint: none\nidentity: public')), ['7:15 routes[0].identity']);
  t.match(messagesOf(replay('fingerprint: none\nidentity: public')), [
    /^with fingerprint: none, public answers one caller with another caller's response to a different request/,
  ]);
  t.same(warningsOf(replay('identity: public\nkey: [{ header: x-api-key }, { param: id }]')), []);
});

t.test('a replay route that would keep more than the memory store holds is doubtful', async (t) => {
  t.same(warningsOf(replay('maxShared: 257MiB')), ['6:16 routes[0].maxShared']);
  t.same(warningsOf(replay('maxShared: 257MiB\nkeepContent: none')), []);
});

t.test('Idempotency-Key as an ordinary header is doubtful for replay', async (t) => {
  t.same(warningsOf(replay('key: [{ param: id }, { header: Idempotency-Key }]')), ['6:36 routes[0].key[1].header']);
  t.same(warningsOf(replay('key: [{ header: X-Idempotency-Key }]')), []);
  t.same(warningsOf(coalesce('key: [{ header: Idempotency-Key }]')), [], 'coalesce says nothing of its own of it');
});

t.test('holding an unknown outcome for longer than a known one is doubtful, when it was written', async (t) => {
  t.same(warningsOf(replay('keep: 1h\nunknownFor: 61m')), ['7:17 routes[0].unknownFor']);
  t.same(warningsOf(replay('keep: 1h\nunknownFor: 1h')), []);
  t.same(warningsOf(replay('keep: 1h')), []);
});

t.test('a list of released statuses is doubtful where it runs what was done again, or records "later"', async (t) => {
  t.same(warningsOf(replay('release: [401, 429, 503]')), []);
  t.same(warningsOf(replay('release: [429]')), ['6:14 routes[0].release']);
  t.match(messagesOf(replay('release: [429]')), [/^without 503 a refusal for now is recorded/]);
  t.match(messagesOf(replay('release: []')), [/^without 429 and 503 /]);
  t.match(messagesOf(replay('release: [202, 429, 503]')), [/^a request that was answered with 202 was done/]);
  t.same(warningsOf(replay('release: [204]')), ['6:14 routes[0].release'], 'one warning a field');
});

t.test('a wait of replay beyond the deadline of its upstream is doubtful', async (t) => {
  t.same(warningsOf(replay('wait: 62001ms')), ['6:11 routes[0].wait']);
  t.same(warningsOf(replay('wait: { poll: 1s, max: 2m }')), ['6:28 routes[0].wait.max']);
  t.same(warningsOf(replay('wait: 62s')), []);
  t.same(warningsOf(replay('maxShared: 1MiB')), []);
});

t.test('keeping nothing over several gateways is doubtful for methods that are not safe', async (t) => {
  const zero = (match: string, base = REDIS) =>
    warningsOf(coalesce('key: [{ param: id }]\nkeep: 0', `path: "/a/:id"${match}`).replace(API, base));
  t.same(zero(', methods: [POST]'), ['8:11 routes[0].keep']);
  t.same(zero(', methods: [GET, PUT]'), ['8:11 routes[0].keep']);
  t.same(zero(''), ['8:11 routes[0].keep'], 'all methods are not safe');
  t.same(zero(', methods: [GET, HEAD]'), []);
  t.same(zero(', methods: [POST]', API), [], 'in one process there is no other gateway');
  t.same(warningsOf(coalesce('key: [{ param: id }]').replace(API, REDIS)), [], 'the default keeps unsafe ones');
});

t.test('a lease that may end before a slow store has renewed it is doubtful', async (t) => {
  const leased = (lease: string, store = IN_REDIS) =>
    warningsOf(coalesce(`key: [{ param: id }]\nlease: ${lease}`).replace(API, `${API}store: { ${store} }\n`));
  t.same(leased('599ms'), ['8:12 routes[0].lease'], 'three times the default of commandTimeout');
  t.same(leased('600ms'), []);
  t.same(leased('899ms', `${IN_REDIS}, commandTimeout: 300ms`), ['8:12 routes[0].lease']);
  t.same(leased('100ms', `${IN_REDIS}, commandTimeout: 20ms`), []);
  t.same(leased('100ms', 'kind: memory'), [], 'memory answers at once');
  const reject = 'routes: [{ name: a, match: { path: /a }, policy: reject, key: [{ request: path }], lease: 200ms }]\n';
  t.same(warningsOf(`${REDIS}${reject}`), ['3:91 routes[0].lease']);
});

t.test('an upstream that is the gateway itself is doubtful', async (t) => {
  const loops = (listen: string, url: string) => {
    const found = warningsOf(
      `listen: { ${listen} }\nupstreams:\n  other: { url: http://h }\n  api: { url: "${url}" }\n`,
    );
    if (found.length > 0) t.same(found, ['4:15 upstreams.api.url']);
    return found.length > 0;
  };
  const itself: readonly [listen: string, url: string][] = [
    ['port: 8080', 'http://127.0.0.1:8080'],
    ['port: 8080', 'http://localhost:8080'],
    ['port: 8080', 'http://[::1]:8080/'],
    ['port: 8080', 'http://0.0.0.0:8080'],
    ['port: 8080', 'https://LOCALHOST:8080'],
    ['host: "::", port: 8080', 'http://127.0.0.2:8080'],
    ['host: localhost, port: 80', 'http://127.0.0.1'],
    ['host: 127.0.0.1, port: 443', 'https://localhost'],
    ['host: "0:0:0:0:0:0:0:1"', 'http://[::1]:8080'],
    ['host: 10.0.0.5', 'http://10.0.0.5:8080'],
    ['host: Gateway.internal', 'http://gateway.internal:8080'],
    ['host: "fd00:0::5"', 'http://[fd00::5]:8080'],
  ];
  const others: readonly [listen: string, url: string][] = [
    ['port: 8080', 'http://127.0.0.1:3000'],
    ['port: 8080', 'http://api.internal:8080'],
    ['port: 8080', 'http://10.0.0.5:8080'],
    ['port: 8080', 'http://localhost'],
    ['port: 0', 'http://127.0.0.1:8080'],
    ['host: 10.0.0.5', 'http://127.0.0.1:8080'],
    ['host: 127.0.0.1', 'http://10.0.0.5:8080'],
    ['host: "fe80::1%eth0"', 'http://[fe80::1]:8080'],
  ];
  for (const [listen, url] of itself) t.equal(loops(listen, url), true, `${listen} ${url}`);
  for (const [listen, url] of others) t.equal(loops(listen, url), false, `${listen} ${url}`);
  t.same(warningsOf('upstreams: { api: { url: "http://[::]:8080" } }\n'), ['1:26 upstreams.api.url'], 'by default');
});

t.test('a key of what is new for every attempt is doubtful', async (t) => {
  for (const name of ['x-request-id', 'X-Request-ID', 'x-correlation-id', 'traceparent']) {
    t.same(warningsOf(coalesce(`key: [{ param: id }, { header: ${name} }]`)), ['6:36 routes[0].key[1].header'], name);
  }
  t.same(warningsOf(coalesce('key: [{ param: id }]\nidentity: [{ header: x-request-id }]')), [
    '7:26 routes[0].identity[0].header',
  ]);
  t.same(warningsOf(coalesce('key: [{ header: idempotency-key }, { query: x-request-id }]')), []);
});

t.test('a colon within a segment is doubtful where a parameter was probably meant', async (t) => {
  const literal = (path: string) => warningsOf(`${API}routes:\n  - name: a\n    match: { path: "${path}" }\n`);
  const doubtful = [
    ...['/order-:id', '/order_:name/items', '/a/report.:format', '/@:user', '/a=:b', '/:shop/sku-:sku', '/v1.:minor*'],
    ...[
      '/orders:id',
      '/orders:orderId',
      '/orders:order_id',
      '/orders:order-id',
      '/orders:uuid/items',
      '/orders:id.json',
      '/größe:id',
    ],
  ];
  const meant = [
    ...['/v1/orders:cancel', '/v1/orders:batchGet', '/orders/:id', '/:order-id/:user_id', '/urn:isbn:123'],
    ...['/at/12:30', '/at-:30', '/Foo::Bar', '/orders:', '/orders:identify', '/a:void', '/-/:id'],
  ];
  for (const path of doubtful) t.same(literal(path), ['4:20 routes[0].match.path'], path);
  for (const path of meant) t.same(literal(path), [], path);
});

t.test('a response that the memory store could never keep is doubtful', async (t) => {
  const kept = (fields: string, store = 'maxMemory: 2MiB', match = 'path: "/a/:id"') =>
    warningsOf(coalesce(`key: [{ param: id }]\n${fields}`, match).replace(API, `${API}store: { ${store} }\n`));
  t.same(kept('maxShared: 2097153'), ['8:16 routes[0].maxShared']);
  t.same(kept('maxShared: 2MiB'), []);
  t.same(kept('maxShared: 257MiB', 'kind: memory'), ['8:16 routes[0].maxShared'], 'the default of maxMemory');
  t.same(kept('maxShared: 1GiB', `${IN_REDIS}, maxMemory: 2MiB`), [], 'Redis has its own bound');
  t.same(kept('lease: 30s'), ['2:21 store.maxMemory'], 'the default of maxShared is said of the store');
  t.same(kept('keep: 0\nmaxShared: 3MiB'), [], 'nothing is kept anyway');
  t.same(kept('maxShared: 3MiB', 'maxMemory: 2MiB', 'path: "/a/:id", methods: [GET]'), [], 'nor for safe methods');
  t.same(kept('keep: 1s\nmaxShared: 3MiB', 'maxMemory: 2MiB', 'path: "/a/:id", methods: [GET]'), [
    '9:16 routes[0].maxShared',
  ]);
  const route = (name: string) =>
    `  - { name: ${name}, match: { path: /${name} }, policy: coalesce, key: [{ query: a }] }\n`;
  const two = `${API}store:\n  maxMemory: 2MiB\nroutes:\n${route('a')}${route('b')}`;
  t.same(warningsOf(two), ['3:14 store.maxMemory'], 'once');
});

t.test('one queue with two bounds is doubtful; a long wait in a queue is not', async (t) => {
  const queue = (fields: string, index: number) =>
    `  - { name: r${index}, match: { path: /${index} }, policy: queue, key: [{ request: content }]${fields} }`;
  const routes = (...fields: string[]) => warningsOf(`${API}routes:\n${fields.map(queue).join('\n')}\n`);
  t.same(routes(', scope: s', ', scope: s, concurrency: 2'), ['4:105 routes[1].concurrency']);
  t.same(routes(', scope: s, concurrency: 2', ', scope: s'), ['4:89 routes[1].scope']);
  t.same(routes(', scope: s, concurrency: 2', ', scope: s, concurrency: 2', ''), []);
  t.same(routes(', scope: s', ', scope: s, onUnknown: hold'), ['4:103 routes[1].onUnknown']);
  t.same(routes(', wait: 10m'), []);
});

t.test('one scope over different policies is doubtful: they share nothing', async (t) => {
  const scoped = (...routes: string[]) =>
    warningsOf(
      `${API}routes:\n${routes
        .map(
          (fields, index) => `  - { name: r${index}, match: { path: "/${index}" }, key: [{ query: a }], ${fields} }\n`,
        )
        .join('')}`,
    );
  const [coalescing, rejecting] = ['policy: coalesce', 'policy: reject'];
  t.same(scoped(`${coalescing}, scope: s`, `${rejecting}, scope: s`), ['4:84 routes[1].scope']);
  t.same(scoped(`${rejecting}, scope: s`, `${rejecting}, scope: s`, `${coalescing}, scope: s`), [
    '5:86 routes[2].scope',
  ]);
  t.same(scoped(`${rejecting}, scope: s`, `${coalescing}, scope: s`, `${rejecting}, scope: s`), [
    '4:86 routes[1].scope',
  ]);
  t.same(scoped(rejecting, `${coalescing}, scope: r0`), ['4:86 routes[1].scope'], 'the scope of a name');
  t.same(scoped(`${coalescing}, scope: r1`, rejecting), ['4:13 routes[1].name'], 'a name that is a scope');
  t.same(scoped(`${coalescing}, scope: s`, `${coalescing}, scope: s`, `${rejecting}, scope: t`, rejecting), []);
});

const ANY: Match = { methods: [], path: '/*', host: null, headers: [] };

t.test('a route is shadowed by an earlier one that matches all of its requests', async (t) => {
  const routes = (...matches: string[]) =>
    `${API}routes:\n${matches.map((match, index) => `  - { name: r${index}, match: { ${match} } }\n`).join('')}`;
  t.same(warningsOf(routes('path: /a', 'path: /a')), ['4:24 routes[1].match']);
  t.same(warningsOf(routes('path: "/*"', 'path: /a', 'path: "/b/:c"')), [
    '4:24 routes[1].match',
    '5:24 routes[2].match',
  ]);
  t.same(warningsOf(routes('path: /a', 'path: "/*"')), [], 'the special one first is as it should be');
  t.same(warningsOf(routes('path: /a, methods: [GET]', 'path: /a')), []);
  t.same(warningsOf(routes('path: /a', 'path: /a/')), ['4:24 routes[1].match'], '/a takes /a/ too');
  t.same(warningsOf(routes('path: /a/', 'path: /a')), []);
  t.same(warningsOf(routes('path: "/a/*"', 'path: /a')), ['4:24 routes[1].match'], '/a/* takes /a too');
  t.same(warningsOf(routes('path: /caf%c3%a9', 'path: /c%61fé')), ['4:24 routes[1].match'], 'spellings of one path');
});

t.test('methods, hosts and fields take part in shadowing', async (t) => {
  const yes: readonly [Partial<Match>, Partial<Match>][] = [
    [{}, {}],
    [{}, { methods: ['GET'] }],
    [{ methods: ['GET', 'POST'] }, { methods: ['POST'] }],
    [{}, { host: 'a.example' }],
    [{ host: '*.example' }, { host: 'a.example' }],
    [{ host: '*.example' }, { host: '*.a.example' }],
    [{}, { headers: [{ name: 'x', value: '1' }] }],
    [
      { headers: [{ name: 'x', value: '*.b' }] },
      {
        headers: [
          { name: 'y', value: '1' },
          { name: 'x', value: 'a.b' },
        ],
      },
    ],
  ];
  const no: readonly [Partial<Match>, Partial<Match>][] = [
    [{ methods: ['GET'] }, {}],
    [{ methods: ['GET'] }, { methods: ['GET', 'PUT'] }],
    [{ host: 'a.example' }, {}],
    [{ host: '*.example' }, { host: 'example' }],
    [{ host: '*.a.example' }, { host: '*.example' }],
    [{ host: 'a.example' }, { host: '*.example' }],
    [{ headers: [{ name: 'x', value: '1' }] }, {}],
    [{ headers: [{ name: 'x', value: '1' }] }, { headers: [{ name: 'x', value: '*.1' }] }],
    [{ headers: [{ name: 'x', value: '*/*' }] }, { headers: [{ name: 'x', value: 'a/*' }] }],
  ];
  const cover = (matches: readonly Partial<Match>[]) => covering(matches.map((match) => ({ ...ANY, ...match })));
  for (const matches of yes) t.same(cover(matches), [null, 0], JSON.stringify(matches));
  for (const matches of no) t.same(cover(matches), [null, null], JSON.stringify(matches));
  t.same(cover([{ host: 'a.example' }, {}, {}, { host: 'a.example' }]), [null, null, 1, 0], 'the first is named');
});

async function run(config: string, env: NodeJS.ProcessEnv = {}) {
  let stdout = '';
  let stderr = '';
  const code = await validate({
    ...CHECK_ONLY,
    config,
    env,
    stdout: { write: (text) => (stdout += text) },
    stderr: { write: (text) => (stderr += text) },
  });
  return { code, stdout, stderr };
}

t.test('validate says that a file is fine and exits with 0', async (t) => {
  const file = fileOf(coalesce('key: [{ param: id }]'));
  t.same(await run(file), { code: 0, stdout: `${file}: ok (1 route, 1 upstream, memory store)\n`, stderr: '' });
});

t.test('validate says how many routes only observe', async (t) => {
  const file = fileOf(coalesce('observe: true\nkey: [{ param: id }]'));
  t.match((await run(file)).stdout, 'ok (1 route, 1 of them only observing, 1 upstream, memory store)');
});

t.test('validate prints warnings and still exits with 0', async (t) => {
  const file = fileOf(coalesce('identity: public\nkey: [{ param: id }]'));
  const { code, stdout, stderr } = await run(file);
  t.equal(code, 0);
  t.equal(stderr, '');
  const [first, second] = stdout.split('\n');
  t.equal(first, `${file}: ok (1 route, 1 upstream, memory store, 1 warning)`);
  t.ok(second?.startsWith(`${file}:6:15: routes[0].identity: warning: public shares one response`));
});

t.test('validate prints every error on a line of its own and exits with 78', async (t) => {
  const file = fileOf(`${API}listen: { prot: 1 }\ndrain: 1d\n`);
  t.same(await run(file), {
    code: 78,
    stdout: '',
    stderr:
      `${file}:2:11: listen.prot: expected one of host, port, tls, http2, proxyProtocol, got "prot", did you mean port?\n` +
      `${file}:3:8: drain: expected a duration from 0s to 1h, such as 250ms, 3s or 5m, got "1d"\n`,
  });
});

t.test('validate says of a file that cannot be read where it looked', async (t) => {
  const file = join(directory, 'missing.yaml');
  t.same(await run(file), {
    code: 78,
    stdout: '',
    stderr: `${file}:1:1: expected a readable file, got no such file\n`,
  });
});

t.test('responses that are kept in a Redis without a secret are doubtful', async (t) => {
  const open = (text: string, store = 'kind: redis, url: "redis://h"') =>
    warningsOf(text.replace(API, `${API}store: { ${store} }\n`));
  const key = 'key: [{ param: id }]';
  t.same(open(coalesce(key)), ['2:1 store.secret']);
  t.same(open(replay('keep: 1h')), ['2:1 store.secret']);
  t.same(open(replay('keepContent: none')), ['2:1 store.secret'], 'fields are readable too');
  t.same(open(coalesce(key, 'path: "/a/:id", methods: [GET]')), [], 'nothing is kept of safe methods');
  t.same(open(coalesce(`${key}\nkeep: 1s`, 'path: "/a/:id", methods: [GET]')), ['2:1 store.secret']);
  t.same(open(coalesce(key), IN_REDIS), []);
  t.same(open(coalesce(key), 'kind: redis, url: "redis://h", secret: [0123456789abcdefg, abcdefghijklmnopq]'), []);
  t.same(open(coalesce(key), 'kind: memory'), [], 'nobody else reads this memory');
  t.same(open(coalesce(key).replace('coalesce', 'reject')), [], 'a lock keeps nothing');
});

t.test('a scope over routes of which only one observes is doubtful', async (t) => {
  const lock = (name: string, more: string) =>
    `{ name: ${name}, match: { path: /${name} }, policy: reject, scope: s, key: [{ request: path }]${more} }`;
  const both = (one: string, other: string) =>
    warningsOf(`${API}routes:\n- ${lock('a', one)}\n- ${lock('b', other)}\n`);
  const observe = ', observe: true';
  t.same(both('', observe), ['4:96 routes[1].observe']);
  t.same(both(observe, '').length, 1);
  t.same(both(observe, observe), []);
  t.same(both('', ''), []);
});

t.test('a route that only observes is warned of as any other', async (t) => {
  t.same(warningsOf(coalesce('observe: true\nidentity: public\nkey: [{ param: id }]')), ['7:15 routes[0].identity']);
});
