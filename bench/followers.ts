/**
 * Ten thousand followers of one key: how long the gateway's event loop is held up by their release, and what each costs
 * in memory. The loop's delay is the gateway's own (`nodejs_eventloop_lag_max_seconds`, perf_hooks), which is the longest
 * time between two ticks of a timer: what it is while they only wait is taken off.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { allHave, connectedClients, endAll } from './bare-client.js';
import type { BenchOptions } from './bench-options.js';
import { memoryOf } from './cores.js';
import { atMost, type Findings, median, spread } from './figures.js';
import { sharedRoute, startStage } from './stage.js';

const FOLLOWERS = 10_000;
const CONTENT = Buffer.alloc(1_024, 'x');
const LONGEST_MS = 60_000;
const ROUTES = sharedRoute('hot', ['wait: 60s', 'maxFollowers: 20000']);

export async function followers({ quick, tell }: BenchOptions): Promise<Findings> {
  const perFollowerKiB: number[] = [];
  const heldUpMs: number[] = [];
  const spreadsMs: number[] = [];
  for (let process = 0; process < (quick ? 1 : 3); process += 1) {
    tell(`followers: processes ${process + 1}`);
    const stage = await startStage({ routes: ROUTES });
    const { gateways, upstream } = stage;
    const [gateway] = gateways;
    const lagMs = async () => (await gateway.metrics()).sum('nodejs_eventloop_lag_max_seconds') * 1_000;
    try {
      const clients = await connectedClients(gateway.url, FOLLOWERS);
      const rests: number[] = [];
      const releases: number[] = [];
      for (let round = 0; round < (quick ? 2 : 5); round += 1) {
        const idleMiB = memoryOf(gateway.pid).nowMiB;
        const path = `/hot/${round}`;
        const held = upstream.holds(path, { content: CONTENT });
        clients[0]!.get(path);
        await held.arrived(1);
        for (const client of clients.slice(1)) client.get(path);
        await gateway.caughtUp();
        await sleep(2_000);
        // Later rounds find the heap grown by those before.
        if (round === 0) perFollowerKiB.push(((memoryOf(gateway.pid).nowMiB - idleMiB) * 1_024) / FOLLOWERS);
        await lagMs();
        await sleep(500);
        rests.push(await lagMs());
        const beganMs = performance.now();
        held.release();
        await allHave(clients, CONTENT.length + 1, LONGEST_MS);
        spreadsMs.push(Math.max(...clients.map(({ firstAtMs }) => firstAtMs ?? Number.NaN)) - beganMs);
        releases.push(await lagMs());
        if (upstream.count(path) !== 1) throw new Error(`${upstream.count(path)} upstream calls`);
      }
      heldUpMs.push(...releases.map((ms) => ms - median(rests)));
      endAll(clients);
    } finally {
      await stage.end();
    }
  }
  return {
    tables: [
      {
        title: 'Ten thousand followers of one key',
        head: ['', 'median (range)'],
        rows: [
          ['event loop held up by their release, ms', spread(heldUpMs, 1)],
          ['last follower answered after, ms', spread(spreadsMs, 0)],
          ['memory of a waiting follower beyond its connection, KiB', spread(perFollowerKiB, 1)],
        ],
        note: 'One upstream call each round. Memory is resident memory of the process, garbage that is not collected yet included.',
      },
    ],
    verdicts: [
      atMost('memory of a follower that waits, of 10,000', perFollowerKiB, 2, ' KiB', 1),
      atMost('event loop held up when 10,000 followers are released', heldUpMs, 10, ' ms', 1),
    ],
  };
}
