/**
 * A burst of 5,000 clients with one key, whose upstream takes 200 ms: how many calls reach the upstream, and how long after
 * the upstream's answer the last client has its own. Connections are open before, rounds are interleaved.
 */

import { allHave, connectedClients, endAll } from './bare-client.js';
import type { BenchOptions } from './bench-options.js';
import type { Measured } from './cores.js';
import { atMost, type Findings, ratios, spread } from './figures.js';
import { firstLine, startOneflight } from './peers.js';
import { type BenchUpstream, sharedNowMs } from './upstream.js';
import { load } from './wrk.js';

const CLIENTS = 5_000;
const ANSWER_BYTES = 1_025;
const LONGEST_MS = 60_000;
const REST_MS = 1_500;
const WARM_S = 3;

type Figures = { readonly lateMs: number[]; readonly calls: number[] };

export async function burst({ quick, upstream, peers, tell }: BenchOptions): Promise<Findings> {
  const contenders = [
    { name: 'Oneflight', start: () => startOneflight(upstream.url, false) },
    ...peers
      .filter(({ collapses }) => collapses)
      .map(({ name, start }) => ({ name, start: () => start('collapse', upstream.url) })),
  ];
  const figures = new Map<string, Figures>();
  for (let round = 0; round < (quick ? 1 : 3); round += 1) {
    for (const { name, start } of contenders) {
      tell(`burst: ${name}`);
      const measured = await start();
      try {
        const { lateMs, calls } = await one(measured, upstream, `${round}-${name}`, quick);
        const so = figures.get(name) ?? { lateMs: [], calls: [] };
        so.lateMs.push(lateMs);
        so.calls.push(calls);
        figures.set(name, so);
      } catch (error) {
        tell(`burst: ${name} is left out of this round: ${firstLine(error)}`);
      } finally {
        await measured.stop();
      }
    }
  }
  const late = (name: string) => figures.get(name)?.lateMs ?? [];
  const own = figures.get('Oneflight') as Figures;
  const compared = [
    ['nginx', 'nginx proxy_cache_lock', 0.3],
    ['trafficserver', 'Traffic Server', 0.6],
  ] as const;
  return {
    tables: [
      {
        title: `A burst of ${CLIENTS} on one key, upstream 200 ms`,
        head: ['', 'upstream calls', 'last answer after the upstream’s, ms'],
        rows: [...figures].map(([name, { calls, lateMs }]) => [name, spread(calls, 0), spread(lateMs, 0)]),
        note: 'Median and range over processes. The clients, on one core, take a part of that time themselves.',
      },
    ],
    verdicts: [
      atMost('burst: upstream calls', own.calls, 1, '', 0),
      ...compared
        .filter(([name]) => late(name).length > 0)
        .map(([name, what, bound]) => atMost(`burst: last answer, to ${what}`, ratios(own.lateMs, late(name)), bound)),
    ],
  };
}

async function one({ url }: Measured, upstream: BenchUpstream, id: string, quick: boolean) {
  // Nobody is to be measured in the state in which he starts.
  await load(`${url}/distinct/x`, quick ? 1 : WARM_S, 'distinct');
  const clients = await connectedClients(url, CLIENTS);
  try {
    if (!quick) {
      await ask(clients, upstream, `/slow/first-${id}`);
      await new Promise((resolve) => setTimeout(resolve, REST_MS));
    }
    return await ask(clients, upstream, `/slow/${id}`);
  } finally {
    endAll(clients);
  }
}

async function ask(clients: Parameters<typeof allHave>[0], upstream: BenchUpstream, target: string) {
  for (const client of clients) client.get(target);
  await allHave(clients, ANSWER_BYTES, LONGEST_MS);
  const answers = upstream.answers.filter((answer) => answer.target === target);
  const toShared = sharedNowMs() - performance.now();
  let lastMs = 0;
  for (const { lastAtMs } of clients) lastMs = Math.max(lastMs, lastAtMs);
  return { calls: answers.length, lateMs: lastMs + toShared - (answers[0]?.atMs ?? Number.NaN) };
}
