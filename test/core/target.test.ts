import fc from 'fast-check';
import t from 'tap';
import { normalisePath, parseTarget } from '../../src/core/target.js';

/** Path by which rules are matched. */
const pathOf = (raw: string) => parseTarget(raw).path;

t.test('the origin form is split into path and query', async (t) => {
  t.same(parseTarget('/a/b?x=1&y=/../z'), { raw: '/a/b?x=1&y=/../z', path: '/a/b', query: 'x=1&y=/../z', host: null });
  t.equal(parseTarget('/a').query, null, 'no question mark, no query');
  t.equal(parseTarget('/a?').query, '', 'an empty query is a query');
  t.equal(parseTarget('/a?b?c').query, 'b?c', 'the first question mark counts');
  t.equal(parseTarget('/a%3Fb?c').path, '/a%3Fb', 'an escaped question mark belongs to the path');
});

t.test('the absolute form gives its host and the same path', async (t) => {
  t.same(parseTarget('http://Example.COM:8080/a/./b?q'), {
    raw: 'http://Example.COM:8080/a/./b?q',
    path: '/a/b',
    query: 'q',
    host: 'example.com:8080',
  });
  t.hasStrict(parseTarget('HTTPS://h'), { path: '/', query: null, host: 'h' }, 'an empty path is the root');
  t.hasStrict(parseTarget('http://h?q'), { path: '/', query: 'q', host: 'h' });
  t.hasStrict(parseTarget('http://user:pw@h/a'), { path: '/a', host: 'h' }, 'user information is no part of the host');
  t.hasStrict(parseTarget('http://[::1]:80/a'), { path: '/a', host: '[::1]:80' });
  t.hasStrict(parseTarget('http:///a'), { path: '/a', host: null });
  t.hasStrict(parseTarget('http://h\\a\\b'), { path: '/a/b', host: 'h' }, 'a backslash ends the host');
  t.hasStrict(parseTarget('//h/a'), { path: '/h/a', host: null }, 'two slashes at the start name no host');
});

t.test('the asterisk form is kept, and nothing hides behind it', async (t) => {
  t.equal(pathOf('*'), '*');
  t.equal(pathOf('*/../stock/1'), '/stock/1');
  t.equal(pathOf(''), '/');
});

t.test('one path has one normalised form, however it is spelled', async (t) => {
  const spellings: readonly (readonly [raw: string, path: string, why: string])[] = [
    ['/%61uth/%72efresh', '/auth/refresh', 'unreserved characters are decoded'],
    ['/a%2Db%2Ec%5fd%7Ee', '/a-b.c_d~e', 'all of them'],
    ['/a%2fb', '/a%2Fb', 'an escaped slash is no separator'],
    ['/a%2Fb', '/a%2Fb', 'and stays'],
    ['/a%252Fb', '/a%252Fb', 'nothing is decoded twice'],
    ['/a/./b/../c', '/a/c', 'dot segments go'],
    ['/a/%2e/b/%2E%2e/c', '/a/c', 'encoded ones too'],
    ['/a/.%2e/b', '/b', 'and half encoded ones'],
    ['/../../a', '/a', 'nothing is above the root'],
    ['/a/b/..', '/a/', 'a dot segment at the end leaves the slash'],
    ['/a/.', '/a/', 'RFC 3986 section 5.2.4'],
    ['/a/...', '/a/...', 'three dots are a name'],
    ['/a/..b', '/a/..b', 'so are dots with more behind them'],
    ['//a///b//', '/a/b/', 'runs of slashes become one'],
    ['/a//../b', '/a/b', 'dot segments go first'],
    ['/a\\b', '/a/b', 'a backslash separates'],
    ['/x\\..\\a', '/a', 'also dot segments'],
    ['/a%5Cb', '/a%5Cb', 'an escaped one does not'],
    ['/a;v=1/b', '/a;v=1/b', 'parameters belong to their segment'],
    ['/a/..;/b', '/a/..;/b', 'and make dots a name'],
    ['/a%00b', '/a%00b', 'NUL ends nothing'],
    ['/a\u0000b', '/a%00b', 'nor does a raw one'],
    ['/a%zz', '/a%25zz', 'a percent sign that begins no escape is one'],
    ['/a%', '/a%25', 'also at the end'],
    ['/a%4', '/a%254', 'or before one digit'],
    ['/%%341', '/%2541', 'and never becomes an escape by decoding'],
    ['/caf\u00c3\u00a9', '/caf%C3%A9', 'raw bytes equal their escapes'],
    ['/caf%c3%a9', '/caf%C3%A9', 'hex digits become upper case'],
    ['/\u20ac', '/%E2%82%AC', 'characters beyond a byte by their UTF-8'],
    ['/a|b c', '/a%7Cb%20c', 'so do characters that no URI may hold'],
    ['/a%2Bb', '/a%2Bb', 'reserved characters are not decoded'],
    ['/a+b', '/a+b', 'since servers tell them apart'],
    ['/a/', '/a/', 'a slash at the end is kept'],
    ['/A', '/A', 'so is the case'],
    ['/a#b', '/a', 'a fragment is cut off'],
    ['/a#b?c', '/a', 'with all that follows'],
  ];
  for (const [raw, path, why] of spellings) t.equal(pathOf(raw), path, `${JSON.stringify(raw)}: ${why}`);
  t.equal(parseTarget('/a#b?c').query, null);
  t.equal(parseTarget('/a?b#c').query, 'b');
});

