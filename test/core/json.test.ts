import fc from 'fast-check';
import t from 'tap';
import { readJson } from '../../src/core/json.js';
import { parsePointer } from '../../src/core/json-pointer.js';
import { diceOf, type Json, jsonWith, sameValue, spell, text } from './json-values.js';

/** Canonical texts of the values at these pointers, or `malformed`. */
function read(document: string | Buffer, ...pointers: readonly string[]): readonly (string | null)[] | 'malformed' {
  const result = readJson(
    Buffer.from(document),
    pointers.map((pointer) => parsePointer(pointer)!),
  );
  return result.kind === 'malformed' ? 'malformed' : result.values;
}

const whole = (document: string | Buffer) => read(document, '')[0];
const isMalformed = (document: string | Buffer) => read(document) === 'malformed' && read(document, '') === 'malformed';

const numbers = [
  '0',
  '-0',
  '1',
  '-1',
  '1.0',
  '1e0',
  '1E0',
  '1e+0',
  '10',
  '0.1',
  '12345678901234567890',
  '12345678901234567891',
];
const json = jsonWith(fc.constantFrom(...numbers));
const seed = fc.nat();

t.test('equal values meet, however they are spelled', async () => {
  fc.assert(
    fc.property(json, seed, seed, (value, one, other) => {
      const document = spell(value, diceOf(one));
      return !isMalformed(document) && whole(document) === whole(spell(value, diceOf(other)));
    }),
    { numRuns: 3000 },
  );
});

t.test('different values never meet', async () => {
  fc.assert(
    fc.property(json, json, seed, (a, b, dice) => {
      return sameValue(a, b) === (whole(spell(a, diceOf(dice))) === whole(spell(b, diceOf(dice + 1))));
    }),
    { numRuns: 5000 },
  );
});

t.test('a change in one place of a value changes its text', async () => {
  const changed = fc
    .tuple(json, json, json, fc.constantFrom('wrap', 'element', 'member', 'split'))
    .map(([a, b, c, how]) => {
      const array = (...elements: readonly Json[]): Json => ({ kind: 'array', elements });
      const object = (name: string, value: Json): Json => ({ kind: 'object', members: [[name, value]] });
      if (how === 'wrap') return [a, array(a)] as const;
      if (how === 'element') return [array(a, b), array(a, c)] as const;
      if (how === 'member') return [object('a', a), object('b', a)] as const;
      return [array(array(a, b), c), array(array(a), b, c)] as const;
    });
  fc.assert(
    fc.property(changed, ([a, b]) => {
      return sameValue(a, b) === (whole(spell(a, diceOf(1))) === whole(spell(b, diceOf(1))));
    }),
    { numRuns: 2000 },
  );
});

t.test('scalars that other readers confuse stay apart', async (t) => {
  const documents = [
    ...numbers,
    ...['null', 'true', 'false', '""', '"null"', '"1"', '[]', '{}', '[[]]', '[{}]', '[""]', '[null]', '["1"]', '[1]'],
    ...['"\\ud800"', '"\\udc00"', '"\\udc00\\ud800"', '"\\ud800\\udc00"', '"\\ufffd"', '"\ufffd\ufffd"', '"?"'],
    ...['"a\\n"', '"a\\\\n"', '"\u00e9"', '"e\u0301"', '"\u00c3\u00a9"', '"s1:a"', '{"a":1}', '{"a":"1"}', '["a",1]'],
    ...[
      '{"x":["b"]}',
      '{"xa1:":"b"}',
      '{"xa1:s1:b":[]}',
      '{"a":[],"b":1}',
      '{"a":{"b":1}}',
      '[{"a":1},{"b":1}]',
      '[{"a":1,"b":1}]',
    ],
  ];
  const texts = documents.map(whole);
  t.equal(new Set(texts).size, documents.length);
  t.equal(whole('"\\ud83d\\ude00"'), whole('"\u{1f600}"'), 'an escaped pair is its character');
  t.equal(whole('"\\u0061\\/"'), whole('"a/"'));
  t.equal(whole('{"b":1,"a":{"d":2,"c":3}}'), whole(' { "a" : {"c":3,\n"d":2} , "b" : 1 }\t'));
});

