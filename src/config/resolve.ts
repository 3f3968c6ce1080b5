/** A valid file → what the gateway reads: units, unions with a `kind`, and the defaults that depend on other fields. */

import { parseQuestionUrl } from '../core/question-url.js';
import {
  type CoalescePolicy,
  type Identity,
  KEY_SOURCES,
  type KeyedPolicy,
  type KeyPart,
  type Match,
  type Policy,
  type QueuePolicy,
  type Reconcile,
  type RejectPolicy,
  type ReplayPolicy,
  type Rule,
  type Verify,
} from '../core/rule.js';
import type { AdminConfig, Config, TracingConfig } from './config.js';
import type { FieldPath } from './fault.js';
import { limitsOf, listenOf } from './resolve-listener.js';
import { logOf } from './resolve-log.js';
import { storeOf } from './resolve-store.js';
import { upstreamOf } from './resolve-upstream.js';
import {
  DEFAULT_ELECTIONS,
  DEFAULT_POLL,
  DEFAULT_UNKNOWN_FOR,
  DEFAULT_VERIFIED_FIELDS,
  type KeyPartOutput,
  type RouteOutput,
  retryAfterSeconds,
} from './route-schema.js';
import type { ConfigOutput } from './schema.js';
import { statusRangeOf } from './statuses.js';
import { durationMs, shareOf, sizeBytes } from './units.js';

type RouteOf<Kind extends KeyedPolicy['kind']> = Extract<RouteOutput, { policy: Kind }>;

/**
 * Makes the frozen configuration of a checked file. `directoryOf`: where relative paths of the field at a path begin;
 * `tracing`: what the file and the environment say of it together.
 */
export function resolveConfig(
  output: ConfigOutput,
  directoryOf: (path: FieldPath) => string,
  tracing: TracingConfig,
): Config {
  const upstreams = new Map(
    Object.entries(output.upstreams).map(([name, upstream]) => {
      return [name, upstreamOf(name, upstream, directoryOf(['upstreams', name]))];
    }),
  );
  const only = upstreams.size === 1 ? [...upstreams.keys()][0] : undefined;
  const unmatched = output.unmatched ?? only ?? false;
  return deepFreeze({
    listen: listenOf(output.listen, directoryOf(['listen'])),
    admin: adminOf(output.admin),
    workers: output.workers,
    store: storeOf(output.store, directoryOf(['store'])),
    upstreams,
    rules: output.routes.map((route) => ruleOf(route, only)),
    unmatched: unmatched === false ? { kind: 'not-found' } : { kind: 'upstream', name: unmatched },
    limits: limitsOf(output.limits),
    trustedProxies: output.trustedProxies,
    requestId: output.requestId,
    log: logOf(output.log),
    tracing,
    ...drainOf(output.drain),
  });
}

function drainOf(drain: ConfigOutput['drain']): Pick<Config, 'drainMs' | 'drainDelayMs'> {
  const { delay, timeout } = typeof drain === 'object' ? drain : { delay: 0, timeout: drain };
  return { drainMs: durationMs(timeout), drainDelayMs: durationMs(delay) };
}

function adminOf(admin: ConfigOutput['admin']): AdminConfig {
  if (admin === false) return { kind: 'off' };
  return { kind: 'on', host: admin.host, port: admin.port, token: admin.token ?? null };
}

function ruleOf(route: RouteOutput, only: string | undefined): Rule {
  const upstream = route.upstream ?? only;
  // The cross-checks have refused such a file already.
  if (upstream === undefined) throw new Error(`route ${route.name} has no upstream`);
  const maxRequests = route.maxRequests ?? Number.POSITIVE_INFINITY;
  return { name: route.name, match: matchOf(route.match), upstream, maxRequests, policy: policyOf(route) };
}

function matchOf(match: RouteOutput['match']): Match {
  return {
    methods: match.methods ?? [],
    path: match.path,
    host: match.host?.toLowerCase() ?? null,
    headers: Object.entries(match.headers ?? {}).map(([name, value]) => ({ name: name.toLowerCase(), value })),
  };
}

function policyOf(route: RouteOutput): Policy {
  if (route.policy === 'coalesce') return coalesceOf(route);
  if (route.policy === 'reject') return rejectOf(route);
  if (route.policy === 'replay') return replayOf(route);
  if (route.policy === 'queue') return queueOf(route);
  return { kind: 'pass' };
}

/** The key of replay when none is written (draft-ietf-httpapi-idempotency-key-header). */
const IDEMPOTENCY_KEY: KeyPart = { from: 'idempotency-key', name: 'idempotency-key', optional: false };

