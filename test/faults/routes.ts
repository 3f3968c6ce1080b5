/**
 * The routes of the random schedules: their rules as the gateways read them, and what the checker may rely on.
 *
 * Invariant: the checker knows a policy only by what stands here. A new one is a line in `ROUTES`.
 */

/** Bounds of every route, milliseconds. */
export const LEASE_MS = 900;
export const UPSTREAM_MS = { connect: 1_000, headers: 2_000, body: 1_000 };
/** Longer than any schedule: until then nothing that is kept is forgotten. */
const LONG_MS = 60_000;

export type RouteRule = {
  readonly name: string;
  readonly policy: 'reject' | 'coalesce' | 'replay' | 'queue';
  /** Upstream calls of one key that may run at a time. */
  readonly concurrency: number;
  /** At most one send per key, until its answer is no longer kept or its outcome no longer held. */
  readonly once: boolean;
  /** A request differs from another of its key by its content too, and is told so. */
  readonly fingerprinted: boolean;
  /** Without the store a process goes on by itself. */
  readonly local: boolean;
  /** Followers of every gateway read the answer as it comes. */
  readonly streams: boolean;
  /** Whoever waits is told the end by a push alone. */
  readonly prompt: boolean;
  /** A longer answer is for those who read it already in its leader's gateway, and its key is free at that moment. */
  readonly maxSharedBytes: number;
  readonly leaseMs: number;
  /** Longest wait for somebody else's flight; 0: nobody waits. */
  readonly waitMs: number;
  /** How long an answer is given to later requests. */
  readonly keepMs: number;
  /** Least status whose answer is kept for nobody. */
  readonly unkeptFrom: number;
  /** How long an unknown outcome holds the key; 0: the next request may run. */
  readonly unknownForMs: number;
  /** Statuses that free the key of a route with `once`. */
  readonly freeing: readonly number[];
  /** Codes of the gateway's own answers beside those of every route. */
  readonly refusals: readonly string[];
  /** YAML of the route's own fields. */
  readonly yaml: string;
};

const BASE = {
  concurrency: 1,
  once: false,
  fingerprinted: false,
  local: false,
  streams: false,
  prompt: false,
  maxSharedBytes: 8 * 1_048_576,
  leaseMs: LEASE_MS,
  waitMs: 0,
  keepMs: 0,
  unkeptFrom: 400,
  unknownForMs: 0,
  freeing: [],
} as const;
const REJECT = { ...BASE, policy: 'reject', refusals: ['in-flight'] } as const;
const COALESCE = {
  ...BASE,
  policy: 'coalesce',
  local: true,
  waitMs: 3_000,
  refusals: ['wait-timeout'],
} as const;
const REPLAY = {
  ...BASE,
  policy: 'replay',
  once: true,
  fingerprinted: true,
  keepMs: LONG_MS,
  unkeptFrom: 1_000,
  unknownForMs: LONG_MS,
  freeing: [401, 407, 408, 421, 425, 429, 503],
  refusals: ['in-flight', 'key-reused'],
} as const;

const QUEUE = { ...BASE, policy: 'queue', waitMs: 3_000, refusals: ['wait-timeout', 'queue-full'] } as const;

const BY_PATH = 'key: [ { request: path } ]';
const WAITS = `${BY_PATH}, identity: public, wait: { max: 3s, poll: 300ms }`;

export const ROUTES: readonly RouteRule[] = [
  { ...REJECT, name: 'lock', yaml: BY_PATH },
  { ...REJECT, name: 'lock-held', unknownForMs: 1_000, yaml: `${BY_PATH}, onUnknown: hold, unknownFor: 1s` },
  { ...QUEUE, name: 'turns', yaml: `${BY_PATH}, wait: { max: 3s, poll: 300ms }` },
  { ...QUEUE, name: 'two', concurrency: 2, yaml: `${BY_PATH}, wait: { max: 3s, poll: 300ms }, concurrency: 2` },
  {
    ...QUEUE,
    name: 'turns-held',
    unknownForMs: 1_000,
    yaml: `${BY_PATH}, wait: { max: 3s, poll: 300ms }, onUnknown: hold, unknownFor: 1s`,
  },
  { ...COALESCE, name: 'fresh', yaml: `${WAITS}, keep: 0s` },
  { ...COALESCE, name: 'kept', keepMs: 400, yaml: `${WAITS}, keep: 400ms` },
  { ...COALESCE, name: 'elects', yaml: `${WAITS}, keep: 0s, onLeaderFailure: elect` },
  // Nothing but a push ends a wait in time: neither the poll nor the end of a lease that was just renewed.
  {
    ...COALESCE,
    name: 'prompt',
    prompt: true,
    yaml: `${BY_PATH}, identity: public, wait: { max: 3s, poll: 3s }, keep: 0s`,
  },
  { ...COALESCE, name: 'strict', local: false, yaml: `${WAITS}, keep: 0s, onStoreDown: reject` },
  {
    ...COALESCE,
    name: 'streams',
    local: false,
    streams: true,
    yaml: `${WAITS}, keep: 0s, stream: true, onStoreDown: reject`,
  },
  {
    ...COALESCE,
    name: 'outgrown',
    streams: true,
    maxSharedBytes: 49_152,
    refusals: [...COALESCE.refusals, 'not-shareable'],
    yaml: `${WAITS}, keep: 0s, stream: true, maxShared: 48KiB`,
  },
  { ...REPLAY, name: 'once', yaml: 'keep: 60s, unknownFor: 60s' },
  {
    ...REPLAY,
    name: 'waits',
    waitMs: 2_000,
    refusals: [...REPLAY.refusals, 'wait-timeout'],
    yaml: 'keep: 60s, unknownFor: 60s, wait: { max: 2s, poll: 300ms }',
  },
  { ...REPLAY, name: 'freed', unknownForMs: 0, yaml: 'keep: 60s, onUnknown: release' },
  { ...REPLAY, name: 'short', keepMs: 1_000, unknownForMs: 1_000, yaml: 'keep: 1s, unknownFor: 1s' },
];

/** The rules as `configOf` takes them. */
export function routesYaml(): string {
  return ROUTES.map(
    ({ name, policy, leaseMs, yaml }) =>
      `  - { name: ${name}, match: { methods: [POST], path: "/${name}/*" }, upstream: api, policy: ${policy}, ` +
      `lease: ${leaseMs}ms, forward: { fence: X-Fence }, ${yaml} }`,
  ).join('\n');
}
