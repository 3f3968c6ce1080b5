/** Policies and rules with the defaults of the configuration, for tests that need no configuration file. */

import type { CoalescePolicy, QueuePolicy, RejectPolicy, ReplayPolicy, Rule } from '../../src/core/rule.js';

const KEYED = {
  mode: 'protects',
  scope: 'test',
  key: [{ from: 'request', name: 'path', optional: false }],
  onMissingKey: 'pass',
  leaseMs: 30_000,
  maxKeyBodyBytes: 1_048_576,
  unknownForMs: 0,
  reconcile: null,
  forward: { fence: null, idempotencyKey: null },
} as const;

export function coalescePolicy(changes: Partial<CoalescePolicy> = {}): CoalescePolicy {
  return {
    ...KEYED,
    kind: 'coalesce',
    identity: { kind: 'public' },
    onStoreDown: 'local',
    waitMs: 10_000,
    pollMs: 500,
    keep: { kind: 'by-method' },
    keepStatuses: [{ from: 200, to: 399 }],
    maxSharedBytes: 8 * 1_048_576,
    maxFollowers: 10_000,
    stream: 'in-process',
    stallMs: 10_000,
    onLeaderFailure: { kind: 'fail' },
    onUnshareable: 'by-method',
    unshareableForMs: 60_000,
    verify: null,
    ...changes,
  };
}

export function rejectPolicy(changes: Partial<RejectPolicy> = {}): RejectPolicy {
  return {
    ...KEYED,
    kind: 'reject',
    identity: { kind: 'public' },
    onStoreDown: 'reject',
    conflict: { status: 409, retryAfter: { kind: 'computed' } },
    ...changes,
  };
}

export function replayPolicy(changes: Partial<ReplayPolicy> = {}): ReplayPolicy {
  return {
    ...KEYED,
    kind: 'replay',
    key: [{ from: 'idempotency-key', name: 'idempotency-key', optional: false }],
    identity: { kind: 'public' },
    onStoreDown: 'reject',
    keepMs: 86_400_000,
    wait: { kind: 'none' },
    maxSharedBytes: 8 * 1_048_576,
    fingerprint: 'exact',
    release: [401, 407, 408, 421, 425, 429, 503],
    keepContent: { kind: 'full' },
    unknownForMs: 86_400_000,
    ...changes,
  };
}

export function queuePolicy(changes: Partial<QueuePolicy> = {}): QueuePolicy {
  return {
    ...KEYED,
    kind: 'queue',
    identity: { kind: 'public' },
    onStoreDown: 'reject',
    waitMs: 10_000,
    pollMs: 500,
    concurrency: 1,
    maxQueue: 100,
    ...changes,
  };
}

export function ruleOf(name: string, path: string, policy: Rule['policy']): Rule {
  const match = { methods: [], path, host: null, headers: [] };
  return { name, match, upstream: 'api', maxRequests: Number.POSITIVE_INFINITY, policy };
}
