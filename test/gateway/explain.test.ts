/** `explain` and a gateway say the same: of random requests under random rules, and of keys that are free, taken and kept. */

import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import t, { type Test } from 'tap';
import { loadConfig } from '../../src/config/load.js';
import { fieldLines } from '../../src/core/field-lines.js';
import type { Explanation } from '../../src/explain/explaining.js';
import { Explainer } from '../../src/explain/explaining.js';
import { readTold } from '../../src/http/told-request.js';
import { type Answered, request as ask } from '../support/client.js';
import { problemOf } from '../support/expect.js';
import { eventually, Gate } from '../support/gate.js';
import { configOf, type Gateway, startGateway } from '../support/gateway.js';
import { startRedis } from '../support/redis.js';
import { answers, gated, type StubUpstream, startUpstream } from '../support/upstream.js';

t.setTimeout(170_000);

const PROGRAM = fileURLToPath(new URL('../../bin/main.js', import.meta.url));
const SECRETS = ['a secret of this test', 'the one before that'];

/** A request as JSON tells of it, and as a client sends it. */
type Told = {
  readonly method: string;
  readonly target: string;
  readonly headers: readonly (readonly [string, string])[];
  readonly content?: string;
};

type Taken = { readonly key: string; readonly route: string; readonly state: string };

function sendTold(gateway: Gateway, { method, target, headers, content }: Told) {
  const body = content === undefined ? {} : { body: content };
  return gateway.send({ method, path: target, headers: headers.flat(), ...body });
}

async function explain(gateway: Gateway, body: object): Promise<Explanation> {
  const answer = await postExplain(gateway, body);
  if (answer.status !== 200) throw new Error(`${answer.status} ${answer.text}`);
  return answer.json() as Explanation;
}

function postExplain(gateway: Gateway, body: unknown): Promise<Answered> {
  const headers = ['Content-Type', 'application/json'];
  return ask(gateway.adminUrl, { method: 'POST', path: '/explain', headers, body: JSON.stringify(body) });
}

async function taken(gateway: Gateway): Promise<Taken[]> {
  const { flights } = (await gateway.admin('/flights')).json() as { flights: Taken[] };
  return flights;
}

const part = fc.constantFrom(
  { header: 'x-kind' },
  { header: 'authorization', optional: true },
  { query: 'q' },
  { query: 'q', optional: true },
  { cookie: 'sid' },
  { body: '/id' },
  { body: '/id', optional: true },
  { body: '' },
  { form: 'id' },
  { request: 'host' },
  { request: 'path' },
  { request: 'target' },
  { request: 'content' },
);

const match = fc.record(
  {
    path: fc.constantFrom('/a', '/a/:p', '/a/*', '/b/:p/c', '/:p', '/*'),
    methods: fc.subarray(['GET', 'POST', 'PUT'], { minLength: 1 }),
    host: fc.constantFrom('api.example.com', '*.example.com'),
    headers: fc.constant({ 'x-kind': 'one' }),
  },
  { requiredKeys: ['path'] },
);

const keyed = fc.record(
  {
    policy: fc.constantFrom('coalesce', 'reject', 'queue'),
    key: fc.array(part, { minLength: 1, maxLength: 3 }),
    identity: fc.constantFrom('public', [{ header: 'authorization' }], [{ cookie: 'sid' }, { body: '/id' }]),
    onMissingKey: fc.constantFrom('pass', 'reject'),
    maxKeyBody: fc.constantFrom('64B', '1MiB'),
    scope: fc.constantFrom('one', 'two'),
    observe: fc.boolean(),
  },
  { requiredKeys: ['policy', 'key', 'maxKeyBody'] },
);

const replayed = fc.record(
  {
    policy: fc.constant('replay'),
    fingerprint: fc.constantFrom('exact', 'canonical', 'none'),
    onMissingKey: fc.constantFrom('pass', 'reject'),
    maxKeyBody: fc.constantFrom('64B', '1MiB'),
  },
  { requiredKeys: ['policy', 'maxKeyBody'] },
);

