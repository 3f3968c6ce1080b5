/**
 * Flights of one key over any number of gateways with Redis, and what they cost.
 *
 * Invariant: what it costs to know that all followers wait is measured by itself and taken off.
 */

import { Redis } from 'ioredis';
import { type BareClient, connectedClients } from './bare-client.js';
import { memoryOf, threadsMsOf } from './cores.js';
import { median } from './figures.js';
import { SentCommands } from './sent-commands.js';
import { type Stage, sharedRoute, startStage } from './stage.js';
import { load } from './wrk.js';

/** A measurement has so many requests at least, and so many flights. */
const LEAST_REQUESTS = 2_000;
const LEAST_FLIGHTS = 5;
const MOST_FLIGHTS = 100;
const CATCH_UPS = 50;
/** Commands are counted by having Redis tell of each, which costs it more than they do: in flights of their own. */
const COUNTED_FLIGHTS = 3;
const WARM_S = 3;

const ROUTES = [
  sharedRoute('hot', ['lease: 60s', 'wait: { max: 60s, poll: 30s }', 'maxFollowers: 20000', 'stallTimeout: 60s']),
  sharedRoute('distinct'),
].join('');

/** Gateways that have run for a while: nobody is to be measured in the state in which he starts. */
export async function startOver(gateways: number): Promise<Stage> {
  const stage = await startStage({ routes: ROUTES, gateways, store: 'redis' });
  for (const { url } of stage.gateways) await load(`${url}/distinct`, WARM_S, 'distinct');
  return stage;
}

/** What gateways and Redis have used since the beginning. */
type Used = {
  readonly cpuMs: number;
  /** Scripts that were called for: nearly all that is sent. */
  readonly scripts: number;
  readonly redisCpuMs: number;
  readonly redisBytes: number;
};

export async function usedOf({ gateways, redis }: Stage): Promise<Used> {
  const info = String(await redis?.command('INFO', 'everything'));
  const number = (name: string) => Number(new RegExp(`^${name}:([\\d.]+)`, 'm').exec(info)?.[1] ?? 0);
  return {
    cpuMs: gateways.reduce((sum, { pid }) => sum + threadsMsOf(pid), 0),
    scripts: Number(/^cmdstat_evalsha:calls=(\d+)/m.exec(info)?.[1] ?? 0),
    redisCpuMs: (number('used_cpu_user') + number('used_cpu_sys')) * 1_000,
    redisBytes: number('total_net_output_bytes') + number('total_net_input_bytes'),
  };
}

export function difference(after: Used, before: Used): Used {
  return {
    cpuMs: after.cpuMs - before.cpuMs,
    scripts: after.scripts - before.scripts,
    redisCpuMs: after.redisCpuMs - before.redisCpuMs,
    redisBytes: after.redisBytes - before.redisBytes,
  };
}

/** As many clients, over all gateways in turn. */
export async function connected({ gateways }: Stage, count: number): Promise<BareClient[]> {
  const shares = gateways.map((_, i) => Math.floor((count + i) / gateways.length)).reverse();
  const all = await Promise.all(gateways.map(({ url }, i) => connectedClients(url, shares[i] as number)));
  return all.flat();
}

type Burst = {
  /** What the followers cost while they wait. */
  readonly waitingKiB: number;
  /** From the upstream's answer to the last follower's first byte. */
  readonly lastMs: number;
};

export type Flights = Burst & {
  /** Of one flight. */
  readonly cpuMs: number;
  readonly commands: number;
  readonly redisCpuMs: number;
  readonly redisBytes: number;
  readonly peakMiB: number;
};