const fragments = [
  '/',
  '/',
  '//',
  '.',
  '..',
  '%2e',
  '%2E',
  '%2f',
  '%5c',
  '\\',
  'a',
  'b',
  '%61',
  '%',
  '%%',
  '4',
  '1',
  '%zz',
];
const odd = [';', '?', ' ', '\u0000', '\u00e9', '%c3%a9', '+', '%2B', '*', ':', 'A', '~', '%7e'];
const anyPath = fc.array(fc.constantFrom(...fragments, ...odd)).map((list) => `/${list.join('')}`);

t.test('normalising twice is normalising once', async () => {
  fc.assert(
    fc.property(anyPath, (path) => {
      const once = normalisePath(path);
      return normalisePath(once) === once && /^\/[!-~]*$/.test(once) && !/\/\/|\/\.\.?(?:\/|$)|\\/.test(once);
    }),
    { numRuns: 2000 },
  );
});

t.test('dot segments and escapes are resolved as a WHATWG parser does it', async () => {
  const plain = [
    '/',
    '/',
    '//',
    '.',
    '..',
    '%2e',
    '.%2E',
    '\\',
    'a',
    'b',
    '%61',
    '%2f',
    ';',
    '+',
    '%2B',
    '%C3%A9',
    '%7E',
  ];
  const unreserved = (path: string) =>
    path.replace(/%(?:2[de]|3[0-9]|4[1-9a-f]|5[0-9af]|6[1-9a-f]|7[0-9ae])/gi, (found) => decodeURIComponent(found));
  fc.assert(
    fc.property(fc.array(fc.constantFrom(...plain)), (list) => {
      const path = `/${list.join('')}`;
      const expected = unreserved(new URL(`http://h${path}`).pathname)
        .replaceAll('%2f', '%2F')
        .replace(/\/+/g, '/');
      return pathOf(path) === expected;
    }),
    { numRuns: 2000 },
  );
});

t.test('escaping any unreserved character changes nothing', async () => {
  const unreserved = fc.constantFrom(...'abzAZ019-._~/');
  const hex = (character: string, upper: boolean) => {
    const digits = character.charCodeAt(0).toString(16);
    return `%${upper ? digits.toUpperCase() : digits}`;
  };
  const spelled = fc.array(fc.tuple(unreserved, fc.constantFrom('plain', 'upper', 'lower')));
  fc.assert(
    fc.property(spelled, (list) => {
      const plain = list.map(([character]) => character).join('');
      const spelling = list.map(([character, how]) =>
        how === 'plain' || character === '/' ? character : hex(character, how === 'upper'),
      );
      return normalisePath(`/${spelling.join('')}`) === normalisePath(`/${plain}`);
    }),
  );
});

t.test('a path of many dots and percent signs takes linear time', async (t) => {
  const started = process.hrtime.bigint();
  for (const unit of ['/..', '/a/..', '%', '%2e%2e/', '//', '\\', '%2']) normalisePath(`/${unit.repeat(200_000)}`);
  t.ok(process.hrtime.bigint() - started < 5_000_000_000n);
});
