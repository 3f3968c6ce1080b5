/** What `npm pack` makes, installed as a user installs it: no network, nothing of this folder in reach. */

import { execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import t from 'tap';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const run = promisify(execFile);
/** npm hands its own settings to what it starts; the user's npm has none of them. */
const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^npm_/i.test(name)));

t.test('the packed tarball installs without a dependency or a warning about its engine, and runs', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'oneflight-pack-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  // Without scripts: `prepare` would build anew while other tests run what is built.
  await run('npm', ['pack', '--ignore-scripts', '--pack-destination', folder], { cwd: ROOT, env });
  const [tarball = ''] = readdirSync(folder);
  const prefix = join(folder, 'prefix');
  const args = ['install', '--global', '--offline', '--prefix', prefix, '--cache', join(folder, 'cache'), tarball];
  const { stderr } = await run('npm', args, { cwd: folder, env });
  t.notMatch(stderr, /EBADENGINE|deprecated/i);

  const program = join(prefix, 'bin', 'oneflight');
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string };
  t.equal((await run(program, ['--version'], { cwd: folder, env })).stdout, `${version}\n`);
  const demo = await run(program, ['demo', '--once'], { cwd: folder, env });
  t.match(demo.stdout, /proof held/);

  await run(program, ['init'], { cwd: folder, env });
  t.match((await run(program, ['validate'], { cwd: folder, env })).stdout, /gateway\.yaml: ok/);

  const installed = join(prefix, 'lib', 'node_modules', 'oneflight');
  t.notOk(readdirSync(installed).includes('node_modules'), 'it brings no packages');
  const licences = readFileSync(join(installed, 'dist/bin/THIRD-PARTY-LICENSES.txt'), 'utf8');
  for (const name of ['undici', 'fastify', 'ioredis', 'pino', 'yaml', 'zod', 'commander', 'prom-client']) {
    t.match(licences, new RegExp(`^${name} \\d`, 'm'), `the licence of ${name}`);
  }
});
