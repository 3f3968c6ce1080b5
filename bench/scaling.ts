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
import { endAll } from './bare-client.js';
import { memoryOf, pin } from './cores.js';
import { tableText } from './figures.js';
import { bursts, connected, difference, type Flights, startOver, usedOf } from './grown.js';
import { type Plot, plotText } from './plot.js';
import { load } from './wrk.js';

const FOLLOWERS = [1, 10, 100, 1_000, 10_000];
const CONNECTIONS = [1, 4, 16, 64, 256];
const PROCESSES = [1, 2, 3, 4];
const SIZES_KIB = [1, 16, 64, 256, 1_024, 4_096, 8_192];
const SECONDS = 4;
const OUT = new URL('../../docs/scaling/', import.meta.url);

function written(file: string, plot: Plot): void {
  writeFileSync(new URL(file, OUT), plotText(plot));
  console.error(`docs/scaling/${file}`);
}

async function byFollowers(): Promise<void> {
  const series: { followers: number; processes: number; burst: Flights }[] = [];
  for (const processes of [1, 2]) {
    for (const followers of FOLLOWERS) {
      const stage = await startOver(processes);
      const clients = await connected(stage, followers + 1);
      series.push({ followers, processes, burst: await bursts(stage, clients, `f${followers}`, 1_024) });
      endAll(clients);
      await stage.end();
    }
  }
  const lines = (of: (burst: Flights, followers: number) => number) =>
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
    lines: lines(({ cpuMs }, followers) => (cpuMs * 1_000) / (followers + 1)),
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
      note: '1 KiB, a new connection to nobody: all are open before.',
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
        commands.toFixed(1),
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
  for (const connections of CONNECTIONS) {
    const before = await usedOf(stage);
    const requests = await load(url, SECONDS, 'distinct', connections);
    const used = difference(await usedOf(stage), before);
    rows.push({
      connections,
      perSecond: requests / SECONDS,
      cpuUs: (used.cpuMs * 1_000) / requests,
      commands: used.scripts / requests,
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
  const rows: { processes: number; burst: Flights }[] = [];
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
        commands.toFixed(1),
        cpuMs.toFixed(0),
        redisCpuMs.toFixed(2),
        lastMs.toFixed(1),
      ]),
    }),
  );
}

async function bySize(): Promise<void> {
  const rows: { kib: number; burst: Flights }[] = [];
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
        commands.toFixed(1),
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
