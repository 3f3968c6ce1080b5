/**
 * What operators see of the keys in Redis, and their word on what has one, or that of the API when it was asked.
 *
 * Invariants: a word is compared with what has the key in the step that carries it out (settle.lua); what is listed is read
 * in steps that look at a bounded number of keys each.
 */

import type { KeyMaterial, TakenKey } from '../core/claim.js';
import type { Frames } from './frames.js';
import { BYTES_PER_MS, GRACE_MS, INLINE_BYTES, wholeMs } from './redis-bounds.js';
import { answered } from './redis-link.js';
import type { RedisNames } from './redis-names.js';
import type { RedisQueue } from './redis-queue.js';
import type { AskSmall, RedisRoute } from './redis-route.js';
import { takenAmong } from './redis-taken.js';
import type { Revocations } from './revocations.js';
import type { SealedPlace } from './sealing.js';
import { type FlightStanding, type SettleAs, StoreUnavailable, type TakenOptions } from './store.js';

export type RedisOperatorOptions = {
  readonly ask: AskSmall;
  readonly primaries: RedisRoute['primaries'];
  /** For each step of a walk. */
  readonly timeoutMs: number;
  readonly names: RedisNames;
  readonly frames: Frames;
  readonly turns: Pick<RedisQueue, 'free'>;
  readonly revocations: Revocations;
};

const NOTHING = Buffer.alloc(0);
/** How many keys one step of a walk through the server is to look at. */
const SCAN_COUNT = 500;
/** How often an operator's word is tried on a key that changes hands meanwhile. */
const SETTLE_TRIES = 5;

export class RedisOperator {
  readonly #options: RedisOperatorOptions;

  constructor(options: RedisOperatorOptions) {
    this.#options = options;
  }

  async settle(key: string, as: SettleAs, only: string | null): Promise<'settled' | 'absent' | 'other'> {
    const settled = await this.#settle(key, as, only);
    // A server writes pushes in the turn of the script, but behind its answer: the answer to a later question is behind
    // both, so that the leader's process has its push before whoever has this answer can ask it again.
    if (settled === 'settled') await this.#options.ask(key, (client) => client.ping());
    return settled;
  }

  async #settle(key: string, as: SettleAs, only: string | null): Promise<'settled' | 'absent' | 'other'> {
    const { ask, names, turns } = this.#options;
    if (!names.isKey(key)) return 'absent';
    for (let i = 0; i < SETTLE_TRIES; i += 1) {
      // Read first: a script is to be told the names of its keys, and the flight's id is in one.
      const flight = answered(await ask(key, (client) => client.hget(names.record(key), 'f')));
      if (flight === null) return as.kind === 'free' ? turns.free(key, only) : 'absent';
      const meant = { key, flight: only ?? flight, material: null };
      const settled = await this.#settleFlight(meant, as, only === null ? 'unknown' : 'any');
      // The key may have changed hands since it was read; with a flight that is meant there is nothing to read.
      if (settled !== 'other' || only !== null) return settled;
    }
    return 'other';
  }

  async settleUnknown(key: string, flight: string, as: SettleAs, material: KeyMaterial): Promise<'settled' | 'absent'> {
    const settled = await this.#settleFlight({ key, flight, material }, as, 'unknown');
    return settled === 'settled' ? 'settled' : 'absent';
  }

  async standing(key: string, flight: string): Promise<FlightStanding> {
    const { ask, names } = this.#options;
    const answer = await ask(key, (client) => client.oneflightStandingBuffer(names.record(key), flight));
    const [kind, leftMs] = answered(answer) as readonly [Buffer, number];
    if (String(kind) === 'F') return { kind: 'in-flight' };
    return String(kind) === 'U' ? { kind: 'unknown', leftMs } : { kind: 'over' };
  }

  async taken({ state, limit }: TakenOptions): Promise<TakenKey[]> {
    const { primaries, timeoutMs, names } = this.#options;
    const found = new Map<string, TakenKey>();
    for (const node of await primaries()) {
      let cursor = '0';
      do {
        const scanned = await node.ask(
          (client) => client.scan(cursor, 'MATCH', names.pattern(), 'COUNT', SCAN_COUNT, 'TYPE', 'hash'),
          timeoutMs,
        );
        const [next, hashes] = answered(scanned);
        cursor = next;
        if (hashes.length === 0) continue;
        const some = answered(await node.ask((client) => takenAmong(client, hashes, names), timeoutMs));
        for (const taken of some) {
          if (found.size >= limit) break;
          if (state === 'any' || state === taken.state) found.set(`${taken.key} ${taken.flight}`, taken);
        }
      } while (cursor !== '0' && found.size < limit);
    }
    return [...found.values()];
  }

  /** `other`: not this flight has the key by now, or not in that state. */
  async #settleFlight(
    place: SealedPlace,
    as: SettleAs,
    only: 'any' | 'unknown',
  ): Promise<'settled' | 'absent' | 'other'> {
    const { ask, names, frames, revocations } = this.#options;
    const { key, flight } = place;
    const frame = as.kind === 'free' ? NOTHING : frames.encode(as, place);
    const answer = await ask(
      key,
      (client) =>
        client.oneflightSettleBuffer(
          names.record(key),
          names.result(key, flight),
          flight,
          frame,
          as.kind === 'free' ? 0 : wholeMs(as.keepMs),
          names.channels,
          GRACE_MS,
          INLINE_BYTES,
          only === 'unknown' ? 'u' : '',
        ),
      frame.length / BYTES_PER_MS,
    );
    const settled = answered(answer);
    if (settled === 1) {
      // Led here, it is over before the asker has the answer, whether pushes are heard or not.
      revocations.tell(flight);
      return 'settled';
    }
    if (answer.kind === 'answered' && answer.repeated) throw new StoreUnavailable('the answer of the store was lost');
    return settled === 0 ? 'absent' : 'other';
  }
}
