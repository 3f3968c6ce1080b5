/** JSON values for tests: any value, its many spellings, and when two of them are equal. */

import fc from 'fast-check';

/** A JSON value whose numbers are texts and whose members have an order; what the tests know of equality is `sameValue`. */
export type Json =
  | { readonly kind: 'word' | 'number'; readonly text: string }
  | { readonly kind: 'string'; readonly text: string }
  | { readonly kind: 'array'; readonly elements: readonly Json[] }
  | { readonly kind: 'object'; readonly members: readonly (readonly [name: string, value: Json])[] };

/** Whether two spellings of numbers are one number. */
export type SameNumber = (a: string, b: string) => boolean;
const sameSpelling: SameNumber = (a, b) => a === b;

export function sameValue(a: Json, b: Json, sameNumber: SameNumber = sameSpelling): boolean {
  if (a.kind === 'array') {
    return (
      b.kind === 'array' &&
      a.elements.length === b.elements.length &&
      a.elements.every((element, i) => sameValue(element, b.elements[i]!, sameNumber))
    );
  }
  if (a.kind === 'number' && b.kind === 'number') return sameNumber(a.text, b.text);
  if (a.kind !== 'object') return b.kind === a.kind && a.text === b.text;
  if (b.kind !== 'object' || a.members.length !== b.members.length) return false;
  return a.members.every(([name, value]) =>
    b.members.some((other) => other[0] === name && sameValue(value, other[1], sameNumber)),
  );
}

/** Writes a value in one of its many spellings, chosen by `dice` (each throw in [0, 1)). */
export function spell(value: Json, dice: () => number): string {
  const space = () => [' ', '\n', '\t\r', ''][Math.floor(dice() * 8)] ?? '';
  const list = (items: readonly string[]) => items.map((item) => space() + item + space()).join(',') || space();
  const string = (text: string) => `"${[...text].map((character) => spellCharacter(character, dice)).join('')}"`;
  switch (value.kind) {
    case 'array':
      return `[${list(value.elements.map((element) => spell(element, dice)))}]`;
    case 'object': {
      const members = value.members.map(
        ([name, member]) => `${string(name)}${space()}:${space()}${spell(member, dice)}`,
      );
      const turn = Math.floor(dice() * members.length);
      return `{${list([...members.slice(turn), ...members.slice(0, turn)])}}`;
    }
    case 'string':
      return string(value.text);
    default:
      return value.text;
  }
}

/** Raw, as its short escape, or as `\u` escapes of its code units. */
function spellCharacter(character: string, dice: () => number): string {
  const plain = JSON.stringify(character).slice(1, -1);
  if (dice() < 0.6) return plain;
  if (character === '/') return '\\/';
  return Array.from({ length: character.length }, (_, i) => {
    const hex = character.charCodeAt(i).toString(16).padStart(4, '0');
    return `\\u${dice() < 0.5 ? hex : hex.toUpperCase()}`;
  }).join('');
}

export function diceOf(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

const nastyTexts = [
  '',
  'a',
  'b',
  's1:a',
  '1:',
  '1',
  'null',
  'true',
  '\ud800',
  '\udbff',
  '\udc00',
  '\ufffd',
  '\u{1f600}',
];
const moreTexts = [
  '\u00e9',
  '\u00c3\u00a9',
  '"',
  '\\',
  '\\u0061',
  '\n',
  '\u0000',
  '/',
  '~',
  '__proto__',
  'constructor',
];
/** Texts that readers confuse. */
export const text = fc.oneof(
  fc.constantFrom(...nastyTexts, ...moreTexts),
  fc.array(fc.constantFrom(...nastyTexts, ...moreTexts), { maxLength: 3 }).map((list) => list.join('')),
);
/** Any value with these numbers. */
export function jsonWith(number: fc.Arbitrary<string>): fc.Arbitrary<Json> {
  return fc.letrec<{ json: Json }>((tie) => ({
    json: fc.oneof(
      { maxDepth: 3, depthIdentifier: 'json' },
      fc.constantFrom('null', 'true', 'false').map((word): Json => ({ kind: 'word', text: word })),
      number.map((number): Json => ({ kind: 'number', text: number })),
      text.map((value): Json => ({ kind: 'string', text: value })),
      fc
        .array(tie('json'), { maxLength: 3, depthIdentifier: 'json' })
        .map((elements): Json => ({ kind: 'array', elements })),
      fc
        .uniqueArray(fc.tuple(text, tie('json')), { maxLength: 4, selector: ([name]) => name, depthIdentifier: 'json' })
        .map((members): Json => ({ kind: 'object', members })),
    ),
  })).json;
}
