/**
 * What is kept in Redis, removed by an operator.
 *
 * Invariants: each key is compared and removed in one script (purge.lua); a walk through the server looks at a bounded
 * number of keys in each of its steps, so that nobody's claim waits for long behind one.
 */

import type { Purged } from '../core/claim.js';
import { variantStart } from '../core/sharing.js';
import type { ScriptedRedis } from './redis-client.js';
import { answered } from './redis-link.js';
import type { RedisNames } from './redis-names.js';
import type { AskSmall, RedisNode, RedisRoute, Run } from './redis-route.js';
import { takenAmong } from './redis-taken.js';
import { StoreUnavailable } from './store.js';

export type RedisPurgeOptions = {
  readonly ask: AskSmall;
  readonly primaries: RedisRoute['primaries'];
  /** For each step of a walk. */
  readonly timeoutMs: number;
  readonly names: RedisNames;
};

/** How many keys one step is to look at. */
const STEP = 200;
/** The same where nothing but names is looked at. */
const STEP_OF_NAMES = 1_000;

export class RedisPurge {
  readonly #options: RedisPurgeOptions;

  constructor(options: RedisPurgeOptions) {
    this.#options = options;
  }

  /** With its variants, unless the key itself is taken; one of them that is taken stays. */
  async key(key: string): Promise<Purged> {
    if (!this.#options.names.isKey(key)) return 'absent';
    const own = await this.#key(key);
    if (own === 'taken') return own;
    const { primaries, timeoutMs, names } = this.#options;
    const pattern = names.pattern(variantStart(key));
    let some = own === 'purged';
    // A variant is a key of another hash slot: it may be anywhere.
    for (const node of await primaries()) {
      let cursor = '0';
      do {
        const scan: Run<[string, string[]]> = (client) => client.scan(cursor, 'MATCH', pattern, 'COUNT', STEP_OF_NAMES);
        const [next, found] = answered(await node.ask(scan, timeoutMs));
        cursor = next;
        const variants = new Set(found.map((name) => names.ownerOf(name)));
        const each = await Promise.all([...variants].map((variant) => this.#key(variant)));
        some ||= each.includes('purged');
      } while (cursor !== '0');
    }
    return some ? 'purged' : 'absent';
  }

  async #key(key: string): Promise<Purged> {
    const answer = await this.#options.ask(key, (client) => this.#purge(client, key, ''));
    const purged = answered(answer);
    if (purged === 1) return 'purged';
    if (purged === 2) return 'taken';
    // Nothing is there on a repeated question: that may be the work of the first try.
    if (answer.kind === 'answered' && answer.repeated) throw new StoreUnavailable('the answer of the store was lost');
    return 'absent';
  }

  async route(route: string): Promise<number> {
    let purged = 0;
    for (const node of await this.#options.primaries()) purged += await this.#routeAt(node, route);
    return purged;
  }

  async #routeAt(node: RedisNode, route: string): Promise<number> {
    const { ask, names, timeoutMs } = this.#options;
    let purged = 0;
    let cursor = '0';
    do {
      const scan: Run<[string, string[]]> = (client) =>
        client.scan(cursor, 'MATCH', names.pattern(), 'COUNT', STEP, 'TYPE', 'hash');
      const [next, hashes] = answered(await node.ask(scan, timeoutMs));
      cursor = next;
      if (hashes.length === 0) continue;
      const taken = answered(await node.ask((client) => takenAmong(client, hashes, names), timeoutMs));
      const kept = taken.filter((one) => one.state === 'kept' && one.route === route);
      const each = await Promise.all(kept.map(({ key }) => ask(key, (client) => this.#purge(client, key, route))));
      purged += each.map(answered).filter((one) => one === 1).length;
    } while (cursor !== '0');
    return purged;
  }

  #purge(client: ScriptedRedis, key: string, route: string): Promise<unknown> {
    const { names } = this.#options;
    return client.oneflightPurgeBuffer(names.record(key), names.mark(key), names.turns(key), route);
  }
}
