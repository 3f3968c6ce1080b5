/**
 * The routes of the soak: every policy twice. On calm ones no client leaves and no call fails, so that everything can be
 * counted to the last request; on the others both happen all the time.
 */

export type SoakRoute = {
  readonly name: string;
  readonly policy: 'pass' | 'coalesce' | 'reject' | 'replay' | 'queue';
  readonly mood: 'calm' | 'stormy';
  readonly method: 'GET' | 'POST';
  /** How many keys its requests have at a time. */
  readonly keys: number;
  /** Where the key stands. */
  readonly keyIn: 'path' | 'content' | 'idempotency-key';
  /** YAML of its own fields. */
  readonly yaml: string;
};

/** Nothing is kept, held or remembered longer than this. */
export const RETENTION_MS = 3_000;

const BY_PATH = 'key: [ { request: path } ]';
const WAIT = 'wait: { max: 20s, poll: 500ms }';
const COALESCE = `${BY_PATH}, ${WAIT}, unshareableFor: 1s`;
const REPLAY = 'keep: 1s, onUnknown: hold, unknownFor: 1s';

const PAIRS: readonly Omit<SoakRoute, 'mood'>[] = [
  { name: 'pass', policy: 'pass', method: 'POST', keys: 50, keyIn: 'path', yaml: '' },
  { name: 'kept', policy: 'coalesce', method: 'POST', keys: 10, keyIn: 'path', yaml: `${COALESCE}, keep: 200ms` },
  { name: 'read', policy: 'coalesce', method: 'GET', keys: 10, keyIn: 'path', yaml: `${COALESCE}, keep: 0s` },
  {
    name: 'streamed',
    policy: 'coalesce',
    method: 'GET',
    keys: 4,
    keyIn: 'path',
    yaml: `${COALESCE}, keep: 0s, stream: true, maxShared: 64KiB`,
  },
  {
    name: 'content',
    policy: 'coalesce',
    method: 'POST',
    keys: 10,
    keyIn: 'content',
    yaml: `key: [ { body: /key } ], ${WAIT}, keep: 0s, unshareableFor: 1s`,
  },
  { name: 'lock', policy: 'reject', method: 'POST', keys: 10, keyIn: 'path', yaml: BY_PATH },
  { name: 'once', policy: 'replay', method: 'POST', keys: 5, keyIn: 'idempotency-key', yaml: REPLAY },
  { name: 'waits', policy: 'replay', method: 'POST', keys: 5, keyIn: 'idempotency-key', yaml: `${REPLAY}, ${WAIT}` },
  {
    name: 'watched',
    policy: 'coalesce',
    method: 'POST',
    keys: 10,
    keyIn: 'content',
    yaml: `key: [ { body: /key } ], ${WAIT}, keep: 200ms, unshareableFor: 1s, observe: true`,
  },
  { name: 'turns', policy: 'queue', method: 'POST', keys: 6, keyIn: 'path', yaml: `${BY_PATH}, ${WAIT}` },
];

export const SOAK_ROUTES: readonly SoakRoute[] = PAIRS.flatMap((route) => [
  { ...route, name: `calm-${route.name}`, mood: 'calm' },
  { ...route, name: `storm-${route.name}`, mood: 'stormy' },
]);

/** The rules as `configOf` takes them. */
export function soakYaml(): string {
  return SOAK_ROUTES.map(({ name, policy, yaml }) => {
    const own = yaml === '' ? '' : `, ${yaml}`;
    return `  - { name: ${name}, match: { path: "/${name}/*" }, upstream: api, policy: ${policy}${own} }`;
  }).join('\n');
}
