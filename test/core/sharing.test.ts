import { createHash, createSecretKey } from 'node:crypto';
import t from 'tap';
import type { KeyMaterial } from '../../src/core/claim.js';
import type { CoalescePolicy } from '../../src/core/rule.js';
import { judge, variantKey, variantMaterial, variantStart, varyDigest, varyMatches } from '../../src/core/sharing.js';
import { coalescePolicy } from '../support/rules.js';

const own: CoalescePolicy = coalescePolicy({
  identity: { kind: 'parts', parts: [{ from: 'header', name: 'authorization', optional: true }] },
});
const everybodys = coalescePolicy({ identity: { kind: 'public' } });

t.test('what a response may not be shared for, whoever the callers are', async (t) => {
  const cases: [string, number, string[], number | null, string][] = [
    ['partial content', 206, [], 3, 'partial-content'],
    ['not modified', 304, [], 0, 'not-modified'],
    ['longer than maxShared', 200, [], own.maxSharedBytes + 1, 'too-large'],
    ['Vary: *', 200, ['Vary', 'Accept, *'], 3, 'vary-any'],
    ['a stream of events', 200, ['Content-Type', 'text/event-stream; charset=utf-8'], null, 'event-stream'],
  ];
  for (const [name, status, fields, length, reason] of cases) {
    for (const policy of [own, everybodys]) {
      t.same(judge(policy, status, fields, length), { kind: 'unshareable', reason }, name);
    }
  }
});

t.test('what is shared among one caller only', async (t) => {
  const cases: [string[], string][] = [
    [['Set-Cookie', 'a=b'], 'set-cookie'],
    [['Cache-Control', 'max-age=3, Private'], 'private'],
    [['Cache-Control', 'private="x-secret"'], 'private'],
    [['Cache-Control', 'ext="private, no-store", no-store'], 'no-store'],
  ];
  for (const [fields, reason] of cases) {
    t.same(judge(everybodys, 200, fields, 3), { kind: 'unshareable', reason }, `${fields} with identity public`);
    t.equal(judge(own, 200, fields, 3).kind, 'shareable', `${fields} with callers kept apart`);
  }
  t.equal(judge(everybodys, 200, ['Cache-Control', 'ext="private, no-store"'], 3).kind, 'shareable', 'quoted text');
  t.equal(
    judge(everybodys, 200, ['Cache-Control', 'no-cache'], 3).kind,
    'shareable',
    'no-cache says nothing of sharing',
  );
});

t.test('errors and a content of exactly maxShared are shareable', async (t) => {
  t.equal(judge(everybodys, 500, [], 10).kind, 'shareable');
  t.equal(judge(everybodys, 404, [], null).kind, 'shareable');
  t.equal(judge(everybodys, 200, [], everybodys.maxSharedBytes).kind, 'shareable');
});

t.test('Vary selects by the values of the fields that it names', async (t) => {
  const verdict = judge(own, 200, ['vary', 'Accept-Language, accept', 'Vary', 'ACCEPT'], 3);
  t.same(verdict, { kind: 'shareable', varyNames: ['accept', 'accept-language'] });
  const names = ['accept', 'accept-language'];
  const vary = (fields: string[]) => ({ names, digest: varyDigest(names, fields) });
  t.ok(varyMatches(vary(['Accept', 'a', 'X', '1']), ['accept', 'a', 'X', '2']), 'other fields do not count');
  t.notOk(varyMatches(vary(['Accept', 'a']), ['Accept', 'b']), 'another value');
  t.notOk(varyMatches(vary([]), ['Accept', '']), 'absent is not empty');
  t.notOk(varyMatches(vary(['Accept', 'a, b']), ['Accept', 'a', 'Accept', 'b']), 'two lines are not one');
  t.notOk(varyMatches(vary(['Accept', 'a']), ['Accept-Language', 'a']), 'a value under another name');
});

t.test('requests of one variant meet, of different variants never', async (t) => {
  const vary = { names: ['accept'], digest: 'of the leader' };
  const key = (fields: string[]) => variantKey('k', null, vary, fields);
  t.equal(key(['Accept', 'a']), key(['accept', 'a', 'X', 'y']));
  t.not(key(['Accept', 'a']), key(['Accept', 'b']));
  t.not(key(['Accept', 'a']), variantKey('l', null, vary, ['Accept', 'a']));
});

t.test("a variant's key begins with the key, also one of a variant, and never grows", async (t) => {
  const digest = createHash('sha256').update('k').digest('base64url');
  const vary = { names: ['accept'], digest: 'of the leader' };
  const first = variantKey(digest, null, vary, ['Accept', 'a']);
  const second = variantKey(first, null, vary, ['Accept', 'a']);
  t.not(first, second);
  for (const variant of [first, second]) {
    t.ok(variant.startsWith(variantStart(digest)));
    t.equal(variant.length, 2 * digest.length + 1);
  }
  t.notOk(digest.startsWith(variantStart(digest.slice(0, 4))));
});

t.test('with material a variant is keyed by it, and has material of its own', async (t) => {
  const vary = { names: ['accept'], digest: 'of the leader' };
  const [one, two] = ['one', 'two'].map((text) => createSecretKey(createHash('sha256').update(text).digest()));
  const variant = (material: KeyMaterial, value: string) => [
    variantKey('k', material, vary, ['Accept', value]),
    variantMaterial(material, vary, ['Accept', value])?.export().toString('hex'),
  ];
  t.same(variant(one!, 'a'), variant(one!, 'a'));
  const all = [variant(one!, 'a'), variant(one!, 'b'), variant(two!, 'a'), [one!.export().toString('hex')]].flat();
  t.equal(new Set(all).size, 7);
  t.not(variant(null, 'a')[0], variant(one!, 'a')[0]);
  t.equal(variantMaterial(null, vary, []), null);
});
