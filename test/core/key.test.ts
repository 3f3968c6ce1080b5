import { createHash, createHmac } from 'node:crypto';
import fc from 'fast-check';
import t from 'tap';
import { type KeyResult, keyOf, needsContent, type RequestView } from '../../src/core/key.js';
import { groupElement, textElement, textsElement } from '../../src/core/key-text.js';
import type {
  CoalescePolicy,
  Identity,
  KeyedPolicy,
  KeyPart,
  QueuePolicy,
  RejectPolicy,
  ReplayPolicy,
} from '../../src/core/rule.js';
import { parseTarget } from '../../src/core/target.js';

const keyed = {
  scope: 'route',
  identity: { kind: 'public' },
  mode: 'protects',
  onMissingKey: 'pass',
  onStoreDown: 'local',
  leaseMs: 30_000,
  maxKeyBodyBytes: 1_048_576,
  unknownForMs: 0,
  reconcile: null,
  forward: { fence: null, idempotencyKey: null },
} as const;

function reject(key: readonly KeyPart[], change: Partial<RejectPolicy> = {}): RejectPolicy {
  return { ...keyed, kind: 'reject', key, conflict: { status: 409, retryAfter: { kind: 'computed' } }, ...change };
}

function coalesce(key: readonly KeyPart[], change: Partial<CoalescePolicy> = {}): CoalescePolicy {
  return {
    ...keyed,
    kind: 'coalesce',
    key,
    waitMs: 10_000,
    pollMs: 500,
    keep: { kind: 'by-method' },
    keepStatuses: [{ from: 200, to: 399 }],
    maxSharedBytes: 8_388_608,
    maxFollowers: 10_000,
    stream: 'in-process',
    stallMs: 10_000,
    onLeaderFailure: { kind: 'fail' },
    onUnshareable: 'by-method',
    unshareableForMs: 60_000,
    verify: null,
    ...change,
  };
}

function queue(key: readonly KeyPart[], change: Partial<QueuePolicy> = {}): QueuePolicy {
  return { ...keyed, kind: 'queue', key, waitMs: 10_000, pollMs: 500, concurrency: 1, maxQueue: 100, ...change };
}

/** By `Idempotency-Key`, unless parts are given. */
function replay(key: readonly KeyPart[] = [idempotencyKey], change: Partial<ReplayPolicy> = {}): ReplayPolicy {
  return {
    ...keyed,
    kind: 'replay',
    key,
    keepMs: 86_400_000,
    wait: { kind: 'none' },
    maxSharedBytes: 8_388_608,
    fingerprint: 'exact',
    release: [],
    keepContent: { kind: 'full' },
    ...change,
  };
}

const idempotencyKey: KeyPart = { from: 'idempotency-key', name: 'idempotency-key', optional: false };
const part = (from: KeyPart['from'], name: string, optional = false): KeyPart => ({ from, name, optional });
/** As configurations have them unless they say `optional: false`. */
const callers = (...parts: readonly KeyPart[]): Identity => ({
  kind: 'parts',
  parts: parts.map((one) => ({ ...one, optional: true })),
});

type Asked = Partial<Omit<RequestView, 'target' | 'content'>> & {
  readonly target?: string;
  readonly content?: string | Buffer;
};

function viewOf({ target = '/', content = '', ...rest }: Asked): RequestView {
  const view = { method: 'POST', host: 'example.com', fields: [], params: new Map(), ...rest };
  return { ...view, target: parseTarget(target), content: Buffer.from(content) };
}

/** The digest, or what went wrong in one word. */
function keyFor(policy: KeyedPolicy, asked: Asked): string {
  const result: KeyResult = keyOf(policy, viewOf(asked), null);
  return result.kind === 'key' ? result.digest : result.kind;
}

/** Key of a request by one part alone. */
const by = (one: KeyPart, asked: Asked) => keyFor(reject([one]), asked);

const json = ['content-type', 'application/json'];
const form = ['content-type', 'application/x-www-form-urlencoded'];
const isKey = (text: string) => /^[\w-]{43}$/.test(text);

/** All keys are keys, and no two are the same. */
function allDifferent(t: Tap, keys: readonly string[], what: string) {
  t.ok(keys.every(isKey), `${what}: all have a key`);
  t.equal(new Set(keys).size, keys.length, `${what}: no two meet`);
}

