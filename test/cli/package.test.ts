/** What `npm pack` makes, installed as a user installs it: no network, nothing of this folder in reach. */

import { execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import t from 'tap';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const run = promisify(execFile);
/** npm hands its own settings to what it starts; the user's npm has none of them. */
const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^npm_/i.test(name)));

type Packed = { readonly files: readonly { readonly path: string }[] };

/** What `npm pack` would put in, by path. */
async function packedFiles(): Promise<string[]> {
  const { stdout } = await run('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], { cwd: ROOT, env });
  // A list in some versions of npm, by name in others.
  const [packed] = Object.values(JSON.parse(stdout) as Record<string, Packed>);
  return (packed?.files ?? []).map(({ path }) => path).sort();
}

function filesBelow(folder: string): string[] {
  return readdirSync(join(ROOT, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(ROOT, join(entry.parentPath, entry.name)));
}

t.test('the package has what is intended, and nothing else', async (t) => {
  const packed = await packedFiles();
  const intended = [
    'LICENSE',
    'README.md',
    'package.json',
    ...['dist/bin', 'config', 'deploy/systemd'].flatMap(filesBelow),
  ];
  t.strictSame(packed, intended.sort());
  // Pieces of the bundle have a digest in their name.
  const ours = packed.filter((path) => path.startsWith('dist/') && !/^dist\/bin\/[\w-]+-[A-Z0-9]{8}\.js$/.test(path));
  t.strictSame(
    ours.filter((path) => !path.startsWith('dist/bin/lua/')),
    [
      'dist/bin/THIRD-PARTY-LICENSES.txt',
      'dist/bin/gateway.yaml',
      'dist/bin/main.js',
      'dist/bin/page/index.html',
      'dist/bin/page/page.css',
      'dist/bin/page/page.js',
      'dist/bin/page/page.svg',
      'dist/bin/sbom.cdx.json',
      'dist/bin/worker-process.js',
    ],
  );
  const others = packed.filter((path) => !path.startsWith('dist/'));
  t.strictSame(others, [
    'LICENSE',
    'README.md',
    'config/gateway.compose.yaml',
    'config/gateway.yaml',
    'config/oneflight.schema.json',
    'config/session-refresh.http',
    'deploy/systemd/oneflight.service',
    'package.json',
  ]);
});

t.test('the packed tarball installs without a dependency or a warning about its engine, and runs', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'oneflight-pack-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  // Without scripts: `prepare` would build anew while other tests run what is built.
  await run('npm', ['pack', '--ignore-scripts', '--pack-destination', folder], { cwd: ROOT, env });
  const [tarball = ''] = readdirSync(folder);
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string };
  const npx = ['--offline', '--yes', '--cache', join(folder, 'npx-cache'), `./${tarball}`];
  const once = await run('npx', [...npx, '--version'], { cwd: folder, env });
  t.equal(once.stdout, `${version}\n`, 'npx runs it from the tarball');
  t.notMatch(once.stderr, /EBADENGINE|deprecated/i);
  const config = join(ROOT, 'config/gateway.yaml');
  t.match((await run('npx', [...npx, 'validate', '-c', config], { cwd: folder, env })).stdout, /: ok \(/);

  const prefix = join(folder, 'prefix');
  const args = ['install', '--global', '--offline', '--prefix', prefix, '--cache', join(folder, 'cache'), tarball];
  const { stderr } = await run('npm', args, { cwd: folder, env });
  t.notMatch(stderr, /EBADENGINE|deprecated/i);

  const program = join(prefix, 'bin', 'oneflight');
  t.equal((await run(program, ['--version'], { cwd: folder, env })).stdout, `${version}\n`);
  const demo = await run(program, ['demo', '--once'], { cwd: folder, env });
  t.match(demo.stdout, /proof held/);

  await run(program, ['init'], { cwd: folder, env });
  t.match((await run(program, ['validate'], { cwd: folder, env })).stdout, /gateway\.yaml: ok/);

  const installed = join(prefix, 'lib', 'node_modules', 'oneflight');
  t.notOk(readdirSync(installed).includes('node_modules'), 'it brings no packages');
  const licences = readFileSync(join(installed, 'dist/bin/THIRD-PARTY-LICENSES.txt'), 'utf8');
  for (const name of [
    'undici',
    'fastify',
    'ioredis',
    'pino',
    'yaml',
    'zod',
    'commander',
    'prom-client',
    'preact',
    'uplot',
  ]) {
    t.match(licences, new RegExp(`^${name} \\d`, 'm'), `the licence of ${name}`);
  }
});
