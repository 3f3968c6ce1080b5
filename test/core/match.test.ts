import fc from 'fast-check';
import t from 'tap';
import { compileRules, matchRule, passedOver } from '../../src/core/match.js';
import { pathFault } from '../../src/core/path-pattern.js';
import type { Match, Rule } from '../../src/core/rule.js';
import { parseTarget } from '../../src/core/target.js';

function ruleOf(name: string, match: Partial<Match> & { readonly path: string }): Rule {
  return {
    name,
    match: { methods: [], host: null, headers: [], ...match },
    upstream: 'api',
    maxRequests: 1,
    policy: { kind: 'pass' },
  };
}

type Asked = { readonly method?: string; readonly host?: string; readonly fields?: readonly string[] };

/** Name of the rule a target meets. */
function met(rules: readonly Rule[], target: string, asked: Asked = {}): string | null {
  const request = { method: 'GET', host: 'h', fields: [], ...asked, path: parseTarget(target).path };
  return matchRule(compileRules(rules), request)?.rule.name ?? null;
}

const meets = (path: string, target: string) => met([ruleOf('r', { path })], target) === 'r';

t.test('the first rule in file order wins, whatever the kinds of their segments', async (t) => {
  const param = ruleOf('param', { path: '/a/:x' });
  const literal = ruleOf('literal', { path: '/a/b' });
  const rest = ruleOf('rest', { path: '/*' });
  const any = ruleOf('any', { path: '/:first/b' });
  t.equal(met([param, literal], '/a/b'), 'param');
  t.equal(met([literal, param], '/a/b'), 'literal');
  t.equal(met([rest, literal], '/a/b'), 'rest', 'a rule without a literal at its start keeps its place');
  t.equal(met([any, literal], '/a/b'), 'any');
  t.equal(met([literal, any], '/c/b'), 'any');
  t.equal(met([literal, param], '/c/b'), null);
});

t.test('parameters take one segment, as normalised', async (t) => {
  const table = compileRules([ruleOf('r', { path: '/sessions/:session/steps/:step/proceed' })]);
  const request = { method: 'POST', host: '', fields: [] };
  const result = matchRule(table, { ...request, path: parseTarget('/sessions/a%2fb/steps/%37/proceed').path });
  t.same(
    [...(result?.params ?? [])],
    [
      ['session', 'a%2Fb'],
      ['step', '7'],
    ],
  );
  t.equal(matchRule(table, { ...request, path: '/sessions/a/b/steps/7/proceed' }), null);
  t.notOk(meets('/stock/:sku', '/stock/'), 'never an empty one');
  t.notOk(meets('/stock/:sku', '/stock'));
  t.notOk(meets('/stock/:sku', '/stock//'));
  t.ok(meets('/stock/:sku', '/stock/__proto__'));
});

t.test('a star at the end takes any rest', async (t) => {
  for (const target of ['/a', '/a/', '/a/b', '/a/b/c/']) t.ok(meets('/a/*', target), `/a/* takes ${target}`);
  for (const target of ['/', '/ab', '/b/a']) t.notOk(meets('/a/*', target), `/a/* does not take ${target}`);
  for (const target of ['/a', '/ab', '/a/b', '/ab/c']) t.ok(meets('/a*', target), `/a* takes ${target}`);
  t.notOk(meets('/a*', '/b'));
  for (const target of ['/', '/a', '/a/b', '/%2e%2e']) t.ok(meets('/*', target), `/* takes ${target}`);
  t.ok(meets('/a/:x/*', '/a/1'));
  t.notOk(meets('/a/:x/*', '/a/'));
  t.notOk(meets('/*', '*'), 'OPTIONS * asks for no path');
});

t.test('a slash at the end does not slip past a rule without one', async (t) => {
  t.ok(meets('/a', '/a/'));
  t.ok(meets('/a/:x', '/a/1/'));
  t.notOk(meets('/a', '/a/b'));
  t.notOk(meets('/a/', '/a'), 'a rule with one takes only that');
  t.equal(met([ruleOf('slash', { path: '/a/' }), ruleOf('plain', { path: '/a' })], '/a/'), 'slash');
  t.equal(met([ruleOf('slash', { path: '/a/' }), ruleOf('plain', { path: '/a' })], '/a'), 'plain');
  t.ok(meets('/', '/'));
});

t.test('no spelling of a path slips past its rule', async (t) => {
  const spellings = [
    '/auth/sessions/refresh',
    '//auth///sessions/refresh',
    '/auth/./sessions/x/../refresh',
    '/auth/%2e/sessions/x/%2E%2e/refresh',
    '/%61uth/sessions/%72efres%68',
    '/auth\\sessions\\refresh',
    '/auth/sessions/refresh/',
    '/auth/sessions/refresh/.',
    '/auth/sessions/refresh#x',
    '/auth/sessions/refresh?x',
    'http://h/auth/sessions/refresh',
    'HTTP://h//auth/sessions/refresh',
    '*/../auth/sessions/refresh',
    '/../auth/sessions/refresh',
  ];
  for (const spelling of spellings) t.ok(meets('/auth/sessions/refresh', spelling), spelling);
  for (const other of ['/auth%2Fsessions/refresh', '/auth/sessions/refresh%00', '/auth/sessions/refresh;x']) {
    t.notOk(meets('/auth/sessions/refresh', other), `${other} is another path`);
  }
});

