/** One run of the built program: its exit code and what it wrote. */

import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const PROGRAM = fileURLToPath(new URL('../../bin/main.js', import.meta.url));

export type Ran = { readonly code: number | null; readonly stdout: string; readonly stderr: string };
export type RunOptions = {
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
  /** On standard input. */
  readonly input?: string;
};

/** Runs a command to its end. Of the environment of the tests it has the path only. */
export function runProgram(args: readonly string[], { cwd, env = {}, input = '' }: RunOptions = {}): Promise<Ran> {
  const { PATH = '' } = process.env;
  const child = spawn(process.execPath, [PROGRAM, ...args], {
    ...(cwd === undefined ? {} : { cwd }),
    env: { PATH, ...env },
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  let stdout = '';
  let stderr = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  // Most commands read nothing.
  child.stdin.on('error', () => {});
  child.stdin.end(input);
  return new Promise((resolve) => child.once('close', (code) => resolve({ code, stdout, stderr })));
}