t.test('content that is no JSON of one reading gives no value at all', async (t) => {
  const documents: readonly (readonly [string | Buffer, string])[] = [
    ['', 'nothing'],
    [' ', 'white space'],
    ['{"a":1,"a":1}', 'a member twice'],
    ['{"a":1,"\\u0061":2}', 'a member twice, in two spellings'],
    ['{"\u00e9":1,"\\u00e9":2}', 'a member twice, raw and escaped'],
    ['{"x":[{"y":{"a":1,"b":2,"a":3}}]}', 'a member twice, deep within'],
    ['{"\\ud800":1,"\\ud800":2}', 'a lone surrogate twice'],
    ['\ufeff{}', 'a byte order mark'],
    ['{} {}', 'a second value'],
    ['{}x', 'bytes behind the value'],
    ['{}\u0000', 'NUL behind the value'],
    ['\u00a01', 'white space that JSON does not have'],
    [Buffer.from([0x22, 0xff, 0x22]), 'bytes that are no UTF-8'],
    [Buffer.from([0x22, 0xed, 0xa0, 0x80, 0x22]), 'a surrogate in UTF-8'],
    [Buffer.from([0x22, 0xc0, 0xa2, 0x22]), 'an overlong quote'],
    [Buffer.from('{"a":1}', 'utf16le'), 'UTF-16'],
    ...[
      "{'a':1}",
      '{a:1}',
      '{"a":1,}',
      '{,}',
      '{"a"}',
      '{"a":}',
      '{"a" 1}',
      '{"a":1 "b":2}',
      '{1:2}',
      '{',
      '}',
      '{"a":1',
    ].map((document) => [document, 'a broken object'] as const),
    ...['[1,]', '[,1]', '[1 2]', '[', ']', '[1', '[}', '[1}', '[1]]'].map(
      (document) => [document, 'a broken array'] as const,
    ),
    ...['01', '-', '+1', '.5', '1.', '1.e1', '1e', '1e+', '-01', '0x1', '1_0', 'NaN', 'Infinity', '--1', '1.2.3'].map(
      (document) => [document, 'a broken number'] as const,
    ),
    ...['"', '"a', '"\\"', '"\\x"', '"\\u12"', '"\\u12g4"', '"\\', '"\u0000"', '"\n"', '"\t"', '"\u001f"'].map(
      (document) => [document, 'a broken string'] as const,
    ),
    ...['tru', 'truee', 'nul', 'True', 'undefined', 'fals', 'n'].map(
      (document) => [document, 'a broken word'] as const,
    ),
    ['[1] // c', 'a comment'],
  ];
  for (const [document, what] of documents)
    t.ok(isMalformed(document), `${what}: ${JSON.stringify(document.toString())}`);
  t.equal(whole('"\u007f"'), 's1:\u007f', 'DEL is no control character of JSON');
});

t.test('a member twice is found among any number of members', async (t) => {
  for (const count of [1, 2, 11, 12, 13, 14, 100, 5000]) {
    const names = Array.from({ length: count }, (_, i) => `"name ${i}":{"x":1,"y":[]}`);
    t.notOk(isMalformed(`{${names.join()}}`), `${count} different members`);
    for (const twice of [0, Math.floor(count / 2), count - 1]) {
      t.ok(isMalformed(`{${names.join()},"name ${twice}":0}`), `member ${twice} of ${count} twice`);
      t.ok(isMalformed(`{${names.join()},"\\u006eame ${twice}":0}`), `member ${twice} of ${count} in another spelling`);
    }
  }
  t.notOk(isMalformed('[{"a":1},{"a":1},{"b":{"a":1,"b":{"a":1}},"a":1}]'), 'other objects have their own members');
  t.ok(isMalformed('{"b":{"c":1},"a":1,"x":{"y":{}},"b":1}'), 'members within do not hide those around');
  t.notOk(isMalformed('{"Aa":1,"BB":2,"AaAa":3,"BBBB":4,"AaBB":5,"BBAa":6}'), 'names whose hashes meet are compared');
});

t.test('depth is bounded, without harm to the stack', async (t) => {
  const nested = (depth: number) => '['.repeat(depth) + ']'.repeat(depth);
  t.notOk(isMalformed(nested(64)));
  t.ok(isMalformed(nested(65)));
  t.ok(isMalformed(nested(1_000_000)));
  t.ok(isMalformed('{"a":'.repeat(1_000_000)));
});

t.test('pointers lead by member names and indexes', async (t) => {
  const at = (document: string, pointer: string) => {
    const result = read(document, pointer);
    return result === 'malformed' ? result : result[0];
  };
  const one = whole('1');
  t.equal(at('{"a":{"b":[0,1]}}', '/a/b/1'), one);
  t.equal(at('{"a/b":{"m~n":1}}', '/a~1b/m~0n'), one);
  t.equal(at('{"~1":1}', '/~01'), one);
  t.equal(at('{"":{"":1}}', '//'), one, 'an empty name is a name');
  t.equal(at('{"\\u0061":1}', '/a'), one, 'a name in another spelling');
  t.equal(at('{"\u00e9":1}', '/\u00e9'), one);
  t.equal(at('{"\\u00e9":1}', '/\u00e9'), one);
  t.equal(at('{"a\\\\n":1}', '/a\\n'), one);
  t.equal(at('{"a\\n":1}', '/a\\n'), null, 'an escape is not its spelling');
  t.equal(at('{"0":1,"-":2}', '/0'), one, 'a digit is a name too');
  t.equal(at('{"-":1}', '/-'), one);
  t.equal(at('{"__proto__":1}', '/__proto__'), one);
  for (const pointer of ['/__proto__', '/constructor', '/toString', '/length', '/b', '/a/b', '/a/length', '/']) {
    t.equal(at('{"a":"text"}', pointer), null, `nothing at ${pointer}`);
  }
  for (const pointer of ['/-', '/00', '/01', '/2', '/1e0', '/ 0', '/+1', '/length', '/9007199254740993']) {
    t.equal(at('[0,1]', pointer), null, `no element at ${pointer}`);
  }
  t.equal(at('{"a":null}', '/a'), whole('null'), 'null is a value');
  t.same(read('{"a":[1,{"b":2}],"c":"x"}', '/c', '/a', '/a/1/b', '', '/a', '/d'), [
    whole('"x"'),
    whole('[1,{"b":2}]'),
    whole('2'),
    whole('{"c":"x","a":[1,{"b":2}]}'),
    whole('[1,{"b":2}]'),
    null,
  ]);
});

