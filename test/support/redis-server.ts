/**
 * Where the tests' Redis comes from: `redis-server` or `valkey-server` on PATH, else Debian's own package, unpacked
 * without root into the user's cache folder.
 */

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { type Program, programOf } from './debian-package.js';

/** Finds the program, or fetches it. Rejects with one line that says what to install. */
export async function serverProgram(): Promise<Program> {
  try {
    const program = await programOf({
      name: 'redis',
      programs: ['redis-server', 'valkey-server'],
      // Debian has the program itself in the tools' package.
      packages: ['redis-server', 'redis-tools'],
      path: 'usr/bin/redis-server',
    });
    await promisify(execFile)(program.path, ['--version'], { env: program.env });
    return program;
  } catch (cause) {
    throw new Error('no redis-server or valkey-server on PATH, and none could be fetched: install Redis 6.2 or later', {
      cause,
    });
  }
}
