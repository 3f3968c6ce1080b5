/**
 * YAML text → a tree of values that know their position.
 *
 * Invariants: references such as `${VAR}` are expanded in scalars after parsing, so that no value can change the
 * structure of the file; an alias shares the tree of its anchor, so that parsing takes no longer than the text is long,
 * and what the aliases add up to is bounded before anything walks it; the parser's recursion is bounded before it runs,
 * because V8 may end the process instead of throwing when a deep stack meets a new regular expression.
 */

import { Composer, type CST, type Document, isAlias, isMap, isNode, isScalar, isSeq, LineCounter, Parser } from 'yaml';
import { expand, type Origin, type Reference, type Surroundings } from './expansion.js';
import { type Fault, type FaultCode, type FieldPath, type Position, pathText } from './fault.js';

export type LocatedScalar = {
  readonly kind: 'scalar';
  readonly position: Position;
  readonly value: string | number | boolean | null;
  readonly origin: Origin;
  readonly references: readonly Reference[];
  /** The text before expansion. */
  readonly written: string;
};
export type LocatedList = {
  readonly kind: 'list';
  readonly position: Position;
  readonly items: readonly Located[];
};
export type LocatedMapping = {
  readonly kind: 'mapping';
  readonly position: Position;
  readonly entries: ReadonlyMap<string, { readonly keyPosition: Position; readonly value: Located }>;
};
/** A value whose one fault has been told already. */
export type LocatedUnusable = { readonly kind: 'unusable'; readonly position: Position };
/** A value of the file and where it begins. */
export type Located = LocatedScalar | LocatedList | LocatedMapping | LocatedUnusable;

export type Source =
  | { readonly kind: 'parsed'; readonly root: Located; readonly faults: readonly Fault[] }
  /** Nothing but comments, if that. */
  | { readonly kind: 'empty' }
  | { readonly kind: 'unreadable'; readonly fault: Fault };

const NONE: readonly Reference[] = [];
const MAX_DEPTH = 64;
const MAX_VALUES = 20_000;

/** Parses the text of a file. Faults of single values are collected; one that makes the rest meaningless stands alone. */
export function parseSource(text: string, file: string, surroundings: Surroundings): Source {
  const lines = new LineCounter();
  const start: Position = { file, line: 1, column: 1 };
  const positionOf = (offset: number): Position => {
    const { line, col } = lines.linePos(offset);
    return { file, line: Math.max(1, line), column: Math.max(1, col) };
  };
  const unreadable = (position: Position, expected: string, got: string): Source => ({
    kind: 'unreadable',
    fault: { ...position, code: 'bad-yaml', path: '', expected, got, suggestion: null },
  });

  const tokens = [...new Parser(lines.addNewLine).parse(text)];
  const deep = tooDeep(tokens);
  if (deep !== null) return unreadable(positionOf(deep), `at most ${MAX_DEPTH} levels of nesting`, 'more');
  // Unknown tags and duplicate keys are judged here: the library only warns of the first and compares all pairs for the second.
  const options = { schema: 'core', merge: false, resolveKnownTags: false, uniqueKeys: false } as const;
  const [first, second] = [...new Composer(options).compose(tokens)];
  const mistake = first?.errors[0] ?? first?.warnings[0];
  if (mistake !== undefined) {
    const position = positionOf(mistake.pos[0]);
    return unreadable(position, 'valid YAML', `${firstLine(mistake.message)}${flowHint(text, position)}`);
  }
  if (second !== undefined) return unreadable(positionOf(second.range[0]), 'one YAML document', 'another one');
  if (first === undefined || isEmpty(first)) return { kind: 'empty' };
  const walk = new Walk(positionOf, surroundings);
  const root = walk.locate(first.contents, [], 0);
  if (walk.size(root) > MAX_VALUES) return unreadable(start, `at most ${MAX_VALUES} values`, 'more, by its aliases');
  return { kind: 'parsed', root, faults: walk.faults };
}

function isEmpty(document: Document.Parsed): boolean {
  return document.contents === null || (isScalar(document.contents) && document.contents.source === '');
}

function firstLine(message: string): string {
  return message.split('\n', 1)[0]!;
}

/** The one YAML trap that this file's own syntax sets: `{ port: ${PORT} }` ends at the inner brace. */
function flowHint(text: string, position: Position): string {
  const line = text.split('\n', position.line)[position.line - 1] ?? '';
  // biome-ignore lint/suspicious/noTemplateCurlyInString: the configuration's own syntax.
  return line.includes('${') ? ' (a value with ${…} needs quotes inside { } and [ ])' : '';
}

