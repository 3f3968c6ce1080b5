/**
 * The process of a worker: a gateway whose parent has its admin listener and, where keys are in memory, its store.
 *
 * Invariants: signals are the parent's business, since a terminal's and a service manager's reach every process: they are
 * ignored here, and so is the one by which Node opens a port for debuggers; a worker whose parent is gone drains and ends;
 * it never ends by itself otherwise.
 */

import '../cli/young-objects.js';
import cluster from 'node:cluster';
import { Socket } from 'node:net';
import { type Gateway, startGateway } from '../app.js';
import type { Config } from '../config/config.js';
import { workerShare } from '../config/worker-shares.js';
import { createLog } from '../observe/log-output.js';
import { ParentStore } from '../store/parent-store.js';
import { type Asked, type Order, STORE_FD, type Word } from './messages.js';
import { fromPortable } from './portable-config.js';

const FIGURES_MS = 1_000;
const FAILED = 1;

for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGUSR1'] as const) process.on(signal, () => {});

type Serving = { readonly gateway: Gateway; readonly share: (config: Config) => Config };

let starting: Promise<Serving | null> = Promise.resolve(null);
let stage: 'serving' | 'leaving' = 'serving';

process.on('message', (order: Order) => {
  switch (order.kind) {
    case 'begin':
      starting = begin(order);
      return;
    case 'ask':
      void answer(order.id, order.asked);
      return;
    case 'drain':
      void leave('asked');
  }
});

// Whoever cannot be told anything any more is a parent that is gone, which is noticed below, or by the store before that.
cluster.worker?.on('error', () => {});
cluster.worker?.on('disconnect', () => {
  // Without this word Node ends the process at once, and with it what is in progress.
  if (cluster.worker !== undefined) cluster.worker.exitedAfterDisconnect = true;
  void leave('alone');
});

void say({ kind: 'here' });

async function begin({
  worker,
  count,
  version,
  config: portable,
  pair,
  logLevel,
}: Extract<Order, { kind: 'begin' }>): Promise<Serving | null> {
  const share = (whole: Config): Config => workerShare(whole, worker - 1, count);
  const config = share(fromPortable(portable));
  const { format } = config.log;
  const log = createLog({ level: logLevel, format }).child({ worker });
  try {
    const inParent = config.store.kind === 'memory';
    // Without it a worker is of no use, even if its parent lives.
    const onGone = (): void => void leave('alone');
    const store = inParent
      ? { store: new ParentStore(new Socket({ fd: STORE_FD, readable: true, writable: true }), onGone) }
      : {};
    const gateway = await startGateway(config, { version, log, source: null, pair, ...store });
    setInterval(() => void tellFigures(gateway), FIGURES_MS).unref();
    await say({ kind: 'listening', url: gateway.url });
    return { gateway, share };
  } catch (error) {
    log.error({ err: error }, 'failed');
    await say({ kind: 'failed', reason: error instanceof Error ? error.message : String(error) });
    process.exit(FAILED);
  }
}

async function answer(id: number, asked: Asked): Promise<void> {
  const serving = await starting;
  if (serving === null) return;
  try {
    await say({ kind: 'answer', id, value: await ask(serving, asked) });
  } catch (error) {
    await say({ kind: 'refused', id, reason: error instanceof Error ? error.message : String(error) });
  }
}

function ask({ gateway, share }: Serving, asked: Asked): unknown {
  switch (asked.kind) {
    case 'readiness':
      return gateway.readiness();
    case 'figures':
      return gateway.figures();
    case 'reload':
      return gateway.reload();
    case 'log-level':
      return gateway.setLogLevel(asked.level);
    case 'take':
      return gateway.take(share(fromPortable(asked.config)));
  }
}

/** `alone`: without the parent. Whoever is started in its place needs the port at once. */
async function leave(how: 'asked' | 'alone'): Promise<void> {
  if (stage === 'leaving') return;
  stage = 'leaving';
  const serving = await starting;
  await serving?.gateway.close(how === 'alone' ? 'at-once' : 'announced');
  if (serving !== null) await tellFigures(serving.gateway);
  // Not left to the event loop: after a drain nothing that is still open may keep the process alive.
  process.exit();
}

async function tellFigures(gateway: Gateway): Promise<void> {
  await say({ kind: 'figures', figures: await gateway.figures() });
}

/** Resolves when it is on its way, or there is nobody to hear it. */
function say(word: Word): Promise<void> {
  return new Promise((resolve) => {
    if (process.connected) process.send?.(word, undefined, undefined, () => resolve());
    else resolve();
  });
}