/** All keys are keys, and the same. */
function allEqual(t: Tap, keys: readonly string[], what: string) {
  t.ok(keys.every(isKey), `${what}: all have a key`);
  t.equal(new Set(keys).size, 1, `${what}: all meet`);
}
type Tap = Pick<typeof t, 'ok' | 'equal'>;

t.test('the digest is of the text of the key, keyed by the secret where there is one', async (t) => {
  const policy = reject([part('param', 'sku')], { scope: 'stock' });
  const view = viewOf({ params: new Map([['sku', '42']]) });
  const text = 'k6:s15:oneflight key 1s6:rejects5:stock-pv1:s2:42';
  const plain = createHash('sha256').update(text, 'utf16le').digest('base64url');
  t.hasStrict(keyOf(policy, view, null), { kind: 'key', digest: plain, material: null, value: null });
  const secret = createHmac('sha256', 'secret').update(text, 'utf16le').digest('base64url');
  t.hasStrict(keyOf(policy, view, 'secret'), { kind: 'key', digest: secret, material: null, value: null });
  t.not(keyFor(policy, {}), plain);
});

t.test('with a secret, what keeps responses has material too: of the same text, under another label', async (t) => {
  const view = viewOf({ fields: ['Idempotency-Key', 'abc'] });
  const materialIn = (asked: RequestView, secret: string | null) => {
    const key = keyOf(replay(), asked, secret);
    if (key.kind !== 'key') throw new Error(key.kind);
    return key;
  };
  t.equal(materialIn(view, null).material, null, 'none without a secret');
  const { digest, material } = materialIn(view, 'secret');
  const bytes = material?.export();
  t.equal(bytes?.length, 32);
  t.notOk(bytes?.equals(Buffer.from(digest, 'base64url')));
  t.ok(bytes?.equals(materialIn(view, 'secret').material!.export()), 'it follows from request and secret');
  t.notOk(bytes?.equals(materialIn(view, 'secreu').material!.export()));
  const other = viewOf({ fields: ['Idempotency-Key', 'abd'] });
  t.notOk(bytes?.equals(materialIn(other, 'secret').material!.export()));
  t.equal(JSON.stringify(material), '{}', 'no log shows it');
});

t.test('what a policy is and whom it separates is in its keys', async (t) => {
  const sku = [part('param', 'sku')];
  const asked: Asked = { params: new Map([['sku', '42']]), fields: ['authorization', 'A'] };
  const authorization = part('header', 'authorization');
  allDifferent(
    t,
    [
      reject(sku),
      coalesce(sku),
      replay(sku),
      queue(sku),
      queue(sku, { scope: 'other' }),
      reject(sku, { scope: 'other' }),
      reject(sku, { scope: '' }),
      reject(sku, { identity: callers() }),
      reject(sku, { identity: callers(authorization) }),
      reject(sku, { identity: callers(authorization, authorization) }),
      reject([...sku, authorization]),
      reject([...sku, ...sku]),
      reject([authorization, ...sku]),
      reject([]),
    ].map((policy) => keyFor(policy, asked)),
    'policies',
  );
});

t.test('rules of one scope share their keys, whatever names and sources their parts have', async (t) => {
  allEqual(
    t,
    [
      by(part('param', 'sku'), { params: new Map([['sku', '42']]) }),
      by(part('param', 'id'), { params: new Map([['id', '42']]) }),
      by(part('body', '/sku'), { content: '{"sku":"42"}' }),
      by(part('form', 'sku'), { fields: form, content: 'sku=42' }),
      by(part('query', 'sku'), { target: '/?sku=42' }),
      by(part('header', 'x-sku'), { fields: ['X-SKU', '42'] }),
      by(part('cookie', 'sku'), { fields: ['cookie', 'sku=42'] }),
      by(part('body', '/\u00e9'), { content: '{"\u00e9":"42"}' }),
    ],
    'sources',
  );
  allEqual(
    t,
    [
      by(part('query', 'n'), { target: '/?n=%C3%A9' }),
      by(part('body', ''), { content: '"\u00e9"' }),
      by(part('body', ''), { content: '"\\u00e9"' }),
    ],
    'text beyond ASCII',
  );
});

