/**
 * Checks docs/model/flight.pml with spin: the model becomes a C program, and the program visits every state.
 *
 * Spin is the one on PATH or Debian's own (support/debian-package.ts); the C compiler has to be there.
 */

import { execFile } from 'node:child_process';
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { onPath, type Program, programOf } from '../support/debian-package.js';

const MODEL = fileURLToPath(new URL('../../../docs/model/flight.pml', import.meta.url));
const COMPILERS = ['gcc', 'cc', 'clang'];
/** Longest path that is followed, in steps; a longer one is an error and not passed over. */
const DEPTH = 200_000;
/** Bits of the table of states. */
const TABLE_BITS = 22;
const CHECK_MS = 600_000;

export type Tools = { readonly spin: Program; readonly compiler: string };

export type Checked = {
  /** What is wrong, in spin's words; null: nothing is. */
  readonly error: string | null;
  readonly states: number;
  /** The steps that lead to it; empty when nothing is wrong. */
  readonly trail: string;
};

/** Rejects with one line that says what to install. */
export async function findTools(): Promise<Tools> {
  const compiler = COMPILERS.map(onPath).find((path) => path !== null);
  if (compiler === undefined) {
    throw new Error(`no C compiler on PATH (${COMPILERS.join(', ')}), which spin needs: install gcc`);
  }
  try {
    const spin = await programOf({ name: 'spin', programs: ['spin'], packages: ['spin'], path: 'usr/bin/spin' });
    await run(spin.path, ['-V'], { env: spin.env });
    return { spin, compiler };
  } catch (cause) {
    throw new Error('no spin on PATH, and none could be fetched: install spin', { cause });
  }
}

/** Checks the model with these definitions (`NO_POLL`, `GATEWAYS=3`). Rejects when it could not be checked whole. */
export async function checkModel({ spin, compiler }: Tools, definitions: readonly string[]): Promise<Checked> {
  const cwd = mkdtempSync(join(tmpdir(), 'oneflight-model-'));
  try {
    cpSync(MODEL, join(cwd, 'flight.pml'));
    const model = [`-P${compiler} -E -x c`, ...definitions.map((one) => `-D${one}`)];
    const options = { cwd, env: spin.env };
    await run(spin.path, ['-a', ...model, 'flight.pml'], options);
    await run(compiler, ['-O1', '-DSAFETY', '-DNOCLAIM', '-DCOLLAPSE', '-o', 'pan', 'pan.c'], options);
    const { stdout } = await run('./pan', [`-m${DEPTH}`, `-w${TABLE_BITS}`], { ...options, timeout: CHECK_MS });
    const said = String(stdout);
    const error = /^pan:1: (.*)$/m.exec(said)?.[1] ?? null;
    const states = Number(/^ *(\S+) states, stored/m.exec(said)?.[1]);
    // Whatever kept it from visiting all states (memory, depth) says so in its own words, and is no result.
    const whole = /errors: 0$/m.test(said) && !/max search depth too small|Search not completed/.test(said);
    if (error === null && !whole) throw new Error(`the model was not checked whole:\n${said}`);
    const trail =
      error === null ? '' : String((await run(spin.path, ['-t', '-p', ...model, 'flight.pml'], options)).stdout);
    return { error, states, trail };
  } finally {
    rmSync(cwd, { recursive: true, force: true });
  }
}

function run(program: string, words: readonly string[], options: object): Promise<{ stdout: string }> {
  return new Promise((resolve, reject) => {
    execFile(program, words, { maxBuffer: 64 * 1_048_576, ...options }, (error, stdout, stderr) => {
      if (error === null) resolve({ stdout: String(stdout) });
      else reject(new Error(`${program} ${words.join(' ')}: ${error.message}\n${stdout}${stderr}`));
    });
  });
}
