/** The workflows: every command and file in them exists, and what publishes has no more rights than it needs; the release's notes. */

import { execFile, execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import t, { type Test } from 'tap';
import { parse } from 'yaml';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const read = (path: string) => readFileSync(resolve(ROOT, path), 'utf8');

type Step = {
  readonly uses?: string;
  readonly run?: string;
  readonly with?: Readonly<Record<string, unknown>>;
  readonly env?: Readonly<Record<string, string>>;
};
type Job = {
  readonly needs?: string | readonly string[];
  readonly permissions?: Readonly<Record<string, string>>;
  readonly 'timeout-minutes'?: number;
  readonly steps: readonly Step[];
};
type Workflow = {
  readonly permissions: Readonly<Record<string, string>>;
  readonly jobs: Readonly<Record<string, Job>>;
};

const FILES = ['.github/workflows/ci.yml', '.github/workflows/release.yml'] as const;
const [ci, release] = FILES.map((file) => parse(read(file)) as Workflow) as [Workflow, Workflow];
const { scripts, version } = JSON.parse(read('package.json')) as { scripts: Record<string, string>; version: string };

/** What a line of shell names that is not there. */
function missingIn(line: string): string[] {
  const script = /\bnpm (?:run )?(?:--silent )?([\w:-]+)/.exec(line)?.[1];
  // Words of npm itself.
  const isKnown = script === undefined || script in scripts || ['ci', 'publish', 'pkg'].includes(script);
  const files = [...line.matchAll(/(?:^|\s)((?:scripts|deploy|\.ci)\/[\w./-]+)/g)].map(([, file = '']) => file);
  const missing = files.filter((file) => !existsSync(resolve(ROOT, file)));
  return [...(isKnown ? [] : [`npm ${script}`]), ...missing];
}

function stepsOf(workflow: Workflow): Step[] {
  return Object.values(workflow.jobs).flatMap(({ steps }) => steps);
}

t.test('every command and file that a workflow names exists, and every script of it can be read', async (t) => {
  for (const { run } of [ci, release].flatMap(stepsOf)) {
    if (run === undefined) continue;
    t.strictSame(run.split('\n').flatMap(missingIn), [], run);
    t.notMatch(run, /\$\{\{/, 'what others have named is a variable of the shell, not a part of the script');
    execFileSync('bash', ['-n', '-c', run]);
  }
  t.strictSame(missingIn('npm run tset'), ['npm tset'], 'a planted script');
  t.strictSame(missingIn('node scripts/nothing.mjs'), ['scripts/nothing.mjs'], 'a planted file');
  for (const { jobs } of [ci, release]) {
    const wanted = Object.values(jobs).flatMap(({ needs = [] }) => needs);
    t.strictSame(
      wanted.filter((name) => !(name in jobs)),
      [],
    );
  }
});

t.test(
  'actions are what they were when somebody looked: each is named by its commit, everywhere the same',
  async (t) => {
    const lines = FILES.flatMap((file) => read(file).split('\n')).filter((line) => /^\s*(?:- )?uses:/.test(line));
    const pins = new Map<string, string>();
    for (const line of lines) {
      const [, action = '', pin = ''] = /uses: ([\w./-]+)@([0-9a-f]{40} # v\d+\.\d+\.\d+)$/.exec(line) ?? [];
      t.not(action, '', line);
      t.equal(pins.get(action) ?? pin, pin, line);
      pins.set(action, pin);
    }
    t.ok(pins.size > 2);
    for (const { uses = '', with: options } of [ci, release].flatMap(stepsOf)) {
      if (uses.startsWith('actions/checkout@')) t.strictSame(options?.['persist-credentials'], false);
    }
  },
);

t.test('nothing is published that was not checked, and nobody may more than their job needs', async (t) => {
  const { check: tested } = ci.jobs;
  const { check, package: npm, image, release: last } = release.jobs;
  for (const workflow of [ci, release]) {
    t.strictSame(workflow.permissions, { contents: 'read' });
    for (const job of Object.values(workflow.jobs)) t.ok((job['timeout-minutes'] ?? 999) <= 60);
  }
  for (const job of [tested, check]) t.ok(job?.steps.some(({ run }) => run === 'bash .ci/run'));
  t.equal(check?.permissions, undefined);
  t.strictSame([npm?.needs, image?.needs, last?.needs], ['check', 'check', ['package', 'image']]);
  t.strictSame(npm?.permissions, { contents: 'read', 'id-token': 'write' });
  t.ok(npm?.steps.some(({ run }) => /npm publish --provenance --access public/.test(run ?? '')));
  t.notMatch(read(FILES[1]), /NODE_AUTH_TOKEN|NPM_TOKEN/, 'there is no token that could be stolen');
  t.match(image?.steps.find(({ uses }) => uses?.startsWith('docker/build-push-action@'))?.with, {
    sbom: true,
    provenance: 'mode=max',
  });
  t.strictSame(last?.permissions, { contents: 'write' });
});

/** The script beside a changelog and a manifest of our own making. */
function notes(t: Test, changelog: string, tag: string): Promise<{ stdout: string; stderr: string; code?: number }> {
  const folder = mkdtempSync(join(tmpdir(), 'oneflight-notes-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  cpSync(join(ROOT, 'scripts/release-notes.mjs'), join(folder, 'scripts/release-notes.mjs'));
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ version: '1.2.3' }));
  writeFileSync(join(folder, 'CHANGELOG.md'), changelog);
  return promisify(execFile)(process.execPath, [join(folder, 'scripts/release-notes.mjs'), tag]).catch(
    (error) => error,
  );
}

t.test('the notes of a release are its section of the changelog', async (t) => {
  const head = '# Changelog\n\nText.\n\n## [Unreleased]\n\n- soon\n\n';
  const older = '## [1.2.2] - 2026-01-01\n\n### Fixed\n\n- an old fault\n';
  const links = '\n[1.2.3]: https://example.org/compare/1\n[1.2.2]: https://example.org/compare/0\n';
  const section =
    '## [1.2.3] - 2026-02-01\n\n### Added\n\n- one [link](docs/a.md)\n  of two lines\n\n### Fixed\n\n- two\n\n';
  const text = '### Added\n\n- one [link](docs/a.md)\n  of two lines\n\n### Fixed\n\n- two\n';
  t.match(await notes(t, head + section + older + links, 'v1.2.3'), { stdout: text, stderr: '' });
  t.equal((await notes(t, head + section + links, 'v1.2.3')).stdout, text, 'also as the last one');

  const faults: readonly (readonly [string, string, RegExp])[] = [
    [head + older, 'v1.2.3', /has no section \[1\.2\.3\]/],
    [`${head}## [1.2.3]\n\n- one\n`, 'v1.2.3', /needs its date/],
    [`${head}## [1.2.3] - 2026-02-01\n\n${older}`, 'v1.2.3', /\[1\.2\.3\] is empty/],
    [head + section, 'v1.2.2', /the tag is v1\.2\.2, and the package is v1\.2\.3/],
    [head + section, '', /the tag is not given/],
  ];
  for (const [changelog, tag, wanted] of faults) {
    t.match(await notes(t, changelog, tag), { code: 1, stdout: '', stderr: wanted });
  }
});

t.test('the changelog is in the form that the release needs', async (t) => {
  const headings = read('CHANGELOG.md')
    .split('\n')
    .filter((line) => line.startsWith('## '));
  t.equal(headings[0], '## [Unreleased]');
  for (const heading of headings.slice(1)) t.match(heading, /^## \[\d+\.\d+\.\d+(?:-[\w.]+)?\] - \d{4}-\d{2}-\d{2}$/);
  t.match(version, /^\d+\.\d+\.\d+(?:-[\w.]+)?$/);
});
