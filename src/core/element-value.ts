/**
 * Elements of a key (key-text.ts) read back, for people: what kind of value it is and how long, or the value itself.
 *
 * Invariants: total over what keys are made of; `shapeOf` tells kind and length and nothing that is in the value.
 */

/** An element read back. Texts are byte text. */
type Value =
  | { readonly kind: 'text' | 'number'; readonly text: string }
  /** `t`, `f`, `n`: the words of JSON; other characters stand for what is not there. */
  | { readonly kind: 'word'; readonly text: string }
  /** `o` (names and values by turns), `a`, `l` (several lines of one field, say). */
  | { readonly kind: 'group'; readonly tag: string; readonly values: readonly Value[] };

type Read = { readonly value: Value; readonly end: number };

const WORDS: Readonly<Record<string, string>> = { t: 'true', f: 'false', n: 'null' };
const COUNTED = /^[a-z]\d+:/;

/** What an element is, without anything of it: `text, 24 characters`, `object, 3 members`. */
export function shapeOf(element: string): string {
  const value = readElement(element, 0).value;
  switch (value.kind) {
    case 'text':
      return `text, ${counted([...unicode(value.text)].length, 'character')}`;
    case 'number':
      return `number, ${counted(value.text.length, 'character')}`;
    case 'word':
      return value.text === 'n' ? 'null' : 'boolean';
    case 'group':
      if (value.tag === 'o') return `object, ${counted(value.values.length / 2, 'member')}`;
      return value.tag === 'a'
        ? `array, ${counted(value.values.length, 'element')}`
        : counted(value.values.length, 'value');
  }
}

/** The value as JSON writes it; several values as an array. Bytes that are no UTF-8 are shown as U+FFFD. */
export function shownOf(element: string): string {
  return shown(readElement(element, 0).value);
}

function shown(value: Value): string {
  switch (value.kind) {
    case 'text':
      return JSON.stringify(unicode(value.text));
    case 'number':
      return value.text;
    case 'word':
      return WORDS[value.text] ?? value.text;
    case 'group': {
      const all = value.values.map(shown);
      if (value.tag !== 'o') return `[${all.join(',')}]`;
      const members = all.flatMap((text, i) => (i % 2 === 0 ? [`${text}:${all[i + 1]}`] : []));
      return `{${members.join(',')}}`;
    }
  }
}

function readElement(text: string, at: number): Read {
  const tag = text[at] ?? '';
  // A word is one character: what follows it is another element's.
  const head = COUNTED.exec(text.slice(at, at + 20))?.[0];
  if (head === undefined) return { value: { kind: 'word', text: tag }, end: at + 1 };
  const count = Number(head.slice(1, -1));
  const start = at + head.length;
  if (tag === 's' || tag === 'd') {
    const end = start + count;
    return { value: { kind: tag === 's' ? 'text' : 'number', text: text.slice(start, end) }, end };
  }
  const values: Value[] = [];
  let end = start;
  // An object counts its members, each of them a name and a value.
  for (let left = tag === 'o' ? 2 * count : count; left > 0; left -= 1) {
    const read = readElement(text, end);
    values.push(read.value);
    end = read.end;
  }
  return { value: { kind: 'group', tag, values }, end };
}

function unicode(byteText: string): string {
  return Buffer.from(byteText, 'latin1').toString('utf8');
}

function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}
