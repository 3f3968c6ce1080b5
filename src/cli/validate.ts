/** `oneflight validate`: what is wrong or doubtful in a configuration, without starting anything. */

import { formatWarning } from '../config/fault.js';
import { BAD_CONFIG, DONE } from './exit-code.js';
import { openConfig } from './open-config.js';

export type ValidateOptions = {
  /** The file that `-c` named. */
  readonly config: string | undefined;
  readonly env: NodeJS.ProcessEnv;
  readonly stdout: { write(text: string): unknown };
  readonly stderr: { write(text: string): unknown };
};

/** Says on stdout that the file is fine, or on stderr, one line each, why not. Answers the exit code. */
export async function validate(options: ValidateOptions): Promise<number> {
  const opened = openConfig(options.config, options.env);
  if (opened.kind === 'bad') {
    options.stderr.write(opened.report);
    return BAD_CONFIG;
  }
  const { file, warnings } = opened;
  const { rules, upstreams, store } = opened.config;
  const facts = [counted(rules.length, 'route'), counted(upstreams.size, 'upstream'), `${store.kind} store`];
  if (warnings.length > 0) facts.push(counted(warnings.length, 'warning'));
  options.stdout.write(`${file}: ok (${facts.join(', ')})\n`);
  for (const warning of warnings) options.stdout.write(`${formatWarning(warning)}\n`);
  return DONE;
}

function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}
