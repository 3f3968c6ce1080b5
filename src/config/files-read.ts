/**
 * The files that one loading of a configuration has read: the file itself, those that it includes or names, and what its
 * patterns matched.
 *
 * Invariants: what is remembered of a file is a digest of the very bytes that were read, so that no change between reading
 * and watching goes unseen; nothing is read that could block for ever, but the first file, which may come from a pipe.
 */

import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, realpathSync, statSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';

export type FileLimit = { readonly bytes: number; readonly text: string };

export class FilesRead {
  /** By absolute path: the digest of what was read, or why it could not be, and under which limit. */
  readonly #seen = new Map<string, { readonly digest: string; readonly limit: FileLimit }>();
  /** By absolute pattern: what it matched, as text to be compared. */
  readonly #matched = new Map<string, string>();
  readonly #searched = new Set<string>();
  #repeatable = true;

  /** Whether all of it can be read again. */
  get repeatable(): boolean {
    return this.#repeatable;
  }

  /** Paths that tell of a change: the files, and whatever stands in a folder that a pattern looked into. */
  get watched(): string[] {
    return [...this.#seen.keys(), ...[...this.#searched].map((folder) => join(folder, '*'))];
  }

  /** The bytes of a regular file. Throws when it cannot be read. */
  bytesOf(file: string, limit: FileLimit): Buffer {
    return this.#note(file, limit, () => regularBytes(file, limit));
  }

  /** The bytes of a file that may be a pipe: `-c <(…)`. Throws when it cannot be read. */
  bytesOfAny(file: string, limit: FileLimit): Buffer {
    return this.#note(file, limit, () => {
      const facts = statSync(file);
      if (facts.isFile() || facts.isDirectory()) return regularBytes(file, limit);
      this.#repeatable = false;
      return readFileSync(file);
    });
  }

  /**
   * The regular files that a pattern names, sorted, as paths relative to the working directory where the folder is. Only
   * `*` and `?` mean something; neither stands for a `/`, nor for the dot at the beginning of a name. A folder that is not
   * there has no files; one that cannot be looked into may have some, and is told.
   */
  matching(folder: string, pattern: string): Matches {
    const matches = matchesOf(folder, pattern, this.#searched);
    this.#matched.set(resolve(folder, pattern), matchText(matches));
    return matches;
  }

  /** Whether any file, or what a pattern matches, is no longer what was read. */
  haveChanged(): boolean {
    if (!this.#repeatable) return false;
    for (const [pattern, before] of this.#matched) {
      if (matchText(matchesOf('/', pattern, new Set())) !== before) return true;
    }
    return [...this.#seen].some(([file, { digest, limit }]) => digestOf(() => regularBytes(file, limit)) !== digest);
  }

  #note(file: string, limit: FileLimit, read: () => Buffer): Buffer {
    const path = resolve(file);
    try {
      const bytes = read();
      this.#seen.set(path, { digest: digestOf(() => bytes), limit });
      return bytes;
    } catch (error) {
      this.#seen.set(path, { digest: reasonOf(error), limit });
      throw error;
    }
  }
}

/** Whether two paths lead to one file. */
export function isSameFile(one: string, other: string): boolean {
  try {
    return realpathSync(one) === realpathSync(other);
  } catch {
    return resolve(one) === resolve(other);
  }
}

export function hasWildcard(pattern: string): boolean {
  return /[*?]/.test(pattern);
}

/** What a pattern names, and the places where that could not be seen. */
export type Matches = {
  readonly files: readonly string[];
  readonly unseen: readonly { readonly place: string; readonly reason: string }[];
};

function matchesOf(folder: string, pattern: string, searched: Set<string>): Matches {
  const unseen = new Map<string, string>();
  const isAbsolute = pattern.startsWith('/');
  let found = [isAbsolute ? '/' : folder];
  const segments = pattern.split('/').filter((segment) => segment !== '' && segment !== '.');
  for (const [index, segment] of segments.entries()) {
    const isLast = index === segments.length - 1;
    found = found.flatMap((base) => {
      if (!hasWildcard(segment)) return [join(base, segment)];
      searched.add(resolve(base));
      const names = seen([], base, unseen, () => readdirSync(base).sort()).filter((name) => isNamed(name, segment));
      const paths = names.map((name) => join(base, name));
      return paths.filter((path) => (isLast ? isFile(path) : seen(false, path, unseen, () => isFolder(path))));
    });
  }
  return { files: found, unseen: [...unseen].map(([place, reason]) => ({ place, reason })) };
}

function matchText({ files, unseen }: Matches): string {
  const places = unseen.map(({ place, reason }) => `${resolve(place)}: ${reason}`);
  return [...files.map((file) => resolve(file)), ...places].join('\n');
}

/** What is found there; `nothing` when there is no such place, or when it cannot be seen, which is noted. */
function seen<T>(nothing: T, place: string, unseen: Map<string, string>, look: () => T): T {
  try {
    return look();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'ENOENT') unseen.set(place, code === 'ENOTDIR' ? 'not a directory' : reasonOf(error));
    return nothing;
  }
}

function isNamed(name: string, pattern: string): boolean {
  if (name.startsWith('.') && !pattern.startsWith('.')) return false;
  const expression = pattern
    .replace(/[.+^${}()|[\]\\]/g, '\\$&')
    .replace(/\*+/g, '.*')
    .replace(/\?/g, '.');
  return new RegExp(`^${expression}$`, 's').test(name);
}

function isFolder(path: string): boolean {
  return statSync(path).isDirectory();
}

function isFile(path: string): boolean {
  try {
    return !isFolder(path);
  } catch {
    // A link that leads nowhere has a name that is meant: what is lost behind it must not be lost in silence.
    return true;
  }
}

function regularBytes(file: string, limit: FileLimit): Buffer {
  const facts = statSync(file);
  if (facts.isDirectory()) throw new Error('a directory');
  // A device or a pipe could block for ever.
  if (!facts.isFile()) throw new Error('it is not a regular file');
  if (facts.size > limit.bytes) throw new Error(`it is larger than ${limit.text}`);
  return readFileSync(file);
}

/** Of what is read, or why it cannot be. */
function digestOf(read: () => Buffer): string {
  try {
    return createHash('sha256').update(read()).digest('base64');
  } catch (error) {
    return reasonOf(error);
  }
}

/** Where a file's relative paths begin. */
export function folderOf(file: string): string {
  return dirname(resolve(file));
}

/** One short clause on why a file could not be read. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const code = 'code' in error ? error.code : undefined;
  if (code === 'ENOENT' || code === 'ENOTDIR') return 'no such file';
  if (code === 'EACCES' || code === 'EPERM') return 'permission denied';
  if (code === 'EISDIR') return 'a directory';
  if (code === 'ERR_ENCODING_INVALID_ENCODED_DATA') return 'content that is not UTF-8';
  return error.message;
}
