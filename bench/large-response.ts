/**
 * 100 MiB of unknown length through a leader and 20 followers of one process: at the pace of an upstream that sends
 * 10 MiB a second, as fast as it goes, and beside two readers of 10 KB/s. When the followers' first byte comes, what the fast
 * ones see of the slow ones, and what memory the gateway needs.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { chunkBytes, lastChunkBytes } from '../test/support/wire.js';
import { allHave, connectedClients, endAll } from './bare-client.js';
import type { BenchOptions } from './bench-options.js';
import { memoryOf } from './cores.js';
import { atMost, type Findings, median, spread } from './figures.js';
import { sharedRoute, startStage } from './stage.js';

const MEBI = 1_048_576;
const TOTAL = 100 * MEBI;
const PIECE = Buffer.alloc(64 * 1_024, 'x');
const PACE = 10 * MEBI;
const SLOW = 10_000;
const FOLLOWERS = 20;
/** `maxShared` of the rule, its default. */
const MAX_SHARED_MIB = 8;
const LONGEST_MS = 60_000;
const ROUTES = sharedRoute('large', ['stallTimeout: 2s']);

type Kind = { readonly name: string; readonly bytesPerSecond: number; readonly slow: number };
type Run = { readonly tookMs: number; readonly aboveIdleMiB: number; readonly firstByteRatio: number };

const KINDS: readonly Kind[] = [
  { name: 'upstream at 10 MiB/s', bytesPerSecond: PACE, slow: 0 },
  { name: 'as fast as it goes', bytesPerSecond: Number.POSITIVE_INFINITY, slow: 0 },
  { name: 'the same, two readers at 10 KB/s', bytesPerSecond: Number.POSITIVE_INFINITY, slow: 2 },
];

export async function largeResponse({ quick, tell }: BenchOptions): Promise<Findings> {
  const kinds = quick ? KINDS.slice(0, 1) : KINDS;
  const runs = kinds.map((): Run[] => []);
  for (let round = 0; round < (quick ? 1 : 3); round += 1) {
    for (const [at, kind] of kinds.entries()) {
      tell(`large-response: ${kind.name}`);
      runs[at]!.push(await run(kind));
    }
  }
  const paced = runs[0] as Run[];
  return {
    tables: [
      {
        title: `100 MiB to ${FOLLOWERS + 1} readers of one gateway`,
        head: ['', 'time, s', 'memory above idle, MiB', 'followers’ first byte, to the leader’s'],
        rows: runs.map((some, at) => [
          kinds[at]!.name,
          spread(
            some.map(({ tookMs }) => tookMs / 1_000),
            1,
          ),
          spread(
            some.map(({ aboveIdleMiB }) => aboveIdleMiB),
            0,
          ),
          spread(
            some.map(({ firstByteRatio }) => firstByteRatio),
            2,
          ),
        ]),
        note: 'Memory is the highest the process has had resident, less what it had before. The response is longer than `maxShared`, so that it goes through a window; slow readers hold it up for `stallTimeout` (2 s here) in all, and are cut.',
      },
    ],
    verdicts: [
      atMost(
        '100 MiB at 10 MiB/s: followers’ first byte, to the leader’s',
        paced.map(({ firstByteRatio }) => firstByteRatio),
        1.2,
      ),
      atMost(
        '100 MiB at 10 MiB/s: memory above idle, to `maxShared`',
        paced.map(({ aboveIdleMiB }) => aboveIdleMiB / MAX_SHARED_MIB),
        2,
      ),
    ],
  };
}

async function run({ bytesPerSecond, slow }: Kind): Promise<Run> {
  const stage = await startStage({ routes: ROUTES });
  const { gateways, upstream } = stage;
  const [gateway] = gateways;
  upstream.on('/large/x', async (call) => {
    call.head(200, 'OK', ['Content-Type', 'application/octet-stream', 'Transfer-Encoding', 'chunked']);
    const beganMs = performance.now();
    for (let sent = 0; sent < TOTAL; sent += PIECE.length) {
      const dueMs = beganMs + (sent / bytesPerSecond) * 1_000;
      if (dueMs > performance.now()) await sleep(dueMs - performance.now());
      if (!call.socket.write(chunkBytes(PIECE))) await new Promise((resolve) => call.socket.once('drain', resolve));
    }
    call.raw(lastChunkBytes());
    call.finish();
  });
  try {
    const clients = await connectedClients(gateway.url, FOLLOWERS + 1);
    // What it takes for any request at all is no cost of this one.
    await gateway.caughtUp();
    const idle = memoryOf(gateway.pid);
    for (const client of clients.slice(0, slow)) client.slowDown(SLOW);
    const beganMs = performance.now();
    for (const client of clients) client.get('/large/x');
    const fast = clients.slice(slow);
    await allHave(fast, TOTAL, LONGEST_MS);
    const [leader, ...followers] = fast.map(({ firstAtMs }) => (firstAtMs ?? Number.NaN) - beganMs);
    if (upstream.count('/large/x') !== 1) throw new Error(`${upstream.count('/large/x')} upstream calls`);
    endAll(clients);
    return {
      tookMs: median(fast.map(({ lastAtMs }) => lastAtMs - beganMs)),
      aboveIdleMiB: memoryOf(gateway.pid).peakMiB - idle.nowMiB,
      firstByteRatio: median(followers) / (leader as number),
    };
  } finally {
    await stage.end();
  }
}
