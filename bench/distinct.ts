/**
 * What a key costs that nobody else has: 1 KiB over 64 connections, every request with a key of its own, beside the same
 * requests on a route without a key, in the same process.
 */

import { startRedis } from '../test/support/redis.js';
import type { BenchOptions } from './bench-options.js';
import { cpuMsOf, type Measured, pin } from './cores.js';
import { atLeast, type Findings, median, ratios, spread } from './figures.js';
import { startOneflight } from './peers.js';
import { load } from './wrk.js';

const KINDS = [
  { name: 'no key', store: 'memory', path: '/open/x' },
  { name: 'coalesce, memory', store: 'memory', path: '/distinct/x' },
  { name: 'no key, beside Redis', store: 'redis', path: '/open/x' },
  { name: 'coalesce, Redis', store: 'redis', path: '/distinct/x' },
] as const;

type Figures = { readonly cpuUs: number[]; readonly perSecond: number[] };

export async function distinct({ quick, upstream, tell }: BenchOptions): Promise<Findings> {
  const [processes, slices, sliceS, warmS] = quick ? [1, 1, 1, 1] : [3, 5, 1, 5];
  const redis = await startRedis();
  pin(redis.pid, 'load');
  const figures: Figures[] = KINDS.map(() => ({ cpuUs: [], perSecond: [] }));
  try {
    for (let process = 1; process <= processes; process += 1) {
      tell(`distinct: processes ${process} of ${processes}`);
      const running: Record<'memory' | 'redis', Measured> = {
        memory: await startOneflight(upstream.url, false),
        redis: await startOneflight(upstream.url, false, `{ kind: redis, url: "${redis.url}" }`),
      };
      try {
        for (const { store, path } of KINDS) await load(`${running[store].url}${path}`, warmS, 'distinct');
        const taken: Figures[] = KINDS.map(() => ({ cpuUs: [], perSecond: [] }));
        for (let slice = 0; slice < slices; slice += 1) {
          for (const [at, { store, path }] of KINDS.entries()) {
            const { pid, url } = running[store];
            const before = cpuMsOf(pid);
            const requests = await load(`${url}${path}`, sliceS, 'distinct');
            taken[at]!.cpuUs.push(((cpuMsOf(pid) - before) * 1_000) / requests);
            taken[at]!.perSecond.push(requests / sliceS);
          }
        }
        for (const [at, { cpuUs, perSecond }] of taken.entries()) {
          figures[at]!.cpuUs.push(median(cpuUs));
          figures[at]!.perSecond.push(median(perSecond));
        }
      } finally {
        await Promise.all([running.memory.stop(), running.redis.stop()]);
      }
    }
  } finally {
    await redis.stop();
  }
  const [open, memory, openRedis, inRedis] = figures as [Figures, Figures, Figures, Figures];
  return {
    tables: [
      {
        title: 'Keys that nobody else has: 1 KiB, 64 connections',
        head: ['', 'CPU per request, µs', 'requests a second'],
        rows: figures.map(({ cpuUs, perSecond }, at) => [KINDS[at]!.name, spread(cpuUs, 1), spread(perSecond, 0)]),
        note: 'Goals are judged by requests per second of CPU of the gateway, which is what limits it; Redis and the load share the other core.',
      },
    ],
    verdicts: [
      atLeast('distinct keys with Redis, to forwarding', ratios(openRedis.cpuUs, inRedis.cpuUs), 0.55),
      atLeast('distinct keys in memory, to forwarding', ratios(open.cpuUs, memory.cpuUs), 0.85),
    ],
  };
}
