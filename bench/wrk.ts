/** `wrk`: the one load generator at hand that is faster than the proxies it loads. */

import { execFile } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type Program, programOf } from '../test/support/debian-package.js';
import { newFolder } from './cores.js';

const run = promisify(execFile);

export const CONNECTIONS = 64;
/** What a client of an API sends. */
const FIELDS = ['User-Agent: bench/1.0', 'Accept: application/json', 'Authorization: Bearer c2VjcmV0LXRva2Vu'];

let program: Promise<Program> | null = null;
let countingScript: string | null = null;

/** Finds wrk, or fetches it. */
export function wrkProgram(): Promise<Program> {
  program ??= programOf({ name: 'wrk', programs: ['wrk'], packages: ['wrk'], path: 'usr/bin/wrk' });
  return program;
}

/** Loads the URL for so many seconds; answers how many requests were answered. Every answer must be a 2xx. */
export async function load(
  url: string,
  seconds: number,
  keys: 'one' | 'distinct' = 'one',
  connections = CONNECTIONS,
): Promise<number> {
  const { path, env } = await wrkProgram();
  const script = keys === 'one' ? [] : ['-s', scriptOfDistinct()];
  const fields = FIELDS.flatMap((field) => ['-H', field]);
  const args = ['-t1', `-c${connections}`, `-d${seconds}s`, '--timeout', '20s', ...fields, ...script, url];
  const { stdout } = await run(path, args, { env });
  const fault = /^\s*(Non-2xx.*|Socket errors.*)$/m.exec(stdout)?.[1];
  if (fault !== undefined) throw new Error(`${url}: ${fault}`);
  return Number(/(\d+) requests in/.exec(stdout)?.[1] ?? Number.NaN);
}

/** Each request under a path that none had before. */
function scriptOfDistinct(): string {
  if (countingScript === null) {
    const folder = newFolder();
    process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
    countingScript = join(folder, 'distinct.lua');
    const text = [
      'local n, run = 0, string.format("%x", math.floor(os.clock() * 1e6) + os.time() * 1000)',
      'local prefix',
      'function init() prefix = wrk.path .. "/" .. run .. "-" end',
      'function request() n = n + 1; return wrk.format("GET", prefix .. n) end',
    ];
    writeFileSync(countingScript, text.join('\n'));
  }
  return countingScript;
}
