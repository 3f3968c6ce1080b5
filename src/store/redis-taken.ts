/**
 * The records of a server, read for operators.
 *
 * Invariants: what a key is kept with is never read, only what claim.lua says about it and how many wait; ages and time
 * left are by the server's clock; a record that ends meanwhile is left out.
 */

import type { TakenKey } from '../core/claim.js';
import type { ScriptedRedis } from './redis-link.js';

/** What SCAN matches for the records of all keys, and for nothing else: results have a tail after the key. */
export function recordPattern(prefix: string): string {
  return `${prefix.replace(/[\\*?[\]]/g, '\\$&')}:{*}`;
}

const FIELDS = ['s', 'f', 'n', 't', 'r', 'c', 'l', 'h'] as const;
/** Commands for each key. */
const EACH = 3;

/** Of these keys, those that are taken. One round trip. */
export async function takenAmong(
  client: ScriptedRedis,
  keys: readonly string[],
  recordOf: (key: string) => string,
): Promise<TakenKey[]> {
  const pipeline = client.pipeline().time();
  for (const key of keys) {
    const record = recordOf(key);
    pipeline
      .hmget(record, ...FIELDS)
      .pttl(record)
      .hkeys(record);
  }
  const replies = ((await pipeline.exec()) ?? []).map(([error, reply]) => {
    if (error !== null) throw error;
    return reply;
  });
  const [seconds, micros] = replies[0] as readonly (string | number)[];
  const nowMs = Number(seconds) * 1_000 + Number(micros) / 1_000;
  const taken: TakenKey[] = [];
  keys.forEach((key, i) => {
    const [values, leftMs, names] = replies.slice(1 + EACH * i) as [(string | null)[], number, string[]];
    const one = takenKey(key, nowMs, values, leftMs, names);
    if (one !== null) taken.push(one);
  });
  return taken;
}

function takenKey(
  key: string,
  nowMs: number,
  values: readonly (string | null)[],
  leftMs: number,
  names: readonly string[],
): TakenKey | null {
  const [recorded, flight, fence, beganUs, route, completedUs, leaseEndUs, holdMs] = values;
  if (recorded == null || leftMs <= 0) return null;
  const leaseLeftMs = Number(leaseEndUs) / 1_000 - nowMs;
  const inFlight = recorded === 'f' && leaseLeftMs > 0;
  if (recorded === 'f' && !inFlight && Number(holdMs) === 0) return null;
  const kept = recorded === 'd';
  return {
    key,
    flight: flight ?? '',
    route: route ?? '',
    state: inFlight ? 'in-flight' : kept ? 'kept' : 'unknown',
    fence: Number(fence),
    ageMs: Math.max(0, Math.floor(nowMs - Number(kept ? completedUs : beganUs) / 1_000)),
    leftMs: inFlight ? Math.floor(leaseLeftMs) : leftMs,
    waiting: inFlight ? names.filter((name) => name.startsWith('w:')).length : 0,
  };
}
