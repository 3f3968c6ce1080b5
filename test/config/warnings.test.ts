/** What is valid but probably not meant, and what `oneflight validate` says of it. */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { validate } from '../../src/cli/validate.js';
import { loadConfig } from '../../src/config/load.js';
import { covering } from '../../src/config/shadowing.js';
import type { Match } from '../../src/core/rule.js';

const API = 'upstreams: { api: { url: http://127.0.0.1:3000 } }\n';
const REDIS = `${API}store: { kind: redis, url: "redis://127.0.0.1" }\n`;

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
      `${file}:2:11: listen.prot: expected one of host, port, got "prot", did you mean port?\n` +
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