/** No bias towards small values: the first rule would be a catch-all too often. */
const rules = fc.noBias(
  fc.array(
    fc.tuple(
      match,
      fc.oneof(
        { weight: 5, arbitrary: keyed },
        { weight: 2, arbitrary: replayed },
        { weight: 1, arbitrary: fc.constant({ policy: 'pass' }) },
      ),
    ),
    { minLength: 4, maxLength: 8 },
  ),
);

/** Under these every kind of end comes up, whatever the seed. */
const WRITTEN: ReturnType<typeof rules.generate>['value'] = [
  [
    { path: '/a', methods: ['POST'] },
    { policy: 'coalesce', key: [{ body: '/id' }], maxKeyBody: '64B' },
  ],
  [{ path: '/a/*' }, { policy: 'replay', maxKeyBody: '1MiB' }],
  [{ path: '/a' }, { policy: 'queue', key: [{ request: 'path' }], maxKeyBody: '1MiB' }],
  [
    { path: '/b/:p/c', methods: ['POST'] },
    { policy: 'queue', key: [{ request: 'path' }], maxKeyBody: '64B', observe: true },
  ],
  [{ path: '/b/:p/c' }, { policy: 'reject', key: [{ query: 'q' }], onMissingKey: 'reject', maxKeyBody: '1MiB' }],
];

const told: fc.Arbitrary<Told> = fc
  .record({
    method: fc.constantFrom('GET', 'POST', 'POST', 'PUT', 'DELETE'),
    path: fc.constantFrom('/a', '/a/', '//a', '/%61', '/a/x', '/a/../a/y', '/b/1/c', '/b/%31/./c', '/b', '/c/d/e'),
    query: fc.constantFrom('', '', '?q=1', '?q=1&q=2', '?q=', '?%71=1', '?other=1'),
    host: fc.constantFrom('api.example.com', 'API.example.com:8080', 'www.example.com', 'elsewhere'),
    fields: fc.subarray<readonly [string, string]>([
      ['x-kind', 'one'],
      ['x-kind', 'two'],
      ['Authorization', 'Bearer secret'],
      ['Cookie', 'sid=7; other=8'],
      ['Connection', 'x-kind'],
      ['Range', 'bytes=0-1'],
      ['Content-Encoding', 'br'],
    ]),
    key: fc.constantFrom(null, 'k1', '"k1"', 'a, b', '"open', '', 'k'.repeat(256)),
    content: fc.constantFrom<readonly (string | undefined)[]>(
      [undefined, undefined],
      ['application/json', '{"id":1}'],
      ['application/json', '{ "id": null }'],
      ['application/json', '{"id":1,"id":2}'],
      ['application/json', '{"id":'],
      ['application/json', `{"id":"${'x'.repeat(80)}"}`],
      ['application/x-www-form-urlencoded', 'id=5&id=6'],
    ),
  })
  .map(({ method, path, query, host, fields, key, content: [type, content] }) => ({
    method,
    target: `${path}${query}`,
    headers: [
      ['Host', host] as const,
      ...fields,
      ...(key === null ? [] : [['Idempotency-Key', key] as const]),
      ...(type === undefined ? [] : [['Content-Type', type] as const]),
    ],
    ...(content === undefined ? {} : { content }),
  }));

/** What the gateway did with a request: its rule, the digest of its key, and how it said so. */
async function done(gateway: Gateway, upstream: StubUpstream, request: Told, id: string, own: Explanation) {
  const gate = new Gate();
  const before = upstream.count();
  upstream.on(request.target.split('?')[0] as string, gated(gate, answers({ content: 'answered' })));
  const { answer } = sendTold(gateway, { ...request, headers: [...request.headers, ['X-Request-Id', id]] });
  const over = answer.then(() => true);
  let isOver = false;
  void over.then(() => {
    isOver = true;
  });
  await eventually(`something became of ${id}`, () => isOver || upstream.count() > before);
  // What only observes claims beside forwarding, and not before.
  const claims = own.becomes.kind === 'observed' && (own.key?.digests.length ?? 0) > 0;
  if (claims) await eventually(`${id} has claimed`, async () => (await taken(gateway)).length > 0);
  const flight = isOver ? null : (await taken(gateway)).find(({ state }) => state === 'in-flight');
  gate.open();
  const answered = await answer;
  const line = () => gateway.logs.find((log) => (log as { requestId?: unknown }).requestId === id);
  await eventually(`the log has ${id}`, () => line() !== undefined);
  return { answered, flight: flight ?? null, route: line()?.route };
}

