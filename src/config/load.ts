/**
 * A configuration file → the frozen `Config`, or all of its errors at once.
 *
 * Steps: find the file, read it as UTF-8, parse it (source.ts), check every field (check.ts) and fields against each
 * other (cross-checks.ts), look at the files that it names (tls-material.ts), apply what depends on other fields (resolve.ts), and look for doubtful ones (warnings.ts).
 */

import { existsSync, readFileSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { check } from './check.js';
import type { Config } from './config.js';
import { crossCheck } from './cross-checks.js';
import { reasonOf } from './expansion.js';
import type { ConfigError, ConfigWarning, Fault } from './fault.js';
import { resolveConfig } from './resolve.js';
import { parseSource } from './source.js';
import { clientTlsFaults, tlsFaults } from './tls-material.js';
import { warningsOf } from './warnings.js';

export type LoadResult =
  | {
      readonly kind: 'loaded';
      readonly file: string;
      readonly config: Config;
      readonly warnings: readonly ConfigWarning[];
    }
  | { readonly kind: 'invalid'; readonly file: string; readonly errors: readonly ConfigError[] };

/** Where a configuration is looked for when nobody says where it is. */
export const DEFAULT_FILES = ['./config/gateway.yaml', '/etc/oneflight/gateway.yaml'] as const;

const MAX_FILE_BYTES = 1024 * 1024;

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
  return invalid(DEFAULT_FILES[0], [wholeFile(expected, 'none')]);
}

/** Loads one file. Never throws for what the file says. */
export function loadConfig(file: string, env: NodeJS.ProcessEnv): LoadResult {
  const content = readText(file);
  if (content.kind === 'unreadable') return invalid(file, [content.fault]);
  const directory = dirname(resolve(file));
  const source = parseSource(content.text, { env, directory });
  if (source.kind === 'unreadable') return invalid(file, [source.fault]);
  const { draft, output, faults } = check(source.root);
  const all = [
    ...source.faults,
    ...faults,
    ...crossCheck(draft, source.root),
    ...tlsFaults(draft, source.root, directory),
    ...clientTlsFaults(draft, source.root, directory),
  ];
  if (all.length > 0 || output === null) return invalid(file, all);
  const config = resolveConfig(output, directory);
  return { kind: 'loaded', file, config, warnings: warningsOf(config, source.root, file) };
}

function invalid(file: string, faults: readonly Fault[]): LoadResult {
  const errors = faults.map((fault) => ({ file, ...fault })).sort((a, b) => a.line - b.line || a.column - b.column);
  return { kind: 'invalid', file, errors };
}

type Content =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'unreadable'; readonly fault: Fault };

function readText(file: string): Content {
  let bytes: Buffer;
  try {
    if (statSync(file).size > MAX_FILE_BYTES) {
      return { kind: 'unreadable', fault: wholeFile('a file of at most 1MiB', 'a larger one') };
    }
    bytes = readFileSync(file);
  } catch (error) {
    return { kind: 'unreadable', fault: wholeFile('a readable file', reasonOf(error)) };
  }
  try {
    return { kind: 'text', text: new TextDecoder('utf-8', { fatal: true }).decode(bytes) };
  } catch {
    const before = new TextDecoder().decode(bytes).split('\uFFFD', 1)[0]!.split('\n');
    const position = { line: before.length, column: before.at(-1)!.length + 1 };
    return { kind: 'unreadable', fault: { ...wholeFile('UTF-8', 'other bytes'), ...position } };
  }
}

function wholeFile(expected: string, got: string): Fault {
  return { line: 1, column: 1, path: '', expected, got, suggestion: null };
}
