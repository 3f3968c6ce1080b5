/**
 * Ten thousand followers of one key: how long the gateway's event loop is held up by their release, and what each costs
 * in memory. The loop's delay is the gateway's own (`nodejs_eventloop_lag_max_seconds`, perf_hooks), which is the longest
 * time between two ticks of a timer: what it is while they only wait is taken off.
 */

import { BareClient, median, memoryOf, startStage } from './stage.js';

const FOLLOWERS = 10_000;
const ROUNDS = 5;

const stage = await startStage(`
  - name: hot
    match: { path: /hot/* }
    policy: coalesce
    key: [ { request: path } ]
    identity: public
    wait: 60s
    maxFollowers: 20000`);
const { gateway, upstream } = stage;
const lagMs = async () => (await gateway.metrics()).sum('nodejs_eventloop_lag_max_seconds') * 1_000;

const clients: BareClient[] = [];
while (clients.length < FOLLOWERS) {
  const some = Array.from({ length: 500 }, () => new BareClient(gateway.url));
  await Promise.all(some.map((client) => client.connected()));
  clients.push(...some);
}
const idleMiB = memoryOf(gateway.pid).nowMiB;
const rests: number[] = [];
const releases: number[] = [];
const spreads: number[] = [];
let perFollowerKiB = 0;
for (let round = 0; round < ROUNDS; round += 1) {
  const path = `/hot/${round}`;
  const held = upstream.holds(path, { content: Buffer.alloc(1_024, 'x') });
  clients[0]!.get(path);
  await held.arrived(1);
  for (const [i, client] of clients.entries()) {
    client.bytes = 0;
    client.firstAtMs = null;
    if (i > 0) client.get(path);
  }
  await gateway.caughtUp();
  await new Promise((resolve) => setTimeout(resolve, 2_000));
  if (round === 0) perFollowerKiB = ((memoryOf(gateway.pid).nowMiB - idleMiB) * 1_024) / FOLLOWERS;
  await lagMs();
  await new Promise((resolve) => setTimeout(resolve, 500));
  rests.push(await lagMs());
  const began = performance.now();
  held.release();
  while (clients.some(({ bytes }) => bytes === 0)) await new Promise((resolve) => setTimeout(resolve, 10));
  spreads.push(Math.max(...clients.map(({ firstAtMs }) => firstAtMs ?? 0)) - began);
  releases.push(await lagMs());
  if (upstream.count(path) !== 1) throw new Error(`${upstream.count(path)} upstream calls`);
}
console.log(`followers                          ${FOLLOWERS}, 1 upstream call each of ${ROUNDS} rounds`);
console.log(
  `between two ticks, at rest         median ${median(rests).toFixed(1)} ms, worst ${Math.max(...rests).toFixed(1)} ms`,
);
const heldUp = releases.map((ms) => ms - median(rests));
console.log(
  `event loop held up at release      median ${median(heldUp).toFixed(1)} ms, worst ${Math.max(...heldUp).toFixed(1)} ms`,
);
console.log(`last follower answered after       median ${median(spreads).toFixed(0)} ms`);
console.log(`memory of a waiting follower       ${perFollowerKiB.toFixed(1)} KiB beyond its connection`);
for (const client of clients) client.socket.destroy();
await stage.end();
