/** What people see in an editor: asked of the language server that editors have for YAML. */

// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the configuration's own syntax.

import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { editorSchemaText, SCHEMA_FILE } from '../../src/config/editor-schema.js';
import { LanguageServer } from '../support/language-server.js';

t.setTimeout(120_000);

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const UPSTREAMS = 'upstreams: { api: { url: http://a } }\n';
const ROUTE = `${UPSTREAMS}routes:\n  - name: a\n    match: { path: /a }\n`;

const folder = t.testdir({ [SCHEMA_FILE]: editorSchemaText() });
const server = await LanguageServer.start();
t.teardown(() => server.stop());

let files = 0;
/** A file of its own with the line by which an editor finds the schema. */
function file(text: string): [file: string, text: string] {
  files += 1;
  return [join(folder, `${files}.yaml`), `# yaml-language-server: $schema=./${SCHEMA_FILE}\n${text}`];
}

t.test('the examples are good where they are', async (t) => {
  for (const name of ['gateway.yaml', 'gateway.compose.yaml']) {
    const path = resolve(ROOT, 'config', name);
    const text = readFileSync(path, 'utf8');
    t.same(await server.diagnose(path, text), [], name);
    const [line, message] = [text.split('\n').findIndex((one) => one.startsWith('listen')) + 1, /^Property/];
    const slip = text.replace(/^listen/m, 'listn');
    t.match(
      await server.diagnose(path.replace('gateway', 'slip'), slip),
      [{ line, column: 1, message }],
      'a slip is found',
    );
  }
});

t.test('what is wrong is told at its place', async (t) => {
  const wrong: readonly (readonly [text: string, line: number, column: number, message: RegExp])[] = [
    ['listn: {}\n', 2, 1, /^Property listn is not allowed/],
    ['listen: { port: 80, hots: a }\n', 2, 21, /^Property hots is not allowed/],
    ['listen: { port: eighty }\n', 2, 17, /^Expected a port from 0 to 65535$/],
    ['listen: { http2: yes }\n', 2, 18, /^Expected true or false$/],
    ['limits: { maxFields: 64kb }\n', 2, 22, /^Expected a size from 1KiB to 1MiB/],
    ['drain: 5\n', 2, 8, /^Expected a duration from 0s to 1h, such as .*, or a mapping$/],
    ['admin: { prot: 1 }\n', 2, 10, /^Property prot is not allowed/],
    ['workers: many\n', 2, 10, /^Expected a number of processes from 1 to 256, or auto$/],
    ['store: { kind: reds }\n', 2, 16, /Valid values: "memory", "redis"/],
    ['store: { url: "redis://a" }\n', 2, 8, /missing property kind required by property url/],
    [`${ROUTE}    policy: coalese\n`, 6, 13, /Valid values: "pass", "coalesce", "reject", "replay", "queue"/],
    [
      `${ROUTE}    policy: reject\n    key: [{ header: a }]\n    keepStatuses: [200]\n`,
      8,
      5,
      /^Property keepStatuses is/,
    ],
    [`${ROUTE}    policy: reject\n    key: [{ haeder: a }]\n`, 7, 13, /^Property haeder is not allowed/],
    [`${ROUTE}    policy: reject\n`, 4, 5, /^Missing property "key"/],
    [`${ROUTE}    policy: replay\n    lease: 5x\n`, 7, 12, /^Expected a duration from 100ms to 1h/],
    [`${ROUTE}    policy: replay\n    onUnknown: held\n`, 7, 16, /Valid values: "hold", "release"/],
    [`${ROUTE}    key: [{ header: a }]\n`, 4, 5, /missing property policy required by property key/],
    ['routes:\n  - { name: a b, match: { path: /a } }\n', 3, 13, /^Expected a name of up to 64/],
  ];
  for (const [text, line, column, message] of wrong) {
    const found = await server.diagnose(...file(text));
    t.equal(found.length, 1, text);
    t.match(found, [{ line, column, message }], text);
  }
});

t.test('what a reference stands for is not judged', async (t) => {
  const values = [
    'listen: { port: "${P}", http2: "${H:-true}", host: "${A}" }',
    'drain: ${D}',
    'workers: ${W}',
    'log: { level: "${L}" }',
  ];
  const text = `${values.join('\n')}\n${ROUTE}    policy: \${P}\n    lease: \${L}\n`;
  t.same(await server.diagnose(...file(text)), []);
});

t.test('fields are offered where they may stand', async (t) => {
  const offered = async (text: string) => new Set(await server.complete(...file(text)));
  const route = await offered(`${ROUTE}    |\n`);
  for (const field of ['policy', 'upstream', 'key', 'keepStatuses', 'conflict'])
    t.ok(route.has(field), `${field} of any policy`);
  const coalesce = await offered(`${ROUTE}    policy: coalesce\n    |\n`);
  for (const field of ['key', 'lease', 'wait', 'keep', 'keepStatuses', 'stream']) t.ok(coalesce.has(field), field);
  for (const field of ['conflict', 'fingerprint', 'maxQueue', 'name', 'policy'])
    t.notOk(coalesce.has(field), `no ${field}`);
  t.ok((await offered(`${ROUTE}    policy: reject\n    |\n`)).has('conflict'));
  t.strictSame(await offered(`${ROUTE}    policy: |\n`), new Set(['pass', 'coalesce', 'reject', 'replay', 'queue']));
  t.strictSame(
    await offered(`${ROUTE}    policy: replay\n    fingerprint: |\n`),
    new Set(['exact', 'canonical', 'none']),
  );
  t.strictSame(
    await offered('log:\n  level: |\n'),
    new Set(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent']),
  );
  t.ok((await offered(`${UPSTREAMS}|\n`)).has('routes'));
  t.ok((await offered('upstreams:\n  api:\n    |\n')).has('timeouts'));
  t.ok((await offered('store:\n  kind: redis\n  |\n')).has('sentinel'));
  t.notOk((await offered('store:\n  kind: memory\n  |\n')).has('sentinel'));
  t.ok((await offered(`${ROUTE}    policy: queue\n    key:\n      - |\n`)).has('param'));
});

t.test('what a field means is told, with its limits and its default', async (t) => {
  const said = (text: string) => server.hover(...file(text));
  const lease = await said(`${ROUTE}    policy: replay\n    le|ase: 5s\n`);
  t.match(lease, "The leader's time-bound right to the key");
  t.match(lease, 'a duration from 100ms to 1h');
  t.match(lease, 'Default: 30s');
  t.match(await said('lis|ten: { port: 80 }\n'), 'Where requests are accepted.');
  t.match(await said('listen: { po|rt: 80 }\n'), 'Default: 8080');
  const policy = await said(`${ROUTE}    pol|icy: queue\n`);
  t.match(policy, 'What a duplicate gets');
  t.match(policy, '`replay`: A repeat of a request gets the response that the first one got.');
});
