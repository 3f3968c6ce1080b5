/** The upstream of the measurements, as its starter holds it. */

import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { pin } from './cores.js';

export type SlowAnswer = { readonly target: string; readonly atMs: number };

export type BenchUpstream = {
  readonly url: string;
  readonly port: number;
  /** What was answered under `/slow/` so far. */
  readonly answers: readonly SlowAnswer[];
  stop(): Promise<void>;
};

export async function startUpstreamProgram(): Promise<BenchUpstream> {
  const child = fork(fileURLToPath(new URL('upstream-program.js', import.meta.url)), { stdio: 'inherit' });
  const [{ port }] = (await once(child, 'message')) as [{ port: number }];
  pin(child.pid!, 'load');
  const answers: SlowAnswer[] = [];
  child.on('message', ({ target, atNs }: { target: string; atNs: string }) => {
    answers.push({ target, atMs: Number(BigInt(atNs)) / 1e6 });
  });
  return {
    url: `http://127.0.0.1:${port}`,
    port,
    answers,
    stop: async () => {
      const gone = once(child, 'exit');
      child.disconnect();
      await gone;
    },
  };
}

/** The monotonic clock that all processes share, milliseconds. */
export function sharedNowMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}
