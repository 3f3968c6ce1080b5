/** `oneflight validate --format json`: one document on standard output, for programs. */

import { type EffectiveJson, effectiveJson, effectiveOf } from '../config/effective.js';
import { type ConfigWarning, type Fault, formatError, formatWarning } from '../config/fault.js';
import type { LoadResult } from '../config/load.js';
import { BAD_CONFIG, DONE } from './exit-code.js';
import { type Connection, connectionOf, exitCodeOf } from './store-connection.js';

export type ValidateJsonOptions = {
  readonly connect: boolean;
  readonly print: boolean;
  readonly stdout: { write(text: string): unknown };
};

/** An error or a warning. */
type Told = {
  readonly file: string;
  readonly line: number;
  readonly column: number;
  readonly path: string;
  readonly code: Fault['code'] | ConfigWarning['code'];
  /** Null: a warning, which is about a value that is one of those that are expected. */
  readonly expected: string | null;
  readonly came: string | null;
  readonly suggestion: string | null;
  /** All of it in the words of `validate`. */
  readonly message: string;
};

type Document = {
  readonly file: string;
  readonly included: readonly string[];
  readonly valid: boolean;
  readonly errors: readonly Told[];
  readonly warnings: readonly Told[];
  readonly routes?: number;
  readonly upstreams?: number;
  /** With `--connect`, of a valid configuration. */
  readonly store?: Connection;
} & Partial<EffectiveJson>;

/** Writes the document. Answers the exit code, the same as without it. */
export async function validateJson(result: LoadResult, options: ValidateJsonOptions): Promise<number> {
  const { document, code } = await documentOf(result, options);
  options.stdout.write(`${JSON.stringify(document, null, 2)}\n`);
  return code;
}

async function documentOf(
  result: LoadResult,
  { connect, print }: ValidateJsonOptions,
): Promise<{ document: Document; code: number }> {
  if (result.kind === 'invalid') {
    const { file, errors } = result;
    const document = { file, included: [], valid: false, errors: errors.map(toldError), warnings: [] };
    return { document, code: BAD_CONFIG };
  }
  const { file, included, config, warnings, written } = result;
  const store = connect ? await connectionOf(config.store) : null;
  const document: Document = {
    file,
    included,
    valid: true,
    errors: [],
    warnings: warnings.map(toldWarning),
    routes: config.rules.length,
    upstreams: config.upstreams.size,
    ...(store === null ? {} : { store }),
    ...(print ? effectiveJson(effectiveOf(written)) : {}),
  };
  return { document, code: store === null ? DONE : exitCodeOf(store) };
}

function toldError(fault: Fault): Told {
  const { file, line, column, path, code, expected, got: came, suggestion } = fault;
  return { file, line, column, path, code, expected, came, suggestion, message: formatError(fault) };
}

function toldWarning(warning: ConfigWarning): Told {
  const { file, line, column, path, code } = warning;
  const nothing = { expected: null, came: null, suggestion: null };
  return { file, line, column, path, code, ...nothing, message: formatWarning(warning) };
}
