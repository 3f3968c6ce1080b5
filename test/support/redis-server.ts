/**
 * Where the tests' Redis comes from: `redis-server` or `valkey-server` on PATH, else Debian's own package, unpacked
 * without root into the user's cache folder.
 */

import { execFile, execFileSync } from 'node:child_process';
import { accessSync, constants, existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { homedir } from 'node:os';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';

export type ServerProgram = { readonly path: string; readonly env: NodeJS.ProcessEnv };

const run = promisify(execFile);

/** Finds the program, or fetches it. Rejects with one line that says what to install. */
export async function serverProgram(): Promise<ServerProgram> {
  for (const name of ['redis-server', 'valkey-server']) {
    const path = onPath(name);
    if (path !== null) return { path, env: process.env };
  }
  const { XDG_CACHE_HOME } = process.env;
  const root = join(XDG_CACHE_HOME || join(homedir(), '.cache'), 'oneflight', 'redis');
  try {
    if (!existsSync(join(root, 'usr/bin/redis-server'))) await unpackInto(root);
    const env = { ...process.env, LD_LIBRARY_PATH: libraryFolders(root).join(delimiter) };
    const path = join(root, 'usr/bin/redis-server');
    await run(path, ['--version'], { env });
    return { path, env };
  } catch (cause) {
    throw new Error('no redis-server or valkey-server on PATH, and none could be fetched: install Redis 6.2 or later', {
      cause,
    });
  }
}

function onPath(name: string): string | null {
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

/** Fetches Debian's package and the libraries it needs that are not installed. Lists and cache are our own: no root. */
async function unpackInto(root: string): Promise<void> {
  mkdirSync(join(root, '..'), { recursive: true });
  const work = mkdtempSync(join(root, '..', 'unpack-'));
  try {
    const folders = ['lists/partial', 'cache/archives/partial', 'debs', 'root'];
    for (const folder of folders) mkdirSync(join(work, folder), { recursive: true });
    const own = [`Dir::State::lists=${work}/lists`, `Dir::Cache=${work}/cache`, 'APT::Sandbox::User=root'];
    const options = own.flatMap((option) => ['-o', option]);
    await run('apt-get', [...options, 'update']);
    await run('apt-get', [...options, 'download', ...(await packagesOf(options))], { cwd: join(work, 'debs') });
    for (const deb of readdirSync(join(work, 'debs'))) {
      await run('dpkg', ['-x', join(work, 'debs', deb), join(work, 'root')]);
    }
    // Another test process may have been faster: its folder is as good.
    if (!existsSync(root)) renameSync(join(work, 'root'), root);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/** redis-server, redis-tools (in which Debian has the program itself), and every library of theirs that is missing. */
async function packagesOf(options: readonly string[]): Promise<string[]> {
  const wanted = ['redis-server', 'redis-tools'];
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

function libraryFolders(root: string): string[] {
  return ['usr/lib', 'lib'].flatMap((folder) => {
    const path = join(root, folder);
    if (!existsSync(path)) return [];
    return [path, ...readdirSync(path).map((triplet) => join(path, triplet))];
  });
}
