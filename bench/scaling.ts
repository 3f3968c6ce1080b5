/**
 * What growth costs: CPU, memory and Redis commands against followers of one key, rate of distinct keys, gateway processes
 * and size of the response. Tables go to standard output, plots to docs/scaling/.
 *
 *     npm run bench:scaling
 *
 * The upstream and the clients are this process, on a core of their own; gateways have the other one. CPU is that of the
 * gateways alone.
 */

import { mkdirSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { type BareClient, connectedClients, endAll } from './bare-client.js';
import { cpuMsOf, memoryOf, pin } from './cores.js';
import { median, tableText } from './figures.js';
import { type Plot, plotText } from './plot.js';
import { type Stage, startStage } from './stage.js';
import { load } from './wrk.js';

const FOLLOWERS = [1, 10, 100, 1_000, 10_000];
const CONNECTIONS = [1, 4, 16, 64, 256];
const PROCESSES = [1, 2, 3, 4];
const SIZES_KIB = [1, 16, 64, 256, 1_024, 4_096, 8_192];
const ROUNDS = 5;
const SECONDS = 4;
const OUT = new URL('../../docs/scaling/', import.meta.url);

const ROUTES = `
  - name: hot
    match: { path: /hot/* }
    policy: coalesce
    key: [ { request: path } ]
    identity: public
    lease: 60s
    wait: { max: 60s, poll: 30s }
    maxFollowers: 20000
    stallTimeout: 60s
  - name: distinct
    match: { path: /distinct/* }
    policy: coalesce
    key: [ { request: path } ]
    identity: public`;

const startOver = (gateways: number) => startStage({ routes: ROUTES, gateways, store: 'redis' });

/** What gateways and Redis have used since the beginning. */
type Used = {
  readonly cpuMs: number;
  readonly commands: number;
  readonly redisCpuMs: number;
  readonly redisBytes: number;
};

async function usedOf({ gateways, redis }: Stage): Promise<Used> {
  const info = String(await redis?.command('INFO', 'everything'));
  const number = (name: string) => Number(new RegExp(`^${name}:([\\d.]+)`, 'm').exec(info)?.[1] ?? 0);
  // What a script calls is not a command of its own on the wire.
  const sent = [
    ...info.matchAll(/^cmdstat_(evalsha|eval|get|getdel|publish|ping|hget|hgetall|script)[^:]*:calls=(\d+)/gm),
  ];
  return {
    cpuMs: gateways.reduce((sum, { pid }) => sum + cpuMsOf(pid), 0),
    commands: sent.reduce((sum, [, , calls]) => sum + Number(calls), 0),
    redisCpuMs: (number('used_cpu_user') + number('used_cpu_sys')) * 1_000,
    redisBytes: number('total_net_output_bytes') + number('total_net_input_bytes'),
  };
}

function difference(after: Used, before: Used): Used {
  return {
    cpuMs: after.cpuMs - before.cpuMs,
    commands: after.commands - before.commands,
    redisCpuMs: after.redisCpuMs - before.redisCpuMs,
    redisBytes: after.redisBytes - before.redisBytes,
  };
}

/** As many clients, over all gateways in turn. */
async function connected({ gateways }: Stage, count: number): Promise<BareClient[]> {
  const shares = gateways.map((_, i) => Math.floor((count + i) / gateways.length)).reverse();
  const all = await Promise.all(gateways.map(({ url }, i) => connectedClients(url, shares[i] as number)));
  return all.flat();
}

type Burst = Used & {
  /** What the followers cost while they wait. */
  readonly waitingKiB: number;
  /** From the upstream's answer to the last follower's first byte. */
  readonly lastMs: number;
  readonly peakMiB: number;
};

/** One flight: a leader, everybody else joins, the upstream answers, all have it. */
async function burst(stage: Stage, clients: readonly BareClient[], path: string, bytes: number): Promise<Burst> {
  const { gateways, upstream } = stage;
  const resident = () => gateways.reduce((sum, { pid }) => sum + memoryOf(pid).nowMiB, 0);
  const held = upstream.holds(path, { content: Buffer.alloc(bytes, 'x') });
  const idleMiB = resident();
  const before = await usedOf(stage);
  clients[0]!.get(path);
  const call = await held.arrived(1);
  for (const [i, client] of clients.entries()) {
    client.bytes = 0;
    client.firstAtMs = null;
    if (i > 0) client.get(path);
  }
  // All have been read once requests behind them have been answered.
  for (const gateway of gateways) await gateway.caughtUp();
  const waitingKiB = ((resident() - idleMiB) * 1_024) / clients.length;
  held.release();
  await call.over;
  const answeredAtMs = performance.now();
  while (clients.some((client) => client.bytes < bytes)) await new Promise((resolve) => setTimeout(resolve, 5));
  const used = difference(await usedOf(stage), before);
  if (upstream.count(path) !== 1) throw new Error(`${path}: ${upstream.count(path)} upstream calls`);
  const lastMs = Math.max(...clients.map(({ firstAtMs }) => firstAtMs ?? 0)) - answeredAtMs;
  const peakMiB = gateways.reduce((sum, { pid }) => sum + memoryOf(pid).peakMiB, 0);
  return { ...used, waitingKiB, lastMs, peakMiB };
}

/** The middle of some bursts behind one that warms up. */
async function bursts(stage: Stage, clients: readonly BareClient[], name: string, bytes: number): Promise<Burst> {
  const all: Burst[] = [];
  for (let round = 0; round <= ROUNDS; round += 1)
    all.push(await burst(stage, clients, `/hot/${name}-${round}`, bytes));
  const [first, ...rest] = all as [Burst, ...Burst[]];
  const middle = (of: (burst: Burst) => number) => median(rest.map(of));
  return {
    cpuMs: middle(({ cpuMs }) => cpuMs),
    commands: middle(({ commands }) => commands),
    redisCpuMs: middle(({ redisCpuMs }) => redisCpuMs),
    redisBytes: middle(({ redisBytes }) => redisBytes),
    // Later ones find the memory that the first one has taken.
    waitingKiB: first.waitingKiB,
    lastMs: middle(({ lastMs }) => lastMs),
    peakMiB: Math.max(...all.map(({ peakMiB }) => peakMiB)),
  };
}

function written(file: string, plot: Plot): void {
  writeFileSync(new URL(file, OUT), plotText(plot));
  console.error(`docs/scaling/${file}`);
}

async function byFollowers(): Promise<void> {
  const series: { followers: number; processes: number; burst: Burst }[] = [];
  for (const processes of [1, 2]) {
    for (const followers of FOLLOWERS) {
      const stage = await startOver(processes);
      const clients = await connected(stage, followers + 1);
      series.push({ followers, processes, burst: await bursts(stage, clients, `f${followers}`, 1_024) });
      endAll(clients);
      await stage.end();
    }
  }
  const lines = (of: (burst: Burst, followers: number) => number) =>
    [1, 2].map((processes) => ({
      name: processes === 1 ? '1 process' : `${processes} processes`,
      points: series
        .filter((one) => one.processes === processes)
        .map(({ followers, burst }) => [followers, of(burst, followers)] as const),
    }));
  const x = { x: 'followers of one key', xScale: 'log' } as const;
  written('followers-cpu.svg', {
    ...x,
    title: 'CPU per request of a burst, 1 KiB',
    y: 'µs',
    yScale: 'log',
    lines: lines(({ cpuMs }, followers) => Math.max(1, (cpuMs * 1_000) / (followers + 1))),
  });
  written('followers-redis.svg', {
    ...x,
    title: 'Redis commands of one flight',
    y: 'commands',
    yScale: 'linear',
    lines: lines(({ commands }) => commands),
  });
  console.log(
    tableText({
      title: 'Followers of one key',
      note: `1 KiB. Medians of ${ROUNDS} bursts.`,
      head: [
        'processes',
        'followers',
        'CPU per request, µs',
        'Redis commands',
        'waiting, KiB each',
        'last answer after, ms',
      ],
      rows: series.map(({ processes, followers, burst: { cpuMs, commands, waitingKiB, lastMs } }) => [
        String(processes),
        String(followers),
        ((cpuMs * 1_000) / (followers + 1)).toFixed(0),
        String(commands),
        followers < 1_000 ? '–' : waitingKiB.toFixed(1),
        lastMs.toFixed(1),
      ]),
    }),
  );
}

async function byKeys(): Promise<void> {
  const rows: {
    connections: number;
    perSecond: number;
    cpuUs: number;
    commands: number;
    redisUs: number;
    mib: number;
  }[] = [];
  const stage = await startOver(1);
  const url = `${stage.gateways[0].url}/distinct`;
  await load(url, SECONDS, 'distinct');
  for (const connections of CONNECTIONS) {
    const before = await usedOf(stage);
    const requests = await load(url, SECONDS, 'distinct', connections);
    const used = difference(await usedOf(stage), before);
    rows.push({
      connections,
      perSecond: requests / SECONDS,
      cpuUs: (used.cpuMs * 1_000) / requests,
      commands: used.commands / requests,
      redisUs: (used.redisCpuMs * 1_000) / requests,
      mib: memoryOf(stage.gateways[0].pid).nowMiB,
    });
  }
  await stage.end();
  const bySpeed = rows.toSorted((a, b) => a.perSecond - b.perSecond);
  written('keys-cpu.svg', {
    title: 'CPU per request, distinct keys',
    x: 'distinct keys per second',
    y: 'µs',
    xScale: 'linear',
    yScale: 'linear',
    xText: (value) => String(Math.round(value)),
    lines: [
      { name: 'gateway', points: bySpeed.map(({ perSecond, cpuUs }) => [perSecond, cpuUs] as const) },
      { name: 'Redis', points: bySpeed.map(({ perSecond, redisUs }) => [perSecond, redisUs] as const) },
    ],
  });
  console.log(
    tableText({
      title: 'Distinct keys',
      note: `Every request has a key of its own; 1 KiB; one gateway; ${SECONDS} s each.`,
      head: [
        'connections',
        'keys per second',
        'gateway CPU, µs',
        'Redis CPU, µs',
        'Redis commands',
        'gateway memory, MiB',
      ],
      rows: rows.map(({ connections, perSecond, cpuUs, redisUs, commands, mib }) => [
        String(connections),
        perSecond.toFixed(0),
        cpuUs.toFixed(0),
        redisUs.toFixed(1),
        commands.toFixed(2),
        mib.toFixed(0),
      ]),
    }),
  );
}

async function byProcesses(): Promise<void> {
  const rows: { processes: number; burst: Burst }[] = [];
  for (const processes of PROCESSES) {
    const stage = await startOver(processes);
    const clients = await connected(stage, 1_000);
    rows.push({ processes, burst: await bursts(stage, clients, `p${processes}`, 1_024) });
    endAll(clients);
    await stage.end();
  }
  written('processes-redis.svg', {
    title: 'Redis commands of one flight, 1,000 requests',
    x: 'gateway processes',
    y: 'commands',
    xScale: 'linear',
    yScale: 'linear',
    lines: [{ name: 'commands', points: rows.map(({ processes, burst }) => [processes, burst.commands] as const) }],
  });
  console.log(
    tableText({
      title: 'Gateway processes',
      note: '1,000 requests of one key over all of them, 1 KiB. All processes share one core.',
      head: ['processes', 'Redis commands', 'CPU per request, µs', 'Redis CPU per flight, ms', 'last answer after, ms'],
      rows: rows.map(({ processes, burst: { commands, cpuMs, redisCpuMs, lastMs } }) => [
        String(processes),
        String(commands),
        cpuMs.toFixed(0),
        redisCpuMs.toFixed(2),
        lastMs.toFixed(1),
      ]),
    }),
  );
}

async function bySize(): Promise<void> {
  const rows: { kib: number; burst: Burst }[] = [];
  for (const kib of SIZES_KIB) {
    const stage = await startOver(2);
    const clients = await connected(stage, 40);
    rows.push({ kib, burst: await bursts(stage, clients, `s${kib}`, kib * 1_024) });
    endAll(clients);
    await stage.end();
  }
  const x = { x: 'response, KiB', xScale: 'log' } as const;
  written('size-cpu.svg', {
    ...x,
    title: 'CPU per request, 40 requests over 2 processes',
    y: 'ms',
    yScale: 'log',
    lines: [
      { name: 'both gateways', points: rows.map(({ kib, burst }) => [kib, Math.max(0.01, burst.cpuMs / 40)] as const) },
    ],
  });
  written('size-memory.svg', {
    ...x,
    title: 'Highest memory of a process, 40 requests over 2',
    y: 'MiB',
    yScale: 'linear',
    lines: [{ name: 'one gateway', points: rows.map(({ kib, burst }) => [kib, burst.peakMiB / 2] as const) }],
  });
  console.log(
    tableText({
      title: 'Size of the response',
      note: '40 requests of one key over two processes.',
      head: [
        'KiB',
        'CPU per request, ms',
        'Redis commands',
        'bytes through Redis, KiB',
        'highest memory of one, MiB',
        'last first byte after, ms',
      ],
      rows: rows.map(({ kib, burst: { cpuMs, commands, redisBytes, peakMiB, lastMs } }) => [
        String(kib),
        (cpuMs / 40).toFixed(2),
        String(commands),
        (redisBytes / 1_024).toFixed(0),
        (peakMiB / 2).toFixed(0),
        lastMs.toFixed(1),
      ]),
    }),
  );
}

mkdirSync(fileURLToPath(OUT), { recursive: true });
pin(process.pid, 'load');
const parts = { followers: byFollowers, keys: byKeys, processes: byProcesses, size: bySize };
const wanted = process.argv.slice(2);
for (const [name, part] of Object.entries(parts)) if (wanted.length === 0 || wanted.includes(name)) await part();