t.test('of random requests under random rules, both say the same', async (t) => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  t.comment(`seed ${seed}`);
  const upstream = await startUpstream(t);
  const kinds = new Map<string, number>();
  for (const [round, routes] of [WRITTEN, ...fc.sample(rules, { seed, numRuns: 3 })].entries()) {
    const items = routes.map(([match, policy], i) => {
      const json = { name: `rule-${i}`, match, upstream: 'api', ...policy };
      return `  - ${JSON.stringify(json)}\n`;
    });
    const config = configOf({
      upstream: upstream.url,
      store: `{ kind: memory, secret: ${JSON.stringify(SECRETS)} }`,
      routes: items.join(''),
      unmatched: round === 0 ? 'false' : 'api',
    });
    const file = join(t.testdir({ 'gateway.yaml': config }), 'gateway.yaml');
    const loaded = loadConfig(file, {});
    if (loaded.kind === 'invalid') throw new Error(JSON.stringify(loaded.errors));
    const explainer = new Explainer(loaded.config);
    const gateway = await startGateway(t, { config, file });
    for (const [i, request] of fc.sample(fc.noBias(told), { seed: seed + round, numRuns: 50 }).entries()) {
      const id = `r-${round}-${i}`;
      const read = readTold(request);
      if (typeof read === 'string') throw new Error(read);
      const own = await explainer.explain(read, { values: 'masked', store: null });
      t.strictSame(await explain(gateway, request), JSON.parse(JSON.stringify(own)), 'the admin listener says it too');
      const what = JSON.stringify({ seed, round, request, becomes: own.becomes, route: own.route });
      const { answered, flight, route } = await done(gateway, upstream, request, id, own);
      kinds.set(own.becomes.kind, (kinds.get(own.becomes.kind) ?? 0) + 1);
      const early = own.becomes.kind === 'refused' && ['bad-request', 'no-route'].includes(own.becomes.code);
      if (!early) t.equal(route, own.route ?? 'unmatched', what);
      t.equal(flight?.key ?? null, own.key?.digests[0]?.digest ?? null, what);
      t.match(toldBy(answered), wanted(own), what);
      if (flight !== null) await ask(gateway.adminUrl, { method: 'DELETE', path: `/flights/${flight.key}` });
    }
    await gateway.stop();
  }
  for (const kind of ['claims', 'passed', 'bypassed', 'refused', 'observed'])
    t.ok((kinds.get(kind) ?? 0) > 0, `${kind} happened`);
});

function toldBy(answered: Answered) {
  const lines = fieldLines(answered.rawHeaders, 'cache-status');
  return { status: answered.status, code: problemOf(answered), cacheStatus: lines[0] ?? null };
}

function wanted({ becomes, policy }: Explanation): object {
  switch (becomes.kind) {
    case 'passed':
      return { status: 200, code: null, cacheStatus: null };
    case 'observed':
      return { status: 200, code: null, cacheStatus: 'oneflight; fwd=bypass; detail=observe' };
    case 'claims':
      return { status: 200, code: null, cacheStatus: /^oneflight; fwd=miss/ };
    case 'bypassed':
      return { status: 200, code: null, cacheStatus: `oneflight; fwd=bypass; detail=${becomes.reason}` };
    case 'refused':
      return { status: becomes.status, code: becomes.code, ...(policy === null ? { cacheStatus: null } : {}) };
    default:
      throw new Error(`the store was not asked: ${becomes.kind}`);
  }
}

const ROUTES = `
  - name: shared
    match: { path: /shared/* }
    policy: coalesce
    key: [ { request: path } ]
    keep: 60s
  - name: once
    match: { path: /once/* }
    policy: replay
  - name: lock
    match: { path: /lock/* }
    policy: reject
    key: [ { request: path } ]
    conflict: { status: 429 }
  - name: line
    match: { path: /line/* }
    policy: queue
    key: [ { request: path } ]
    maxQueue: 1
`;

type Ask = (request: Told) => Promise<Explanation>;

