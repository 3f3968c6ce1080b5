/** `init`, `schema` and `validate` as people and programs use them. */

// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the configuration's own syntax.

import { readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { parse } from 'yaml';
import { startGateway } from '../support/gateway.js';
import { LanguageServer } from '../support/language-server.js';
import { runProgram } from '../support/program.js';
import { startRedis } from '../support/redis.js';
import { startUpstream } from '../support/upstream.js';

t.setTimeout(120_000);

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const EXAMPLE = readFileSync(resolve(ROOT, 'config/gateway.yaml'), 'utf8');
/** What `--format json` prints, as far as it is looked at by name. */
type Document = {
  readonly errors: readonly { readonly path: string; readonly code: string }[];
  readonly warnings: readonly unknown[];
};

const API = 'upstreams: { api: { url: "http://127.0.0.1:3000" } }\n';

t.test('init', async (t) => {
  t.test(
    'writes a configuration that is good without a warning, and the schema that its first line names',
    async (t) => {
      const cwd = t.testdir({});
      const { code, stdout, stderr } = await runProgram(['init'], { cwd });
      t.strictSame([code, stderr], [0, '']);
      t.match(stdout, 'wrote ./config/gateway.yaml');
      t.strictSame(readdirSync(join(cwd, 'config')).sort(), ['gateway.yaml', 'oneflight.schema.json']);
      const text = readFileSync(join(cwd, 'config/gateway.yaml'), 'utf8');
      t.equal(text, EXAMPLE, 'the example of the repository');
      const validated = await runProgram(['validate'], { cwd });
      t.strictSame([validated.code, validated.stderr], [0, '']);
      t.match(validated.stdout, /^\.\/config\/gateway\.yaml: ok \(5 routes, 1 upstream, memory store\)\n$/);

      const server = await LanguageServer.start();
      t.teardown(() => server.stop());
      t.same(await server.diagnose(join(cwd, 'config/gateway.yaml'), text), [], 'an editor finds nothing');
      const slip = text.replace(/policy: replay/, 'policy: repaly');
      const [found, ...more] = await server.diagnose(join(cwd, 'config/slip.yaml'), slip);
      t.match(found?.message, 'Valid values: "pass"', 'it has found the schema');
      t.same(more, []);
    },
  );

  t.test('overwrites nothing', async (t) => {
    const cwd = t.testdir({ 'mine.yaml': 'mine', 'oneflight.schema.json': 'mine too' });
    const refused = await runProgram(['init', 'mine.yaml'], { cwd });
    t.strictSame(refused, {
      code: 1,
      stdout: '',
      stderr: 'oneflight init: mine.yaml: it is there already, and is left as it is\n',
    });
    const beside = await runProgram(['init', 'other.yaml'], { cwd });
    t.equal(beside.code, 0);
    t.match(beside.stdout, 'oneflight.schema.json: it is there already, and is left as it is');
    t.equal(readFileSync(join(cwd, 'mine.yaml'), 'utf8'), 'mine');
    t.equal(readFileSync(join(cwd, 'oneflight.schema.json'), 'utf8'), 'mine too');
    t.equal((await runProgram(['init', 'mine.yaml/gateway.yaml'], { cwd })).code, 1, 'where no folder can be');
  });

  t.test('writes to standard output alone', async (t) => {
    const cwd = t.testdir({});
    for (const args of [
      ['init', '-'],
      ['init', '--stdout'],
    ]) {
      t.strictSame(await runProgram(args, { cwd }), { code: 0, stdout: EXAMPLE, stderr: '' });
    }
    t.strictSame(readdirSync(cwd), []);
  });

  t.test('what it writes works in front of an API', async (t) => {
    const upstream = await startUpstream(t);
    const file = join(t.testdir({}), 'gateway.yaml');
    t.equal((await runProgram(['init', file])).code, 0);
    const env = {
      ONEFLIGHT_HOST: '127.0.0.1',
      ONEFLIGHT_PORT: '0',
      ONEFLIGHT_ADMIN_PORT: '0',
      UPSTREAM_URL: upstream.url,
    };
    const gateway = await startGateway(t, { config: EXAMPLE, file, env });
    t.equal((await gateway.request({ path: '/anything' })).status, 200);
    t.match(
      (await gateway.post('/auth/sessions/refresh', { refreshToken: 'a' }).answer).cacheStatus,
      'oneflight; fwd=miss',
    );
    t.equal(upstream.count('/auth/sessions/refresh'), 1);
  });
});

t.test('schema prints the file that init writes, and that the repository has', async (t) => {
  const { code, stdout } = await runProgram(['schema']);
  t.equal(code, 0);
  t.equal(stdout, readFileSync(resolve(ROOT, 'config/oneflight.schema.json'), 'utf8'));
  t.equal((JSON.parse(stdout) as { $schema: string }).$schema, 'http://json-schema.org/draft-07/schema#');
});

t.test('validate', async (t) => {
  const json = async (args: readonly string[], input: string, env = {}) => {
    const ran = await runProgram(['validate', '-c', '-', '--format', 'json', ...args], { input, env });
    t.equal(ran.stderr, '', 'all of it is one document');
    return { code: ran.code, document: JSON.parse(ran.stdout) as Document };
  };

  t.test('reads standard input, from where relative paths begin in the working folder', async (t) => {
    const cwd = t.testdir({ 'secret.txt': 'a-secret-of-many-characters\n', 'more.yaml': 'routes: []\n' });
    const input = `${API}store: { secret: "\${file:secret.txt}" }\ninclude: [more.yaml]\n`;
    const good = await runProgram(['validate', '-c', '-'], { cwd, input });
    t.strictSame(good, {
      code: 0,
      stdout: '<stdin>: ok (0 routes, 1 upstream, memory store, 1 included file)\n',
      stderr: '',
    });
    const bad = await runProgram(['validate', '-c', '-'], { cwd, input: `${API}listn: {}\n` });
    t.match(bad, { code: 78, stdout: '', stderr: /^<stdin>:2:1: listn: expected one of .*did you mean listen\?\n$/ });
    t.match(await runProgram(['validate', '-c', '-']), { code: 78, stderr: '<stdin>:1:1: expected a configuration' });
    const large = await runProgram(['validate', '-c', '-'], { input: `#${'x'.repeat(2 ** 20)}` });
    t.match(large, { code: 78, stderr: 'larger than 1MiB' });
  });

  t.test('tells errors as JSON', async (t) => {
    const input =
      'upstreams: { api: { ulr: "http://a" } }\nroutes:\n  - { name: a, match: { path: /a }, policy: coalese, key: [] }\nport: "${NO}"\n';
    const { code, document } = await json([], input);
    t.equal(code, 78);
    t.match(document, { file: '<stdin>', valid: false, warnings: [] });
    const { errors } = document;
    t.strictSame(
      errors.map(({ path, code }) => `${code} ${path}`),
      [
        'missing-field upstreams.api.url',
        'unknown-field upstreams.api.ulr',
        'bad-value routes[0].policy',
        'bad-value routes[0].key',
        'bad-reference port',
      ],
    );
    t.strictSame(errors[2], {
      file: '<stdin>',
      line: 3,
      column: 45,
      path: 'routes[0].policy',
      code: 'bad-value',
      expected: 'pass, coalesce, reject, replay or queue',
      came: '"coalese"',
      suggestion: 'coalesce',
      message:
        '<stdin>:3:45: routes[0].policy: expected pass, coalesce, reject, replay or queue, got "coalese", did you mean coalesce?',
    });
    for (const [text, expected] of [
      ['a: [', 'bad-yaml'],
      ['', 'unreadable-file'],
      [`${API}unmatched: nobody\n`, 'conflict'],
      [`${API}include: [nothing.yaml]\n`, 'unreadable-file'],
      [`${API}listen: { tls: { cert: no.pem, key: no.key } }\n`, 'unreadable-file'],
    ] as const) {
      const { document } = await json([], text);
      t.equal(document.errors[0]?.code, expected, text);
    }
    t.match(await runProgram(['validate', '-c', '/nowhere.yaml', '--format', 'json']), {
      code: 78,
      stdout: '"unreadable-file"',
    });
    t.equal((await runProgram(['validate', '--format', 'xml'])).code, 2);
  });

  t.test('tells warnings as JSON', async (t) => {
    const { code, document } = await json([], `${API}routes:\n  - { name: a, match: { path: "/a-:id" } }\n`);
    t.equal(code, 0);
    t.match(document, { file: '<stdin>', included: [], valid: true, errors: [], routes: 1, upstreams: 1 });
    t.match(document.warnings, [{ line: 3, path: 'routes[0].match.path', code: 'literal-param', came: null }]);
  });

  t.test('looks at the store, and tells what it found as JSON', async (t) => {
    const redis = await startRedis();
    t.teardown(() => redis.stop());
    const store = (url: string) => `${API}store: { kind: redis, url: "${url}", secret: a-secret-of-many-characters }\n`;
    const good = await json(['--connect'], store(redis.url));
    t.equal(good.code, 0);
    t.match(good.document, { valid: true, store: { kind: 'good', shape: /^one primary/, warnings: Array } });
    const gone = await json(['--connect'], store('redis://127.0.0.1:1'));
    t.equal(gone.code, 1);
    t.match(gone.document, { valid: true, store: { kind: 'unreachable', reasons: [/ECONNREFUSED/] } });
    t.match((await json(['--connect'], API)).document, { store: { kind: 'in-process' } });
  });

  t.test('prints what is in effect, and where each value is from', async (t) => {
    const cwd = t.testdir({
      'gateway.yaml': [
        'include: [routes.yaml]',
        'listen: { port: "${PORT:-8081}", host: "${HOST}" }',
        'store: { kind: redis, url: "redis://user:pass-word@r:6379/1", secret: "${file:secret.txt}" }',
        API,
      ].join('\n'),
      'routes.yaml':
        'routes:\n  - { name: a, match: { path: /a, headers: { x-a: "$${x}" } }, policy: coalesce, key: [{ request: path }] }\n',
      'secret.txt': 'a-secret-of-many-characters\n',
    });
    const env = { HOST: '127.0.0.1' };
    const { code, stdout, stderr } = await runProgram(['validate', '-c', 'gateway.yaml', '--print'], { cwd, env });
    t.equal(code, 0);
    t.match(stderr, /^gateway\.yaml: ok /, 'what is said of it stands apart');
    for (const line of [
      '# include: what routes.yaml have stands here (gateway.yaml:1)',
      '  host: 127.0.0.1 # gateway.yaml:2, from ${HOST}',
      '  port: 8081 # gateway.yaml:2, ${PORT} is not set',
      '  url: redis://***@r:6379/1 # gateway.yaml:3',
      '  secret: "***" # gateway.yaml:3, from ${file:secret.txt}',
      '  commandTimeout: 200ms # default',
      '    url: http://127.0.0.1:3000 # gateway.yaml:4',
      '    eject: false # default',
      '  - name: a # routes.yaml:2',
      '        x-a: "$${x}" # routes.yaml:2',
      '    upstream: api # default',
      '    scope: a # default',
      '    # keep: 5s for unsafe methods, 0s for safe ones (default)',
      '      poll: 500ms # default',
      'unmatched: api # default',
    ]) {
      t.ok(stdout.split('\n').includes(line), line);
    }
    t.notMatch(stdout + stderr, /pass-word|many-characters/);

    const asJson = await runProgram(['validate', '-c', 'gateway.yaml', '--print', '--format', 'json'], { cwd, env });
    const { config, sources } = JSON.parse(asJson.stdout) as { config: object; sources: object };
    t.notMatch(asJson.stdout, /pass-word|many-characters/);
    t.match(config, {
      listen: { port: 8081 },
      store: { secret: '***', maxMemory: '256MiB' },
      routes: [{ lease: '30s' }],
    });
    t.match(sources, {
      'listen.port': {
        kind: 'file',
        file: 'gateway.yaml',
        line: 2,
        references: [{ kind: 'variable', name: 'PORT', used: 'default' }],
      },
      'listen.host': { references: [{ kind: 'variable', name: 'HOST', used: 'value' }] },
      'store.secret': { references: [{ kind: 'file', path: 'secret.txt' }] },
      'routes[0].name': { kind: 'file', file: 'routes.yaml', line: 2, column: 13 },
      'routes[0].lease': { kind: 'default' },
      'routes[0].keep': { kind: 'default', words: '5s for unsafe methods, 0s for safe ones' },
    });
    const { include: _, ...plain } = config as Record<string, unknown>;
    t.match(parse(stdout.replaceAll('$${', '${')), plain, 'both say the same');
  });
});
