/**
 * 20 GiB through one process: down and up through a `pass` route, and down through a keyed one, where the length is not
 * known before. How long each takes, and what memory the gateway needs.
 */

import { type IncomingMessage, request } from 'node:http';
import type { BenchOptions } from './bench-options.js';
import { type Measured, memoryOf } from './cores.js';
import { atMost, type Findings } from './figures.js';
import { startOneflight } from './peers.js';

const MEBI = 1_048_576;
const GIBI = 1_024 * MEBI;
const PIECE = Buffer.alloc(256 * 1_024, 'x');
const MOST_ABOVE_IDLE_MIB = 64;

type Kind = { readonly name: string; readonly method: 'GET' | 'PUT'; path(bytes: number): string };
type Run = { readonly tookS: number; readonly aboveIdleMiB: number };

const KINDS: readonly Kind[] = [
  { name: 'down, `pass`', method: 'GET', path: (bytes) => `/open/volume?${bytes}` },
  { name: 'up, `pass`', method: 'PUT', path: (bytes) => `/open/volume?${bytes}` },
  { name: 'down, `coalesce`', method: 'GET', path: (bytes) => `/distinct/volume?${bytes}&chunked` },
];

export async function volume({ quick, upstream, tell }: BenchOptions): Promise<Findings> {
  const gibi = quick ? 1 : 20;
  const runs: (Run & { readonly name: string })[] = [];
  for (const kind of KINDS) {
    tell(`volume: ${kind.name}`);
    const measured = await startOneflight(upstream.url, false);
    try {
      runs.push({ name: kind.name, ...(await run(kind, measured, gibi * GIBI)) });
    } finally {
      await measured.stop();
    }
  }
  return {
    tables: [
      {
        title: `${gibi} GiB through one gateway`,
        head: ['', 'time, s', 'memory above idle, MiB'],
        rows: runs.map(({ name, tookS, aboveIdleMiB }) => [name, tookS.toFixed(1), aboveIdleMiB.toFixed(0)]),
        note: 'Memory is the highest the process has had resident, less what it had before. One client, one process each; the client and the upstream share a core, and time is not compared with anything.',
      },
    ],
    verdicts: runs.map(({ name, aboveIdleMiB }) =>
      atMost(`${gibi} GiB ${name}: memory above idle`, [aboveIdleMiB], MOST_ABOVE_IDLE_MIB, ' MiB', 0),
    ),
  };
}

async function run({ method, path }: Kind, { url, pid }: Measured, bytes: number): Promise<Run> {
  // What it takes for any request at all is no cost of this one.
  for (const target of ['/open/x', '/distinct/x']) await exchange(`${url}${target}`, 'GET', 0);
  const idle = memoryOf(pid);
  const beganMs = performance.now();
  const received = await exchange(`${url}${path(bytes)}`, method, method === 'PUT' ? bytes : 0);
  const tookS = (performance.now() - beganMs) / 1_000;
  if (method === 'GET' && received !== bytes) throw new Error(`${received} bytes came, not ${bytes}`);
  return { tookS, aboveIdleMiB: memoryOf(pid).peakMiB - idle.nowMiB };
}

/** Sends so much, and answers how much came back. */
function exchange(url: string, method: string, bytes: number): Promise<number> {
  return new Promise((resolve, reject) => {
    const onAnswer = (res: IncomingMessage): void => {
      let received = 0;
      if (res.statusCode !== 200) reject(new Error(`status ${res.statusCode}`));
      res.on('data', (piece: Buffer) => {
        received += piece.length;
      });
      res.once('error', reject).once('end', () => resolve(received));
    };
    const headers = method === 'PUT' ? { 'Content-Length': bytes } : {};
    const req = request(url, { method, headers, agent: false }, onAnswer);
    let left = bytes;
    const more = (): void => {
      let hasRoom = true;
      while (left > 0 && hasRoom) {
        const piece = left < PIECE.length ? PIECE.subarray(0, left) : PIECE;
        left -= piece.length;
        hasRoom = req.write(piece);
      }
      if (left > 0) req.once('drain', more);
      else req.end();
    };
    req.once('error', reject);
    more();
  });
}
