/**
 * A configuration file, and those that it includes → the frozen `Config`, or all of its errors at once.
 *
 * Steps: find the file, read it as UTF-8, parse it (source.ts), add what it includes (include.ts), check every field (check.ts) and fields against each
 * other (cross-checks.ts), look at the files that it names (tls-material.ts), apply what depends on other fields (resolve.ts), and look for doubtful ones (warnings.ts).
 */

import { existsSync } from 'node:fs';
import { check } from './check.js';
import type { Config } from './config.js';
import { crossCheck } from './cross-checks.js';
import type { ConfigWarning, Fault, Position } from './fault.js';
import { FilesRead, folderOf, reasonOf } from './files-read.js';
import { withIncluded } from './include.js';
import { resolveConfig } from './resolve.js';
import { tracingOf, type UnusableVariable } from './resolve-tracing.js';
import type { ConfigOutput } from './schema.js';
import { type Located, parseSource, type Source } from './source.js';
import { clientTlsFaults, directoryAt, tlsFaults } from './tls-material.js';
import { warningsOf } from './warnings.js';

/** What was written, and where, with the defaults that depend on nothing. */
export type Written = { readonly root: Located; readonly output: ConfigOutput };

export type LoadResult =
  | {
      readonly kind: 'loaded';
      readonly file: string;
      readonly config: Config;
      readonly warnings: readonly ConfigWarning[];
      /** The files that it includes, in their order. */
      readonly included: readonly string[];
      readonly files: FilesRead;
      readonly written: Written;
    }
  | {
      readonly kind: 'invalid';
      readonly file: string;
      readonly errors: readonly Fault[];
      /** What was read of it all the same: a change there may make it good. */
      readonly files: FilesRead;
    };

/** Where a configuration is looked for when nobody says where it is. */
export const DEFAULT_FILES = ['./config/gateway.yaml', '/etc/oneflight/gateway.yaml'] as const;

const LIMIT = { bytes: 1024 * 1024, text: '1MiB' } as const;

/** The file to load: what `-c` says, else `ONEFLIGHT_CONFIG`, else the first default that exists; null when none does. */
export function findConfig(option: string | undefined, env: NodeJS.ProcessEnv): string | null {
  if (option !== undefined) return option;
  const { ONEFLIGHT_CONFIG: fromEnv } = env;
  if (fromEnv !== undefined && fromEnv !== '') return fromEnv;
  return DEFAULT_FILES.find((file) => existsSync(file)) ?? null;
}

/** Finds and loads the configuration. No file at all is an error like any other. */
export function findAndLoadConfig(option: string | undefined, env: NodeJS.ProcessEnv): LoadResult {
  const file = findConfig(option, env);
  if (file !== null) return loadConfig(file, env);
  const expected = `a file here or at ${DEFAULT_FILES[1]}, or its place by -c or ONEFLIGHT_CONFIG`;
  return invalid(DEFAULT_FILES[0], [wholeFile(DEFAULT_FILES[0], expected, 'none')], new FilesRead());
}

/** Loads one file and what it includes. Never throws for what they say. `given`: what stands in it, where that is known already. */
export function loadConfig(file: string, env: NodeJS.ProcessEnv, given: Buffer | null = null): LoadResult {
  const files = new FilesRead();
  const open = (name: string) => sourceOf(name, env, files, 'regular');
  const source = sourceOf(file, env, files, given ?? 'any');
  if (source.kind === 'missing') return invalid(file, [wholeFile(file, 'a readable file', source.reason)], files);
  if (source.kind === 'empty') return invalid(file, [wholeFile(file, 'a configuration', 'an empty file')], files);
  if (source.kind === 'unreadable') return invalid(file, [source.fault], files);
  const { root, ...included } = withIncluded(source.root, file, { files, open });
  const { draft, output, faults } = check(root);
  const all = [
    ...source.faults,
    ...included.faults,
    ...faults,
    ...crossCheck(draft, root),
    ...tlsFaults(draft, root, files),
    ...clientTlsFaults(draft, root, files),
  ];
  if (all.length > 0 || output === null) return invalid(file, all, files, included.files);
  const tracing = tracingOf(output.tracing, env);
  const config = resolveConfig(output, (path) => directoryAt(root, path), tracing.config);
  const doubts = [...included.warnings, ...warningsOf(config, root), ...variableWarnings(file, tracing.unusable)];
  const warnings = inOrder(doubts, [file, ...included.files]);
  return { kind: 'loaded', file, config, warnings, included: included.files, files, written: { root, output } };
}

function invalid(
  file: string,
  faults: readonly Fault[],
  files: FilesRead,
  included: readonly string[] = [],
): LoadResult {
  return { kind: 'invalid', file, errors: inOrder(faults, [file, ...included]), files };
}

/** They stand in no file. */
function variableWarnings(file: string, unusable: readonly UnusableVariable[]): ConfigWarning[] {
  return unusable.map(({ name, expected }) => {
    const message = `${name} is not used: expected ${expected}`;
    return { file, line: 1, column: 1, code: 'unusable-variable', path: '', message };
  });
}

/** By file, line and column. */
function inOrder<T extends Position>(places: readonly T[], files: readonly string[]): T[] {
  const at = new Map(files.map((file, index) => [file, index]));
  const rank = ({ file }: Position) => at.get(file) ?? 0;
  return [...places].sort((a, b) => rank(a) - rank(b) || a.line - b.line || a.column - b.column);
}

function sourceOf(
  file: string,
  env: NodeJS.ProcessEnv,
  files: FilesRead,
  from: 'any' | 'regular' | Buffer,
): Source | { readonly kind: 'missing'; readonly reason: string } {
  let bytes: Buffer;
  try {
    if (from === 'any') bytes = files.bytesOfAny(file, LIMIT);
    else bytes = from === 'regular' ? files.bytesOf(file, LIMIT) : bounded(from);
  } catch (error) {
    return { kind: 'missing', reason: reasonOf(error) };
  }
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    return parseSource(text, file, { env, directory: folderOf(file), files });
  } catch (error) {
    if (!isNotUtf8(error)) throw error;
    const before = new TextDecoder().decode(bytes).split('\uFFFD', 1)[0]!.split('\n');
    const position = { line: before.length, column: before.at(-1)!.length + 1 };
    return { kind: 'unreadable', fault: { ...wholeFile(file, 'UTF-8', 'other bytes'), ...position } };
  }
}

/** What is given is read already, but not yet parsed. */
function bounded(given: Buffer): Buffer {
  if (given.length > LIMIT.bytes) throw new Error(`it is larger than ${LIMIT.text}`);
  return given;
}

function isNotUtf8(error: unknown): boolean {
  return error instanceof TypeError && 'code' in error && error.code === 'ERR_ENCODING_INVALID_ENCODED_DATA';
}

function wholeFile(file: string, expected: string, got: string): Fault {
  return { file, line: 1, column: 1, code: 'unreadable-file', path: '', expected, got, suggestion: null };
}
