/** Connections to known workers of one gateway: which of them accepts one, the kernel decides. */

import { randomUUID } from 'node:crypto';
import { Agent } from 'node:http';
import type { Answered, RequestOptions } from './client.js';
import { eventually } from './gate.js';
import { type Gateway, keep, type LogLine, type Scope } from './gateway.js';

/** A client whose connection one worker has. */
export type Pinned = {
  readonly worker: number;
  readonly pid: number;
  readonly agent: Agent;
  request(options: RequestOptions): Promise<Answered>;
};

const TRIES = 200;

/** Process ids of the workers that were started, in that order. */
export function startedPids(gateway: Gateway): number[] {
  return linesOf(gateway, 'worker started').map(({ workerPid }) => Number(workerPid));
}

/** A line of the log with what lines about workers have. */
export type WorkerLine = LogLine & {
  readonly pid?: unknown;
  readonly worker?: unknown;
  readonly workerPid?: unknown;
  readonly requestId?: unknown;
  readonly pauseMs?: unknown;
};

/** The lines of a message. */
export function linesOf(gateway: Gateway, msg: string): WorkerLine[] {
  return gateway.logs.filter((line) => line.msg === msg);
}

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

/** Sends a signal to those that are still there. */
export function signalAll(pids: readonly number[], signal: NodeJS.Signals): void {
  for (const pid of pids) {
    try {
      process.kill(pid, signal);
    } catch {
      // It has ended already.
    }
  }
}

export async function allGone(pids: readonly number[], ms = 10_000): Promise<void> {
  await eventually(`the processes ${pids} are gone`, () => !pids.some(isAlive), ms);
}

/** Whatever becomes of the test, its workers end with it. */
export function watchOver(gateway: Gateway): void {
  for (const pid of startedPids(gateway)) keep('started', pid);
}

/** A connection to whichever worker takes it. */
export async function pin(t: Scope, gateway: Gateway): Promise<Pinned> {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  t.teardown(() => agent.destroy());
  const requestId = randomUUID();
  const request = (options: RequestOptions) => gateway.request({ ...options, agent });
  await request({ path: '/which-worker', headers: ['X-Request-Id', requestId] });
  const ofRequest = () => linesOf(gateway, 'exchange').find((line) => line.requestId === requestId);
  await eventually('the request is in the log', () => ofRequest() !== undefined);
  const line = ofRequest();
  return { worker: Number(line?.worker), pid: Number(line?.pid), agent, request };
}

/** A connection to each of so many workers, in the order of their numbers. */
export async function pinEach(t: Scope, gateway: Gateway, count: number): Promise<Pinned[]> {
  const pins = new Map<number, Pinned>();
  await eventually('every worker serves', async () => (await gateway.admin('/readyz')).status === 200, 20_000);
  for (let tries = 0; pins.size < count; tries += 1) {
    if (tries === TRIES) throw new Error(`${TRIES} connections reached ${pins.size} of ${count} workers`);
    const one = await pin(t, gateway);
    if (pins.has(one.worker)) one.agent.destroy();
    else pins.set(one.worker, one);
  }
  return [...pins.values()].sort((a, b) => a.worker - b.worker);
}
