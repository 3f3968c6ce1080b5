/** A log of requests, replayed: what would have become of them, and where keys do not fit. */

import t from 'tap';
import { demoConfig } from '../../src/cli/demo-config.js';
import type { Config } from '../../src/config/config.js';
import type { KeyPart, Rule } from '../../src/core/rule.js';
import { InOrder } from '../../src/explain/in-order.js';
import { LogReplay, type LogReport, type RouteReport } from '../../src/explain/log-replay.js';
import { coalescePolicy, queuePolicy, rejectPolicy, replayPolicy, ruleOf } from '../support/rules.js';

function configWith(...rules: readonly Rule[]): Config {
  const upstream = new URL('http://127.0.0.1:1');
  return { ...demoConfig({ host: '127.0.0.1', port: 8080, upstream }), rules };
}

const body = (name: string): KeyPart => ({ from: 'body', name, optional: false });
const header = (name: string): KeyPart => ({ from: 'header', name, optional: false });

/** `at` in ms. */
type Entry = { readonly at: number; readonly [member: string]: unknown };

function replay(
  config: Config,
  entries: readonly Entry[],
  bounds?: ConstructorParameters<typeof LogReplay>[1],
): LogReport {
  const replay = new LogReplay(config, bounds);
  for (const [i, { at, ...entry }] of entries.entries()) {
    const defaults = { method: 'POST', target: '/a', headers: {}, durationMs: 1_000 };
    replay.line(JSON.stringify({ time: 1_700_000_000_000 + at, ...defaults, ...entry }), i + 1);
  }
  return replay.report();
}

function only(report: LogReport): RouteReport {
  t.equal(report.routes.length, 1);
  return report.routes[0] as RouteReport;
}

const counts = ({ fates }: RouteReport) => Object.fromEntries(Object.entries(fates).filter(([, count]) => count > 0));

t.test('coalesce: in flight, kept, and over', async (t) => {
  const policy = coalescePolicy({ keep: { kind: 'fixed', keepMs: 500 } });
  const config = configWith(ruleOf('shared', '/a', policy));
  const route = only(replay(config, [{ at: 0 }, { at: 999 }, { at: 1_000 }, { at: 1_499 }, { at: 1_500 }]));
  t.strictSame(counts(route), { led: 2, coalesced: 1, replayed: 2 });
  t.equal(route.savedCalls, 3);
  t.equal(route.savedMs, 3_000);
  const failing = only(replay(config, [{ at: 0, status: 500 }, { at: 10 }, { at: 1_100 }]));
  t.strictSame(counts(failing), { led: 2, coalesced: 1 }, 'an error is shared and not kept');
  const partial = only(replay(config, [{ at: 0, status: 206 }, { at: 10 }]));
  t.strictSame(counts(partial), { led: 1, notShareable: 1 });
  const slow = only(replay(config, [{ at: 0, durationMs: 60_000 }, { at: 10 }]));
  t.strictSame(counts(slow), { led: 1, waitTimeout: 1 });
});

t.test('reject, replay and queue', async (t) => {
  const lock = only(replay(configWith(ruleOf('lock', '/a', rejectPolicy())), [{ at: 0 }, { at: 500 }, { at: 1_000 }]));
  t.strictSame(counts(lock), { led: 2, rejected: 1 });
  const keyed = { headers: { 'Idempotency-Key': 'k' } };
  const once = only(
    replay(configWith(ruleOf('once', '/a', replayPolicy())), [
      { at: 0, ...keyed, content: 'one' },
      { at: 500, ...keyed, content: 'one' },
      { at: 600, ...keyed, content: 'two' },
      { at: 80_000_000, ...keyed, content: 'one' },
      { at: 90_000_000, ...keyed, content: 'one' },
      { at: 90_000_001, headers: { 'Idempotency-Key': 'a, b' } },
      { at: 90_000_002 },
    ]),
  );
  t.strictSame(counts(once), { led: 2, rejected: 1, keyReused: 1, replayed: 1, keyMissing: 1, refused: 1 });
  const freed = [
    { at: 0, ...keyed, status: 503 },
    { at: 2_000, ...keyed },
  ];
  t.strictSame(counts(only(replay(configWith(ruleOf('once', '/a', replayPolicy())), freed))), { led: 2 });
  const line = configWith(ruleOf('line', '/a', queuePolicy({ maxQueue: 2, waitMs: 1_500 })));
  const queued = only(replay(line, [{ at: 0 }, { at: 1 }, { at: 2 }, { at: 3 }, { at: 1_001 }, { at: 5_000 }]));
  t.strictSame(counts(queued), { led: 2, queued: 2, waitTimeout: 2 });
  const full = configWith(ruleOf('line', '/a', queuePolicy({ maxQueue: 1 })));
  t.strictSame(counts(only(replay(full, [{ at: 0 }, { at: 1 }, { at: 2 }]))), { led: 1, queued: 1, queueFull: 1 });
});

