/**
 * `${VAR}`, `${VAR:-default}`, `${file:/path}` and `$${` in the text of one YAML scalar.
 *
 * Invariants: what a variable or a file holds is text and is never read for references again, nor as YAML; a default
 * counts when the variable is unset or empty, as in a shell; faults of a default that is not needed do not count.
 */

import { resolve } from 'node:path';
import { type FilesRead, reasonOf } from './files-read.js';

export type Surroundings = {
  readonly env: NodeJS.ProcessEnv;
  /** Relative paths of `${file:…}` begin here. */
  readonly directory: string;
  /** Who reads them. */
  readonly files: FilesRead;
};

/** Where a text came from. What came from a file is taken for a secret and never shown. */
export type Origin = 'written' | 'variable' | 'file';

/** Where a part of a text came from. `used`: a variable that is unset or empty gives way to its default. */
export type Reference =
  | { readonly kind: 'variable'; readonly name: string; readonly used: 'value' | 'default' }
  | { readonly kind: 'file'; readonly path: string };

export type ExpansionFault = { readonly expected: string; readonly got: string };
export type Expansion = {
  readonly text: string;
  readonly origin: Origin;
  /** Those that count, in their order. */
  readonly references: readonly Reference[];
  readonly faults: readonly ExpansionFault[];
};

const REFERENCE = /\$\{(?:file:(?<path>[^}]+)\}|(?<name>[A-Za-z_][A-Za-z0-9_]*)(?<end>\}|:-))/y;
const MAX_NESTING = 8;
const LIMIT = { bytes: 64 * 1024, text: '64KiB' } as const;

/** Expands every reference of a text, or says what is wrong with each of them. */
export function expand(text: string, surroundings: Surroundings): Expansion {
  const scanner = new Scanner(text, surroundings);
  const expanded = scanner.scan(0);
  const { origin, references, faults } = scanner;
  return { text: expanded, origin, references, faults };
}

class Scanner {
  origin: Origin = 'written';
  faults: ExpansionFault[] = [];
  references: Reference[] = [];
  #at = 0;
  readonly #text: string;
  readonly #surroundings: Surroundings;

  constructor(text: string, surroundings: Surroundings) {
    this.#text = text;
    this.#surroundings = surroundings;
  }

  /** Reads up to the end, or inside a default (nesting above 0) up to its closing brace, which is left unread. */
  scan(nesting: number): string {
    let expanded = '';
    while (this.#at < this.#text.length) {
      if (this.#text.startsWith('$${', this.#at)) {
        expanded += '${';
        this.#at += 3;
      } else if (this.#text.startsWith('${', this.#at)) {
        expanded += this.#reference(nesting);
      } else if (nesting > 0 && this.#text[this.#at] === '}') {
        return expanded;
      } else {
        expanded += this.#text[this.#at];
        this.#at += 1;
      }
    }
    return expanded;
  }

  #reference(nesting: number): string {
    REFERENCE.lastIndex = this.#at;
    const match = REFERENCE.exec(this.#text);
    if (match === null || nesting >= MAX_NESTING) return this.#malformed();
    this.#at = REFERENCE.lastIndex;
    const { path, name = '', end } = match.groups ?? {};
    if (path !== undefined) return this.#file(path);
    if (end === ':-') return this.#withDefault(name, nesting);
    if (this.origin === 'written') this.origin = 'variable';
    this.references.push({ kind: 'variable', name, used: 'value' });
    const value = this.#surroundings.env[name];
    if (value === undefined) {
      this.faults.push({ expected: `the variable ${name} to be set, or a default: \${${name}:-…}`, got: 'nothing' });
    }
    return value ?? '';
  }

  #withDefault(name: string, nesting: number): string {
    if (this.origin === 'written') this.origin = 'variable';
    const faultsBefore = this.faults.length;
    const originBefore = this.origin;
    const referencesBefore = this.references.length;
    this.references.push({ kind: 'variable', name, used: 'default' });
    const fallback = this.scan(nesting + 1);
    if (this.#at >= this.#text.length) return this.#malformed();
    this.#at += 1;
    const value = this.#surroundings.env[name];
    if (value === undefined || value === '') return fallback;
    this.faults.length = faultsBefore;
    this.origin = originBefore;
    this.references.length = referencesBefore;
    this.references.push({ kind: 'variable', name, used: 'value' });
    return value;
  }

  #file(path: string): string {
    this.origin = 'file';
    this.references.push({ kind: 'file', path });
    const file = resolve(this.#surroundings.directory, path);
    try {
      const bytes = this.#surroundings.files.bytesOf(file, LIMIT);
      const content = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
      return content.replace(/\r?\n$/, '');
    } catch (error) {
      this.faults.push({ expected: `the text file ${file}`, got: reasonOf(error) });
      return '';
    }
  }

  #malformed(): string {
    const got = JSON.stringify(this.#text.slice(this.#at, this.#at + 40));
    // biome-ignore lint/suspicious/noTemplateCurlyInString: the configuration's own syntax.
    this.faults.push({ expected: '${NAME}, ${NAME:-default} or ${file:/path}, or $${ for a literal ${', got });
    this.#at = this.#text.length;
    return '';
  }
}