/** Offset of a collection that is nested too deeply, found without recursion. */
function tooDeep(tokens: readonly CST.Token[]): number | null {
  const pending: [CST.Token | null | undefined, number][] = tokens.map((token) => [token, 0]);
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    const [token, depth] = next;
    if (!token) continue;
    if (depth > MAX_DEPTH) return token.offset;
    if (token.type === 'document') pending.push([token.value, depth]);
    if (!('items' in token)) continue;
    for (const item of token.items) pending.push([item.key, depth + 1], [item.value, depth + 1]);
  }
  return null;
}

/** One pass over the parsed document, in the order of the text. */
class Walk {
  readonly faults: Fault[] = [];
  readonly #positionOf: (offset: number) => Position;
  readonly #surroundings: Surroundings;
  /** Null while the anchored value is being read: an alias that meets it then would contain itself. */
  readonly #anchors = new Map<string, Located | null>();
  readonly #sizes = new Map<Located, number>();

  constructor(positionOf: (offset: number) => Position, surroundings: Surroundings) {
    this.#positionOf = positionOf;
    this.#surroundings = surroundings;
  }

  locate(node: unknown, path: FieldPath, offset: number): Located {
    if (isAlias(node)) return this.#alias(node.source, path, this.#positionOf(node.range?.[0] ?? offset));
    if (!isScalar(node) && !isSeq(node) && !isMap(node)) {
      return {
        kind: 'scalar',
        position: this.#positionOf(offset),
        value: null,
        origin: 'written',
        references: NONE,
        written: '',
      };
    }
    const start = node.range?.[0] ?? offset;
    if (node.anchor !== undefined) this.#anchors.set(node.anchor, null);
    const located = isScalar(node)
      ? this.#scalar(node.value, node.source, path, this.#positionOf(start))
      : isSeq(node)
        ? this.#list(node.items, path, start)
        : this.#mapping(node.items, path, start);
    if (node.anchor !== undefined) this.#anchors.set(node.anchor, located);
    return located;
  }

  /** How many values a tree has with its aliases written out. */
  size(located: Located): number {
    if (located.kind !== 'list' && located.kind !== 'mapping') return 1;
    const known = this.#sizes.get(located);
    if (known !== undefined) return known;
    const children =
      located.kind === 'list' ? located.items : [...located.entries.values()].map((entry) => entry.value);
    const size = children.reduce((sum, child) => sum + this.size(child), 1);
    this.#sizes.set(located, size);
    return size;
  }

  #alias(name: string, path: FieldPath, position: Position): Located {
    const target = this.#anchors.get(name);
    if (target) return target;
    const got = target === null ? `*${name}, which contains itself` : `*${name}`;
    this.#fault(path, position, `an alias of an anchor &${name} further up`, got);
    return { kind: 'unusable', position };
  }

  #scalar(value: unknown, source: string | undefined, path: FieldPath, position: Position): Located {
    const written = source ?? String(value);
    const located = { kind: 'scalar', position, origin: 'written', references: NONE, written } as const;
    if (typeof value !== 'string') {
      const plain = typeof value === 'number' || typeof value === 'boolean' || value === null;
      return { ...located, value: plain ? value : written };
    }
    if (!value.includes('${')) return { ...located, value };
    const expansion = expand(value, this.#surroundings);
    for (const { expected, got } of expansion.faults) this.#fault(path, position, expected, got, 'bad-reference');
    if (expansion.faults.length > 0) return { kind: 'unusable', position };
    const { origin, references, text } = expansion;
    return { ...located, origin, references, value: text };
  }

  #list(nodes: readonly unknown[], path: FieldPath, offset: number): Located {
    const items = nodes.map((node, index) => this.locate(node, [...path, index], offset));
    return { kind: 'list', position: this.#positionOf(offset), items };
  }

  #mapping(pairs: readonly { key: unknown; value: unknown }[], path: FieldPath, offset: number): Located {
    const entries = new Map<string, { keyPosition: Position; value: Located }>();
    for (const { key, value } of pairs) {
      const keyOffset = (isNode(key) ? key.range?.[0] : undefined) ?? offset;
      const keyPosition = this.#positionOf(keyOffset);
      const name = isScalar(key) ? (key.source ?? String(key.value)) : null;
      if (name === null || name === '__proto__') {
        this.#fault(path, keyPosition, 'a plain name as key', name ?? 'something else');
        continue;
      }
      const earlier = entries.get(name);
      if (earlier === undefined) {
        entries.set(name, { keyPosition, value: this.locate(value, [...path, name], keyOffset) });
      } else {
        const again = `it again (first in line ${earlier.keyPosition.line})`;
        this.#fault([...path, name], keyPosition, 'each field once', again);
      }
    }
    return { kind: 'mapping', position: this.#positionOf(offset), entries };
  }

  #fault(path: FieldPath, position: Position, expected: string, got: string, code: FaultCode = 'bad-yaml'): void {
    this.faults.push({ ...position, code, path: pathText(path), expected, got, suggestion: null });
  }
}
