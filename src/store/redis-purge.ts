/**
 * What is kept in Redis, removed by an operator.
 *
 * Invariants: each key is compared and removed in one script (purge.lua); a walk through the server looks at a bounded
 * number of keys in each of its steps, so that nobody's claim waits for long behind one.
 */

import type { Purged } from '../core/claim.js';
import { variantStart } from '../core/sharing.js';
import { type AskSmall, answered, type ScriptedRedis } from './redis-link.js';
import type { RedisNames } from './redis-names.js';
import { takenAmong } from './redis-taken.js';
import { StoreUnavailable } from './store.js';

export type RedisPurgeOptions = {
  readonly ask: AskSmall;
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
    const own = await this.#key(key);
    if (own === 'taken') return own;
    const { ask, names } = this.#options;
    const pattern = names.pattern(variantStart(key));
    let some = own === 'purged';
    let cursor = '0';
    do {
      const [next, found] = answered(
        await ask((client) => client.scan(cursor, 'MATCH', pattern, 'COUNT', STEP_OF_NAMES)),
      );
      cursor = next;
      const variants = new Set(found.map((name) => names.ownerOf(name)));
      const each = await Promise.all([...variants].map((variant) => this.#key(variant)));
      some ||= each.includes('purged');
    } while (cursor !== '0');
    return some ? 'purged' : 'absent';
  }

  async #key(key: string): Promise<Purged> {
    const answer = await this.#options.ask((client) => this.#purge(client, key, ''));
    const purged = answered(answer);
    if (purged === 1) return 'purged';
    if (purged === 2) return 'taken';
    // Nothing is there on a repeated question: that may be the work of the first try.
    if (answer.kind === 'answered' && answer.repeated) throw new StoreUnavailable('the answer of the store was lost');
    return 'absent';
  }

  async route(route: string): Promise<number> {
    const { ask, names } = this.#options;
    let purged = 0;
    let cursor = '0';
    do {
      const [next, hashes] = answered(
        await ask((client) => client.scan(cursor, 'MATCH', names.pattern(), 'COUNT', STEP, 'TYPE', 'hash')),
      );
      cursor = next;
      if (hashes.length === 0) continue;
      const taken = answered(await ask((client) => takenAmong(client, hashes, names)));
      const kept = taken.filter((one) => one.state === 'kept' && one.route === route);
      if (kept.length === 0) continue;
      const each = await ask((client) => Promise.all(kept.map(({ key }) => this.#purge(client, key, route))));
      purged += answered(each).filter((one) => one === 1).length;
    } while (cursor !== '0');
    return purged;
  }

  #purge(client: ScriptedRedis, key: string, route: string): Promise<unknown> {
    const { names } = this.#options;
    return client.oneflightPurgeBuffer(names.record(key), names.mark(key), names.turns(key), route);
  }
}
