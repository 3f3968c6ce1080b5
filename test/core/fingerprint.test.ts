import { createHash, createHmac } from 'node:crypto';
import fc from 'fast-check';
import t from 'tap';
import { fingerprintNeedsContent, fingerprintOf } from '../../src/core/fingerprint.js';
import { normalNumber } from '../../src/core/json-number.js';
import { keyOf } from '../../src/core/key.js';
import type { RequestView } from '../../src/core/request-view.js';
import type { FingerprintKind, ReplayPolicy } from '../../src/core/rule.js';
import { parseTarget } from '../../src/core/target.js';
import { diceOf, jsonWith, sameValue, spell } from './json-values.js';

function policyOf(fingerprint: FingerprintKind): ReplayPolicy {
  return {
    kind: 'replay',
    mode: 'protects',
    scope: 'route',
    key: [{ from: 'request', name: 'content', optional: false }],
    identity: { kind: 'public' },
    onMissingKey: 'pass',
    onStoreDown: 'reject',
    leaseMs: 30_000,
    maxKeyBodyBytes: 1_048_576,
    unknownForMs: 0,
    reconcile: null,
    forward: { fence: null, idempotencyKey: null },
    keepMs: 86_400_000,
    wait: { kind: 'none' },
    maxSharedBytes: 8_388_608,
    fingerprint,
    release: [],
    keepContent: { kind: 'full' },
  };
}

type Asked = { readonly method?: string; readonly target?: string; readonly fields?: readonly string[] };

function viewOf(content: string | Buffer | null, { method = 'POST', target = '/orders', fields = [] }: Asked = {}) {
  return {
    method,
    target: parseTarget(target),
    host: 'example.com',
    fields,
    params: new Map(),
    content: content === null ? null : Buffer.from(content),
  } satisfies RequestView;
}

function of(kind: FingerprintKind, content: string | Buffer, asked: Asked = {}): string {
  return fingerprintOf(policyOf(kind), viewOf(content, asked), null);
}

type Tap = Pick<typeof t, 'ok' | 'equal'>;

function allDifferent(t: Tap, fingerprints: readonly string[], what: string) {
  t.ok(
    fingerprints.every((one) => /^[\w-]{43}$/.test(one)),
    `${what}: all are digests`,
  );
  t.equal(new Set(fingerprints).size, fingerprints.length, `${what}: no two meet`);
}

function allEqual(t: Tap, fingerprints: readonly string[], what: string) {
  t.equal(new Set(fingerprints).size, 1, `${what}: all meet`);
}

t.test('the digest is of the text of method, target and content, keyed by the secret where there is one', async (t) => {
  const hash = createHash('sha256').update('{}').digest('hex');
  const text = `f4:s23:oneflight fingerprint 1s4:POSTs7:/orders`;
  const exact = `${text}b1:s64:${hash}`;
  t.equal(of('exact', '{}'), createHash('sha256').update(exact, 'utf16le').digest('base64url'));
  const canonical = `${text}j1:o1:s1:ad3:1e1`;
  t.equal(of('canonical', '{"a":10}'), createHash('sha256').update(canonical, 'utf16le').digest('base64url'));
  t.equal(
    fingerprintOf(policyOf('exact'), viewOf('{}'), 'secret'),
    createHmac('sha256', 'secret').update(exact, 'utf16le').digest('base64url'),
  );
});

t.test('none is one for all, not empty, and asks for no content', async (t) => {
  t.equal(fingerprintOf(policyOf('none'), viewOf(null), 'secret'), 'any');
  t.notOk(fingerprintNeedsContent(policyOf('none')));
  for (const kind of ['exact', 'canonical'] as const) {
    t.ok(fingerprintNeedsContent(policyOf(kind)));
    t.throws(() => fingerprintOf(policyOf(kind), viewOf(null), null), /without the content/);
  }
});

t.test('no fingerprint is a key', async (t) => {
  const key = keyOf(policyOf('exact'), viewOf('{}'), null);
  t.not(key.kind === 'key' && key.digest, of('exact', '{}'));
});

t.test('method and raw target count for both, and nothing glues them', async (t) => {
  for (const kind of ['exact', 'canonical'] as const) {
    const asked: readonly Asked[] = [
      {},
      { method: 'PUT' },
      { method: 'post' },
      { target: '/orders?' },
      { target: '/orders?a=1' },
      { target: '/orders?a=1&b' },
      { target: '/%6Frders' },
      { target: '/orders/' },
      { target: '/orders#f' },
      { target: 'http://example.com/orders' },
      { target: '*' },
      { method: 'POST*', target: '*' },
      { method: 'POS', target: 'T/orders' },
      { method: 'POST/', target: 'orders' },
      { method: 'POSTs7:/orders', target: '' },
      { method: 'POSTs/a', target: '/b' },
      { method: 'POST', target: '/as/b' },
    ];
    allDifferent(
      t,
      asked.map((one) => of(kind, '{}', one)),
      kind,
    );
    allEqual(
      t,
      [{}, { fields: ['Content-Type', 'application/json'] }, { fields: ['Idempotency-Key', 'a'] }].map((one) =>
        of(kind, '{}', one),
      ),
      `${kind}: fields do not count`,
    );
  }
});

