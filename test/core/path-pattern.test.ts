import fc from 'fast-check';
import t from 'tap';
import { compileRules, matchRule } from '../../src/core/match.js';
import { isParamName, paramNames, parsePathPattern, pathCovers, pathFault } from '../../src/core/path-pattern.js';
import { parseTarget } from '../../src/core/target.js';
import { ruleOf } from '../support/rules.js';

/** Whether requests for a target meet a rule of that path. */
function takes(pattern: string): (target: string) => boolean {
  const table = compileRules([ruleOf('r', pattern, { kind: 'pass' })]);
  return (target) => matchRule(table, { method: 'GET', host: '', fields: [], path: parseTarget(target).path }) !== null;
}

const covers = (general: string, special: string) => pathCovers(parsePathPattern(general), parsePathPattern(special));

t.test('a path that is no pattern is refused with what to write', async (t) => {
  const refused: readonly [expected: string, ...patterns: string[]][] = [
    ['a path that begins with /', '', 'a', '*', ':a', ' /a'],
    ['a path without query or fragment', '/a?b', '/a#b', '/?', '/:a?'],
    ['a path with / instead of', '/a\\b', '/a\\..\\b', '/\\:x'],
    ['a path in which % begins an escape', '/%', '/a%2', '/%zz', '/%%34', '/a%2*', '/100%/b'],
    ['a path with * at its end only', '/a*b', '/*/a', '/**', '/*/*', '/:*/b'],
    ['a path with parameters such as :id', '/a/{id}', '/a{'],
    ['a path without //', '//', '//a', '/a//b', '/a//', '/a//*'],
    ['a path without . and .. segments', '/.', '/..', '/a/./b', '/a/..', '/%2e', '/a/.%2E/b', '/./*'],
    ['a parameter such as :id', '/:', '/:a.:b', '/:a*', '/:id.json', '/:%61', '/:é', '/:a:b', '/:*'],
    ['a path in which every :param has a name of its own', '/:a/:a', '/:a/b/:a/*'],
  ];
  for (const [expected, ...patterns] of refused) {
    for (const pattern of patterns) {
      t.equal(pathFault(pattern)?.startsWith(expected), true, `${pattern}: ${pathFault(pattern)}`);
      t.throws(() => parsePathPattern(pattern), /not a pattern/, pattern);
    }
  }
});

t.test('whatever else begins with a slash is a pattern', async (t) => {
  const plain = ['/', '/a', '/a/', '/:a/:b', '/:a/*', '/a*', '/a:b', '/*', '/.a', '/...', '/.*', '/a;b', '/:1-a_b'];
  const spelled = ['/é', '/%c3%A9', '/%61', '/a b', '/%2a', '/%2F', '/%2e%2e%2e', '/"<>^|`'];
  for (const pattern of [...plain, ...spelled]) t.equal(pathFault(pattern), null, pattern);
});

t.test('the names of parameters', async (t) => {
  t.same(paramNames('/a/:b/c:d/:e-f/*'), ['b', 'e-f']);
  t.same(paramNames('/%3Aa'), [], 'an escaped colon is literal');
  for (const name of ['id', 'a-b', 'a_b', '1']) t.ok(isParamName(name), name);
  for (const name of ['', 'a.b', 'a b', ':a', 'a*']) t.notOk(isParamName(name), name);
});

t.test('spellings of one path are one pattern', async (t) => {
  for (const same of ['/caf%c3%a9', '/caf%C3%A9', '/c%61f\u00e9']) {
    t.same(parsePathPattern(same), parsePathPattern('/caf\u00e9'), same);
    t.ok(takes(same)('/%63af%C3%a9'), same);
  }
  t.ok(takes('/a%2fb')('/a%2Fb'));
  t.notOk(takes('/a%2fb')('/a/b'));
  t.ok(takes('/a b*')('/a%20bc'));
  t.ok(takes('/%2a')('/%2A'), 'an escaped star is literal');
  t.notOk(takes('/%2a')('/b'));
});

