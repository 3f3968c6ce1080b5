/** Files that a configuration includes: what they add, in which order, and where their mistakes are. */

import { mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import t, { type Test } from 'tap';
import { validate } from '../../src/cli/validate.js';
import { formatError } from '../../src/config/fault.js';
import { type LoadResult, loadConfig } from '../../src/config/load.js';
import { CHECK_ONLY } from '../support/check-only.js';
import { tlsFile } from '../support/dial.js';

const API = 'upstreams: { api: { url: "http://127.0.0.1:3000" } }\n';

/** Writes files into a folder of the test, and loads the first. */
function load(t: Test, files: Readonly<Record<string, string>>): LoadResult & { readonly folder: string } {
  const folder = t.testdir();
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), text);
  }
  return { ...loadConfig(join(folder, Object.keys(files)[0]!), {}), folder };
}

function loaded(t: Test, files: Readonly<Record<string, string>>) {
  const result = load(t, files);
  if (result.kind === 'invalid') throw new Error(result.errors.map(formatError).join('\n'));
  return result;
}

/** Errors as they are printed, with paths from the folder on. */
function errors(t: Test, files: Readonly<Record<string, string>>): string[] {
  const result = load(t, files);
  return result.kind === 'loaded' ? [] : result.errors.map((e) => formatError(e).replaceAll(`${result.folder}/`, ''));
}

const route = (name: string, more = '') => `- { name: ${name}, match: { path: /${name}/x }${more} }\n`;
const routes = (...names: string[]) => `routes:\n${names.map((name) => `  ${route(name)}`).join('')}`;

t.test('own routes first, then those of each pattern in the order of the names; each file once', async (t) => {
  const result = loaded(t, {
    'gateway.yaml': `include: [routes/*.yaml, "other/a?.yaml", routes/b.yaml]\n${API}${routes('own-1', 'own-2')}`,
    'routes/b.yaml': routes('b'),
    'routes/a.yaml': routes('a-1', 'a-2'),
    'routes/10.yaml': routes('ten'),
    'routes/.hidden.yaml': routes('hidden'),
    'routes/notes.txt': 'no configuration: [',
    'routes/deep.yaml/c.yaml': routes('deep'),
    'other/a1.yaml': routes('other'),
    'other/a12.yaml': routes('too-long'),
  });
  t.same(
    result.config.rules.map(({ name }) => name),
    ['own-1', 'own-2', 'ten', 'a-1', 'a-2', 'b', 'other'],
  );
  t.same(
    result.included.map((file) => relative(result.folder, file)),
    ['routes/10.yaml', 'routes/a.yaml', 'routes/b.yaml', 'other/a1.yaml'],
  );
  t.same(result.warnings, []);
});

t.test('upstreams come with the routes that need them, and their paths begin where they are written', async (t) => {
  const pem = readFileSync(tlsFile('ca.pem'), 'utf8');
  const { config } = loaded(t, {
    'gateway.yaml': 'include: [teams/*/*.yaml]\nunmatched: false\n',
    'teams/orders/api.yaml': `upstreams: { orders: { url: "https://127.0.0.1:1", tls: { ca: ca.pem } } }\n${`routes:\n  ${route('orders', ', upstream: orders')}`}`,
    'teams/orders/ca.pem': pem,
    'teams/stock/api.yaml': `upstreams: { stock: { url: "http://127.0.0.1:2", headers: { request: { set: { X-Key: "\${file:key}" } } } } }\n`,
    'teams/stock/key': 'of-stock\n',
  });
  t.same([...config.upstreams.keys()], ['orders', 'stock']);
  t.equal(config.upstreams.get('orders')?.tls.ca, pem);
  t.same(config.upstreams.get('stock')?.edits.request?.added, ['X-Key', 'of-stock']);
  t.equal(config.rules[0]?.upstream, 'orders');
});

t.test('a file that is commented out adds nothing; a pattern that matches nothing is a warning', async (t) => {
  const result = loaded(t, {
    'gateway.yaml': `include:\n  - routes/*.yaml\n  - none/*.yaml\n${API}`,
    'routes/a.yaml': '# routes:\n#   - name: a\n',
  });
  t.same(result.config.rules, []);
  t.match(result.warnings, [{ line: 3, column: 5, path: 'include[1]', message: 'none/*.yaml matches no file' }]);
  t.equal(result.warnings.length, 1);
});

t.test('what a pattern names and nobody can read is an error: its rules are not lost in silence', async (t) => {
  const folder = t.testdir({
    'gateway.yaml': `${API}include: [ "routes/*.yaml" ]\n`,
    routes: { 'a.yaml': routes('a'), 'b.yaml': t.fixture('symlink', '../gone/b.yaml'), 'folder.yaml': {} },
  });
  const result = loadConfig(join(folder, 'gateway.yaml'), {});
  t.equal(result.kind, 'invalid');
  t.match(result.kind === 'invalid' && result.errors, [{ path: 'include[0]', expected: /routes\/b\.yaml/ }]);
  t.equal(result.kind === 'invalid' && result.errors.length, 1, 'a folder is none');
});

