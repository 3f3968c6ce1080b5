/**
 * Runs the compiled tests (or those whose path holds one of the arguments) and ends with `N passed, N failed`.
 *
 * Invariants: that line is the last one, whatever happened; the exit code is 0 only when tests ran and none failed; the
 * numbers are tap's own totals, read from the end of its output. Files named `*.alone.test.ts` measure time: they run
 * one after the other, when nothing else does. A line a file is shown, with what failed in it; all of that once more at
 * the end, where a log that is cut short still has it. `VERBOSE=1` shows every assertion.
 */

import { spawn } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { relative, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath, pathToFileURL } from 'node:url';

type Totals = { readonly passed: number; readonly failed: number; readonly green: boolean };

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const TAP = 'node_modules/tap/dist/esm/run.mjs';
const FILE_TIMEOUT_S = 180;
/** More than the two cores that there are at least: most files wait most of the time. */
const JOBS = 3;
const LINGERING = new URL('./support/lingering.js', import.meta.url).href;
/** The last line but one of a run: `# { total: 8, pass: 5, fail: 1, todo: 1, skip: 1 }`; zeros are left out. */
const TOTALS = /^# \{ total: \d+[^}]*\}$/;
const { VERBOSE } = process.env;

function testFiles(filters: readonly string[]): string[] {
  return readdirSync(resolve(ROOT, 'dist/test'), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith('.test.js'))
    .map((entry) => relative(ROOT, resolve(entry.parentPath, entry.name)))
    .filter((file) => filters.length === 0 || filters.some((part) => file.includes(part)))
    .sort();
}

/** Finds the Redis that the tests need, or fetches it: once, before several files ask for it at the same time. */
async function findRedis(): Promise<void> {
  const file = resolve(ROOT, 'dist/test/support/redis-server.js');
  if (!existsSync(file)) return;
  const { serverProgram } = (await import(pathToFileURL(file).href)) as { serverProgram(): Promise<unknown> };
  await serverProgram();
}

/** The browser of the live page is large: fetched while no test's time is running. What is wrong with it is the test's to say. */
async function findBrowser(files: readonly string[]): Promise<void> {
  if (!files.some((file) => file.includes('page/browser'))) return;
  const file = resolve(ROOT, 'dist/test/support/chromium.js');
  const { browserProgram } = (await import(pathToFileURL(file).href)) as { browserProgram(): Promise<unknown> };
  await browserProgram().catch(() => {});
}

/** The lines of what failed, with their diagnostics. */
const failures: string[] = [];

async function runTap(files: readonly string[], jobs: number): Promise<Totals> {
  if (files.length === 0) return { passed: 0, failed: 0, green: true };
  const options = [
    '--disable-coverage',
    `--jobs=${jobs}`,
    `--timeout=${FILE_TIMEOUT_S}`,
    `--node-arg=--import=${LINGERING}`,
  ];
  const tap = spawn(process.execPath, [TAP, ...options, ...files], { cwd: ROOT, stdio: ['ignore', 'pipe', 'inherit'] });
  let totals = '';
  let isOfFailure = false;
  createInterface({ input: tap.stdout }).on('line', (line) => {
    if (TOTALS.test(line)) totals = line;
    if (/^ *not ok /.test(line)) isOfFailure = true;
    else if (/^ *(ok |# |\.\.\.$)/.test(line)) isOfFailure = false;
    if (isOfFailure) failures.push(line);
    // Comments have what a gateway wrote in a test that failed.
    const isComment = /^ *# (?!Subtest:|time=)/.test(line);
    if (VERBOSE === '1' || isOfFailure || isComment || /^\S/.test(line)) console.log(line);
  });
  const code = await new Promise<number | null>((done, fail) => tap.once('error', fail).once('close', done));
  const count = (name: string): number => Number(new RegExp(`\\b${name}: (\\d+)`).exec(totals)?.[1] ?? 0);
  return { passed: count('pass'), failed: count('fail'), green: code === 0 && totals !== '' };
}

async function runAll(filters: readonly string[]): Promise<Totals> {
  const files = testFiles(filters);
  await findRedis();
  await findBrowser(files);
  const isAlone = (file: string): boolean => file.endsWith('.alone.test.js');
  const parts = [
    await runTap(
      files.filter((file) => !isAlone(file)),
      JOBS,
    ),
    await runTap(files.filter(isAlone), 1),
  ];
  const passed = parts.reduce((sum, part) => sum + part.passed, 0);
  const failed = parts.reduce((sum, part) => sum + part.failed, 0);
  return { passed, failed, green: passed > 0 && failed === 0 && parts.every(({ green }) => green) };
}

const { passed, failed, green } = await runAll(process.argv.slice(2)).catch((error: unknown) => {
  console.error(error);
  return { passed: 0, failed: 1, green: false };
});
if (failures.length > 0) console.log(['', 'What failed:', ...failures, ''].join('\n'));
// A run that broke without a failed assertion, or that ran nothing, has failed all the same.
console.log(`${passed} passed, ${green ? 0 : Math.max(1, failed)} failed`);
process.exitCode = green ? 0 : 1;
