/** `oneflight validate`: what is wrong or doubtful in a configuration, without starting anything. */

import { formatError, formatWarning } from '../config/fault.js';
import { findAndLoadConfig } from '../config/load.js';
import { BAD_CONFIG, DONE } from './exit-code.js';

export type ValidateOptions = {
  /** The file that `-c` named. */
  readonly config: string | undefined;
  readonly env: NodeJS.ProcessEnv;
  readonly stdout: { write(text: string): unknown };
  readonly stderr: { write(text: string): unknown };
};

/** Says on stdout that the file is fine, or on stderr, one line each, why not. Answers the exit code. */
export async function validate(options: ValidateOptions): Promise<number> {
  const result = findAndLoadConfig(options.config, options.env);
  if (result.kind === 'invalid') {
    for (const error of result.errors) options.stderr.write(`${formatError(error)}\n`);
    return BAD_CONFIG;
  }
  const { rules, upstreams, store } = result.config;
  const facts = [counted(rules.length, 'route'), counted(upstreams.size, 'upstream'), `${store.kind} store`];
  const warnings = result.warnings.length === 0 ? [] : [counted(result.warnings.length, 'warning')];
  options.stdout.write(`${result.file}: ok (${[...facts, ...warnings].join(', ')})\n`);
  for (const warning of result.warnings) options.stdout.write(`${formatWarning(warning)}\n`);
  return DONE;
}

function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}
