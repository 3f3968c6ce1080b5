import fc from 'fast-check';
import t from 'tap';
import { readIdempotencyKey } from '../../src/core/idempotency-key.js';

/** The key, or what went wrong. */
function read(...lines: readonly string[]): string {
  const key = readIdempotencyKey(lines);
  return key.kind === 'key' ? `key ${key.value}` : key.kind;
}

t.test('no line is absence', async (t) => {
  t.equal(read(), 'absent');
});

t.test('a text in quotes and the same text without them are one key', async (t) => {
  for (const value of [
    'a',
    '8e03978e-40d5-43dd-bc93-6894a57f9324',
    'clkyoesmbgybucifusbbtdsbohtyuuwz',
    'A:b/c=+~!',
    '0',
  ]) {
    t.equal(read(value), `key ${value}`);
    t.equal(read(`"${value}"`), `key ${value}`);
    t.equal(read(` \t"${value}"\t `), `key ${value}`, 'spaces and tabs around a value are not part of it');
    t.equal(read(`\t ${value} \t`), `key ${value}`);
  }
});

t.test('quotes and backslashes within quotes are escaped, and nothing else is', async (t) => {
  t.equal(read('"a\\"b"'), 'key a"b');
  t.equal(read('"a\\\\b"'), 'key a\\b');
  t.equal(read('"\\\\\\""'), 'key \\"');
  t.equal(read('"a,b;c"'), 'key a,b;c', 'commas and semicolons are characters there');
  t.equal(read('" a "'), 'key  a ', 'so are spaces');
  for (const line of ['"a\\b"', '"a\\', '"a\\"', '"\\n"', '"a\\\tb"']) t.equal(read(line), 'malformed', line);
});

t.test('without quotes, spaces within and backslashes stand for themselves', async (t) => {
  t.equal(read('order 42'), 'key order 42');
  t.equal(read('order 42'), read('"order 42"'));
  t.equal(read('a\\b'), 'key a\\b');
  t.equal(read('a\\b'), read('"a\\\\b"'));
  t.equal(read("'a'"), "key 'a'", 'single quotes are no quotes');
});

t.test('whatever can be read as two things is malformed', async (t) => {
  const cases: readonly (readonly [why: string, ...lines: readonly string[]])[] = [
    ['two lines', 'a', 'b'],
    ['two lines with one value', 'a', 'a'],
    ['an empty line beside another', '', 'a'],
    ['a list', 'a, b'],
    ['a list of quoted texts', '"a", "b"'],
    ['a list of nothing', ','],
    ['a list that ends', '"a",'],
    ['parameters', '"a";x=1'],
    ['parameters without quotes', 'a;x=1'],
    ['empty', ''],
    ['white space', ' \t '],
    ['empty quotes', '""'],
    ['no end', '"a'],
    ['no end, empty', '"'],
    ['no beginning', 'a"'],
    ['a quote within', 'a"b'],
    ['something behind', '"a"b'],
    ['something behind and a space', '"a" b'],
    ['two texts', '"a""b"'],
    ['a tab within', 'a\tb'],
    ['a tab within quotes', '"a\tb"'],
    ['a control', 'a\x00'],
    ['a control within quotes', '"\x1f"'],
    ['DEL', 'a\x7f'],
    ['a line end', 'a\nb'],
    ['a line end behind', 'a\n'],
    ['a byte beyond ASCII', 'caf\xe9'],
    ['a byte beyond ASCII within quotes', '"caf\xe9"'],
    ['a no-break space around', '\xa0a'],
  ];
  for (const [why, ...lines] of cases) t.equal(read(...lines), 'malformed', why);
});

t.test('a key has 1 to 255 characters, counted without quotes and escapes', async (t) => {
  const longest = 'k'.repeat(255);
  t.equal(read(longest), `key ${longest}`);
  t.equal(read(`"${longest}"`), `key ${longest}`);
  t.equal(read(`"${'\\"'.repeat(255)}"`), `key ${'"'.repeat(255)}`);
  t.equal(read(`${longest}k`), 'malformed');
  t.equal(read(`"${longest}k"`), 'malformed');
  t.equal(read(`"${'\\"'.repeat(256)}"`), 'malformed');
});

t.test('every printable text can be sent in quotes, and meets no other', async () => {
  const text = fc.string({ unit: 'grapheme-ascii', minLength: 1, maxLength: 255 });
  const quoted = (value: string) => `"${value.replace(/["\\]/g, '\\$&')}"`;
  fc.assert(fc.property(text, (value) => read(quoted(value)) === `key ${value}`));
  fc.assert(
    fc.property(text, (value) => {
      const bare = read(value);
      return bare === 'malformed' || bare === `key ${value}` || bare === `key ${value.trim()}` || value.startsWith('"');
    }),
  );
});

t.test('reading takes linear time', async (t) => {
  const lines = [
    ' '.repeat(100_000),
    `${' a'.repeat(50_000)}"`,
    `"${'\\\\'.repeat(50_000)}`,
    `"${' '.repeat(100_000)}`,
  ];
  const start = performance.now();
  for (const line of lines) t.equal(read(line), 'malformed');
  t.ok(performance.now() - start < 1_000);
});