t.test('the method counts for coalesce and replay, and not for reject and queue', async (t) => {
  const path = [part('request', 'path')];
  const methods = ['GET', 'HEAD', 'POST', 'post', 'PUT'];
  allDifferent(
    t,
    methods.map((method) => keyFor(coalesce(path), { method })),
    'coalesce',
  );
  allDifferent(
    t,
    methods.map((method) => keyFor(replay(path), { method })),
    'replay',
  );
  allEqual(
    t,
    methods.map((method) => keyFor(reject(path), { method })),
    'reject',
  );
  allEqual(
    t,
    methods.map((method) => keyFor(queue(path), { method })),
    'queue',
  );
});

t.test('ranges and conditions count for GET and HEAD of replay', async (t) => {
  const policy = replay([part('request', 'path')]);
  const fields = [[], ['range', 'a'], ['if-match', 'a'], ['if-match', 'b']];
  const keys = (method: string) => fields.map((lines) => keyFor(policy, { method, fields: lines }));
  allDifferent(t, [...keys('GET'), ...keys('HEAD')], 'GET and HEAD');
  allEqual(t, keys('POST'), 'POST');
});

t.test('ranges and conditions count for GET and HEAD of coalesce', async (t) => {
  const policy = coalesce([part('request', 'path')]);
  const names = ['Range', 'If-Match', 'If-None-Match', 'If-Modified-Since', 'If-Unmodified-Since', 'If-Range'];
  for (const method of ['GET', 'HEAD']) {
    const lists = names.flatMap((name) => [
      [name, ''],
      [name, 'a'],
      [name, 'a', name, 'b'],
      [name, 'a, b'],
    ]);
    allDifferent(
      t,
      [[], ...lists].map((fields) => keyFor(policy, { method, fields })),
      method,
    );
  }
  t.equal(
    keyFor(policy, { method: 'GET', fields: ['range', 'a', 'if-match', 'b'] }),
    keyFor(policy, { method: 'GET', fields: ['If-Match', 'b', 'x', 'y', 'RANGE', 'a'] }),
    'the order of different fields means nothing',
  );
  allEqual(
    t,
    [[], ...names.map((name) => [name, 'a'])].map((fields) => keyFor(policy, { fields })),
    'POST',
  );
  const locked = reject([part('request', 'path')]);
  allEqual(
    t,
    [[], ['range', 'a']].map((fields) => keyFor(locked, { method: 'GET', fields })),
    'reject',
  );
});

t.test('identity separates callers, and no credentials are a caller too', async (t) => {
  const identity = callers(part('header', 'authorization'), part('header', 'cookie'));
  const policy = coalesce([part('body', '/refreshToken')], { identity });
  const content = '{"refreshToken":"r"}';
  const fields = [
    [],
    ['authorization', ''],
    ['authorization', 'A'],
    ['cookie', 'A'],
    ['authorization', 'A', 'cookie', 'A'],
  ];
  allDifferent(
    t,
    fields.map((list) => keyFor(policy, { fields: list, content })),
    'credentials',
  );
  const broken = coalesce([part('request', 'path')], { identity: callers(part('body', '/user')) });
  t.equal(keyFor(broken, { content: '{' }), 'malformed');
  t.ok(isKey(keyFor(broken, {})), 'an absent part of an identity is a value');
});

t.test('a caller without a part of the identity that is not optional has no key', async (t) => {
  const policy = coalesce([part('param', 'user')], {
    identity: { kind: 'parts', parts: [part('cookie', 'tab', true), part('header', 'authorization')] },
  });
  const params = new Map([['user', 'u-1']]);
  const missing = { kind: 'missing', part: 'header: authorization' };
  t.same(keyOf(policy, viewOf({ params }), null), missing);
  t.same(keyOf(policy, viewOf({ params, fields: ['cookie', 'tab=1'] }), null), missing);
  t.ok(isKey(keyFor(policy, { params, fields: ['authorization', ''] })), 'empty is there');
});