t.test('keys that are too fine name the parts that differed', async (t) => {
  const policy = coalescePolicy({
    key: [body('/id'), header('x-try')],
    identity: { kind: 'parts', parts: [header('authorization')] },
  });
  const request = (at: number, attempt: string, who = 'a') => ({
    at,
    headers: { 'X-Try': attempt, Authorization: who },
    content: '{"id":1}',
  });
  const entries = [request(0, '1'), request(10, '2'), request(20, '2'), request(30, '2', 'b'), request(60_000, '3')];
  const route = only(replay(configWith(ruleOf('fine', '/a', policy)), entries));
  t.strictSame(route.tooFine, { pairs: 1, differing: [{ name: 'header: x-try', pairs: 1 }] });
  t.strictSame(route.byCaller, { pairs: 1, differing: [{ name: 'header: authorization', pairs: 1 }] });
  t.equal(route.tooCoarse.pairs, 0);
});

t.test('keys that are too coarse name what differed, and no value', async (t) => {
  const policy = coalescePolicy({ key: [body('/id')] });
  const request = (at: number, target: string, content: object) => ({ at, target, content: JSON.stringify(content) });
  const report = replay(configWith(ruleOf('coarse', '/*', policy)), [
    request(0, '/a?page=1', { id: 1, secret: 'one', list: [1] }),
    request(1, '/a?page=2', { id: 1, secret: 'two', list: [1, 2] }),
    request(2, '/b?page=2', { id: 1, secret: 'two', list: [1, 2] }),
    request(3, '/b?page=2', { id: 2, secret: 'two', list: [1, 2] }),
    { at: 4, target: '/b?page=2', content: '{"id":2,  "secret":"two","list":[1,2]}' },
  ]);
  const { tooCoarse, tooFine } = only(report);
  t.equal(tooCoarse.pairs, 2, 'another spelling is no other request');
  const named = new Map(tooCoarse.differing.map(({ name, pairs }) => [name, pairs]));
  t.strictSame(
    named,
    new Map([
      ['query: page', 1],
      ['body: /secret', 1],
      ['body: /list/1', 1],
      ['path', 1],
    ]),
  );
  t.equal(tooFine.pairs, 0);
  t.notMatch(JSON.stringify(report), /"one"|"two"/);
});

t.test('what a line does not tell is not guessed', async (t) => {
  const config = configWith(
    ruleOf('content', '/content', coalescePolicy({ key: [body('/id')] })),
    ruleOf('fields', '/fields', replayPolicy()),
    ruleOf('caller', '/caller', coalescePolicy({ identity: { kind: 'parts', parts: [header('authorization')] } })),
  );
  const report = replay(config, [
    { at: 0, target: '/content' },
    { at: 1, target: '/content', content: '' },
    { at: 2, target: '/fields', headers: undefined },
    { at: 3, target: '/other', durationMs: undefined },
    { at: 4, target: '/caller', headers: undefined },
    { at: 5, target: '/caller' },
  ]);
  t.strictSame(
    report.routes.map((route) => [route.route, counts(route)]),
    [
      ['content', { keyMissing: 1, notJudged: 1 }],
      ['fields', { notJudged: 1 }],
      ['caller', { keyMissing: 1, notJudged: 1 }],
      ['unmatched', { passed: 1 }],
    ],
  );
  t.equal(report.withoutDuration, 1);
});

t.test('bad lines are counted, and the first are named', async (t) => {
  const replay = new LogReplay(configWith());
  const bad = ['{', '[]', '{"time":"yesterday"}', '{"time":1,"method":"GET"}', '{"time":1,"target":"/a"}', 'x', 'y'];
  for (const [i, line] of bad.entries()) replay.line(line, i + 1);
  replay.line('', 8);
  replay.line('{"time":"2026-01-01T00:00:00Z","method":"GET","target":"/a","more":{"unknown":1}}', 9);
  replay.line('{"time":1767225600.5,"method":"GET","target":"/a"}', 10);
  const { requests, badLines, firstBadLines } = replay.report();
  t.equal(requests, 2);
  t.equal(badLines, 7);
  t.strictSame(
    firstBadLines.map(({ line }) => line),
    [1, 2, 3, 4, 5],
  );
  t.match(firstBadLines[2]?.fault, /^time must be/);
});

t.test('lines are put in order, as far as they are held', async (t) => {
  const config = configWith(ruleOf('lock', '/a', rejectPolicy()));
  const slowFirst = [
    { at: 100, durationMs: 100 },
    { at: 0, durationMs: 1_000 },
  ];
  t.strictSame(counts(only(replay(config, slowFirst))), { led: 1, rejected: 1 }, 'the one that began first leads');
  const order = new InOrder<{ readonly atMs: number }>(3);
  const out: number[] = [];
  for (const atMs of [5, 3, 4, 1, 6, 2, 0]) {
    const next = order.put({ atMs });
    if (next !== null) out.push(next.atMs);
  }
  for (let next = order.take(); next !== null; next = order.take()) out.push(next.atMs);
  t.strictSame(out, [1, 3, 2, 0, 4, 5, 6]);
  t.equal(order.late, 2);
});

t.test('what is forgotten for want of room is counted', async (t) => {
  const config = configWith(ruleOf('shared', '/a', coalescePolicy({ key: [body('/id')] })));
  const entries = Array.from({ length: 50 }, (_, i) => ({ at: i, content: `{"id":${i % 25}}` }));
  const roomy = replay(config, entries);
  t.strictSame([counts(only(roomy)), roomy.forgotten], [{ led: 25, coalesced: 25 }, 0]);
  const narrow = replay(config, entries, { mostHeld: 5, mostRemembered: 10 });
  t.strictSame(counts(only(narrow)), { led: 50 });
  t.equal(narrow.forgotten, 80, '40 keys and 40 requests');
});
