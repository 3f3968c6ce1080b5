/** What the API's answer says, and what becomes of the key. */

import t from 'tap';
import {
  answerLimitBytes,
  type ReconcileAnswer,
  type ReconcileVerdict,
  reconciledAs,
  verdictOf,
} from '../../src/core/reconcile.js';
import type { DoneCondition, KeyedPolicy, Reconcile } from '../../src/core/rule.js';
import { coalescePolicy, rejectPolicy, replayPolicy } from '../support/rules.js';

const MiB = 1_048_576;

function asking(...done: DoneCondition[]): Reconcile {
  return { url: { origin: null, target: '/{key}', placeholder: 'key' }, everyMs: 1_000, fields: [], done };
}

function answer(content: string | Buffer | null, changes: Partial<ReconcileAnswer> = {}): ReconcileAnswer {
  const bytes = typeof content === 'string' ? Buffer.from(content) : content;
  return { status: 200, reason: 'OK', fields: [], content: bytes, trailers: [], ...changes };
}

type Case = readonly [content: string | Buffer | null, expected: ReconcileVerdict];

t.test('without done every 200 counts, 404 says no, and nothing else says anything', async (t) => {
  for (const content of ['', '{', 'text', null]) t.equal(verdictOf(asking(), answer(content)), 'done');
  t.equal(verdictOf(asking(), answer('', { status: 404 })), 'absent');
  for (const status of [201, 202, 204, 206, 301, 304, 400, 401, 403, 405, 409, 410, 429, 500, 503]) {
    t.equal(verdictOf(asking(), answer('', { status })), 'no-answer', `${status}`);
  }
});

t.test('with done a 200 counts only when every pointer leads to one of its values', async (t) => {
  const reconcile = asking(
    { pointer: '/status', values: ['succeeded', 'failed'] },
    { pointer: '/steps/1/n', values: [2] },
  );
  const cases: readonly Case[] = [
    ['{"status":"succeeded","steps":[{},{"n":2}]}', 'done'],
    ['{"steps":[{},{"n":2.0}],"status":"f\\u0061iled"}', 'done'],
    ['{"status":"pending","steps":[{},{"n":2}]}', 'pending'],
    ['{"status":"succeeded","steps":[{},{"n":"2"}]}', 'pending'],
    ['{"status":"succeeded","steps":[{}]}', 'pending'],
    ['{"status":"succeeded"}', 'pending'],
    ['{"status":"succeeded","steps":[{},{"n":2}]', 'pending'],
    ['{"status":"pending","status":"succeeded","steps":[{},{"n":2}]}', 'pending'],
    ['', 'pending'],
    [null, 'pending'],
  ];
  for (const [content, expected] of cases) t.equal(verdictOf(reconcile, answer(content)), expected, `${content}`);
  const encoded = answer(cases[0]![0], { fields: ['Content-Encoding', 'gzip'] });
  t.equal(verdictOf(reconcile, encoded), 'pending', 'encoded content is not read');
  t.equal(verdictOf(reconcile, answer('', { status: 404 })), 'absent', '404 needs no content');
});

t.test('values of every type are told apart', async (t) => {
  const texts = ['"a"', '1', '"1"', 'true', '"true"', 'false', 'null', '"null"', '{}', '[]'];
  const scalars: readonly (readonly [string | number | boolean | null, string])[] = [
    ['a', '"a"'],
    [1, '1'],
    ['1', '"1"'],
    [true, 'true'],
    ['true', '"true"'],
    [false, 'false'],
    [null, 'null'],
    ['null', '"null"'],
  ];
  for (const [value, only] of scalars) {
    for (const pointer of ['/v', '']) {
      for (const text of texts) {
        const content = pointer === '' ? text : `{"v":${text}}`;
        const expected = text === only ? 'done' : 'pending';
        t.equal(verdictOf(asking({ pointer, values: [value] }), answer(content)), expected, `${value} ${content}`);
      }
    }
  }
  t.equal(verdictOf(asking({ pointer: '/v', values: [null] }), answer('{}')), 'pending', 'absent is not null');
});

t.test('replay keeps what it would have kept of the leader', async (t) => {
  const fields = ['Content-Type', 'application/json', 'Set-Cookie', 's=1', 'Date', 'now', 'Link', '<a>', 'Link', '<b>'];
  const found = answer('{"id":1,"secret":2}', { fields, trailers: ['X-Sum', '1'] });
  const whole = reconciledAs(replayPolicy({ keepMs: 5_000 }), 'POST', found);
  t.match(whole, {
    kind: 'response',
    keepMs: 5_000,
    response: { status: 200, reason: 'OK', trailers: ['X-Sum', '1'] },
  });
  if (whole.kind !== 'response') return;
  t.same(whole.response.fields, ['Content-Type', 'application/json', 'Link', '<a>', 'Link', '<b>']);
  t.same(whole.response.content, found.content);
  const some = reconciledAs(replayPolicy({ keepContent: { kind: 'members', pointers: ['/id'] } }), 'POST', found);
  if (some.kind === 'response') t.equal(some.response.content.toString(), '{"id":1}');
  else t.fail(some.kind);
  const small = replayPolicy({ maxSharedBytes: 10, keepMs: 5_000 });
  t.same(reconciledAs(small, 'POST', found), { kind: 'not-kept', keepMs: 5_000 }, 'larger than maxShared');
  t.same(reconciledAs(small, 'POST', answer(null)), { kind: 'not-kept', keepMs: 5_000 }, 'not even read');
  t.equal(reconciledAs(small, 'POST', answer('0123456789')).kind, 'response');
  t.same(
    reconciledAs(replayPolicy({ release: [200] }), 'POST', found),
    { kind: 'free' },
    'a status that frees the key',
  );
});

t.test('coalesce keeps it for its keep, if it may be shared; a lock is free', async (t) => {
  const found = answer('x', { fields: ['Set-Cookie', 's=1', 'Vary', 'Accept'] });
  const of = (policy: KeyedPolicy, method = 'POST', what = found) => reconciledAs(policy, method, what);
  const fixed = { keep: { kind: 'fixed', keepMs: 7_000 } } as const;
  t.match(of(coalescePolicy(fixed)), { kind: 'response', keepMs: 7_000, response: { vary: { names: [] } } });
  t.match(of(coalescePolicy()), { kind: 'response', keepMs: 5_000 }, 'unsafe methods keep for 5 s');
  t.same(of(coalescePolicy(), 'GET'), { kind: 'free' }, 'safe ones do not keep');
  t.same(of(coalescePolicy({ keep: { kind: 'fixed', keepMs: 0 } })), { kind: 'free' });
  for (const field of [
    ['Cache-Control', 'no-store'],
    ['Vary', '*'],
  ]) {
    t.same(of(coalescePolicy(fixed), 'POST', answer('x', { fields: field })), { kind: 'free' }, field.join(': '));
  }
  t.same(of(coalescePolicy({ ...fixed, maxSharedBytes: 1 }), 'POST', answer('xy')), { kind: 'free' });
  t.same(of(coalescePolicy(fixed), 'POST', answer(null)), { kind: 'free' });
  t.same(of(rejectPolicy()), { kind: 'free' });
});

t.test('content is read up to maxShared, and to be judged up to 1 MiB', async (t) => {
  t.equal(answerLimitBytes(replayPolicy({ maxSharedBytes: 10 })), MiB);
  t.equal(answerLimitBytes(coalescePolicy({ maxSharedBytes: 3 * MiB })), 3 * MiB);
  t.equal(answerLimitBytes(rejectPolicy()), MiB);
});
