/** The page that begins with nothing: its commands, typed one block after the other, show what it says they do. */

import { execFile } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { freePort } from './support/ports.js';

t.setTimeout(90_000);

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const PAGE = readFileSync(resolve(ROOT, 'docs/getting-started.md'), 'utf8');
const MARK = '=== the next block ===';

/** Blocks of commands, each with the output that stands below it; the two commands that set everything up are .ci/run's. */
const steps = [...PAGE.matchAll(/^```sh\n([\s\S]*?)^```\n(?:```\n([\s\S]*?)^```)?/gm)]
  .map(([, commands = '', shown = '']) => ({ commands, shown: shown.split('\n').filter((line) => line !== '') }))
  .filter(({ commands }) => !commands.startsWith('npm ci'));

t.test('getting started', async (t) => {
  const [gateway, admin, api] = [await freePort(), await freePort(), await freePort()];
  const ports: Readonly<Record<string, number>> = { '3000': api, '8080': gateway, '9090': admin };
  const ready = `until curl -sf http://127.0.0.1:${admin}/readyz >/dev/null; do sleep 0.1; done`;
  const script = steps.map(
    ({ commands }) => commands.replaceAll(/\b(?:3000|8080|9090)\b/g, (port) => String(ports[port])) + ready,
  );
  const { PATH = '' } = process.env;
  const env = {
    PATH,
    ONEFLIGHT_PORT: `${gateway}`,
    ONEFLIGHT_ADMIN_PORT: `${admin}`,
    UPSTREAM_URL: `http://127.0.0.1:${api}`,
  };
  const output = await new Promise<string>((done, fail) => {
    const whole = ["trap 'kill $(jobs -p)' EXIT", ...script].join(`\necho '${MARK}'\n`);
    const shell = execFile(
      'bash',
      ['--norc', '-c', whole],
      { cwd: ROOT, env, timeout: 80_000 },
      (error, stdout, stderr) =>
        error === null ? done(stdout) : fail(new Error(`${error.message}\n${stdout}\n${stderr}`)),
    );
    t.teardown(() => shell.kill());
  });
  const parts = output.replaceAll('\r', '').split(MARK).slice(1);
  t.equal(parts.length, steps.length);
  for (const [at, { commands, shown }] of steps.entries()) {
    const missing = shown.filter((line) => !(parts[at] as string).includes(line));
    t.same(missing, [], `${commands}${parts[at]}`);
  }
  t.ok(steps.filter(({ shown }) => shown.length > 0).length >= 4, 'most blocks show what comes');
});

/** The anchor of a heading, as it is made where these pages are read. */
function anchorOf(heading: string): string {
  return heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
    .replaceAll(' ', '-');
}

function anchorsOf(page: string): string[] {
  return [...readFileSync(page, 'utf8').matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) => anchorOf(heading));
}

t.test('every link between the pages leads somewhere', (t) => {
  const below = (folder: string): string[] =>
    readdirSync(resolve(ROOT, folder), { withFileTypes: true }).flatMap((entry) =>
      entry.isDirectory()
        ? below(`${folder}/${entry.name}`)
        : entry.name.endsWith('.md')
          ? [`${folder}/${entry.name}`]
          : [],
    );
  const pages = ['README.md', 'SECURITY.md', 'CONTRIBUTING.md', 'CHANGELOG.md', ...below('docs'), ...below('bench')];
  const lost = pages.flatMap((page) => {
    const text = readFileSync(resolve(ROOT, page), 'utf8').replaceAll(/^```[\s\S]*?^```/gm, '');
    return [...text.matchAll(/\]\(([^)\s]+)\)/g)].flatMap(([, target = '']) => {
      if (/^https?:/.test(target)) return [];
      const [file = '', anchor] = target.split('#');
      const to = file === '' ? resolve(ROOT, page) : resolve(ROOT, join(dirname(page), file));
      if (!existsSync(to)) return [`${page}: ${target}`];
      return anchor === undefined || anchorsOf(to).includes(anchor) ? [] : [`${page}: ${target}`];
    });
  });
  t.same(lost, []);
  t.end();
});
