import fc from 'fast-check';
import t from 'tap';
import { readJson } from '../../src/core/json.js';
import { parsePointer } from '../../src/core/json-pointer.js';
import { keptContent } from '../../src/core/keep-content.js';
import { diceOf, type Json, jsonWith, spell } from './json-values.js';

const members = (...pointers: readonly string[]) => ({ kind: 'members', pointers }) as const;

/** The kept content as text. */
function kept(document: string | Buffer, ...pointers: readonly string[]): string {
  return keptContent(members(...pointers), Buffer.from(document), []).content.toString();
}

const FIELDS = [
  ...['Content-Type', 'application/hal+json', 'Location', '/orders/7', 'Link', '</a>; rel=a', 'Link', '</b>; rel=b'],
  ...[
    'ETag',
    '"x"',
    'Content-Length',
    '999',
    'content-md5',
    'x',
    'Digest',
    'x',
    'Content-Digest',
    'x',
    'REPR-DIGEST',
    'x',
  ],
  ...['Content-Language', 'de', 'Content-Disposition', 'attachment; filename="patient-7.json"', 'Trailer', 'Digest'],
  ...['Content-Location', '/orders/7', 'Content-Security-Policy', "default-src 'none'", 'X-Request-Id', '\xe9'],
];
const OTHERS = [
  ...['Location', '/orders/7', 'Link', '</a>; rel=a', 'Link', '</b>; rel=b'],
  ...['Content-Location', '/orders/7', 'Content-Security-Policy', "default-src 'none'", 'X-Request-Id', '\xe9'],
];
const ORDER = '{"id":12345678901234567890,"card":{"number":"4111","last4":"1111"},"status":"paid"}';

t.test('full keeps everything as it is', async (t) => {
  const content = Buffer.from(ORDER);
  const all = keptContent({ kind: 'full' }, content, FIELDS);
  t.equal(all.content, content);
  t.equal(all.fields, FIELDS);
});

t.test('none keeps no content, and no field that speaks of it', async (t) => {
  const { content, fields } = keptContent({ kind: 'none' }, Buffer.from(ORDER), FIELDS);
  t.equal(content.length, 0);
  t.same(fields, [...OTHERS, 'Content-Length', '0']);
});

t.test('members keep their source text and nothing beside them', async (t) => {
  const { content, fields } = keptContent(members('/id', '/card/last4'), Buffer.from(ORDER), FIELDS);
  t.equal(content.toString(), '{"id":12345678901234567890,"card":{"last4":"1111"}}');
  t.same(fields, [...OTHERS, 'Content-Type', 'application/json', 'Content-Length', '51']);
});

t.test('the length counts bytes', async (t) => {
  const { content, fields } = keptContent(members('/\u00e9'), Buffer.from('{"\u00e9" : "\u20ac", "a":1}'), []);
  t.equal(content.toString(), '{"\u00e9":"\u20ac"}');
  t.same(fields, ['Content-Type', 'application/json', 'Content-Length', String(content.length)]);
});

t.test('a response without content stays as it is', async (t) => {
  for (const keep of [{ kind: 'none' }, members('/id')] as const) {
    t.same(keptContent(keep, Buffer.alloc(0), FIELDS).fields, FIELDS, 'HEAD');
    t.same(keptContent(keep, Buffer.alloc(0), ['ETag', '"1"']).fields, ['ETag', '"1"'], '204 has no Content-Length');
  }
});

t.test('what is there is nested as it was, in the order it had', async (t) => {
  t.equal(kept(ORDER, '/status', '/id'), '{"id":12345678901234567890,"status":"paid"}');
  t.equal(kept('{"a":{"b":1,"c":2},"d":3}', '/a/c', '/d'), '{"a":{"c":2},"d":3}');
  t.equal(kept('{"a":{"b":1,"c":2}}', '/a', '/a/b'), '{"a":{"b":1,"c":2}}', 'the whole counts more than its parts');
  t.equal(kept('{"a":{"b":1,"c":2}}', '/a/b', '/a/b', '/a'), '{"a":{"b":1,"c":2}}');
  t.equal(
    kept('{ "a" : [ 1 , { "b" : 1.0 } ] , "c" : 2 }', '/a'),
    '{"a":[ 1 , { "b" : 1.0 } ]}',
    'white space within is kept',
  );
  t.equal(
    kept('{"\\u0061":1e2,"b":"\\ud83d\\ude00"}', '/a', '/b'),
    '{"\\u0061":1e2,"b":"\\ud83d\\ude00"}',
    'so are escapes',
  );
  t.equal(
    kept('{"a/b":1,"m~n":2,"":3,"__proto__":4}', '/a~1b', '/m~0n', '/', '/__proto__'),
    '{"a/b":1,"m~n":2,"":3,"__proto__":4}',
  );
  t.equal(kept('{"a":null,"b":false}', '/a', '/b'), '{"a":null,"b":false}');
});

t.test('an element keeps its place: the ones before it are null', async (t) => {
  t.equal(kept('{"items":[{"id":1,"x":1},{"id":2,"x":2},3]}', '/items/1/id'), '{"items":[null,{"id":2}]}');
  t.equal(
    kept('{"items":[{"id":1,"x":1},{"id":2,"x":2},3]}', '/items/2', '/items/0/id'),
    '{"items":[{"id":1},null,3]}',
  );
  t.equal(kept('[[1,2],[3,4]]', '/1/0'), '[null,[3]]');
  t.equal(kept('{"0":"a","1":"b"}', '/1'), '{"1":"b"}', 'a name that looks like an index');
  t.equal(kept('[1,2]', '/-', '/01', '/2', '/a'), '[]');
});

