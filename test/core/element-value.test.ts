import fc from 'fast-check';
import t from 'tap';
import { shapeOf, shownOf } from '../../src/core/element-value.js';
import { readJson } from '../../src/core/json.js';
import { textElement, textsElement } from '../../src/core/key-text.js';

function elementOf(value: unknown): string {
  const json = readJson(Buffer.from(JSON.stringify(value)), [[]]);
  if (json.kind === 'malformed') throw new Error('no JSON');
  return json.values[0] as string;
}

t.test('an element reads back as the value that it was made of', async (t) => {
  fc.assert(
    fc.property(fc.jsonValue({ stringUnit: 'binary' }), (value) => {
      const shown: unknown = JSON.parse(shownOf(elementOf(value)));
      // `-0` is spelled 0 by JSON.stringify.
      t.strictSame(shown, JSON.parse(JSON.stringify(value)));
    }),
    { numRuns: 300 },
  );
  t.equal(shownOf(textsElement(['a', '\u00c3\u00a9'])), '["a","\u00e9"]', 'several lines, in UTF-8');
});

t.test('a shape tells kind and length', async (t) => {
  const shapes: readonly [string, string][] = [
    [elementOf('h\u00e9llo'), 'text, 5 characters'],
    [textElement('a'), 'text, 1 character'],
    [elementOf(''), 'text, 0 characters'],
    [elementOf(-12.5), 'number, 5 characters'],
    [elementOf(true), 'boolean'],
    [elementOf(false), 'boolean'],
    [elementOf(null), 'null'],
    [elementOf({ a: { b: 1 }, c: [] }), 'object, 2 members'],
    [elementOf([1, [2], 'x']), 'array, 3 elements'],
    [textsElement([]), '0 values'],
    [textsElement(['a', 'b']), '2 values'],
  ];
  for (const [element, shape] of shapes) t.equal(shapeOf(element), shape);
});
