/**
 * What a request is made of, as names and hashes: enough to name what two requests differ in, without either of them.
 *
 * Invariants: no value is held, only 32 bits of a hash of it, so that two values may rarely pass for one; a request has a
 * bounded number of facets, and all requests together a bounded number of names.
 */

import { readJson } from '../core/json.js';
import type { RequestView } from '../core/request-view.js';

/** Names and hashes by turns; names by their numbers. */
export type Facets = Uint32Array;

/** Values of one content, and names of one query, that are told apart. */
const MOST_LEAVES = 64;
const LONGEST_NAME = 120;
const MOST_NAMES = 20_000;
const OTHERS = 'something else';

export class FacetNames {
  readonly #numbers = new Map<string, number>([[OTHERS, 0]]);
  readonly #names: string[] = [OTHERS];

  facetsOf({ method, host, target, content }: RequestView): Facets {
    const facets = new Map<number, number>();
    const add = (name: string, value: string): void => {
      const number = this.#numberOf(name);
      // Several values of one name are one facet, in their order.
      facets.set(number, (Math.imul(facets.get(number) ?? 0, 31) + hashOf(value)) >>> 0);
    };
    add('method', method);
    add('host', host.toLowerCase());
    add('path', target.path);
    for (const pair of queryOf(target.query)) add(`query: ${pair.name}`, pair.text);
    for (const leaf of contentOf(content)) add(leaf.name, leaf.text);
    return Uint32Array.from([...facets].flat());
  }

  /** Names of what differs between two requests; empty: they say the same, however it is spelled. */
  differing(one: Facets, other: Facets): string[] {
    const others = new Map<number, number>();
    for (let i = 0; i < other.length; i += 2) others.set(other[i] as number, other[i + 1] as number);
    const numbers: number[] = [];
    for (let i = 0; i < one.length; i += 2) {
      const number = one[i] as number;
      if (others.get(number) !== one[i + 1]) numbers.push(number);
      others.delete(number);
    }
    return withoutWhole([...numbers, ...others.keys()].map((number) => this.#names[number] as string));
  }

  #numberOf(name: string): number {
    const known = this.#numbers.get(name);
    if (known !== undefined) return known;
    if (this.#names.length >= MOST_NAMES) return 0;
    this.#numbers.set(name, this.#names.length);
    return this.#names.push(name) - 1;
  }
}

/** The whole content, which differs with each of its values. */
const WHOLE = 'content';

/** That the whole differs says something only where none of its values does. */
function withoutWhole(names: readonly string[]): string[] {
  return names.some((name) => name.startsWith('body: ')) ? names.filter((name) => name !== WHOLE) : [...names];
}

type Named = { readonly name: string; readonly text: string };

function queryOf(query: string | null): Named[] {
  const pairs = (query ?? '').split('&').filter((pair) => pair !== '');
  return pairs.map((pair, i) => {
    const name = pair.split('=', 1)[0] as string;
    return { name: i < MOST_LEAVES ? shortened(name) : '(others)', text: pair };
  });
}

/** Content that is no JSON is one facet. */
function contentOf(content: Buffer | null): Named[] {
  if (content === null || content.length === 0) return [];
  const json = readJson(content, [[]]);
  const whole = json.kind === 'values' ? json.values[0] : null;
  if (whole === null || whole === undefined) return [{ name: WHOLE, text: content.toString('latin1') }];
  const leaves: Named[] = [{ name: WHOLE, text: whole }];
  collect(JSON.parse(content.toString('utf8')), '', leaves);
  return leaves;
}

function collect(value: unknown, pointer: string, leaves: Named[]): void {
  if (leaves.length > MOST_LEAVES) return;
  if (typeof value !== 'object' || value === null) {
    leaves.push({ name: shortened(`body: ${pointer}`), text: `${typeof value} ${String(value)}` });
    return;
  }
  for (const [name, member] of Object.entries(value)) {
    collect(member, `${pointer}/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`, leaves);
  }
}

function shortened(name: string): string {
  return name.length <= LONGEST_NAME ? name : `${name.slice(0, LONGEST_NAME)}...`;
}

/** FNV-1a over code units, 32 bits. */
export function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i += 1) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return hash >>> 0;
}