t.test('what is not there is left out', async (t) => {
  t.equal(kept(ORDER, '/nothing', '/card/nothing', '/id/deeper', '/card/number/0'), '{}');
  t.equal(kept('{"error":"no"}', '/id'), '{}');
  t.equal(kept('{"a":[],"b":{}}', '/a/0', '/b/c'), '{}');
  t.equal(kept('[ ]', '/0'), '[]');
  t.equal(kept('{"constructor":1}', '/toString', '/constructor/name'), '{}');
});

t.test('content without members of one reading is not kept at all', async (t) => {
  const contents = [
    '"text"',
    '42',
    'null',
    '{"id":1',
    '{"id":1,"id":2}',
    '<id>1</id>',
    '\ufeff{"id":1}',
    '{"id":1}{"id":2}',
    ' ',
  ];
  for (const content of [
    ...contents,
    Buffer.from('{"id":"\xe9"}', 'latin1'),
    `{"id":${'['.repeat(64)}${']'.repeat(64)}}`,
  ]) {
    const none = keptContent(members('/id'), Buffer.from(content), FIELDS);
    t.same(none, keptContent({ kind: 'none' }, Buffer.from(content), FIELDS), String(content));
  }
  const encoded = keptContent(members('/id'), Buffer.from('{"id":1}'), ['Content-Encoding', 'gzip']);
  t.same(encoded, { content: Buffer.alloc(0), fields: ['Content-Length', '0'] });
  const identity = keptContent(members('/id'), Buffer.from('{"id":1}'), ['Content-Encoding', 'identity']);
  t.equal(identity.content.toString(), '{"id":1}');
});

t.test('a pointer finds in what is kept the value it found in the original', async () => {
  const json = jsonWith(fc.constantFrom('0', '1.0', '12345678901234567890', '-1e-7'));
  const step = fc.oneof(fc.nat(2).map(String), fc.constantFrom('a', 'b', 'null', '__proto__', '~'));
  const any = fc.array(step, { maxLength: 3 });
  const asked = json.chain((value) =>
    fc.tuple(fc.constant(value), fc.array(fc.oneof(any, pathIn(value)), { minLength: 1, maxLength: 4 }), fc.nat()),
  );
  fc.assert(
    fc.property(asked, ([value, paths, seed]) => {
      const document = Buffer.from(spell(value, diceOf(seed)));
      const texts = paths.filter((path) => path.length > 0).map(pointerTo);
      const { content } = keptContent(members(...texts), document, []);
      const pointers = texts.map((text) => parsePointer(text)!);
      const before = readJson(document, pointers);
      if (value.kind !== 'object' && value.kind !== 'array') return content.length === 0;
      const after = readJson(content, pointers);
      return (
        after.kind === 'values' && JSON.stringify(after) === JSON.stringify(before) && isLean(content, texts, document)
      );
    }),
    { numRuns: 3000 },
  );
});

/** A path to some value within. */
function pathIn(value: Json): fc.Arbitrary<string[]> {
  if (value.kind === 'array' && value.elements.length > 0) {
    return fc.nat(value.elements.length - 1).chain((index) => below(String(index), value.elements[index]!));
  }
  if (value.kind === 'object' && value.members.length > 0) {
    return fc.constantFrom(...value.members).chain(([name, member]) => below(name, member));
  }
  return fc.constant([]);
}

function below(step: string, value: Json): fc.Arbitrary<string[]> {
  return fc.oneof(
    fc.constant<string[]>([step]),
    pathIn(value).map((rest) => [step, ...rest]),
  );
}

function pointerTo(path: readonly string[]): string {
  return path.map((step) => `/${step.replaceAll('~', '~0').replaceAll('/', '~1')}`).join('');
}

/** Whether every value in what is kept lies on the way to, or below, what a pointer found; fillers apart. */
function isLean(content: Buffer, pointers: readonly string[], document: Buffer): boolean {
  const values = readJson(
    document,
    pointers.map((pointer) => parsePointer(pointer)!),
  );
  const found = pointers.filter((_, i) => values.kind === 'values' && values.values[i] !== null);
  const visit = (value: unknown, path: string): boolean => {
    if (found.includes(path)) return true;
    const leads = path === '' || found.some((pointer) => pointer.startsWith(`${path}/`));
    if (typeof value !== 'object' || value === null) return value === null && /\/\d+$/.test(path);
    if (!leads) return false;
    return Object.entries(value).every(([step, inner]) => visit(inner, path + pointerTo([step])));
  };
  return visit(JSON.parse(content.toString()), '');
}

t.test('projection takes linear time', async (t) => {
  const wide = `{${Array.from({ length: 100_000 }, (_, i) => `"${i}":[${i},{"x":${i}}]`).join(',')}}`;
  const start = performance.now();
  t.equal(kept(wide, '/99999/1/x', '/0/0'), '{"0":[0],"99999":[null,{"x":99999}]}');
  t.ok(performance.now() - start < 2_000);
});
