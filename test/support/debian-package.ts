/**
 * Programs that are no npm packages: the one on PATH, else Debian's own, unpacked without root into the user's cache
 * folder, with the libraries that are not installed.
 */

import { execFile, execFileSync } from 'node:child_process';
import { accessSync, constants, existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { homedir } from 'node:os';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';

export type Program = {
  readonly path: string;
  readonly env: NodeJS.ProcessEnv;
  /** Where its package was unpacked; null: it is installed. */
  readonly root: string | null;
};

export type Wanted = {
  /** Name of the folder in the cache. */
  readonly name: string;
  /** Names on PATH, the best first. */
  readonly programs: readonly string[];
  readonly packages: readonly string[];
  /** Path of the program within its package. */
  readonly path: string;
};

const run = promisify(execFile);

/** Finds the program, or fetches it. Rejects when neither is possible. */
export async function programOf({ name, programs, packages, path }: Wanted): Promise<Program> {
  for (const program of programs) {
    const found = onPath(program);
    if (found !== null) return { path: found, env: process.env, root: null };
  }
  const { XDG_CACHE_HOME } = process.env;
  const root = join(XDG_CACHE_HOME || join(homedir(), '.cache'), 'oneflight', name);
  if (!existsSync(join(root, path))) await unpackInto(root, packages);
  const env = { ...process.env, LD_LIBRARY_PATH: libraryFolders(root).join(delimiter) };
  return { path: join(root, path), env, root };
}

/** Path of a program that is installed; null: none is. */
export function onPath(name: string): string | null {
  const { PATH = '' } = process.env;
  for (const folder of PATH.split(delimiter)) {
    const path = join(folder, name);
    try {
      accessSync(path, constants.X_OK);
      return path;
    } catch {
      // Not in this folder.
    }
  }
  return null;
}

/** Fetches the packages and the libraries they need that are not installed. Lists and cache are our own: no root. */
async function unpackInto(root: string, packages: readonly string[]): Promise<void> {
  mkdirSync(join(root, '..'), { recursive: true });
  const work = mkdtempSync(join(root, '..', 'unpack-'));
  try {
    const folders = ['lists/partial', 'cache/archives/partial', 'debs', 'root'];
    for (const folder of folders) mkdirSync(join(work, folder), { recursive: true });
    const own = [`Dir::State::lists=${work}/lists`, `Dir::Cache=${work}/cache`, 'APT::Sandbox::User=root'];
    const options = own.flatMap((option) => ['-o', option]);
    await run('apt-get', [...options, 'update']);
    await run('apt-get', [...options, 'download', ...(await withLibraries(packages, options))], {
      cwd: join(work, 'debs'),
    });
    for (const deb of readdirSync(join(work, 'debs'))) {
      await run('dpkg', ['-x', join(work, 'debs', deb), join(work, 'root')]);
    }
    // Another process may have been faster: its folder is as good.
    if (!existsSync(root)) renameSync(join(work, 'root'), root);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/** The packages, and every library of theirs that is missing. */
async function withLibraries(packages: readonly string[], options: readonly string[]): Promise<string[]> {
  const wanted = [...packages];
  for (const name of wanted) {
    const { stdout } = await run('apt-cache', [...options, 'depends', '--important', name]);
    const lines = stdout.split('\n');
    for (const [index, line] of lines.entries()) {
      const needed = /^ [ |](?:Pre)?Depends: (lib\S+|lua\S+)/.exec(line)?.[1];
      // A line with a bar has its alternative in the next one: the first will do.
      if (needed === undefined || lines[index - 1]?.startsWith(' |')) continue;
      if (!needed.startsWith('libc6') && !wanted.includes(needed) && !isInstalled(needed)) wanted.push(needed);
    }
  }
  return wanted;
}

function isInstalled(name: string): boolean {
  try {
    const status = execFileSync('dpkg-query', ['--status', name], { stdio: ['ignore', 'pipe', 'ignore'] });
    return String(status).includes('ok installed');
  } catch {
    return false;
  }
}

/** The library folders, and those of programs that keep their own beside them (`lib/varnish`). */
function libraryFolders(root: string): string[] {
  const below = (path: string): string[] =>
    existsSync(path)
      ? readdirSync(path, { withFileTypes: true })
          .filter((entry) => entry.isDirectory())
          .map((entry) => join(path, entry.name))
      : [];
  return ['usr/lib', 'lib'].flatMap((folder) => {
    const path = join(root, folder);
    if (!existsSync(path)) return [];
    const triplets = below(path);
    return [path, ...triplets, ...triplets.flatMap(below)];
  });
}