t.test('text that is no pointer is refused', async (t) => {
  for (const text of ['a', 'a/b', '#/a', '/~', '/~2', '/a~', ' /a']) t.equal(parsePointer(text), null, text);
  t.same(parsePointer(''), []);
  t.same(
    parsePointer('/a~1b/01')?.map(({ name, index }) => ({ name, index })),
    [
      { name: 'a/b', index: -1 },
      { name: '01', index: -1 },
    ],
  );
});

t.test('a value found by its pointer has the text it has alone', async () => {
  const step = fc.oneof(text, fc.constantFrom('0', '1', '2', '-', '01'));
  fc.assert(
    fc.property(json, fc.array(step, { maxLength: 3 }), seed, (value, steps, dice) => {
      const wellFormed = steps.map((name) => Buffer.from(name).toString());
      const pointer = wellFormed.map((name) => `/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`).join('');
      const found = resolve(value, wellFormed);
      return (
        read(spell(value, diceOf(dice)), pointer)[0] === (found === null ? null : whole(spell(found, diceOf(dice + 1))))
      );
    }),
    { numRuns: 3000 },
  );
});

function resolve(value: Json, steps: readonly string[]): Json | null {
  const [step, ...rest] = steps;
  if (step === undefined) return value;
  const next =
    value.kind === 'object'
      ? value.members.find(([name]) => name === step)?.[1]
      : value.kind === 'array' && /^(0|[1-9]\d*)$/.test(step)
        ? value.elements[Number(step)]
        : undefined;
  return next === undefined ? null : resolve(next, rest);
}

t.test('the grammar is that of JSON.parse, less members that come twice', async () => {
  const tokens = [
    '{',
    '}',
    '[',
    ']',
    ',',
    ':',
    '"a"',
    '"b"',
    '"\\u0061"',
    '1',
    '-0',
    '0',
    '.5',
    'e1',
    'E-',
    'null',
    'true',
    ' ',
    '"',
    '\\',
  ];
  const soup = fc.array(fc.constantFrom(...tokens), { maxLength: 10 }).map((list) => list.join(''));
  const cut = fc.tuple(json, seed, fc.nat(40), fc.constantFrom(...tokens, '')).map(([value, dice, place, token]) => {
    const document = spell(value, diceOf(dice));
    return document.slice(0, place) + token + document.slice(place + 1);
  });
  fc.assert(
    fc.property(fc.oneof(soup, cut), (document) => {
      const bytes = Buffer.from(document);
      const parsed = parseOrNull(bytes.toString());
      if (read(bytes, '') !== 'malformed') return parsed !== null;
      return parsed === null || membersWritten(document) > membersOf(parsed.value);
    }),
    { numRuns: 5000 },
  );
});

t.test('whatever JSON.stringify writes is read', async () => {
  fc.assert(fc.property(fc.json({ maxDepth: 5, stringUnit: 'binary' }), (document) => !isMalformed(document)));
});

/** How many members a well-formed document writes: its colons outside strings. */
function membersWritten(document: string): number {
  return document.replace(/"(?:[^"\\]|\\.)*"/g, '').split(':').length - 1;
}

function membersOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0;
  const below = Object.values(value).reduce((sum: number, member) => sum + membersOf(member), 0);
  return Array.isArray(value) ? below : below + Object.keys(value).length;
}

function parseOrNull(document: string): { readonly value: unknown } | null {
  try {
    return { value: JSON.parse(document) };
  } catch {
    return null;
  }
}

t.test('reading takes linear time', async (t) => {
  const many = 200_000;
  const documents = [
    `{${Array.from({ length: many }, (_, i) => `"${i.toString(36)}":1`).join()}}`,
    `[${'{"a":{"b":[]}},'.repeat(many)}1]`,
    `"${'\\u0061'.repeat(many)}"`,
    `"${'a'.repeat(many * 5)}"`,
    `[${'1,'.repeat(many)}1]`,
    ' '.repeat(many * 5),
    '1'.repeat(many * 5),
  ];
  const started = process.hrtime.bigint();
  for (const document of documents) read(document, '', '/a', '/0', '/0/a/b');
  t.ok(process.hrtime.bigint() - started < 10_000_000_000n);
});

t.test(
  'a pointer with a lone surrogate finds the member of that name, and not the replacement character',
  async (t) => {
    const document = Buffer.from('{"\\ud800":1,"\ufffd":2}');
    const one = readJson(document, [parsePointer('/\ud800')!]);
    const other = readJson(document, [parsePointer('/\ufffd')!]);
    t.not(JSON.stringify(one), JSON.stringify(other));
    t.same(one, readJson(Buffer.from('{"a":1}'), [parsePointer('/a')!]));
  },
);
