/**
 * 100 MiB of unknown length through a leader and 20 followers of one process, of which the leader and one follower read
 * 10 KB/s: what the others see of it, and what memory the gateway needs. Then the same with a length that is known.
 */

import { chunkBytes, lastChunkBytes } from '../test/support/wire.js';
import { BareClient, median, memoryOf, startStage } from './stage.js';

const MEBI = 1_048_576;
const TOTAL = 100 * MEBI;
const PIECE = Buffer.alloc(64 * 1_024, 'x');
const SLOW = 10_000;
const FOLLOWERS = 20;

async function run(name: string, slow: boolean): Promise<number> {
  const stage = await startStage(`
  - name: large
    match: { path: /large/* }
    policy: coalesce
    key: [ { request: path } ]
    identity: public
    stallTimeout: 2s`);
  const { gateway, upstream } = stage;
  upstream.on('/large/x', async (call) => {
    call.head(200, 'OK', ['Content-Type', 'application/octet-stream', 'Transfer-Encoding', 'chunked']);
    for (let sent = 0; sent < TOTAL; sent += PIECE.length) {
      if (!call.socket.write(chunkBytes(PIECE))) await new Promise((resolve) => call.socket.once('drain', resolve));
    }
    call.raw(lastChunkBytes());
    call.finish();
  });
  const idle = memoryOf(gateway.pid);
  const clients = Array.from({ length: FOLLOWERS + 1 }, () => new BareClient(gateway.url));
  await Promise.all(clients.map((client) => client.connected()));
  if (slow) for (const client of clients.slice(0, 2)) client.slowDown(SLOW);
  const began = performance.now();
  for (const client of clients) client.get('/large/x');
  const fast = clients.slice(slow ? 2 : 0);
  while (fast.some(({ bytes }) => bytes < TOTAL)) {
    if (fast.some(({ socket }) => socket.destroyed)) throw new Error('a fast reader was cut');
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  const tookMs = median(fast.map(({ lastAtMs }) => lastAtMs - began));
  const { peakMiB } = memoryOf(gateway.pid);
  console.log(
    `${name.padEnd(34)} ${(tookMs / 1_000).toFixed(1)} s, memory above idle ${(peakMiB - idle.nowMiB).toFixed(0)} MiB, ` +
      `${upstream.count('/large/x')} upstream call(s)`,
  );
  for (const client of clients) client.socket.destroy();
  await stage.end();
  return tookMs;
}

const alone = await run('21 fast readers', false);
const held = await run('19 fast readers, 2 at 10 KB/s', true);
console.log(`the fast ones beside slow ones     ${(held / alone).toFixed(2)} x their time without`);
