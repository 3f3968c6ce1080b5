/**
 * Notices what stands still without having been told to: a gateway, the way from it to its store, the store, the whole
 * machine. What is late is told as trouble from when it was asked, before it answers.
 */

import { Redis } from 'ioredis';
import { request } from '../support/client.js';
import type { RedisServer } from '../support/redis.js';
import type { Trouble } from './seen.js';

const PROBE_EVERY_MS = 150;
/** An answer that takes longer tells of a process that stood still. */
const PROMPT_MS = { gateway: 200, store: 150, path: 150 };
/** Our own timer comes as often, and this much late when the whole machine stood still. */
const BEAT_MS = 50;
const LATE_BEAT_MS = 150;

/** A trouble whose end is written into it when it is over. */
export type OpenTrouble = { -readonly [Field in keyof Trouble]: Trouble[Field] };

export class Probes {
  readonly #tell: (trouble: OpenTrouble) => void;
  readonly #scope: { teardown(end: () => void): void };
  readonly #timers = new Set<NodeJS.Timeout>();

  constructor(tell: (trouble: OpenTrouble) => void, scope: { teardown(end: () => void): void }) {
    this.#tell = tell;
    this.#scope = scope;
  }

  /** `adminUrlOf`: where that gateway has its admin listener just now. */
  begin(
    servers: readonly Pick<RedisServer, 'port'>[],
    gateways: number,
    adminUrlOf: (gateway: number) => string,
  ): void {
    this.#beat();
    for (const { port } of servers) {
      const client = new Redis({ port, host: '127.0.0.1', disconnectTimeout: 50, retryStrategy: () => 200 });
      client.on('error', () => {});
      this.#scope.teardown(() => client.disconnect());
      this.#watch('slow-store', 'all', PROMPT_MS.store, () => client.ping());
    }
    for (let at = 0; at < gateways; at += 1) {
      const ask = (path: string) => () => request(adminUrlOf(at), { path });
      this.#watch('slow', at, PROMPT_MS.gateway, ask('/livez'));
      // The way of a request: over the connection to the store, and to the upstream. Many short delays are a long one.
      this.#watch('slow-path', at, PROMPT_MS.path, ask('/readyz'));
    }
  }

  end(): void {
    for (const timer of this.#timers) clearInterval(timer);
  }

  #beat(): void {
    let lastMs = performance.now();
    const beat = setInterval(() => {
      const now = performance.now();
      if (now - lastMs > BEAT_MS + LATE_BEAT_MS) {
        this.#tell({ what: 'slow', gateway: 'all', fromMs: lastMs, toMs: now });
      }
      lastMs = now;
    }, BEAT_MS);
    this.#timers.add(beat);
  }

  #watch(what: string, gateway: number | 'all', promptMs: number, ask: () => Promise<unknown>): void {
    let asking = false;
    const timer = setInterval(async () => {
      if (asking) return;
      asking = true;
      const fromMs = performance.now();
      const late: OpenTrouble = { what, gateway, fromMs, toMs: Number.POSITIVE_INFINITY };
      const noting = setTimeout(() => this.#tell(late), promptMs);
      await ask().catch(() => {});
      clearTimeout(noting);
      late.toMs = performance.now();
      asking = false;
    }, PROBE_EVERY_MS);
    this.#timers.add(timer);
  }
}
