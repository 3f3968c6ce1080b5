/**
 * What it takes until a flight's response is at its followers in other processes, and what that asks of Redis.
 *
 * The time is from the upstream's last byte to each follower's first: the leader's process reads and settles in it, which
 * the wake-up alone would not be charged with. Commands are those that Redis is sent (MONITOR), not what scripts do inside.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { allCaughtUp } from '../test/support/gateway.js';
import { allHave, connectedClients, endAll } from './bare-client.js';
import type { BenchOptions } from './bench-options.js';
import { atMost, type Findings, median, quantile } from './figures.js';
import { SentCommands } from './sent-commands.js';
import { type Stage, sharedRoute, startStage } from './stage.js';

const FOLLOWERS = 50;
const CONTENT = Buffer.alloc(1_024, 'x');
/** Long enough for everything to have gone to sleep. */
const IDLE_MS = 150;
const LONGEST_MS = 20_000;
const ROUTES = sharedRoute('hot', ['wait: 60s']);

export async function wakeUp({ quick }: BenchOptions): Promise<Findings> {
  const stage = await startStage({ routes: ROUTES, gateways: 3, store: 'redis' });
  const client = new Redis(stage.redis!.url);
  try {
    await round(stage, 'warm', FOLLOWERS, 1);
    const wakes: number[] = [];
    const trips: number[] = [];
    for (let i = 0; i < (quick ? 5 : 100); i += 1) {
      wakes.push(...(await round(stage, `wake-${i}`, FOLLOWERS, 1)));
      await sleep(IDLE_MS);
      const sentMs = performance.now();
      await client.ping();
      trips.push(performance.now() - sentMs);
    }
    const trip = median(trips);
    const rows: string[][] = [];
    const perFlight: number[] = [];
    for (const [followers, processes] of [
      [1, 1],
      [50, 1],
      [500, 1],
      [50, 2],
      [500, 2],
    ] as const) {
      const commands = await commandsOf(stage, client, followers, processes, quick ? 2 : 5);
      perFlight.push(commands - processes);
      rows.push([String(followers), String(processes), commands.toFixed(2)]);
    }
    return {
      tables: [
        {
          title: `A follower in another process, ${FOLLOWERS} of them, 1 KiB`,
          head: ['', 'p50, ms', 'p99, ms'],
          rows: [
            ['from the upstream’s answer to the follower’s', ...[0.5, 0.99].map((q) => quantile(wakes, q).toFixed(2))],
            ['cold Redis round trip (PING)', ...[0.5, 0.99].map((q) => quantile(trips, q).toFixed(2))],
          ],
          note: `${trips.length} flights, everything idle for ${IDLE_MS} ms before each.`,
        },
        {
          title: 'Redis commands of one flight',
          head: ['followers per waiting process', 'waiting processes', 'commands'],
          rows,
          note: 'Sent by all gateways together, the leader’s among them.',
        },
      ],
      verdicts: [
        atMost('wake-up in another process: p50, to a cold Redis round trip', [quantile(wakes, 0.5) / trip], 2),
        atMost('wake-up in another process: p99, to a cold Redis round trip', [quantile(wakes, 0.99) / trip], 6),
        atMost('Redis commands per flight, beside one per waiting process', perFlight, 2, '', 1),
      ],
    };
  } finally {
    client.disconnect();
    await stage.end();
  }
}

/** One flight led by the first gateway; answers the wake-ups of followers in as many of the others. */
async function round(stage: Stage, id: string, followers: number, processes: number): Promise<number[]> {
  const { gateways, upstream } = stage;
  const held = upstream.holds(`/hot/${id}`, { content: CONTENT });
  const [leader] = await connectedClients(gateways[0].url, 1);
  leader!.get(`/hot/${id}`);
  await held.arrived(1);
  const waitingAt = gateways.slice(1, 1 + processes);
  const waiting = (await Promise.all(waitingAt.map(({ url }) => connectedClients(url, followers)))).flat();
  for (const client of waiting) client.get(`/hot/${id}`);
  await allCaughtUp(waitingAt);
  await sleep(IDLE_MS);
  const beganMs = performance.now();
  held.release();
  await allHave([leader!, ...waiting], CONTENT.length + 1, LONGEST_MS);
  if (upstream.count(`/hot/${id}`) !== 1) throw new Error(`${upstream.count(`/hot/${id}`)} upstream calls`);
  endAll([leader!, ...waiting]);
  return waiting.map(({ firstAtMs }) => (firstAtMs ?? Number.NaN) - beganMs);
}

/** Commands that the gateways send per flight. Those of the requests by which the followers are known to wait are taken off. */
async function commandsOf(stage: Stage, client: Redis, followers: number, processes: number, flights: number) {
  const waitingAt = stage.gateways.slice(1, 1 + processes);
  const own = await sentDuring(client, () => allCaughtUp(waitingAt));
  const all = await sentDuring(client, async () => {
    for (let i = 0; i < flights; i += 1) {
      await round(stage, `commands-${followers}-${processes}-${i}`, followers, processes);
    }
  });
  return all / flights - own;
}

/** How many commands Redis is sent meanwhile. */
async function sentDuring(client: Redis, work: () => Promise<unknown>): Promise<number> {
  const sent = await SentCommands.watch(client);
  await work();
  await sleep(IDLE_MS);
  sent.end();
  return sent.count;
}