/** One flight: a leader, everybody else joins, the upstream answers, all have it. */
async function burst(stage: Stage, clients: readonly BareClient[], path: string, bytes: number): Promise<Burst> {
  const { gateways, upstream } = stage;
  const resident = () => gateways.reduce((sum, { pid }) => sum + memoryOf(pid).nowMiB, 0);
  const held = upstream.holds(path, { content: Buffer.alloc(bytes, 'x') });
  const idleMiB = resident();
  clients[0]!.get(path);
  const call = await held.arrived(1);
  for (const [i, client] of clients.entries()) {
    client.bytes = 0;
    client.firstAtMs = null;
    if (i > 0) client.get(path);
  }
  await catchUp(stage);
  const waitingKiB = ((resident() - idleMiB) * 1_024) / clients.length;
  held.release();
  await call.over;
  const answeredAtMs = performance.now();
  while (clients.some((client) => client.bytes < bytes)) await new Promise((resolve) => setTimeout(resolve, 5));
  if (upstream.count(path) !== 1) throw new Error(`${path}: ${upstream.count(path)} upstream calls`);
  const lastMs = Math.max(...clients.map(({ firstAtMs }) => firstAtMs ?? 0)) - answeredAtMs;
  return { waitingKiB, lastMs };
}

/** All have been read once requests behind them have been answered. */
async function catchUp({ gateways }: Stage): Promise<void> {
  for (const gateway of gateways) await gateway.caughtUp();
}

/** What is used by work that is done so many times, each time. */
async function usedBy(stage: Stage, times: number, work: (time: number) => Promise<void>) {
  const before = await usedOf(stage);
  for (let time = 0; time < times; time += 1) await work(time);
  const { cpuMs, redisCpuMs, redisBytes } = difference(await usedOf(stage), before);
  return { cpuMs: cpuMs / times, redisCpuMs: redisCpuMs / times, redisBytes: redisBytes / times };
}

/** Commands that Redis is sent by work that is done so many times, each time. */
async function commandsOf({ redis }: Stage, times: number, work: (time: number) => Promise<void>): Promise<number> {
  const client = new Redis(redis!.url);
  const sent = await SentCommands.watch(client);
  for (let time = 0; time < times; time += 1) await work(time);
  // What Redis tells of the last ones may still be on its way.
  await new Promise((resolve) => setTimeout(resolve, 100));
  sent.end();
  client.disconnect();
  return sent.count / times;
}

/** Some flights, behind some that warm up. */
export async function bursts(
  stage: Stage,
  clients: readonly BareClient[],
  name: string,
  bytes: number,
): Promise<Flights> {
  const flights = Math.min(MOST_FLIGHTS, Math.max(LEAST_FLIGHTS, Math.ceil(LEAST_REQUESTS / clients.length)));
  // Later ones find the memory that the first one has taken.
  const { waitingKiB } = await burst(stage, clients, `/hot/${name}-first`, bytes);
  for (let i = 0; i < flights / 2; i += 1) await burst(stage, clients, `/hot/${name}-warm-${i}`, bytes);
  await usedBy(stage, CATCH_UPS, () => catchUp(stage));
  const beside = await usedBy(stage, CATCH_UPS, () => catchUp(stage));
  const lastMs: number[] = [];
  const all = await usedBy(stage, flights, async (i) => {
    lastMs.push((await burst(stage, clients, `/hot/${name}-${i}`, bytes)).lastMs);
  });
  const commandsBeside = await commandsOf(stage, COUNTED_FLIGHTS, () => catchUp(stage));
  const commands = await commandsOf(stage, COUNTED_FLIGHTS, async (i) => {
    await burst(stage, clients, `/hot/${name}-counted-${i}`, bytes);
  });
  return {
    cpuMs: Math.max(0, all.cpuMs - beside.cpuMs),
    commands: commands - commandsBeside,
    redisCpuMs: Math.max(0, all.redisCpuMs - beside.redisCpuMs),
    redisBytes: Math.max(0, all.redisBytes - beside.redisBytes),
    waitingKiB,
    lastMs: median(lastMs),
    peakMiB: stage.gateways.reduce((sum, { pid }) => sum + memoryOf(pid).peakMiB, 0),
  };
}