t.test('an absent part makes the key missing, unless it is optional', async (t) => {
  const absent: readonly (readonly [KeyPart['from'], string, Asked])[] = [
    ['header', 'x', { fields: ['y', 'x'] }],
    ['query', 'x', { target: '/?y=x&xx=1&=x' }],
    ['query', 'x', {}],
    ['param', 'x', { params: new Map([['y', 'x']]) }],
    ['cookie', 'x', { fields: ['cookie', 'y=x; xx=1; x; xy'] }],
    ['form', 'x', { fields: form, content: 'y=x' }],
    ['form', 'x', {}],
    ['body', '/x', { content: '{"y":"x"}' }],
    ['body', '/x', {}],
    ['body', '', {}],
  ];
  for (const [from, name, asked] of absent) {
    const result = keyOf(reject([part('request', 'path'), part(from, name)]), viewOf(asked), null);
    t.same(result, { kind: 'missing', part: `${from}: ${name}` });
    t.ok(isKey(by(part(from, name, true), asked)), `${from}: optional`);
  }
  const optional = part('body', '/x', true);
  const contents = [
    '{}',
    '{"x":null}',
    '{"x":""}',
    '{"x":"null"}',
    '{"x":"-"}',
    '{"x":[]}',
    '{"x":{}}',
    '{"x":0}',
    '{"x":"0"}',
  ];
  allDifferent(
    t,
    contents.map((content) => by(optional, { content })),
    'absent, null, empty',
  );
  const named = part('header', 'x', true);
  allDifferent(
    t,
    [[], ['x', ''], ['x', '-'], ['x', '', 'x', '']].map((fields) => by(named, { fields })),
    'absent, empty',
  );
});

t.test('header: every line counts, in order', async (t) => {
  const x = part('header', 'X-Name');
  const lists = [
    ['a'],
    ['b'],
    ['A'],
    ['a, b'],
    ['a', 'b'],
    ['b', 'a'],
    ['a', ''],
    ['', 'a'],
    ['a', 'b', 'b'],
    ['\u00e9'],
    ['\u00c3\u00a9'],
  ];
  allDifferent(
    t,
    lists.map((lines) => by(x, { fields: lines.flatMap((line) => ['x-name', line]) })),
    'lists of lines',
  );
  allEqual(t, [by(x, { fields: ['x-NAME', 'a'] }), by(x, { fields: ['y', 'x-name', 'X-Name', 'a'] })], 'names');
});

t.test('query and form: values are bytes', async (t) => {
  const raw = [
    'a',
    'b',
    'A',
    '',
    '%20a',
    'a%20',
    '%FF',
    '%FE',
    '%EF%BF%BD',
    '%C3%A9',
    '%E9',
    '%00',
    '%25zz',
    '%zz',
    '%',
    '%2',
    '%25',
    '%2525',
    'a&n=',
    'a&n=b',
    'b&n=a',
    'a%26n=b',
    'a=b',
    '%C4%A5',
    '%2B',
    '%2C',
    'a;n=b',
  ];
  const ways: readonly ((value: string) => string)[] = [
    (value) => by(part('query', 'n'), { target: `/?n=${value}` }),
    (value) => by(part('form', 'n'), { fields: form, content: `n=${value}` }),
  ];
  for (const key of ways) {
    allDifferent(t, raw.map(key), 'values');
    for (const [one, other] of [
      ['%61', 'a'],
      ['%c3%a9', '%C3%A9'],
      ['+', '%20'],
      ['a&m=b', 'a'],
      ['a&&', 'a'],
      ['%3D%26', '=%26'],
      ['%zz%41', '%zzA'],
    ]) {
      allEqual(t, [key(one!), key(other!)], `${one} and ${other}`);
    }
  }
  const n = part('query', 'n');
  allEqual(
    t,
    ['/?n', '/?n=', '/?%6e=', '/?m=1&n='].map((target) => by(n, { target })),
    'spellings of an empty value',
  );
  allEqual(
    t,
    ['/?a+b=1', '/?a%20b=1'].map((target) => by(part('query', 'a b'), { target })),
    'names are decoded',
  );
  t.equal(by(part('query', '\u00e9'), { target: '/?%C3%A9=1' }), by(n, { target: '/?n=1' }));
  t.equal(by(n, { target: '/?n=1#&n=2' }), by(n, { target: '/?n=1' }), 'a fragment is no query');
});

t.test('form: only content of that type is read', async (t) => {
  const n = part('form', 'n');
  const types = ['application/x-www-form-urlencoded', 'Application/X-WWW-Form-URLencoded ; charset=utf-8'];
  allEqual(
    t,
    types.map((type) => by(n, { fields: ['Content-Type', type], content: 'n=1' })),
    'spellings',
  );
  for (const fields of [
    [],
    json,
    ['content-type', ''],
    [...form, ...form],
    ['content-type', 'multipart/form-data; boundary=b'],
  ]) {
    t.equal(by(n, { fields, content: 'n=1' }), 'malformed', JSON.stringify(fields));
  }
  t.equal(by(n, { fields: [...form, 'content-encoding', 'gzip'], content: 'n=1' }), 'malformed');
});

