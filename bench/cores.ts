/**
 * Two cores: one for what is measured, one for everything that loads it. And what a process has used of the one.
 *
 * Invariant: CPU time counts the whole process, all its threads, and every process it has started that still runs.
 */

import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, openSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { keep } from '../test/support/gateway.js';
import { reachable } from './reachable.js';

const LOAD_CORE = '0';
const MEASURED_CORE = '1';
/** Milliseconds per tick of /proc (USER_HZ is 100 wherever Linux runs). */
const TICK_MS = 10;
const START_MS = 20_000;

/** Whether there are cores to pin to, and the tool to do it. */
export const pins = availableParallelism() > 1 && hasTaskset();

function hasTaskset(): boolean {
  try {
    execFileSync('taskset', ['--version'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

/** Puts a running process, and the threads it has, on the core of what loads or on that of what is measured. */
export function pin(pid: number, to: 'load' | 'measured'): void {
  if (pins) {
    const core = to === 'load' ? LOAD_CORE : MEASURED_CORE;
    execFileSync('taskset', ['-a', '-c', '-p', core, String(pid)], { stdio: 'ignore' });
  }
}

/** The words of a command that is run on the core of what is measured. */
export function onMeasuredCore(words: readonly string[]): readonly string[] {
  return pins ? ['taskset', '-c', MEASURED_CORE, ...words] : words;
}

/** CPU time of the threads of a process, milliseconds, to the microsecond: `cpuMsOf` counts ticks of the clock. */
export function threadsMsOf(pid: number): number {
  let ns = 0;
  for (const thread of readdirSync(`/proc/${pid}/task`)) {
    ns += Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ', 1)[0]);
  }
  return ns / 1e6;
}

/** CPU time of a process and its children since they began, milliseconds. */
export function cpuMsOf(pid: number): number {
  const usage = new Map<number, { readonly parent: number; readonly ticks: number }>();
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    try {
      // The name of the program stands in brackets and may hold anything.
      const stat = readFileSync(`/proc/${name}/stat`, 'utf8');
      const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      usage.set(Number(name), { parent: Number(fields[1]), ticks: Number(fields[11]) + Number(fields[12]) });
    } catch {
      // It has ended meanwhile.
    }
  }
  const belongs = (one: number): boolean => one === pid || (usage.has(one) && belongs(usage.get(one)!.parent));
  let ticks = 0;
  for (const [one, use] of usage) if (belongs(one)) ticks += use.ticks;
  return ticks * TICK_MS;
}

/** Resident memory of a process now, and at its highest, MiB. */
export function memoryOf(pid: number): { readonly nowMiB: number; readonly peakMiB: number } {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const kib = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(status)?.[1] ?? 0);
  return { nowMiB: kib('VmRSS') / 1_024, peakMiB: kib('VmHWM') / 1_024 };
}

export type Command = {
  readonly program: string;
  readonly args: readonly string[];
  readonly env?: NodeJS.ProcessEnv;
  /** Where it listens when it is ready. */
  readonly url: string;
};

/** A program that is measured, on the core for that; what it writes is kept in a folder of its own. */
export class Measured {
  readonly url: string;
  readonly #child: ChildProcess;
  readonly #folder: string;
  readonly #exited: Promise<unknown>;

  private constructor(command: Command, folder: string) {
    this.url = command.url;
    this.#folder = folder;
    const [program = '', ...args] = onMeasuredCore([command.program, ...command.args]);
    const out = openSync(join(folder, 'out'), 'a');
    this.#child = spawn(program, args, { env: command.env ?? process.env, stdio: ['ignore', out, out] });
    this.#exited = once(this.#child, 'exit').catch(() => {});
  }

  /** `folder` holds what the program needs; it goes with the program. */
  static async start(command: Command, folder: string = newFolder()): Promise<Measured> {
    const measured = new Measured(command, folder);
    keep('started', measured.pid);
    const deadline = performance.now() + START_MS;
    while (!(await reachable(command.url))) {
      if (measured.#child.exitCode !== null || performance.now() > deadline) {
        const said = readFileSync(join(folder, 'out'), 'utf8').split('\n').slice(-8).join('\n');
        await measured.stop();
        throw new Error(`${command.program} did not start:\n${said}`);
      }
      await sleep(5);
    }
    return measured;
  }

  get pid(): number {
    return this.#child.pid!;
  }

  async stop(): Promise<void> {
    this.#child.kill('SIGTERM');
    const late = setTimeout(() => this.#child.kill('SIGKILL'), 1_000);
    await this.#exited;
    clearTimeout(late);
    keep('ended', this.pid);
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

export function newFolder(): string {
  return mkdtempSync(join(tmpdir(), 'oneflight-bench-'));
}
