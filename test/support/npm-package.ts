/**
 * What only tests need of an npm package, and is too large, or too rarely used, to be installed by everybody: one exact
 * version, checked against its digest, unpacked into the user's cache folder.
 */

import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

export type Pinned = {
  readonly name: string;
  readonly version: string;
  /** The digest of its tarball as a lock file has it: `sha512-…`. */
  readonly integrity: string;
};

const run = promisify(execFile);

/** The folder of the package, fetched once. Rejects with one line when it cannot be had. */
export async function npmPackage({ name, version, integrity }: Pinned): Promise<string> {
  const { XDG_CACHE_HOME } = process.env;
  const cache = join(XDG_CACHE_HOME || join(homedir(), '.cache'), 'oneflight');
  const folder = join(cache, `${name.replace(/^@/, '').replace('/', '-')}-${version}`);
  if (existsSync(folder)) return folder;
  mkdirSync(cache, { recursive: true });
  const work = mkdtempSync(join(cache, 'npm-'));
  try {
    const tarball = join(work, await packed(`${name}@${version}`, work));
    const digest = `sha512-${createHash('sha512').update(readFileSync(tarball)).digest('base64')}`;
    if (digest !== integrity) throw new Error(`its digest is ${digest}`);
    await run('tar', ['-xzf', tarball, '-C', work]);
    // Another process may have been faster: its folder is as good.
    if (!existsSync(folder)) renameSync(join(work, 'package'), folder);
  } catch (cause) {
    if (!existsSync(folder)) throw new Error(`${name}@${version}, which this test needs, cannot be fetched`, { cause });
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
  return folder;
}

/** Has npm fetch the tarball; answers its file name. */
async function packed(spec: string, folder: string): Promise<string> {
  await run('npm', ['pack', spec, '--pack-destination', folder, '--fetch-retries=1'], { cwd: folder });
  const [file] = readdirSync(folder).filter((entry) => entry.endsWith('.tgz'));
  if (file === undefined) throw new Error(`npm pack ${spec} left no tarball`);
  return file;
}
