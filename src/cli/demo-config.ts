/** The gateway of the demo: one upstream, the memory store, and the first two rules of `config/gateway.yaml`. */

import type { Config } from '../config/config.js';
import { DEFAULT_LIMITS } from '../config/resolve-listener.js';
import { upstreamOf } from '../config/resolve-upstream.js';
import { upstream as upstreamSchema } from '../config/upstream-schema.js';
import type { CoalescePolicy, RejectPolicy } from '../core/rule.js';

const REFRESH: CoalescePolicy = {
  kind: 'coalesce',
  mode: 'protects',
  scope: 'session-refresh',
  key: [{ from: 'body', name: '/refreshToken', optional: false }],
  identity: {
    kind: 'parts',
    parts: [
      { from: 'header', name: 'authorization', optional: true },
      { from: 'header', name: 'cookie', optional: true },
    ],
  },
  onMissingKey: 'pass',
  onStoreDown: 'local',
  leaseMs: 5_000,
  maxKeyBodyBytes: 1_048_576,
  unknownForMs: 0,
  reconcile: null,
  forward: { fence: null, idempotencyKey: null },
  waitMs: 3_000,
  pollMs: 500,
  keep: { kind: 'fixed', keepMs: 5_000 },
  maxSharedBytes: 8_388_608,
  keepStatuses: [
    { from: 200, to: 299 },
    { from: 300, to: 399 },
  ],
  maxFollowers: 10_000,
  stream: 'in-process',
  stallMs: 10_000,
  onLeaderFailure: { kind: 'fail' },
  onUnshareable: 'by-method',
  unshareableForMs: 60_000,
  verify: null,
};

const PROCEED: RejectPolicy = {
  kind: 'reject',
  mode: 'protects',
  scope: 'step-proceed',
  key: [
    { from: 'param', name: 'session', optional: false },
    { from: 'param', name: 'step', optional: false },
  ],
  identity: { kind: 'public' },
  onMissingKey: 'pass',
  onStoreDown: 'reject',
  leaseMs: 30_000,
  maxKeyBodyBytes: 1_048_576,
  unknownForMs: 0,
  reconcile: null,
  forward: { fence: null, idempotencyKey: null },
  conflict: { status: 429, retryAfter: { kind: 'computed' } },
};

/** The configuration of the demo's gateway; `port` 0 picks a free one. */
export function demoConfig({ host, port, upstream }: { host: string; port: number; upstream: URL }): Config {
  const everywhere = { host: null, headers: [] };
  return {
    listen: { host, port, tls: null, http2: false, proxyProtocol: false },
    admin: { kind: 'off' },
    workers: 1,
    store: { kind: 'memory', maxMemoryBytes: 16_777_216, secrets: [] },
    upstreams: new Map([
      [
        'api',
        upstreamOf(
          'api',
          upstreamSchema.parse({ url: upstream.origin, timeouts: { headers: '10s', body: '10s' } }),
          '.',
        ),
      ],
    ]),
    rules: [
      {
        name: 'session-refresh',
        match: { methods: ['POST'], path: '/auth/sessions/refresh', ...everywhere },
        maxRequests: Number.POSITIVE_INFINITY,
        upstream: 'api',
        policy: REFRESH,
      },
      {
        name: 'step-proceed',
        match: { methods: ['POST'], path: '/sessions/:session/steps/:step/proceed', ...everywhere },
        maxRequests: Number.POSITIVE_INFINITY,
        upstream: 'api',
        policy: PROCEED,
      },
    ],
    limits: DEFAULT_LIMITS,
    unmatched: { kind: 'upstream', name: 'api' },
    trustedProxies: [],
    requestId: { trust: 'always' },
    tracing: { kind: 'off' },
    log: { level: 'silent', format: 'json', access: { format: 'off', share: 1, target: 'none', client: 'none' } },
    drainDelayMs: 0,
    drainMs: 1_000,
  };
}