t.test('one pattern covers another', async (t) => {
  const yes = [
    ['/a', '/a'],
    ['/a', '/a/'],
    ['/a/*', '/a'],
    ['/a/*', '/a/'],
    ['/a/*', '/a/:x'],
    ['/a/*', '/a/*'],
    ['/a/*', '/a/b*'],
    ['/a*', '/a'],
    ['/a*', '/a/*'],
    ['/a*', '/ab*'],
    ['/a*', '/ab/:x/'],
    ['/*', '/'],
    ['/*', '/:x/*'],
    ['/:x', '/a'],
    ['/:x', '/:y/'],
    ['/:x/*', '/a*'],
    ['/:x/b', '/:y/b/'],
    ['/caf\u00e9', '/caf%c3%a9'],
  ] as const;
  const no = [
    ['/a/', '/a'],
    ['/a', '/A'],
    ['/a', '/:a'],
    ['/a', '/a*'],
    ['/a', '/a/*'],
    ['/a/*', '/a*'],
    ['/a/*', '/'],
    ['/ab*', '/a*'],
    ['/a/b*', '/a/*'],
    ['/a/b*', '/a'],
    ['/:x', '/'],
    ['/:x', '/a*'],
    ['/:x', '/a/b'],
    ['/:x/*', '/*'],
    ['/:x/*', '/'],
    ['/a/:x', '/a/'],
    ['/:x/:y', '/a/b*'],
    ['/:x/:y/*', '/a*'],
    ['/:x/b*', '/a*'],
    ['/%2F', '/%2f/b'],
  ] as const;
  for (const [general, special] of yes) t.ok(covers(general, special), `${general} covers ${special}`);
  for (const [general, special] of no) t.notOk(covers(general, special), `${general} does not cover ${special}`);
});

/** A segment of a pattern in any spelling, and of a path. */
const literal = fc.constantFrom('a', 'ab', 'b', '%61', 'a%62', '%c3%a9', '\u00e9', '%2f', 'a:b', '.a', '%2Ea', 'a b');
const pattern = fc
  .tuple(
    fc.array(fc.oneof({ weight: 2, arbitrary: literal }, fc.constant(':')), { maxLength: 4 }),
    fc.constantFrom('', '/', '/*', '*', '/a*', '/%61b*', '/%C3*'),
  )
  .map(([segments, end]) => segments.map((text, i) => `/${text === ':' ? `:p${i}` : text}`).join('') + end)
  .filter((text) => pathFault(text) === null);

/** A path that a pattern may well take: its own text with parameters and star filled in, or any path at all. */
function targetFor(text: string): fc.Arbitrary<string> {
  const rest = fc.array(fc.oneof(literal, fc.constant('')), { maxLength: 3 }).map((list) => list.join('/'));
  const filled = fc
    .tuple(fc.array(literal, { minLength: 5, maxLength: 5 }), rest, fc.constantFrom('', '/'))
    .map(([values, end, slash]) =>
      text.endsWith('*')
        ? text.replace(/:p(\d)/g, (_, i: string) => values[Number(i)]!).slice(0, -1) + end
        : text.replace(/:p(\d)/g, (_, i: string) => values[Number(i)]!) + slash,
    );
  return fc.oneof(
    filled,
    rest.map((any) => `/${any}`),
  );
}

t.test('whatever a covered pattern takes, the one that covers it takes too', async (t) => {
  let covered = 0;
  const pairs = fc.tuple(pattern, pattern).chain(([general, special]) =>
    fc.tuple(
      fc.constant(general),
      fc.constant(special),
      // Request targets are byte text.
      fc.array(targetFor(special), { minLength: 8, maxLength: 8 }),
    ),
  );
  fc.assert(
    fc.property(pairs, ([general, special, targets]) => {
      if (!covers(general, special)) return true;
      const bytes = targets.map((target) => Buffer.from(target, 'utf8').toString('latin1'));
      const taken = bytes.filter(takes(special));
      covered += taken.length;
      return taken.every(takes(general));
    }),
    { numRuns: 4000 },
  );
  t.ok(covered > 1000, `${covered} paths were of a covered pattern`);
});

t.test('where a pattern does not cover another, there is a path that only the other takes', async (t) => {
  const texts = ['', 'a', 'ab', 'b', ':a'].flatMap((first) =>
    ['', 'a', 'b', ':b'].flatMap((second) =>
      ['', '/', '/*', '/a*', '/ab*'].map((end) => [first, second].map((s) => s && `/${s}`).join('') + end),
    ),
  );
  const patterns = [...new Set(texts)].filter((text) => pathFault(text) === null);
  // What the patterns name, what only prefixes take, and what only parameters take; one segment more than they have.
  const steps = ['a', 'ab', 'abc', 'ac', 'b', 'c'];
  let longest = [''];
  const paths = ['/'];
  for (let depth = 1; depth <= 4; depth += 1) {
    longest = longest.flatMap((path) => steps.map((step) => `${path}/${step}`));
    paths.push(...longest, ...longest.map((path) => `${path}/`));
  }
  const taken = new Map(patterns.map((text) => [text, paths.filter(takes(text))]));
  const sets = new Map([...taken].map(([text, list]) => [text, new Set(list)]));
  const wrong = patterns.flatMap((general) =>
    patterns
      .filter((special) => {
        const all = taken.get(special)!.every((path) => sets.get(general)!.has(path));
        return covers(general, special) !== all;
      })
      .map((special) => `${general} and ${special}`),
  );
  t.same(wrong, []);
  t.ok(patterns.length > 80, 'all kinds of patterns were compared');
});
