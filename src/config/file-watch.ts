/**
 * Tells that files may have changed while the gateway runs.
 *
 * Invariants: folders are watched, not files: editors rename a new file over the old one, and Kubernetes swaps a link,
 * which a watch on the file misses from the second time on; of a link every folder on its way is watched; what happens
 * within a moment is told once; where a file system tells nothing, the regular look does; nothing here keeps a process alive.
 */

import { type FSWatcher, lstatSync, readlinkSync, statSync, watch } from 'node:fs';
import { dirname, join, resolve, sep } from 'node:path';

/** Files that belong together are written within this, as a rule. */
const SETTLE_MS = 200;
/** In a folder that never comes to rest it is told all the same. */
const SETTLE_MOST_MS = 2_000;
const LOOK_EVERY_MS = 60_000;
/** Links that lead in a circle end somewhere. */
const MOST_LINKS = 40;

export class FileWatch {
  readonly #onChange: () => void;
  /** By folder and what it is now: a link that was swapped leads to another one under the same name. */
  #watchers = new Map<string, FSWatcher>();
  #settling: NodeJS.Timeout | undefined;
  #unrestSinceMs: number | null = null;
  #looking: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(onChange: () => void) {
    this.#onChange = onChange;
  }

  /** Watches these paths, which need not exist, from now on and nothing else. */
  watch(paths: Iterable<string>): void {
    if (this.#isClosed) return;
    const before = this.#watchers;
    this.#watchers = new Map();
    for (const folder of new Set([...paths].flatMap((path) => foldersOf(path)))) {
      const identity = identityOf(folder);
      const watcher = before.get(identity) ?? this.#watcherOf(folder);
      before.delete(identity);
      if (watcher !== null) this.#watchers.set(identity, watcher);
    }
    for (const watcher of before.values()) watcher.close();
    this.#looking ??= setInterval(this.#onChange, LOOK_EVERY_MS).unref();
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#settling);
    clearInterval(this.#looking);
    for (const watcher of this.#watchers.values()) watcher.close();
    this.#watchers.clear();
  }

  #watcherOf(folder: string): FSWatcher | null {
    try {
      const watcher = watch(folder, { persistent: false }, () => this.#settle());
      // Of a folder that is gone, or cannot be watched, the regular look tells.
      return watcher.on('error', () => watcher.close());
    } catch {
      return null;
    }
  }

  #settle(): void {
    const nowMs = performance.now();
    this.#unrestSinceMs ??= nowMs;
    const leftMs = this.#unrestSinceMs + SETTLE_MOST_MS - nowMs;
    clearTimeout(this.#settling);
    this.#settling = setTimeout(
      () => {
        this.#unrestSinceMs = null;
        this.#onChange();
      },
      Math.max(0, Math.min(SETTLE_MS, leftMs)),
    ).unref();
  }
}

/** The folders in which something happens when that path begins to lead to other content. */
function foldersOf(path: string, links = 0): string[] {
  const folders: string[] = [];
  const segments = resolve(path).split(sep).filter(Boolean);
  let at: string = sep;
  for (const [index, segment] of segments.entries()) {
    const next = join(at, segment);
    const target = linkAt(next);
    if (target !== null) {
      folders.push(at);
      if (links === MOST_LINKS) return folders;
      return [...folders, ...foldersOf(join(resolve(at, target), ...segments.slice(index + 1)), links + 1)];
    }
    // What is not there yet will appear here.
    if (index < segments.length - 1 && !isFolder(next)) return [...folders, at];
    at = next;
  }
  return [...folders, dirname(at)];
}

function linkAt(path: string): string | null {
  try {
    return lstatSync(path).isSymbolicLink() ? readlinkSync(path) : null;
  } catch {
    return null;
  }
}

function isFolder(path: string): boolean {
  try {
    return statSync(path).isDirectory();
  } catch {
    return false;
  }
}

function identityOf(folder: string): string {
  try {
    const { dev, ino } = statSync(folder);
    return `${folder} ${dev}:${ino}`;
  } catch {
    return folder;
  }
}