t.test('a folder that cannot be looked into is an error; one that is not there has no files', async (t) => {
  const folder = t.testdir({
    'gateway.yaml': `${API}include: [ "loop/*.yaml", "plain/*.yaml", "deep/*/*.yaml", "none/*.yaml" ]\n`,
    loop: t.fixture('symlink', 'loop'),
    plain: '',
    deep: {
      good: { 'a.yaml': routes('a') },
      loop: t.fixture('symlink', 'loop'),
      gone: t.fixture('symlink', 'nowhere'),
    },
  });
  const result = loadConfig(join(folder, 'gateway.yaml'), {});
  t.match(result.kind === 'invalid' && result.errors, [
    { path: 'include[0]', expected: /\/loop, to be looked into$/, got: /ELOOP/ },
    { path: 'include[1]', expected: /\/plain, to be looked into$/, got: 'not a directory' },
    { path: 'include[2]', expected: /\/deep\/loop, to be looked into$/, got: /ELOOP/ },
  ]);
  t.equal(result.kind === 'invalid' && result.errors.length, 3);
  t.equal(result.files.haveChanged(), false);
  rmSync(join(folder, 'plain'));
  t.equal(result.files.haveChanged(), true, 'it can be looked into again');
});

t.test('a pattern that meets the file itself does not mean it', async (t) => {
  const files = { 'gateway.yaml': `include: ["*.yaml"]\n${API}`, 'more.yaml': routes('more') };
  t.same(
    loaded(t, files).config.rules.map(({ name }) => name),
    ['more'],
  );
  t.same(errors(t, { 'gateway.yaml': `include: [gateway.yaml]\n${API}` }), [
    'gateway.yaml:1:11: include[0]: expected another file than this one, got "gateway.yaml"',
  ]);
});

t.test('mistakes are told at their places in their own files, those of all files at once', async (t) => {
  t.same(
    errors(t, {
      'gateway.yaml': `include: [a.yaml, b.yaml, c.yaml]\n${API}drain: soon\n${routes('own')}`,
      'a.yaml': `routes:\n  ${route('fine')}  - name: a\n    match: { path: /a }\n    polcy: pass\n`,
      'b.yaml': `\nroutes:\n  - { name: b, match: { path: /b }, upstream: apo }\nlisten: { port: 1 }\nroute: []\n`,
      'c.yaml': 'routes:\n  - [ {\n',
    }),
    [
      'gateway.yaml:3:8: drain: expected a duration from 0s to 1h, such as 250ms, 3s or 5m, got "soon"',
      'a.yaml:5:5: routes[1].polcy: expected one of name, match, upstream, maxRequests, policy, got "polcy", did you mean policy?',
      'b.yaml:3:47: routes[0].upstream: expected the name of an upstream (api), got "apo", did you mean api?',
      'b.yaml:4:1: listen: expected no listen in an included file (routes and upstreams only), got "listen"',
      'b.yaml:5:1: route: expected one of routes, upstreams, got "route", did you mean routes?',
      errors(t, { 'c.yaml': 'routes:\n  - [ {\n' })[0]!,
    ],
  );
});

t.test('what is no list, no mapping or no UTF-8 is told where it is', async (t) => {
  t.same(
    errors(t, {
      'gateway.yaml': `include: [a.yaml, b.yaml]\n${API}`,
      'a.yaml': 'routes: { name: a }\nupstreams: []\n',
      'b.yaml': '- routes\n',
    }),
    [
      'a.yaml:1:9: routes: expected a list, got a mapping',
      'a.yaml:2:12: upstreams: expected a mapping, got an empty list',
      'b.yaml:1:1: expected a mapping with routes or upstreams, got a list',
    ],
  );
  const result = load(t, { 'gateway.yaml': `include: [a.yaml]\n${API}`, 'a.yaml': '' });
  writeFileSync(join(result.folder, 'a.yaml'), Buffer.from([0x61, 0x0a, 0xff]));
  t.match(loadConfig(join(result.folder, 'gateway.yaml'), {}), {
    errors: [{ file: join(result.folder, 'a.yaml'), line: 2, column: 1, expected: 'UTF-8' }],
  });
});

