/**
 * The stages of the Dockerfile, without a container: the build runs in a folder that has what the image is given, and the
 * program runs in one that has what the last stage has. So a file that is missing from either is found here.
 */

import { execFile } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import t from 'tap';
import { parse } from 'yaml';

t.setTimeout(170_000);

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const read = (path: string) => readFileSync(resolve(ROOT, path), 'utf8');
const run = promisify(execFile);

type Line = { readonly word: string; readonly rest: string };

/** The instructions of each stage, in order. */
function stagesOf(dockerfile: string): Line[][] {
  const lines = dockerfile.replace(/\\\n\s*/g, '').split('\n');
  const stages: Line[][] = [];
  for (const line of lines) {
    const [, word = '', rest = ''] = /^([A-Z]+) (.*)$/.exec(line) ?? [];
    if (word === 'FROM') stages.push([]);
    else if (word !== '') stages.at(-1)?.push({ word, rest });
  }
  return stages;
}

/** Does what COPY does: a file into a folder, or the content of a folder. */
function copy(rest: string, from: string, to: string): void {
  const paths = rest.split(' ').filter((part) => !part.startsWith('--'));
  const target = resolve(to, paths.pop() ?? '');
  for (const path of paths) {
    const source = resolve(from, path.replace(/^\/app\//, ''));
    const isInto = paths.length > 1 || rest.endsWith('/');
    const place = statSync(source).isFile() && isInto ? join(target, path.split('/').at(-1) ?? '') : target;
    mkdirSync(join(place, '..'), { recursive: true });
    cpSync(source, place, { recursive: true });
  }
}

t.test('the image builds from what it is given, and runs from what it has', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'oneflight-image-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const context = join(folder, 'context');
  // What .dockerignore lets through.
  const given = [...read('.dockerignore').matchAll(/^!(.+)$/gm)].map(([, path = '']) => path);
  for (const path of given) cpSync(resolve(ROOT, path), join(context, path), { recursive: true });

  const [building = [], running = []] = stagesOf(read('Dockerfile'));
  const built = join(folder, 'built');
  for (const { word, rest } of building) {
    if (word === 'COPY') copy(rest, context, built);
    // The packages are those that are installed here.
    else if (word === 'RUN' && rest.startsWith('npm ci'))
      symlinkSync(join(ROOT, 'node_modules'), join(built, 'node_modules'));
    else if (word === 'RUN') await run('sh', ['-c', rest], { cwd: built });
  }
  const image = join(folder, 'image');
  for (const { word, rest } of running) {
    if (word === 'COPY') copy(rest, rest.startsWith('--from=build ') ? built : context, image);
  }

  const words = (wanted: string) => JSON.parse(running.find(({ word }) => word === wanted)?.rest ?? '[]') as string[];
  const [program = '', ...args] = words('ENTRYPOINT');
  t.equal(program, 'node');
  const { version } = JSON.parse(read('package.json')) as { version: string };
  const start = (...more: string[]) => run(process.execPath, [...args, ...more], { cwd: image });
  t.equal((await start('--version')).stdout, `${version}\n`);
  const config = resolve(ROOT, 'config/gateway.compose.yaml');
  t.match((await start('validate', '-c', config)).stdout, /: ok \(/);
  t.strictSame(words('CMD'), ['start']);

  const check = running.find(({ word }) => word === 'HEALTHCHECK')?.rest ?? '';
  const [, ...asked] = JSON.parse(check.slice(check.indexOf('['))) as string[];
  t.match(await run(process.execPath, asked, { cwd: image }).catch((error) => error), {
    code: 1,
    stderr: /ECONNREFUSED/,
  });
  for (const name of ['LICENSE', 'dist/bin/THIRD-PARTY-LICENSES.txt', 'dist/bin/sbom.cdx.json']) {
    t.ok(statSync(join(image, name)).isFile(), `${name} is in the image`);
  }
});

t.test('compose waits for as long as the gateway drains', async (t) => {
  const { services } = parse(read('docker-compose.yml')) as { services: { gateway: { stop_grace_period: string } } };
  const { drain = '30s' } = parse(read('config/gateway.compose.yaml')) as { drain?: string };
  t.ok(Number.parseInt(services.gateway.stop_grace_period, 10) >= Number.parseInt(drain, 10) + 10);
});