async function standings(t: Test, gateway: Gateway, upstream: StubUpstream, live: Ask): Promise<void> {
  const request = (path: string, content?: string): Told => ({
    method: 'POST',
    target: path,
    headers: [
      ['Host', 'api'],
      ['Idempotency-Key', 'one'],
    ],
    ...(content === undefined ? {} : { content }),
  });
  const held = (path: string) => upstream.holds(path, { content: 'done' });

  const shared = held('/shared/a');
  t.match(await live(request('/shared/a')), { store: { kind: 'free' }, becomes: { kind: 'led' } });
  const leader = sendTold(gateway, request('/shared/a')).answer;
  await shared.arrived(1);
  t.match(await live(request('/shared/a')), { store: { kind: 'in-flight' }, becomes: { kind: 'collapsed' } });
  shared.release();
  await leader;
  t.match(await live(request('/shared/a')), { store: { kind: 'kept' }, becomes: { kind: 'hit' } });

  const once = held('/once/a');
  const first = sendTold(gateway, request('/once/a', 'first')).answer;
  await once.arrived(1);
  const other = { store: { kind: 'other-fingerprint' }, becomes: { kind: 'refused', code: 'key-reused', status: 422 } };
  t.match(await live(request('/once/a', 'second')), other);
  const same = { store: { kind: 'in-flight' }, becomes: { kind: 'refused', code: 'in-flight', status: 409 } };
  t.match(await live(request('/once/a', 'first')), same);
  once.release();
  await first;
  t.match(await live(request('/once/a', 'second')), other);
  t.match(await live(request('/once/a', 'first')), { store: { kind: 'kept' }, becomes: { kind: 'hit' } });

  const lock = held('/lock/a');
  const locking = sendTold(gateway, request('/lock/a')).answer;
  await lock.arrived(1);
  t.match(await live(request('/lock/a')), { becomes: { kind: 'refused', code: 'in-flight', status: 429 } });
  lock.release();
  await locking;
  t.match(await live(request('/lock/a')), { store: { kind: 'free' }, becomes: { kind: 'led' } });

  const line = held('/line/a');
  const inLine = [sendTold(gateway, request('/line/a')).answer];
  await line.arrived(1);
  t.match(await live(request('/line/a')), { store: { kind: 'turns', taken: 1 }, becomes: { kind: 'queued' } });
  inLine.push(sendTold(gateway, request('/line/a')).answer);
  await eventually('the second waits', async () => {
    const { flights } = (await gateway.admin('/flights')).json() as { flights: { waiting: number }[] };
    return flights.some(({ waiting }) => waiting === 1);
  });
  t.match(await live(request('/line/a')), { becomes: { kind: 'refused', code: 'queue-full', status: 429 } });
  line.release();
  await Promise.all(inLine);
  t.match(await live(request('/line/a')), { store: { kind: 'turns', taken: 0 }, becomes: { kind: 'led' } });
  t.equal(upstream.count(), 5, 'nothing was sent for an explanation');
}

const byAdmin =
  (gateway: Gateway): Ask =>
  (request) =>
    explain(gateway, { ...request, live: true });

/** The command, with the configuration of the gateway. */
const byCommand =
  (file: string, more: readonly string[] = []): Ask =>
  async ({ method, target, headers, content }) => {
    const lines = headers.flatMap(([name, value]) => ['-H', `${name}: ${value}`]);
    const data = content === undefined ? [] : ['--data-raw', content];
    const args = ['explain', '-c', file, '--live', '--format', 'json', method, target, ...lines, ...data, ...more];
    const stdout = await new Promise<string>((resolve, reject) => {
      execFile(process.execPath, [PROGRAM, ...args], (error, out, err) =>
        error ? reject(new Error(err)) : resolve(out),
      );
    });
    return JSON.parse(stdout) as Explanation;
  };

t.test('what has a key, by the admin listener', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startGateway(t, { config: configOf({ upstream: upstream.url, routes: ROUTES }) });
  await standings(t, gateway, upstream, byAdmin(gateway));
});