t.test("a rule's own path is normalised the same way", async (t) => {
  t.ok(meets('/caf\u00e9/%61', '/caf%c3%a9/a'));
  t.ok(meets('/a b/*', '/a%20b/c'));
  t.ok(meets('/a%2fb', '/a%2Fb'));
});

t.test('methods count as written', async (t) => {
  const rules = [ruleOf('r', { path: '/a', methods: ['GET', 'POST'] })];
  t.equal(met(rules, '/a', { method: 'POST' }), 'r');
  t.equal(met(rules, '/a', { method: 'HEAD' }), null);
  t.equal(met(rules, '/a', { method: 'get' }), null);
});

t.test('hosts are compared without case, port and final dot', async (t) => {
  const takes = (host: string, asked: string) => met([ruleOf('r', { path: '/*', host })], '/', { host: asked }) === 'r';
  for (const asked of ['example.com', 'EXAMPLE.com', 'example.com:8080', 'example.com.', 'example.com.:80']) {
    t.ok(takes('Example.com', asked), asked);
  }
  for (const asked of ['', 'a.example.com', 'example.com.evil', 'xexample.com'])
    t.notOk(takes('example.com', asked), asked);
  for (const asked of ['a.example.com', 'a.b.example.com:1']) t.ok(takes('*.example.com', asked), asked);
  for (const asked of ['example.com', '.example.com', 'aexample.com']) t.notOk(takes('*.example.com', asked), asked);
  for (const asked of ['[::1]', '[::1]:8080']) {
    t.ok(takes('::1', asked), asked);
    t.ok(takes('[::1]', asked), asked);
  }
  t.notOk(takes('[::1]', '[::2]'));
});

t.test('every header condition must be met by one line of its field', async (t) => {
  const headers = [
    { name: 'x-kind', value: 'a' },
    { name: 'Origin', value: '*.example.com' },
  ];
  const rules = [ruleOf('r', { path: '/*', headers })];
  t.equal(met(rules, '/', { fields: ['X-KIND', 'b', 'x-kind', 'a', 'origin', 'x.example.com'] }), 'r');
  t.equal(met(rules, '/', { fields: ['X-KIND', 'a'] }), null);
  t.equal(met(rules, '/', { fields: ['X-KIND', 'A', 'origin', 'x.example.com'] }), null, 'values count as written');
  const beyond = [ruleOf('r', { path: '/*', headers: [{ name: 'x', value: '\u00e9' }] })];
  t.equal(met(beyond, '/', { fields: ['x', '\u00c3\u00a9'] }), 'r', 'by the bytes of UTF-8');
  t.equal(met(rules, '/', { fields: ['a', 'x-kind', 'origin', 'x.example.com'] }), null, 'a value is no name');
});

t.test('a table is not made of a path that is no pattern', async (t) => {
  t.throws(() => compileRules([ruleOf('r', { path: '/:' })]), /not a pattern: \/: \(expected a parameter/);
});

t.test('the table by first segments finds what a walk through the file finds', async () => {
  const segment = fc.constantFrom('a', 'b', ':p', 'ab');
  const pattern = fc
    .tuple(fc.array(segment, { maxLength: 3 }), fc.constantFrom('', '/', '/*', 'x*'))
    .map(([list, end]) => `/${list.map((text, i) => (text === ':p' ? `:p${i}` : text)).join('/')}${end}`)
    .map((path) => path.replaceAll('//', '/'))
    .filter((path) => pathFault(path) === null);
  const target = fc
    .array(fc.constantFrom('a', 'b', 'ab', 'abx', 'c', ''), { maxLength: 4 })
    .map((list) => `/${list.join('/')}`);
  fc.assert(
    fc.property(fc.array(pattern, { maxLength: 6 }), target, (patterns, raw) => {
      const path = parseTarget(raw).path;
      const first = patterns.findIndex((one) => expressionOf(one).test(path));
      const found = met(
        patterns.map((one, i) => ruleOf(String(i), { path: one })),
        raw,
      );
      return found === (first === -1 ? null : String(first));
    }),
    { numRuns: 2000 },
  );
});

/** What a pattern means, said once more as a regular expression. */
function expressionOf(pattern: string): RegExp {
  const source = pattern.replace(/:[^/]+/g, '[^/]+');
  if (source.endsWith('/*')) return new RegExp(`^${source.slice(0, -2)}(?:/.*)?$`);
  if (source.endsWith('*')) return new RegExp(`^${source.slice(0, -1)}.*$`);
  return new RegExp(`^${source}${source.endsWith('/') ? '' : '/?'}$`);
}

t.test('rules that are passed over say all that is not met of them', async (t) => {
  const table = compileRules([
    ruleOf('all', { path: '/b', methods: ['PUT'], host: 'x.example', headers: [{ name: 'a', value: '1' }] }),
    ruleOf('headers', {
      path: '/a',
      headers: [
        { name: 'a', value: '1' },
        { name: 'b', value: '2' },
      ],
    }),
    ruleOf('met', { path: '/a' }),
    ruleOf('behind', { path: '/*' }),
  ]);
  const found = passedOver(table, { method: 'GET', path: '/a', host: 'y', fields: ['B', '2'] });
  t.strictSame(
    found.map(({ rule, unmet }) => [rule.name, unmet]),
    [
      ['all', [{ kind: 'method' }, { kind: 'path' }, { kind: 'host' }, { kind: 'header', name: 'a' }]],
      ['headers', [{ kind: 'header', name: 'a' }]],
    ],
  );
  t.equal(passedOver(table, { method: 'OPTIONS', path: '*', host: 'y', fields: [] }).length, 4, 'the asterisk form');
});