t.test('requests meet exactly when method, target and content are equal', async () => {
  const piece = fc
    .array(fc.constantFrom('s', '1', ':', '/', 'a', 'b1:'), { maxLength: 4 })
    .map((list) => list.join(''));
  const request = fc.tuple(piece, piece, piece);
  const kind = fc.constantFrom('exact', 'canonical');
  fc.assert(
    fc.property(kind, request, request, fc.nat(8), fc.nat(8), (kind, a, b, one, other) => {
      const fingerprint = ([method = '', target = '', content = '']: readonly string[]) =>
        of(kind, JSON.stringify([content]), { method, target });
      // The same characters cut elsewhere are the likeliest to meet.
      const cut = (at: number) => [a.join('').slice(0, at), a.join('').slice(at), ''];
      const equal = (x: readonly string[], y: readonly string[]) =>
        (JSON.stringify(x) === JSON.stringify(y)) === (fingerprint(x) === fingerprint(y));
      return equal(a, b) && equal(a, cut(one)) && equal(cut(one), cut(other));
    }),
    { numRuns: 1000 },
  );
});

t.test('exact: every byte of the content counts', async (t) => {
  const contents = ['', ' ', '{}', '{ }', '[]', '1', '1.0', '{"a":1,"b":2}', '{"b":2,"a":1}', '\u00e9', '\ufffd'];
  const bytes = [Buffer.from([0xff]), Buffer.from([0xfe]), Buffer.from([0xe9]), Buffer.from([0]), Buffer.alloc(2)];
  allDifferent(
    t,
    [...contents, ...bytes].map((content) => of('exact', content)),
    'contents',
  );
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 4 }), fc.uint8Array({ maxLength: 4 }), (a, b) => {
      const equal = Buffer.compare(a, b) === 0;
      return equal === (of('exact', Buffer.from(a)) === of('exact', Buffer.from(b)));
    }),
  );
});

t.test('canonical: white space, order of members and spelling do not count', async (t) => {
  allEqual(
    t,
    [
      '{"a":1,"b":[2,"x/y"]}',
      ' { "b" : [ 2 , "x\\/y" ] ,\n"\\u0061" : 1.0 } ',
      '{"b":[20e-1,"\\u0078/y"],"a":10E-1}',
    ].map((content) => of('canonical', content)),
    'one value',
  );
  for (const numbers of [
    ['1', '1.0', '1e0', '1E+0', '1e-0', '10e-1', '0.1e1', '100e-2', '1.000', '1e000'],
    ['0', '-0', '0.0', '-0.00', '0e5', '-0e-5', '0e99999999999999999999', '0E+1'],
    ['-1.5', '-15e-1', '-1.50', '-0.15e1'],
    ['1e400', '10e399', '0.1e401'],
    ['12345678901234567890', '1234567890123456789e1', '12345678901234567890.0', '1.2345678901234567890E19'],
    ['1e00000000000000000000000000000000001', '10'],
  ]) {
    allEqual(
      t,
      numbers.map((number) => of('canonical', `[${number}]`)),
      numbers[0]!,
    );
  }
});

t.test('canonical: different values stay apart, to the last digit', async (t) => {
  const documents = [
    '0',
    '1',
    '-1',
    '10',
    '11',
    '101',
    '1.1',
    '0.1',
    '0.01',
    '12345678901234567890',
    '12345678901234567891',
    '0.1000000000000000055511151231257827',
    '1e400',
    '-1e400',
    '1e401',
    '1e-400',
    '1e1000000000000000000',
    '1e1000000000000000001',
    '-1e1000000000000000000',
    '"1"',
    '"1.0"',
    '"1e0"',
    '""',
    'null',
    '"null"',
    'true',
    'false',
    '[]',
    '{}',
    '[null]',
    '[[]]',
    '{"a":null}',
    '{"a":[]}',
    '{"a":1,"b":2}',
    '{"a":2,"b":1}',
    '["a","b"]',
    '["b","a"]',
    '["as1:b"]',
    '["a1:s1:b"]',
    '["asb","c"]',
    '["a","bsc"]',
    '["a"]',
    '["A"]',
    '["\\ud800"]',
    '["\\ufffd"]',
    '["\u00e9"]',
    '["e\u0301"]',
    '[12,3]',
    '[1,23]',
    '[1,2,3]',
    '[123]',
  ];
  allDifferent(
    t,
    documents.map((content) => of('canonical', content)),
    'values',
  );
});

