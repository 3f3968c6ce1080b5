/** What is left of a target without its prefix. */

import fc from 'fast-check';
import t from 'tap';
import { withoutPrefix } from '../../src/core/path-prefix.js';
import { normalisePath, parseTarget } from '../../src/core/target.js';

t.test('whole segments go, and the rest keeps its spelling', async (t) => {
  for (const [target, left] of [
    ['/api/a', '/a'],
    ['/api', '/'],
    ['/api/', '/'],
    ['/api?x=/api', '/?x=/api'],
    ['/api/a%2fb//c/./d?%41', '/a%2fb//c/./d?%41'],
    ['/apis/a', '/apis/a'],
    ['/a/api', '/a/api'],
    ['*', '*'],
    ['http://h.example/api/a?q', 'http://h.example/a?q'],
    ['http://h.example', 'http://h.example'],
    ['http://api/a', 'http://api/a'],
  ] as const) {
    t.equal(withoutPrefix(target, '/api'), left, target);
  }
});

t.test('no spelling of a path gets by the prefix, or out of it', async (t) => {
  for (const [target, left] of [
    ['/%61pi/A%2fB', '/A%2FB'],
    ['//api/a', '/a'],
    ['/./api/a', '/a'],
    ['/x/../api/a', '/a'],
    ['/api/../a', '/api/../a'],
    ['/api/..', '/api/..'],
    ['/api/x/../../api/a', '/a'],
    ['\\api\\a', '/a'],
  ] as const) {
    t.equal(withoutPrefix(target, '/api'), left, target);
  }
  const piece = fc.constantFrom('/', 'api', '%61pi', '.', '..', 'a', '%2F', '\\', 'apis', '?', '%2e');
  const anyTarget = fc.array(piece, { maxLength: 9 }).map((pieces) => `/${pieces.join('')}`);
  fc.assert(
    fc.property(anyTarget, (target) => {
      const before = parseTarget(target);
      const after = parseTarget(withoutPrefix(target, '/api'));
      const isBelow = before.path === '/api' || before.path.startsWith('/api/');
      const expected = isBelow ? normalisePath(before.path.slice('/api'.length)) : before.path;
      return after.path === expected && after.query === before.query;
    }),
    { numRuns: 3_000 },
  );
});