t.test('names that stand twice are told with both places', async (t) => {
  t.same(
    errors(t, {
      'gateway.yaml': `include: [a.yaml, b.yaml]\n${API}${routes('one')}`,
      'a.yaml': `upstreams:\n  api: { url: "http://127.0.0.1:1" }\n${routes('two', 'one')}`,
      'b.yaml': `${routes('three', 'three', 'two')}`,
    }),
    [
      'a.yaml:2:3: upstreams.api: expected a name that no other upstream has, got "api", which gateway.yaml:2:14 has',
      'a.yaml:5:13: routes[1].name: expected a name that no other route has, got "one", which the route at gateway.yaml:4:5 has',
      'b.yaml:3:13: routes[1].name: expected a name that no other route has, got "three", which routes[0] has',
      'b.yaml:4:13: routes[2].name: expected a name that no other route has, got "two", which the route at a.yaml:4:5 has',
    ],
  );
});

t.test('a file that is named must be there; what is no path is told as such', async (t) => {
  t.same(errors(t, { 'gateway.yaml': `include:\n  - none.yaml\n  - folder\n${API}`, 'folder/a': '' }), [
    'gateway.yaml:2:5: include[0]: expected the readable file none.yaml, got no such file',
    'gateway.yaml:3:5: include[1]: expected the readable file folder, got a directory',
  ]);
  const path = 'expected a path, or a pattern with * and ?';
  t.same(errors(t, { 'gateway.yaml': `include: ["routes/**/*.yaml", "", 7]\n${API}` }), [
    `gateway.yaml:1:11: include[0]: ${path}, got "routes/**/*.yaml"`,
    `gateway.yaml:1:31: include[1]: ${path}, got ""`,
    `gateway.yaml:1:35: include[2]: ${path}, got 7`,
  ]);
  t.same(errors(t, { 'gateway.yaml': `include: routes/a.yaml\n${API}` }), [
    'gateway.yaml:1:10: include: expected a list, got "routes/a.yaml"',
  ]);
});

t.test('warnings of included routes name their file', async (t) => {
  const result = loaded(t, {
    'gateway.yaml': `include: [a.yaml]\n${API}routes:\n  - { name: all, match: { path: "/*" } }\n`,
    'a.yaml': routes('first', 'second'),
  });
  t.match(result.warnings, [
    { file: join(result.folder, 'a.yaml'), line: 2, path: 'routes[0].match', message: /never match/ },
    { file: join(result.folder, 'a.yaml'), line: 3, path: 'routes[1].match', message: /never match/ },
  ]);
});

t.test('it is known whether anything that was read has changed, and nothing else counts', async (t) => {
  const result = loaded(t, {
    'gateway.yaml': `include: [routes/*.yaml]\n${API}trustedProxies: ["\${file:proxy}"]\n`,
    'routes/a.yaml': routes('a'),
    proxy: '10.0.0.1',
  });
  const { folder } = result;
  let { files } = result;
  const changes = (what: string, change: () => void) => {
    t.equal(files.haveChanged(), false, `before: ${what}`);
    change();
    t.equal(files.haveChanged(), true, what);
    files = loadConfig(join(folder, 'gateway.yaml'), {}).files;
  };
  const put = (name: string, text: string) => writeFileSync(join(folder, name), text);
  put('routes/notes.txt', 'of nobody');
  put('gateway.yaml', readFileSync(join(folder, 'gateway.yaml'), 'utf8'));
  changes('an included file', () => put('routes/a.yaml', routes('a2')));
  changes('a new one', () => put('routes/b.yaml', routes('b')));
  changes('one is gone', () => rmSync(join(folder, 'routes/b.yaml')));
  changes('a file that a value is in', () => put('proxy', '10.0.0.2'));
  changes('that one is gone, which is an error', () => rmSync(join(folder, 'proxy')));
  changes('and back', () => put('proxy', '10.0.0.2'));
  changes('a link in the place of a file', () => {
    rmSync(join(folder, 'routes/a.yaml'));
    put('elsewhere.yaml', routes('c'));
    symlinkSync('../elsewhere.yaml', join(folder, 'routes/a.yaml'));
  });
  changes('what a link leads to', () => put('elsewhere.yaml', routes('d')));
  changes('a file that grows too large', () => put('routes/a.yaml', `# ${'x'.repeat(1024 * 1024)}`));
  changes('the file itself', () => put('gateway.yaml', '- no configuration\n'));
});

t.test('validate says how many files are included, and what is wrong in them', async (t) => {
  const files = { 'gateway.yaml': `include: [a.yaml]\n${API}`, 'a.yaml': routes('a') };
  const { folder } = loaded(t, files);
  let said = '';
  const sink = { write: (text: string) => (said += text) };
  const config = join(folder, 'gateway.yaml');
  const options = { ...CHECK_ONLY, config, env: {}, stdout: sink, stderr: sink };
  t.equal(await validate(options), 0);
  t.match(said, /gateway\.yaml: ok \(1 route, 1 upstream, memory store, 1 included file\)/);
  said = '';
  writeFileSync(join(folder, 'a.yaml'), 'routes: 1\n');
  t.equal(await validate(options), 78);
  t.match(said, /a\.yaml:1:9: routes: expected a list, got 1/);
});