t.test('cookie: all values of the name, as sent', async (t) => {
  const x = part('cookie', 'x');
  const lines = ['x=a', 'x=A', 'x="a"', 'x=', 'x=a; x=b', 'x=b; x=a', 'x=%61', 'x=a=b', 'x=a b', 'x=\u00a0a'];
  allDifferent(
    t,
    lines.map((line) => by(x, { fields: ['Cookie', line] })),
    'values',
  );
  allEqual(
    t,
    ['x=a', 'y=x; x=a', ' x = a ;y=b', 'X=b;x=a\t', 'y="x; x=a', 'x; x=a'].map((line) =>
      by(x, { fields: ['cookie', line] }),
    ),
    'spellings',
  );
  allEqual(
    t,
    [
      ['cookie', 'x=a; x=b'],
      ['cookie', 'x=a', 'Cookie', 'x=b'],
    ].map((fields) => by(x, { fields })),
    'lines',
  );
});

t.test('body: JSON whatever its type, but not when it is encoded', async (t) => {
  const x = part('body', '/x');
  const content = '{"x":1}';
  const fields = [
    [],
    json,
    ['content-type', 'text/plain'],
    ['content-encoding', 'identity'],
    ['content-encoding', ' , Identity'],
  ];
  allEqual(
    t,
    fields.map((list) => by(x, { fields: list, content })),
    'types',
  );
  for (const encoding of ['gzip', 'br', 'identity, gzip', 'x']) {
    t.equal(by(x, { fields: ['Content-Encoding', encoding], content }), 'malformed', encoding);
  }
  t.same(keyOf(reject([x]), viewOf({ content: '{"x":1,"x":1}' }), null), { kind: 'malformed', part: 'body: /x' });
  t.equal(by(part('body', '/x', true), { content: '{"y":1,"y":1}' }), 'malformed', 'optional excuses nothing');
  t.equal(by(x, { content: ' ' }), 'malformed');
  const contents = [
    '12345678901234567890',
    '12345678901234567891',
    '1',
    '"1"',
    '1.0',
    '1e0',
    'true',
    '[1]',
    '["1"]',
    '[[1]]',
  ];
  allDifferent(
    t,
    contents.map((value) => by(x, { content: `{"x":${value}}` })),
    'values',
  );
  const both = reject([part('body', '/a'), part('body', '/b')]);
  t.not(
    keyFor(both, { content: '{"a":1,"b":2}' }),
    keyFor(both, { content: '{"a":2,"b":1}' }),
    'each pointer its own value',
  );
  const caller = coalesce([part('body', '/a')], { identity: callers(part('body', '/b')) });
  t.not(keyFor(caller, { content: '{"a":1,"b":2}' }), keyFor(caller, { content: '{"a":1,"b":3}' }));
  t.ok(isKey(keyFor(caller, { content: '{"a":1}' })));
});

t.test('request: host, path, target and content', async (t) => {
  const target = { params: new Map(), host: 'Example.COM:80', target: '/a/%2e/b?x=1', content: 'c' };
  t.equal(by(part('request', 'host'), target), by(part('header', 'x'), { fields: ['x', 'example.com:80'] }));
  t.equal(by(part('request', 'path'), target), by(part('header', 'x'), { fields: ['x', '/a/b'] }));
  t.equal(by(part('request', 'target'), target), by(part('header', 'x'), { fields: ['x', '/a/%2e/b?x=1'] }));
  const contents = ['', 'a', 'b', '\ufffd', Buffer.from([0xff]), Buffer.from([0xfe]), '{}', '{ }'];
  allDifferent(
    t,
    contents.map((content) => by(part('request', 'content'), { content })),
    'contents',
  );
});

t.test('Idempotency-Key: quoted or not, and nothing else', async (t) => {
  const key = (...values: readonly string[]) =>
    keyOf(replay(), viewOf({ fields: values.flatMap((value) => ['Idempotency-Key', value]) }), null);
  const isOf = (asked: Asked) => keyFor(replay(), asked);
  t.same(key('"8e03978e"'), key('8e03978e'));
  t.not(isOf({ fields: ['idempotency-key', 'a'] }), isOf({ fields: ['idempotency-key', 'A'] }));
  t.same(key(), { kind: 'missing', part: 'header: idempotency-key' });
  for (const values of [[''], ['a', 'a'], ['a, b'], ['"a'], ['"a";x=1'], ['caf\xe9'], ['a'.repeat(256)]]) {
    t.same(key(...values), { kind: 'malformed', part: 'header: idempotency-key' }, JSON.stringify(values));
  }
  t.equal(
    keyFor(replay(), { fields: ['idempotency-key', '"42"'] }),
    keyFor(replay([part('param', 'id')]), { params: new Map([['id', '42']]) }),
    'its value is a text like others',
  );
});

