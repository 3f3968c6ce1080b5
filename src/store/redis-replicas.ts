/**
 * A claim counts only when so many replicas have it (`waitReplicas`).
 *
 * WAIT cannot run in a script, and it blocks its connection: the confirmation goes over connections of its own. It is a
 * renewal of the lease that was just given, and a WAIT behind it on the same connection: whoever has the renewal has the
 * claim, which the primary executed before it.
 *
 * Invariants: WAIT speaks of what its own connection has written, so that it is worth nothing when the connection is
 * another one than that of the renewal; at most one WAIT is under way on a connection, and those who came meanwhile share
 * the next one; whatever is not a clear yes is a failure of the store, and the caller gives the lease back.
 */

import type { Lease } from '../core/claim.js';
import type { ScriptedRedis } from './redis-client.js';
import { answered } from './redis-link.js';
import type { RedisRoute } from './redis-route.js';
import { StoreUnavailable } from './store.js';

export type RedisReplicasOptions = {
  readonly route: Pick<RedisRoute, 'ask'>;
  /** How many replicas must have a claim. */
  readonly wanted: number;
  /** The longest that they are waited for, ms. */
  readonly waitMs: number;
  /** The longest that the confirmation takes in all, ms. */
  readonly budgetMs: number;
};

/** WAITs of one connection. */
type Line = {
  /** How often it was lost. */
  losses: number;
  current: Promise<number> | null;
  /** Not sent yet. */
  next: Promise<number> | null;
};

export class RedisReplicas {
  readonly #options: RedisReplicasOptions;
  readonly #lines = new WeakMap<ScriptedRedis, Line>();

  constructor(options: RedisReplicasOptions) {
    this.#options = options;
  }

  /** Resolves when the lease is held and enough replicas have it; else `StoreUnavailable`. */
  async confirm({ key }: Pick<Lease, 'key'>, renew: (client: ScriptedRedis) => Promise<unknown>): Promise<void> {
    const { route, wanted, budgetMs } = this.#options;
    const answer = await route.ask(
      key,
      async (client) => {
        const line = this.#lineOf(client);
        const { losses } = line;
        // In this order onto the connection.
        const [held, count] = await Promise.all([renew(client), this.#wait(client, line)]);
        return { held, count: line.losses === losses ? count : 0 };
      },
      budgetMs,
    );
    const { held, count } = answered(answer);
    if (held !== 1) throw new StoreUnavailable('store unavailable: the claim was lost before its replicas had it');
    if (count < wanted) throw new StoreUnavailable(`store unavailable: ${count} of ${wanted} replicas have the claim`);
  }

  #lineOf(client: ScriptedRedis): Line {
    const known = this.#lines.get(client);
    if (known !== undefined) return known;
    const line: Line = { losses: 0, current: null, next: null };
    client.on('close', () => {
      line.losses += 1;
    });
    this.#lines.set(client, line);
    return line;
  }

  #wait(client: ScriptedRedis, line: Line): Promise<number> {
    if (line.current === null) return this.#send(client, line);
    const { current } = line;
    line.next ??= current.then(
      () => this.#send(client, line),
      () => this.#send(client, line),
    );
    return line.next;
  }

  #send(client: ScriptedRedis, line: Line): Promise<number> {
    const { wanted, waitMs } = this.#options;
    line.next = null;
    const sent = client.wait(wanted, waitMs);
    line.current = sent;
    const over = () => {
      if (line.current === sent) line.current = null;
    };
    // Before those who share the next one go on.
    sent.then(over, over);
    return sent;
  }
}
