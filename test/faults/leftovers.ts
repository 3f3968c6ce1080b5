/** What a schedule has left in the store. */

import { eventually } from '../support/gate.js';
import { LEASE_MS } from './routes.js';
import type { Leftover } from './seen.js';

/** A command to each primary, with the reply of each. */
type Ask = (...words: readonly (string | number)[]) => Promise<unknown[]>;

const LEASED = `local t = redis.call('TIME')
  for _, name in ipairs(redis.call('KEYS', ARGV[1])) do
    if redis.call('TYPE', name).ok == 'hash' then
      local fields = redis.call('HMGET', name, 's', 'l')
      if fields[1] == 'f' and tonumber(fields[2]) > t[1] * 1000000 + t[2] then return 1 end
    end
  end
  return 0`;

const TAKE = `local all = {}
  for _, name in ipairs(redis.call('KEYS', ARGV[1])) do
    local fields = { false, false }
    if redis.call('TYPE', name).ok == 'hash' then fields = redis.call('HMGET', name, 'r', 's') end
    local ttl = redis.call('PTTL', name)
    if ttl ~= -2 then all[#all + 1] = { name, fields[1] or '', fields[2] or '', ttl } end
    redis.call('UNLINK', name)
  end
  return all`;

/** What matches the pattern when no lease runs any more, or should; it is removed. */
export async function leftoversOf(pattern: string, ask: Ask): Promise<Leftover[]> {
  // A claim of the last requests may have been given up by a busy machine, and is paid back a little later.
  const none = async () => (await ask('EVAL', LEASED, 0, pattern)).every((held) => held === 0);
  await eventually('no lease running', none, 2 * LEASE_MS).catch(() => {});
  const all = (await ask('EVAL', TAKE, 0, pattern)).flat() as [string, string, string, number][];
  return all.map(([name, route, state, ttlMs]) => ({ name, route, state, ttlMs }));
}
