/**
 * What a request costs that is only forwarded: 1 KiB over 64 connections. Rounds are interleaved, so that what else
 * the machine does meets all alike, and every round has processes of its own, since a Node process settles
 * into a faster or a slower state. The figure to trust on a shared machine is the CPU time per request.
 */

import type { BenchOptions } from './bench-options.js';
import { cpuMsOf, type Measured } from './cores.js';
import { atLeast, atMost, type Findings, median, ratios, spread } from './figures.js';
import { startOneflight } from './peers.js';
import { load } from './wrk.js';

type Contender = { readonly name: string; start(): Promise<Measured> };
type Figures = { readonly cpuUs: number[]; readonly perSecond: number[] };

const LOGGED = 'Oneflight, access log on';
const PLAIN = 'Oneflight';
const BARE = 'node:http + undici';
const FASTIFY = '@fastify/http-proxy';

export async function pass({ quick, upstream, peers, tell }: BenchOptions): Promise<Findings> {
  const contenders: Contender[] = [
    { name: PLAIN, start: () => startOneflight(upstream.url, false) },
    { name: LOGGED, start: () => startOneflight(upstream.url, true) },
    ...peers.map(({ name, start }) => ({ name, start: () => start('pass', upstream.url) })),
  ];
  const figures = await compare(contenders, '/open/x', quick ? QUICK : FULL, tell);
  const of = (name: string) => figures.get(name) as Figures;
  const base = figures.get('nginx') ?? of(BARE);
  const baseName = figures.has('nginx') ? 'nginx' : BARE;
  return {
    tables: [
      {
        title: 'Forwarding: 1 KiB, 64 connections',
        head: ['', 'CPU per request, µs', `as a multiple of ${baseName}`, 'requests a second'],
        rows: [...figures].map(([name, { cpuUs, perSecond }]) => [
          name,
          spread(cpuUs, 1),
          spread(ratios(cpuUs, base.cpuUs), 2),
          spread(perSecond, 0),
        ]),
        note: 'Median and range over processes. `Oneflight` has rules of every policy, metrics, breaker, ejection, health checks, bounds and edits of fields on.',
      },
    ],
    verdicts: [
      atMost(`forwarding: CPU per request, to ${BARE}`, ratios(of(PLAIN).cpuUs, of(BARE).cpuUs), 1.15),
      atLeast(`forwarding: throughput, to ${FASTIFY}`, ratios(of(PLAIN).perSecond, of(FASTIFY).perSecond), 1.5),
      atMost(`forwarding with access log: CPU, to ${BARE}`, ratios(of(LOGGED).cpuUs, of(BARE).cpuUs), 1.3),
    ],
  };
}

type Pace = {
  readonly processes: number;
  readonly slices: number;
  readonly sliceS: number;
  readonly warmS: number;
};
const FULL: Pace = { processes: 3, slices: 5, sliceS: 1, warmS: 5 };
const QUICK: Pace = { processes: 1, slices: 1, sliceS: 1, warmS: 1 };

/** One figure per process, which is the middle of its slices. */
async function compare(
  contenders: readonly Contender[],
  path: string,
  { processes, slices, sliceS, warmS }: Pace,
  tell: BenchOptions['tell'],
): Promise<Map<string, Figures>> {
  const figures = new Map<string, Figures>(contenders.map(({ name }) => [name, { cpuUs: [], perSecond: [] }]));
  for (let process = 1; process <= processes; process += 1) {
    tell(`pass: processes ${process} of ${processes}`);
    const running = await startAll(contenders);
    try {
      for (const { measured } of running) await load(`${measured.url}${path}`, warmS);
      const taken = running.map(() => ({ cpuUs: [] as number[], perSecond: [] as number[] }));
      for (let slice = 0; slice < slices; slice += 1) {
        for (const [at, { measured }] of running.entries()) {
          const before = cpuMsOf(measured.pid);
          const requests = await load(`${measured.url}${path}`, sliceS);
          taken[at]!.cpuUs.push(((cpuMsOf(measured.pid) - before) * 1_000) / requests);
          taken[at]!.perSecond.push(requests / sliceS);
        }
      }
      for (const [at, { name }] of running.entries()) {
        figures.get(name)!.cpuUs.push(median(taken[at]!.cpuUs));
        figures.get(name)!.perSecond.push(median(taken[at]!.perSecond));
      }
    } finally {
      await Promise.all(running.map(({ measured }) => measured.stop()));
    }
  }
  return figures;
}

async function startAll(contenders: readonly Contender[]) {
  const running: { readonly name: string; readonly measured: Measured }[] = [];
  try {
    for (const { name, start } of contenders) running.push({ name, measured: await start() });
    return running;
  } catch (error) {
    await Promise.all(running.map(({ measured }) => measured.stop()));
    throw error;
  }
}
