/** Durations and sizes that do not fit those of the store or of the upstream. */

import { waitOf } from '../core/policy.js';
import { type CoalescePolicy, isSafe, type KeyedPolicy, type Rule } from '../core/rule.js';
import type { Config, StoreConfig } from './config.js';
import type { Doubt, FieldPath } from './fault.js';
import { valueAt } from './locate.js';
import type { Located } from './source.js';
import { memoryShares } from './worker-shares.js';

/** What is doubtful about the bounds of one rule. */
export function boundDoubts(config: Config, rule: Rule, path: FieldPath, root: Located): Doubt[] {
  const { policy } = rule;
  if (policy.kind === 'pass') return [];
  const doubts = shortLease(config.store, policy, path);
  const waits = waitOf(policy);
  // Who is queued may wait for many answers.
  if (waits !== null && policy.kind !== 'queue') doubts.push(...longWait(config, rule, waits.waitMs, path, root));
  if (policy.kind === 'coalesce') doubts.push(...repeatAfterFlight(config, rule, policy, path));
  return doubts;
}

/** A third of the lease passes before it is renewed; a question that times out and the next one must fit into the rest. */
function shortLease(store: StoreConfig, policy: KeyedPolicy, path: FieldPath): Doubt[] {
  if (store.kind !== 'redis' || policy.leaseMs >= 3 * store.commandTimeoutMs) return [];
  const message =
    `shorter than three times store.commandTimeout (3 × ${store.commandTimeoutMs} ms): ` +
    'its renewal, a third of it after the claim, may come too late';
  return [{ code: 'short-lease', path: [...path, 'lease'], message }];
}

/** Only for a wait that was written: the default is not the author's promise. */
function longWait(config: Config, rule: Rule, waitMs: number, path: FieldPath, root: Located): Doubt[] {
  const upstream = config.upstreams.get(rule.upstream)!;
  const deadlineMs = upstream.connectTimeoutMs + upstream.headersTimeoutMs;
  const written = [...path, 'wait'];
  if (waitMs <= deadlineMs || valueAt(root, written) === undefined) return [];
  const exact = [...written, 'max'];
  const message =
    `longer than upstream ${upstream.name} may take to answer (connect and headers: ${deadlineMs} ms): ` +
    'no follower can wait that long';
  return [{ code: 'long-wait', path: valueAt(root, exact) === undefined ? written : exact, message }];
}

/** With one process the duplicate that is late finds the flight just ended; over several it may also be late by the way to another. */
function repeatAfterFlight(config: Config, rule: Rule, policy: CoalescePolicy, path: FieldPath): Doubt[] {
  if ((config.store.kind !== 'redis' && config.workers === 1) || policy.keep.kind !== 'fixed' || policy.keep.keepMs > 0)
    return [];
  if (isSafeOnly(rule)) return [];
  const message =
    'with 0 a duplicate that reaches another process just after the flight has ended is executed again: ' +
    'keep the response for a few seconds';
  return [{ code: 'nothing-kept', path: [...path, 'keep'], message }];
}

/** Rules that would keep a larger response than the memory store holds; said once of the store for those by default. */
export function keepDoubts(config: Config, root: Located): Doubt[] {
  const { store, rules, workers } = config;
  if (store.kind !== 'memory') return [];
  // How many they are where they are counted by cores is not known before the start.
  const count = workers === 'auto' ? 1 : workers;
  const { storeBytes, workerBytes } = memoryShares(config, count);
  const mostBytes = Math.min(storeBytes, workerBytes);
  const larger = rules.flatMap((rule, index) => (mostKept(rule) > mostBytes ? [['routes', index, 'maxShared']] : []));
  const written = larger.filter((path) => valueAt(root, path) !== undefined);
  const part = count === 1 ? '' : `what a worker may use of `;
  const doubts: Doubt[] = written.map((path) => ({
    code: 'keep-over-memory',
    path,
    message: `larger than ${part}store.maxMemory (${mostBytes} bytes): a response of this size is never kept`,
  }));
  if (written.length === larger.length) return doubts;
  const message =
    count === 1
      ? 'smaller than the default of maxShared: a response between the two is never kept'
      : `what a worker may use of it (${mostBytes} bytes) is smaller than the default of maxShared: a response between the two is never kept`;
  return [...doubts, { code: 'keep-over-memory', path: ['store', 'maxMemory'], message }];
}

/** Bytes of the largest response that a rule keeps beyond its flight; 0 when it keeps none. */
function mostKept(rule: Rule): number {
  const { policy } = rule;
  if (policy.kind === 'replay') return policy.keepContent.kind === 'none' ? 0 : policy.maxSharedBytes;
  if (policy.kind !== 'coalesce') return 0;
  const keeps = policy.keep.kind === 'fixed' ? policy.keep.keepMs > 0 : !isSafeOnly(rule);
  return keeps ? policy.maxSharedBytes : 0;
}

function isSafeOnly({ match }: Rule): boolean {
  return match.methods.length > 0 && match.methods.every(isSafe);
}
