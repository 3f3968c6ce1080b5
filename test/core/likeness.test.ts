/** What makes two requests one: every byte of method, host, target and content counts, and where it stands. */

import fc from 'fast-check';
import t from 'tap';
import { differenceOf, type Likeness, likenessOf, likenessText, requestHalves } from '../../src/core/likeness.js';

type Asked = { readonly method: string; readonly host: string; readonly target: string; readonly content: string };

function likeness({ method, host, target, content }: Asked, fingerprint = ''): Likeness {
  const raw = { raw: target, path: target, query: null, host: null };
  const view = { method, host, target: raw, fields: [], params: new Map(), content: Buffer.from(content, 'latin1') };
  return likenessOf(view, fingerprint, 0);
}

function idOf(asked: Asked, apart: readonly string[] = []): string {
  const { low, high } = requestHalves(likeness(asked), apart);
  return `${low} ${high}`;
}

const byteText = fc.string({ unit: fc.integer({ min: 0, max: 255 }).map((code) => String.fromCharCode(code)) });
/** Longer than what is hashed by itself, too. */
const anyText = fc.oneof(
  byteText,
  byteText.map((text) => text.padEnd(300, 'x')),
);
const REQUEST: Asked = { method: 'POST', host: 'a.example.com', target: '/orders?x=1', content: '{"id":1}' };

t.test('no byte that moves between method, host, target and content leaves two requests alike', async () => {
  const cuts = fc.array(fc.nat({ max: 1_000 }), { minLength: 3, maxLength: 3 });
  const cutAt = (text: string, at: readonly number[]): Asked => {
    const [a = 0, b = 0, c = 0] = at.map((one) => one % (text.length + 1)).sort((one, other) => one - other);
    // Lower case already: names of hosts are compared without regard to it.
    const host = text.slice(a, b).toLowerCase();
    return { method: text.slice(0, a), host, target: text.slice(b, c), content: text.slice(c) };
  };
  fc.assert(
    fc.property(anyText, cuts, cuts, (text, at, atOther) => {
      const requests = [cutAt(text, at), cutAt(text, atOther)] as const;
      const isSame = JSON.stringify(requests[0]) === JSON.stringify(requests[1]);
      const [one, other] = [likeness(requests[0]), likeness(requests[1])];
      return [
        idOf(requests[0]) === idOf(requests[1]),
        likenessText(one) === likenessText(other),
        differenceOf(one, other) === null,
      ].every((isFound) => isFound === isSame);
    }),
    { numRuns: 2_000 },
  );
});

t.test('what differs is named, the first of it', async (t) => {
  fc.assert(
    fc.property(fc.constantFrom('method', 'host', 'target', 'content'), anyText, (name, text) => {
      const changed = { ...REQUEST, [name]: text.toLowerCase() };
      if (changed[name] === REQUEST[name]) return true;
      return differenceOf(likeness(REQUEST), likeness(changed)) === name && idOf(REQUEST) !== idOf(changed);
    }),
    { numRuns: 300 },
  );
  t.equal(differenceOf(likeness(REQUEST), likeness({ ...REQUEST, host: 'A.Example.COM' })), null);
  t.equal(differenceOf(likeness(REQUEST), likeness({ ...REQUEST, target: '/', content: '' })), 'target');
});

t.test('who asks keeps requests apart, and so does the order of what does', async (t) => {
  t.equal(idOf(REQUEST, ['a', 'b']), idOf(REQUEST, ['a', 'b']));
  const ids = [[], ['a'], ['a', 'b'], ['b', 'a'], ['ab'], ['a', 'b', '']].map((apart) => idOf(REQUEST, apart));
  t.equal(new Set(ids).size, ids.length);
});

t.test('content is compared by its bytes, by the fingerprint of the rule, or by its length', async (t) => {
  const view = { ...REQUEST, target: { raw: '/', path: '/', query: null, host: null }, fields: [], params: new Map() };
  const content = Buffer.from('{"id":1}');
  const bytes = likenessOf({ ...view, content }, '', 0);
  const print = likenessOf({ ...view, content }, 'F1', 0);
  const none = likenessOf({ ...view, content }, 'any', 0);
  const unread = likenessOf({ ...view, content: null }, '', content.length);
  const chunks = likenessOf({ ...view, content: null }, '', -1);
  const empty = likenessOf({ ...view, content: null }, '', 0);
  t.strictSame(
    [bytes, print, none, unread, chunks, empty].map(({ by }) => by),
    ['bytes', 'fingerprint', 'bytes', 'length', 'length', 'bytes'],
  );
  t.equal(differenceOf(bytes, none), null);
  t.equal(differenceOf(print, likenessOf({ ...view, content }, 'F2', 0)), 'content');
  t.equal(differenceOf(unread, likenessOf({ ...view, content: null }, '', 9)), 'content');
  t.equal(differenceOf(unread, chunks), 'content');
  t.equal(differenceOf(bytes, unread), null, 'of two kinds they are not compared');
  t.equal(differenceOf(empty, likenessOf({ ...view, content: Buffer.alloc(0) }, '', 0)), null);
});

t.test('hundreds of thousands of requests that hardly differ do not meet', async (t) => {
  const ids = new Set<string>();
  for (let number = 0; number < 300_000; number += 1) ids.add(idOf({ ...REQUEST, target: `/orders/${number}` }));
  t.equal(ids.size, 300_000);
});