function keyedOf(route: RouteOf<KeyedPolicy['kind']>) {
  const unknownFor = route.unknownFor ?? DEFAULT_UNKNOWN_FOR[route.policy];
  return {
    mode: route.observe ? ('observes' as const) : ('protects' as const),
    scope: route.scope ?? route.name,
    key: route.key?.map(keyPartOf) ?? [IDEMPOTENCY_KEY],
    identity: identityOf(route.identity),
    onMissingKey: route.onMissingKey,
    onStoreDown: route.onStoreDown,
    leaseMs: durationMs(route.lease),
    maxKeyBodyBytes: sizeBytes(route.maxKeyBody),
    unknownForMs: route.onUnknown === 'hold' ? durationMs(unknownFor) : 0,
    reconcile: 'reconcile' in route && route.reconcile !== undefined ? reconcileOf(route.reconcile) : null,
    forward: { fence: route.forward.fence ?? null, idempotencyKey: route.forward.idempotencyKey ?? null },
  };
}

function reconcileOf({ url, every, headers, done }: NonNullable<RouteOf<'replay'>['reconcile']>): Reconcile {
  const parsed = parseQuestionUrl(url);
  // The schema has refused such a URL already.
  if (parsed.kind === 'fault') throw new Error(`not a URL to ask at: ${url}`);
  return {
    url: parsed.url,
    everyMs: durationMs(every),
    fields: Object.entries(headers).flat(),
    done: Object.entries(done ?? {}).map(([pointer, values]) => ({
      pointer,
      values: Array.isArray(values) ? values : [values],
    })),
  };
}

function coalesceOf(route: RouteOf<'coalesce'>): CoalescePolicy {
  return {
    kind: 'coalesce',
    ...keyedOf(route),
    ...waitOf(route.wait),
    keep: route.keep === undefined ? { kind: 'by-method' } : { kind: 'fixed', keepMs: durationMs(route.keep) },
    keepStatuses: route.keepStatuses.map(statusRangeOf),
    maxSharedBytes: sizeBytes(route.maxShared),
    maxFollowers: route.maxFollowers,
    stream: route.stream ? 'to-all-processes' : 'in-process',
    stallMs: durationMs(route.stallTimeout),
    onLeaderFailure:
      route.onLeaderFailure === 'elect'
        ? { kind: 'elect', elections: route.elections ?? DEFAULT_ELECTIONS }
        : { kind: 'fail' },
    onUnshareable: route.onUnshareable ?? 'by-method',
    unshareableForMs: durationMs(route.unshareableFor),
    verify: route.verify === undefined ? null : verifyOf(route.verify),
  };
}

function verifyOf(verify: NonNullable<RouteOf<'coalesce'>['verify']>): Verify {
  const { share, fields } = typeof verify === 'object' ? verify : { share: verify, fields: DEFAULT_VERIFIED_FIELDS };
  return { share: shareOf(share), fields: fields.map((name) => name.toLowerCase()) };
}

function rejectOf(route: RouteOf<'reject'>): RejectPolicy {
  const { status, retryAfter } = route.conflict;
  const seconds = retryAfter === undefined ? null : retryAfterSeconds(retryAfter);
  return {
    kind: 'reject',
    ...keyedOf(route),
    conflict: { status, retryAfter: seconds === null ? { kind: 'computed' } : { kind: 'fixed', seconds } },
  };
}

function replayOf(route: RouteOf<'replay'>): ReplayPolicy {
  const { wait, keepContent } = route;
  return {
    kind: 'replay',
    ...keyedOf(route),
    keepMs: durationMs(route.keep),
    wait: wait === undefined ? { kind: 'none' } : { kind: 'bounded', ...waitOf(wait) },
    maxSharedBytes: sizeBytes(route.maxShared),
    fingerprint: route.fingerprint,
    release: [...new Set(route.release)],
    keepContent: typeof keepContent === 'string' ? { kind: keepContent } : { kind: 'members', pointers: keepContent },
  };
}

function queueOf(route: RouteOf<'queue'>): QueuePolicy {
  const { concurrency, maxQueue } = route;
  return { kind: 'queue', ...keyedOf(route), ...waitOf(route.wait), concurrency, maxQueue };
}

function waitOf(wait: RouteOf<'coalesce'>['wait']) {
  const { max, poll } = typeof wait === 'object' ? wait : { max: wait, poll: DEFAULT_POLL };
  return { waitMs: durationMs(max), pollMs: durationMs(poll) };
}

function identityOf(identity: RouteOf<KeyedPolicy['kind']>['identity']): Identity {
  return identity === 'public' ? { kind: 'public' } : { kind: 'parts', parts: identity.map(keyPartOf) };
}

function keyPartOf(part: KeyPartOutput): KeyPart {
  const from = KEY_SOURCES.find((source) => part[source] !== undefined);
  // The schema has refused a part without a source already.
  if (from === undefined) throw new Error('a key part has no source');
  const name = part[from] ?? '';
  return { from, name: from === 'header' ? name.toLowerCase() : name, optional: part.optional };
}

/** Freezes plain objects and arrays all the way down; maps and URLs are readonly by their type only. */
function deepFreeze<T>(value: T): T {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value)) return value;
  if (value instanceof Map) for (const entry of value.values()) deepFreeze(entry);
  for (const entry of Object.values(value)) deepFreeze(entry);
  return Object.freeze(value);
}