t.test('content is needed by the parts that read it, of key and identity', async (t) => {
  for (const one of [part('body', '/x'), part('form', 'x'), part('request', 'content')]) {
    t.ok(needsContent(reject([part('header', 'x'), one])));
    t.ok(needsContent(reject([part('header', 'x')], { identity: callers(one) })));
  }
  const others = [
    part('header', 'x'),
    part('query', 'x'),
    part('param', 'x'),
    part('cookie', 'x'),
    part('request', 'path'),
  ];
  t.notOk(needsContent(reject(others, { identity: callers(...others) })));
  t.notOk(needsContent(reject(others)));
  t.notOk(needsContent(replay(others)), 'the fingerprint is another matter');
  t.ok(needsContent(replay([part('body', '/x')], { fingerprint: 'none' })));
  const view = { ...viewOf({}), content: null };
  t.throws(() => keyOf(reject([part('body', '/x')]), view, null), /without it/);
});

t.test('names that objects have by nature are names like others', async (t) => {
  for (const name of ['__proto__', 'constructor', 'toString', 'hasOwnProperty']) {
    for (const from of ['header', 'query', 'param', 'cookie'] as const) t.equal(by(part(from, name), {}), 'missing');
    t.equal(by(part('body', `/${name}`), { content: '{}' }), 'missing');
    t.equal(by(part('form', name), { fields: form, content: 'a=b' }), 'missing');
  }
});

const nasty = fc.constantFrom('', 'a', 'b', 'ab', ':', 'a:b', 's1:a', 's0:', '1:a', '-', 'l2:', '\u00ff', ', ', 'a, b');
const line = fc.oneof(
  nasty,
  fc.array(nasty, { maxLength: 3 }).map((list) => list.join('')),
);
const lines = fc.array(line, { maxLength: 3 });

t.test('lists of lines meet only when they are the same', async () => {
  const policy = reject([part('header', 'x', true), part('header', 'y', true), part('param', 'z', true)]);
  const request = fc.tuple(lines, lines, fc.option(line));
  const keyOfLists = ([x, y, z]: readonly [string[], string[], string | null]) =>
    keyFor(policy, {
      fields: [...x.flatMap((value) => ['x', value]), ...y.flatMap((value) => ['Y', value])],
      params: new Map(z === null ? [] : [['z', z]]),
    });
  fc.assert(
    fc.property(
      request,
      request,
      (a, b) => (JSON.stringify(a) === JSON.stringify(b)) === (keyOfLists(a) === keyOfLists(b)),
    ),
    { numRuns: 5000 },
  );
});

t.test('lists whose lines are cut elsewhere do not meet', async () => {
  const policy = reject([part('header', 'x', true), part('header', 'y', true)]);
  fc.assert(
    fc.property(fc.array(line, { maxLength: 4 }), fc.nat(4), fc.nat(4), (list, one, other) => {
      const key = (cut: number) => keyFor(policy, { fields: list.flatMap((value, i) => [i < cut ? 'x' : 'y', value]) });
      const same = Math.min(one, list.length) === Math.min(other, list.length);
      return same === (key(one) === key(other));
    }),
    { numRuns: 1000 },
  );
});

t.test('queries meet exactly when their values are the same bytes', async () => {
  const bytes = fc.array(fc.constantFrom(0x00, 0x20, 0x25, 0x26, 0x2b, 0x3d, 0x41, 0x61, 0xc3, 0xa9, 0xfe, 0xff), {
    maxLength: 3,
  });
  const values = fc.array(bytes, { minLength: 1, maxLength: 3 });
  const hex = (byte: number) => `%${byte.toString(16).padStart(2, '0')}`;
  const spellByte = (byte: number, variant: number) => {
    if (byte === 0x20 && variant % 2 === 0) return '+';
    if ((byte === 0x41 || byte === 0x61) && variant % 2 === 0) return String.fromCharCode(byte);
    return variant % 3 === 0 ? hex(byte) : hex(byte).toUpperCase();
  };
  const key = (list: readonly (readonly number[])[], variant: number) => {
    const pairs = list.map((value) => `n=${value.map((byte, i) => spellByte(byte, variant + i)).join('')}`);
    return by(part('query', 'n'), { target: `/?${pairs.join('&')}` });
  };
  fc.assert(
    fc.property(values, values, fc.nat(6), fc.nat(6), (a, b, one, other) => {
      const equal = JSON.stringify(a) === JSON.stringify(b);
      return key(a, one) === key(a, other) && equal === (key(a, one) === key(b, other));
    }),
    { numRuns: 3000 },
  );
});

