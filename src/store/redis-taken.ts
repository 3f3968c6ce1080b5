/**
 * The records of a server, read for operators.
 *
 * Invariants: what a key is kept with is never read, only what claim.lua and queue.lua say about it and how many wait; ages and time
 * left are by the server's clock; a record that ends meanwhile is left out.
 */

import type { ChainableCommander } from 'ioredis';
import type { TakenKey } from '../core/claim.js';
import type { ScriptedRedis } from './redis-client.js';
import type { RedisNames } from './redis-names.js';

/** Of these hashes, as SCAN gave them, the keys that are taken. One round trip for each kind. */
export async function takenAmong(
  client: ScriptedRedis,
  hashes: readonly string[],
  names: RedisNames,
): Promise<TakenKey[]> {
  const records = hashes.flatMap((name) => names.keyOf(name, 'record') ?? []);
  const queues = hashes.flatMap((name) => names.keyOf(name, 'turns') ?? []);
  const [taken, turns] = await Promise.all([
    records.length === 0 ? [] : takenRecords(client, records, names),
    queues.length === 0 ? [] : takenTurns(client, queues, names),
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

const FIELDS = ['s', 'f', 'n', 't', 'r', 'c', 'l', 'h', 'p'] as const;
/** Commands for each key. */
const EACH = 3;

async function takenRecords(client: ScriptedRedis, keys: readonly string[], names: RedisNames): Promise<TakenKey[]> {
  const pipeline = client.pipeline().time();
  for (const key of keys) {
    const record = names.record(key);
    pipeline
      .hmget(record, ...FIELDS)
      .pttl(record)
      .hkeys(record);
  }
  const [time, ...read] = await replies(pipeline);
  return keys.flatMap((key, i) => {
    const [values, leftMs, fields] = read.slice(EACH * i) as [(string | null)[], number, string[]];
    return takenKey(key, nowMsOf(time), values, leftMs, fields) ?? [];
  });
}

/** Each turn of these queues whose time is not over. */
async function takenTurns(client: ScriptedRedis, keys: readonly string[], names: RedisNames): Promise<TakenKey[]> {
  const pipeline = client.pipeline().time();
  for (const key of keys) pipeline.hgetall(names.turns(key)).zcard(names.places(key));
  const [time, ...read] = await replies(pipeline);
  const nowMs = nowMsOf(time);
  return keys.flatMap((key, i) => {
    const [fields, waiting] = read.slice(2 * i) as [Record<string, string>, number];
    return Object.entries(fields)
      .filter(([name]) => name.startsWith('h:'))
      .map(([name, turn]) => turnOf(key, name.slice(2), nowMs, turn, waiting))
      .filter(({ leftMs }) => leftMs > 0);
  });
}

function turnOf(key: string, flight: string, nowMs: number, turn: string, waiting: number): TakenKey {
  const [state, fence, endUs, beganUs, holdMs, token = '', route = ''] = turn.split(' ');
  const leaseLeftMs = Number(endUs) / 1_000 - nowMs;
  const lapsed = state === 'f' && leaseLeftMs <= 0;
  return {
    key,
    flight,
    route,
    state: state === 'u' || lapsed ? 'unknown' : 'in-flight',
    fence: Number(fence),
    leader: token.split('@')[1] ?? null,
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
  const [recorded, flight, fence, beganUs, route, completedUs, leaseEndUs, holdMs, leader] = values;
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
    leader: leader ?? null,
    ageMs: Math.max(0, Math.floor(nowMs - Number(kept ? completedUs : beganUs) / 1_000)),
    leftMs: inFlight ? Math.floor(leaseLeftMs) : leftMs,
    waiting: inFlight ? names.filter((name) => name.startsWith('w:')).length : 0,
  };
}
