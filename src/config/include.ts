/**
 * `include`: routes and upstreams of other files, in one tree with those of the file that names them.
 *
 * Invariants: every value keeps its place in its own file; a file's own routes come first, then those of the included
 * files, pattern by pattern and sorted by name, each file once; what stands in an included file beside routes and
 * upstreams is an error, as a gateway listens, logs and stores in one way only.
 */

import { dirname, isAbsolute, join } from 'node:path';
import { type ConfigWarning, describeValue, type Fault, pathText } from './fault.js';
import { type FilesRead, hasWildcard, isSameFile, type Matches } from './files-read.js';
import { isIncludePattern } from './forms.js';
import { faultAt } from './locate.js';
import { configSchema } from './schema.js';
import type { Located, LocatedList, LocatedMapping, Source } from './source.js';
import { nearest } from './suggest.js';

export type Whole = {
  readonly root: Located;
  readonly faults: readonly Fault[];
  readonly warnings: readonly ConfigWarning[];
  /** The included files, in their order. */
  readonly files: readonly string[];
};

export type IncludeOptions = {
  readonly files: FilesRead;
  /** Reads and parses a file; `missing` when there is nothing to be parsed, and why. */
  readonly open: (file: string) => Source | { readonly kind: 'missing'; readonly reason: string };
};

const SECTIONS = ['routes', 'upstreams'] as const;
const MOST_FILES = 1_000;

/** The tree of a file with what it includes. */
export function withIncluded(root: Located, file: string, options: IncludeOptions): Whole {
  const written = root.kind === 'mapping' ? root.entries.get('include')?.value : undefined;
  if (root.kind !== 'mapping' || written?.kind !== 'list') return { root, faults: [], warnings: [], files: [] };
  const including = new Including(root, file, options);
  for (const [index, item] of written.items.entries()) {
    // Of anything else the schema tells.
    const isUsable = item.kind === 'scalar' && typeof item.value === 'string' && isIncludePattern(item.value);
    if (isUsable) including.add(String(item.value), index);
  }
  return including.whole();
}

class Including {
  readonly #root: LocatedMapping;
  readonly #file: string;
  readonly #options: IncludeOptions;
  readonly #files: string[] = [];
  readonly #faults: Fault[] = [];
  readonly #warnings: ConfigWarning[] = [];
  readonly #routes: Located[] = [];
  readonly #upstreams = new Map<string, LocatedMapping['entries'] extends ReadonlyMap<string, infer E> ? E : never>();

  constructor(root: LocatedMapping, file: string, options: IncludeOptions) {
    this.#root = root;
    this.#file = file;
    this.#options = options;
    const upstreams = root.entries.get('upstreams')?.value;
    if (upstreams?.kind === 'mapping') for (const [name, entry] of upstreams.entries) this.#upstreams.set(name, entry);
  }