t.test('the text of a key can be read back in one way only', async () => {
  const { tree } = fc.letrec<{ tree: Tree }>((tie) => ({
    tree: fc.oneof(
      { maxDepth: 3 },
      line,
      lines.map((texts) => ({ texts })),
      fc.array(tie('tree'), { maxLength: 3 }),
    ),
  }));
  fc.assert(
    fc.property(fc.array(tree), fc.array(tree), (a, b) => {
      const same = JSON.stringify(a.map(withoutLists)) === JSON.stringify(b.map(withoutLists));
      return same === (a.map(written).join('') === b.map(written).join(''));
    }),
    { numRuns: 5000 },
  );
});

type Tree = string | { readonly texts: readonly string[] } | readonly Tree[];

function written(tree: Tree): string {
  if (typeof tree === 'string') return textElement(tree);
  return 'texts' in tree ? textsElement(tree.texts) : groupElement('g', tree.map(written));
}

/** A list of one text counts as that text. */
function withoutLists(tree: Tree): unknown {
  if (typeof tree === 'string') return tree;
  if (!('texts' in tree)) return tree.map(withoutLists);
  return tree.texts.length === 1 ? tree.texts[0] : { texts: tree.texts };
}

t.test('the value of the key is given only to be asked about, and only where it is one text', async (t) => {
  const reconcile = {
    url: { origin: null, target: '/{key}', placeholder: 'key' },
    everyMs: 1_000,
    fields: [],
    done: [],
  } as const;
  const view = viewOf({
    target: '/a?q=a%2Fb%20c&two=1&two=2',
    fields: ['X-Id', 'one', 'Cookie', 'c=d', 'Idempotency-Key', '"a\\\\b"'],
    params: new Map([['id', 'a%2Fb%25']]),
    content: '{"text":"\u00e9\\u00e9","number":1,"list":["a"]}',
  });
  const askedOf = (key: KeyPart, change: Partial<RejectPolicy> = { reconcile }) => {
    const result = keyOf(reject([key], change), view, null);
    return result.kind === 'key' ? result.value : result.kind;
  };
  t.equal(askedOf(part('header', 'x-id')), 'one');
  t.equal(askedOf(part('header', 'x-id'), {}), null, 'nobody asks');
  const derived = { ...reconcile, url: { ...reconcile.url, placeholder: 'idempotencyKey' } } as const;
  t.equal(askedOf(part('header', 'x-id'), { reconcile: derived }), null, 'nobody needs it');
  t.equal(askedOf(part('idempotency-key', 'idempotency-key')), 'a\\b', 'as it is read, without quotes');
  t.equal(askedOf(part('cookie', 'c')), 'd');
  t.equal(askedOf(part('query', 'q')), 'a/b c');
  t.equal(askedOf(part('query', 'two')), null, 'two values');
  t.equal(askedOf(part('param', 'id')), 'a/b%', 'decoded, so that it is escaped once');
  t.equal(askedOf(part('body', '/text')), '\xc3\xa9\xc3\xa9', 'UTF-8 bytes');
  for (const pointer of ['/number', '/list', '']) t.equal(askedOf(part('body', pointer)), null, pointer);
  const two = keyOf(reject([part('header', 'x-id'), part('cookie', 'c')], { reconcile }), view, null);
  t.equal(two.kind === 'key' && two.value, null);
});

t.test('a rule that only observes shares no key with one that protects', async (t) => {
  const parts = [part('request', 'path')];
  const keys = (['protects', 'observes'] as const).flatMap((mode) =>
    [reject(parts, { mode }), coalesce(parts, { mode }), queue(parts, { mode }), replay(parts, { mode })].map(
      (policy) => keyFor(policy, {}),
    ),
  );
  allDifferent(t, keys, 'modes');
});
