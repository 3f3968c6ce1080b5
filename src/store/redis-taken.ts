/**
 * The records of a server, read for operators.
 *
 * Invariants: what a key is kept with is never read, only what claim.lua and queue.lua say about it and how many wait; ages and time
 * left are by the server's clock; a record that ends meanwhile is left out.
 */

import type { ChainableCommander } from 'ioredis';
import type { TakenKey } from '../core/claim.js';
import type { ScriptedRedis } from './redis-link.js';

/** What SCAN matches for the records and the queues of all keys; results have another tail after the key. */
export function recordPattern(prefix: string): string {
  return `${prefix.replace(/[\\*?[\]]/g, '\\$&')}:{*}*`;
}

/** Tail of the hash of a queue's turns (queue.lua). */
const TURNS = ':q';
const PLACES = ':w';

/** Of these hashes, as SCAN gave them, the keys that are taken. One round trip for each kind. */
export async function takenAmong(client: ScriptedRedis, hashes: readonly string[], start: string): Promise<TakenKey[]> {
  const keyOf = (record: string) => record.slice(start.length, -1);
  const records = hashes.filter((name) => name.endsWith('}'));
  const queues = hashes.filter((name) => name.endsWith(`}${TURNS}`)).map((name) => name.slice(0, -TURNS.length));
  const [taken, turns] = await Promise.all([
    records.length === 0 ? [] : takenRecords(client, records, keyOf),
    queues.length === 0 ? [] : takenTurns(client, queues, keyOf),
  ]);
  return [...taken, ...turns];
}

async function replies(pipeline: ChainableCommander): Promise<unknown[]> {
  return ((await pipeline.exec()) ?? []).map(([error, reply]) => {
    if (error !== null) throw error;
    return reply;
  });
}

function nowMsOf(time: unknown): number {
  const [seconds, micros] = time as readonly (string | number)[];
  return Number(seconds) * 1_000 + Number(micros) / 1_000;
}

const FIELDS = ['s', 'f', 'n', 't', 'r', 'c', 'l', 'h'] as const;
/** Commands for each key. */
const EACH = 3;

async function takenRecords(
  client: ScriptedRedis,
  records: readonly string[],
  keyOf: (record: string) => string,
): Promise<TakenKey[]> {
  const pipeline = client.pipeline().time();
  for (const record of records) {
    pipeline
      .hmget(record, ...FIELDS)
      .pttl(record)
      .hkeys(record);
  }
  const [time, ...read] = await replies(pipeline);
  return records.flatMap((record, i) => {
    const [values, leftMs, names] = read.slice(EACH * i) as [(string | null)[], number, string[]];
    return takenKey(keyOf(record), nowMsOf(time), values, leftMs, names) ?? [];
  });
}

/** Each turn of these queues whose time is not over. */
async function takenTurns(
  client: ScriptedRedis,
  queues: readonly string[],
  keyOf: (record: string) => string,
): Promise<TakenKey[]> {
  const pipeline = client.pipeline().time();
  for (const record of queues) pipeline.hgetall(`${record}${TURNS}`).zcard(`${record}${PLACES}`);
  const [time, ...read] = await replies(pipeline);
  const nowMs = nowMsOf(time);
  return queues.flatMap((record, i) => {
    const [fields, waiting] = read.slice(2 * i) as [Record<string, string>, number];
    return Object.entries(fields)
      .filter(([name]) => name.startsWith('h:'))
      .map(([name, turn]) => turnOf(keyOf(record), name.slice(2), nowMs, turn, waiting))
      .filter(({ leftMs }) => leftMs > 0);
  });
}

function turnOf(key: string, flight: string, nowMs: number, turn: string, waiting: number): TakenKey {
  const [state, fence, endUs, beganUs, holdMs, , route = ''] = turn.split(' ');
  const leaseLeftMs = Number(endUs) / 1_000 - nowMs;
  const lapsed = state === 'f' && leaseLeftMs <= 0;
  return {
    key,
    flight,
    route,
    state: state === 'u' || lapsed ? 'unknown' : 'in-flight',
    fence: Number(fence),
    ageMs: Math.max(0, Math.floor(nowMs - Number(beganUs) / 1_000)),
    leftMs: Math.floor(lapsed ? leaseLeftMs + Number(holdMs) : leaseLeftMs),
    waiting,
  };
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
