/** From starting the program to the first answer on its port, as a client sees it that tries until there is one. */

import { setTimeout as sleep } from 'node:timers/promises';
import { BareClient } from './bare-client.js';
import type { BenchOptions } from './bench-options.js';
import { cpuMsOf } from './cores.js';
import { atMost, type Findings, spread } from './figures.js';
import { startOneflight } from './peers.js';

const TRY_EVERY_MS = 2;

export async function startUp({ quick, upstream }: BenchOptions): Promise<Findings> {
  const tookMs: number[] = [];
  const cpuMs: number[] = [];
  for (let i = 0; i < (quick ? 3 : 15); i += 1) {
    const beganMs = performance.now();
    const measured = await startOneflight(upstream.url, false);
    try {
      tookMs.push((await firstAnswerAtMs(measured.url)) - beganMs);
      cpuMs.push(cpuMsOf(measured.pid));
    } finally {
      await measured.stop();
    }
  }
  return {
    tables: [
      {
        title: 'Start to first answer',
        head: ['', 'median (range)'],
        rows: [
          ['time, ms', spread(tookMs, 0)],
          ['CPU time of the process until then, ms', spread(cpuMs, 0)],
        ],
        note: 'From the start of the process, with its configuration file, to the first byte of a coalesced response.',
      },
    ],
    verdicts: [atMost('start to first answer', tookMs, 400, ' ms', 0)],
  };
}

async function firstAnswerAtMs(url: string): Promise<number> {
  const client = new BareClient(url);
  await client.connected();
  client.get('/distinct/x');
  while (client.firstAtMs === null) await sleep(TRY_EVERY_MS);
  client.socket.destroy();
  return client.firstAtMs;
}