t.test('canonical: content that is no JSON of one reading counts by its bytes', async (t) => {
  const deep = (space: string) => `${'['.repeat(65)}${space}${']'.repeat(65)}`;
  const twins = [
    ['', ' '],
    ['{"a":1,"a":1}', '{"a":1, "a":1}'],
    ['{"a":1,}', '{"a":1, }'],
    ["{'a':1}", "{ 'a':1}"],
    ['\ufeff{}', '\ufeff{ }'],
    ['a=1&b=2', 'b=2&a=1'],
    ['01', '1'],
    [deep(''), deep(' ')],
  ];
  allDifferent(
    t,
    twins.flat().map((content) => of('canonical', content)),
    'twins',
  );
  for (const content of twins.flat().filter((one) => one !== '1')) {
    t.equal(of('canonical', content), of('exact', content), JSON.stringify(content.slice(0, 20)));
  }
  const gzip = { fields: ['Content-Encoding', 'gzip'] };
  t.not(of('canonical', '{}', gzip), of('canonical', '{ }', gzip), 'encoded');
  t.equal(of('canonical', '{}', { fields: ['Content-Encoding', 'identity'] }), of('canonical', '{ }'), 'not encoded');
  const invalid = Buffer.from('"\xe9"', 'latin1');
  t.equal(of('canonical', invalid), of('exact', invalid), 'not UTF-8');
  t.not(of('canonical', '{}'), of('exact', '{}'), 'a value is not its bytes');
});

const digits = fc.array(fc.constantFrom(...'0001239'), { minLength: 1, maxLength: 5 }).map((list) => list.join(''));
/** A number in one of its spellings; the few digits make equal ones likely. */
const number = fc
  .tuple(fc.boolean(), digits, fc.option(digits), fc.option(fc.tuple(fc.constantFrom('e', 'E', 'e+', 'e-'), digits)))
  .map(([negative, whole, fraction, exponent]) => {
    const integer = whole.replace(/^0+(?=\d)/, '');
    const power = exponent === null ? '' : exponent[0] + exponent[1].slice(-2);
    return `${negative ? '-' : ''}${integer}${fraction === null ? '' : `.${fraction}`}${power}`;
  });
const bigNumber = fc.tuple(fc.bigInt({ min: -(10n ** 30n), max: 10n ** 30n }), fc.nat(3)).map(([value, zeros]) => {
  return zeros === 0 ? `${value}` : `${value}.${'0'.repeat(zeros)}`;
});

/** The number times 10^300, exactly. */
function scaled(text: string): bigint {
  const [, sign, whole = '', fraction = '', exponent = '0'] =
    /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(text) ?? [];
  const value = BigInt(whole + fraction) * 10n ** BigInt(300 - fraction.length + Number(exponent));
  return sign === '-' ? -value : value;
}

const sameNumber = (a: string, b: string) => scaled(a) === scaled(b);

t.test('numbers meet exactly when they are equal', async () => {
  const any = fc.oneof(number, number, bigNumber);
  fc.assert(
    fc.property(any, any, (a, b) => sameNumber(a, b) === (of('canonical', a) === of('canonical', b))),
    { numRuns: 5000 },
  );
  fc.assert(
    fc.property(number, fc.nat(3), fc.integer({ min: -20, max: 20 }), (text, zeros, shift) => {
      const value = scaled(text);
      const other = `${value * 10n ** BigInt(zeros)}e${-300 - zeros}`;
      const moved = `${value}e${shift - 300}`;
      const same = of('canonical', text);
      return of('canonical', other) === same && (of('canonical', moved) === same) === (shift === 0 || value === 0n);
    }),
    { numRuns: 2000 },
  );
});

t.test('the spelling that equal numbers share is a number of that value', async () => {
  fc.assert(
    fc.property(fc.oneof(number, bigNumber), (text) => {
      const normal = normalNumber(text);
      return (
        scaled(normal) === scaled(text) && normalNumber(normal) === normal && JSON.parse(normal) === Number(text) + 0
      );
    }),
    { numRuns: 2000 },
  );
});

t.test('values meet exactly when they are equal, however they are spelled', async () => {
  const json = jsonWith(fc.oneof(number, bigNumber));
  const seed = fc.nat();
  fc.assert(
    fc.property(json, json, seed, seed, (a, b, one, other) => {
      const fingerprint = of('canonical', spell(a, diceOf(one)));
      return (
        fingerprint === of('canonical', spell(a, diceOf(other))) &&
        sameValue(a, b, sameNumber) === (fingerprint === of('canonical', spell(b, diceOf(other))))
      );
    }),
    { numRuns: 3000 },
  );
});

t.test('a long number takes linear time', async (t) => {
  const million = 1_000_000;
  const start = performance.now();
  t.equal(
    of('canonical', `1${'0'.repeat(million)}`),
    of('canonical', `1.${'0'.repeat(million)}e${'0'.repeat(million)}${million}`),
  );
  t.not(of('canonical', `1e${'9'.repeat(million)}`), of('canonical', `1e${'9'.repeat(million)}9`));
  t.ok(performance.now() - start < 2_000);
});