  /** What one pattern names. */
  add(pattern: string, index: number): void {
    const place = ['include', index];
    const isPattern = hasWildcard(pattern);
    const folder = dirname(this.#file);
    const { files: named, unseen } = isPattern
      ? this.#matching(folder, pattern)
      : { files: [isAbsolute(pattern) ? pattern : join(folder, pattern)], unseen: [] };
    for (const { place: folder, reason } of unseen) {
      this.#faults.push(faultAt(this.#root, place, `the folder ${folder}, to be looked into`, { got: reason }));
    }
    if (named.length === 0 && unseen.length === 0) {
      const { position } = faultPlace(this.#root, index);
      this.#warnings.push({
        ...position,
        code: 'no-file',
        path: pathText(place),
        message: `${pattern} matches no file`,
      });
    }
    for (const file of named) {
      if (this.#files.includes(file)) continue;
      if (isSameFile(file, this.#file)) {
        this.#faults.push(faultAt(this.#root, place, 'another file than this one', { code: 'bad-include' }));
        continue;
      }
      if (this.#files.length === MOST_FILES) {
        this.#faults.push(
          faultAt(this.#root, place, `at most ${MOST_FILES} files`, { got: 'more', code: 'bad-include' }),
        );
        return;
      }
      this.#files.push(file);
      this.#addFile(file, index);
    }
  }

  /** A pattern that meets the file itself does not mean it. */
  #matching(folder: string, pattern: string): Matches {
    const { files, unseen } = this.#options.files.matching(folder, pattern);
    return { files: files.filter((file) => !isSameFile(file, this.#file)), unseen };
  }

  whole(): Whole {
    const { position, entries } = this.#root;
    const all = new Map(entries);
    const own = entries.get('routes');
    // A section that is no list, or no mapping, is left as it is: that is what is told of it.
    if (this.#routes.length > 0 && (own === undefined || own.value.kind === 'list')) {
      const items = [...(own?.value.kind === 'list' ? own.value.items : []), ...this.#routes];
      const list: LocatedList = { kind: 'list', position: own?.value.position ?? position, items };
      all.set('routes', { keyPosition: own?.keyPosition ?? position, value: list });
    }
    const upstreams = entries.get('upstreams');
    if (this.#upstreams.size > 0 && (upstreams === undefined || upstreams.value.kind === 'mapping')) {
      const mapping: LocatedMapping = {
        kind: 'mapping',
        position: upstreams?.value.position ?? position,
        entries: this.#upstreams,
      };
      all.set('upstreams', { keyPosition: upstreams?.keyPosition ?? position, value: mapping });
    }
    const root: Located = { kind: 'mapping', position, entries: all };
    return { root, faults: this.#faults, warnings: this.#warnings, files: this.#files };
  }

  #addFile(file: string, index: number): void {
    const source = this.#options.open(file);
    if (source.kind === 'missing') {
      const expected = `the readable file ${file}`;
      this.#faults.push(
        faultAt(this.#root, ['include', index], expected, { got: source.reason, code: 'unreadable-file' }),
      );
    }
    if (source.kind === 'unreadable') this.#faults.push(source.fault);
    // A file that is commented out adds nothing.
    if (source.kind !== 'parsed') return;
    this.#faults.push(...source.faults);
    const { root } = source;
    if (root.kind !== 'mapping') {
      if (root.kind !== 'unusable')
        this.#faults.push(faultAt(root, [], 'a mapping with routes or upstreams', { code: 'bad-value' }));
      return;
    }
    for (const [name, { keyPosition, value }] of root.entries) {
      if (name === 'routes') this.#addRoutes(value);
      else if (name === 'upstreams') this.#addUpstreams(value);
      else this.#faults.push(misplaced(name, keyPosition));
    }
  }

  #addRoutes(value: Located): void {
    if (value.kind === 'list') this.#routes.push(...value.items);
    else if (value.kind !== 'unusable') this.#faults.push(wrongSection('routes', 'a list', value));
  }

  #addUpstreams(value: Located): void {
    if (value.kind !== 'mapping') {
      if (value.kind !== 'unusable') this.#faults.push(wrongSection('upstreams', 'a mapping', value));
      return;
    }
    for (const [name, entry] of value.entries) {
      const first = this.#upstreams.get(name);
      if (first === undefined) {
        this.#upstreams.set(name, entry);
        continue;
      }
      const { file, line, column } = first.keyPosition;
      const got = `${JSON.stringify(name)}, which ${file}:${line}:${column} has`;
      const path = pathText(['upstreams', name]);
      const expected = 'a name that no other upstream has';
      this.#faults.push({ ...entry.keyPosition, code: 'conflict', path, expected, got, suggestion: null });
    }
  }
}

function faultPlace(root: LocatedMapping, index: number): Located {
  const list = root.entries.get('include')?.value as LocatedList;
  return list.items[index] as Located;
}

function wrongSection(name: string, expected: string, value: Located): Fault {
  const got = describeValue([name], value);
  return { ...value.position, code: 'bad-value', path: name, expected, got, suggestion: null };
}

/** A field of the whole gateway, or a slip. */
function misplaced(name: string, position: LocatedMapping['position']): Fault {
  const isKnown = Object.hasOwn(configSchema.shape, name);
  const expected = isKnown ? `no ${name} in an included file (routes and upstreams only)` : 'one of routes, upstreams';
  const suggestion = isKnown ? null : nearest(name, SECTIONS);
  const code = isKnown ? 'bad-include' : 'unknown-field';
  return { ...position, code, path: pathText([name]), expected, got: JSON.stringify(name), suggestion };
}
