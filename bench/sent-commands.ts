/** Commands that Redis is sent by its clients, as it sees them itself: what a script calls is none of them. */

import type { Redis } from 'ioredis';

/** What a gateway sends from time to time, whatever it has to do, and what a measurement asks for itself. */
const BESIDE = new Set(['info', 'ping', 'config', 'monitor', 'client', 'hello']);

export class SentCommands {
  readonly #monitor: Redis;
  count = 0;

  private constructor(monitor: Redis) {
    this.#monitor = monitor;
    monitor.on('monitor', (_time: string, [name = '']: string[], source: string) => {
      if (source !== 'lua' && !BESIDE.has(name.toLowerCase())) this.count += 1;
    });
  }

  static async watch(client: Redis): Promise<SentCommands> {
    return new SentCommands(await client.monitor());
  }

  end(): void {
    this.#monitor.disconnect();
  }
}