t.test('what has a key, by the admin listener of several workers', async (t) => {
  const upstream = await startUpstream(t);
  const config = configOf({ upstream: upstream.url, routes: ROUTES, more: 'workers: 2' });
  const gateway = await startGateway(t, { config });
  await standings(t, gateway, upstream, byAdmin(gateway));
});

t.test('what has a key in Redis, by the command itself', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  const upstream = await startUpstream(t);
  const store = `{ kind: redis, url: "${redis.url}", commandTimeout: 5s, secret: ${JSON.stringify(SECRETS)} }`;
  const config = configOf({ upstream: upstream.url, store, routes: ROUTES });
  const file = join(t.testdir({ 'gateway.yaml': config }), 'gateway.yaml');
  const gateway = await startGateway(t, { config, file });
  await standings(t, gateway, upstream, byCommand(file));
  const digests = (await byCommand(file)({ method: 'GET', target: '/shared/b', headers: [] })).key?.digests;
  t.match(digests, [{ secret: 'current' }, { secret: 'other' }]);
});

t.test('what has a key in memory, by the command, which asks the gateway', async (t) => {
  const upstream = await startUpstream(t);
  const config = configOf({ upstream: upstream.url, routes: ROUTES });
  const other = config.replace('name: shared', 'name: others');
  const folder = t.testdir({ 'gateway.yaml': config, 'other.yaml': other });
  const file = join(folder, 'gateway.yaml');
  const gateway = await startGateway(t, { config, file });
  const live = byCommand(file, ['--url', gateway.adminUrl]);
  const lock = upstream.holds('/lock/a');
  const locking: Told = { method: 'POST', target: '/lock/a', headers: [['Host', 'api']] };
  const leader = sendTold(gateway, locking).answer;
  await lock.arrived(1);
  t.match(await live(locking), { store: { kind: 'in-flight' }, becomes: { kind: 'refused', status: 429 }, notes: [] });
  lock.release();
  await leader;
  const told: Told = { method: 'POST', target: '/shared/z', headers: [['Host', 'api']] };
  const { notes, route } = await byCommand(join(folder, 'other.yaml'), ['--url', gateway.adminUrl])(told);
  t.equal(route, 'shared', 'it is the answer of the gateway');
  t.match(notes, [/another configuration/]);
});

t.test('no values unless they are asked for, and no body that is not understood', async (t) => {
  const upstream = await startUpstream(t);
  const routes = `
  - name: tokens
    match: { path: /tokens/:id }
    policy: coalesce
    key: [ { body: /token }, { query: page } ]
`;
  const gateway = await startGateway(t, { config: configOf({ upstream: upstream.url, routes }) });
  const body = {
    method: 'POST',
    target: '/tokens/7?page=hidden-page',
    headers: { Host: 'api', Authorization: 'Bearer hidden-bearer', Cookie: ['a=hidden-one', 'b=hidden-two'] },
    contentBase64: Buffer.from('{"token":{"a":"hidden-token"}}').toString('base64'),
  };
  const masked = await explain(gateway, body);
  t.notMatch(JSON.stringify(masked), /hidden/);
  t.match(masked.key?.parts, [
    { part: 'body: /token', value: 'object, 1 member' },
    { part: 'query: page', value: 'text, 11 characters' },
    { part: 'header: authorization', of: 'identity', value: 'text, 20 characters' },
    { part: 'header: cookie', of: 'identity', value: '2 values' },
  ]);
  const shown = await explain(gateway, { ...body, showValues: true });
  t.match(shown.key?.parts, [
    { value: '{"a":"hidden-token"}' },
    { value: '"hidden-page"' },
    { value: '"Bearer hidden-bearer"' },
    { value: '["a=hidden-one","b=hidden-two"]' },
  ]);
  t.equal(upstream.count(), 0);
  for (const bad of [
    [],
    {},
    { target: '/a b' },
    { target: '/a', method: 'NO GOOD' },
    { target: '/a', headers: [['x']] },
    { target: '/a', headers: { x: 'a\r\nb' } },
    { target: '/a', content: 'a', contentBase64: 'YQ==' },
    { target: '/a', live: 'yes' },
    { target: '/a', show: true },
  ]) {
    t.equal((await postExplain(gateway, bad)).status, 400, JSON.stringify(bad));
  }
});
