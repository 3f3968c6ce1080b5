/** Prometheus' own checker: on PATH, else Debian's, unpacked without root into the user's cache folder. */

import { spawn } from 'node:child_process';
import { type Program, programOf } from './debian-package.js';

export type Checked = { readonly code: number | null; readonly said: string };

/** Runs promtool to its end. Rejects with one line that says what to install. */
export async function promtool(args: readonly string[], input = ''): Promise<Checked> {
  const { path, env } = await findPromtool();
  const child = spawn(path, args, { env, stdio: ['pipe', 'pipe', 'pipe'] });
  let said = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      said += text;
    });
  }
  child.stdin.on('error', () => {});
  child.stdin.end(input);
  const code = await new Promise<number | null>((done, fail) => child.once('error', fail).once('close', done));
  return { code, said };
}

let found: Promise<Program> | null = null;

function findPromtool(): Promise<Program> {
  found ??= programOf({
    name: 'prometheus',
    programs: ['promtool'],
    packages: ['prometheus'],
    path: 'usr/bin/promtool',
  }).catch((cause: unknown) => {
    throw new Error('no promtool on PATH, and none could be fetched: install prometheus', { cause });
  });
  return found;
}
