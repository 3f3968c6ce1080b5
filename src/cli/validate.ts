/** `oneflight validate`: what is wrong or doubtful in a configuration, without starting anything; with `--connect`, in its store too. */

import type { Config } from '../config/config.js';
import { formatWarning } from '../config/fault.js';
import { BAD_CONFIG, DONE, FAILED } from './exit-code.js';
import { openConfig } from './open-config.js';

export type ValidateOptions = {
  /** The file that `-c` named. */
  readonly config: string | undefined;
  /** Whether to connect to the store, and look at it. */
  readonly connect: boolean;
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
  const { file, warnings, included } = opened;
  const { rules, upstreams, store } = opened.config;
  const facts = [counted(rules.length, 'route'), counted(upstreams.size, 'upstream'), `${store.kind} store`];
  if (included.length > 0) facts.push(counted(included.length, 'included file'));
  if (warnings.length > 0) facts.push(counted(warnings.length, 'warning'));
  options.stdout.write(`${file}: ok (${facts.join(', ')})\n`);
  for (const warning of warnings) options.stdout.write(`${formatWarning(warning)}\n`);
  return options.connect ? lookAtStore(store, options) : DONE;
}

/** Prints what a gateway would log of the store at its start. */
async function lookAtStore(config: Config['store'], { stdout, stderr }: ValidateOptions): Promise<number> {
  // Not needed without --connect, and it is the whole gateway.
  const { checkStore } = await import('../app.js');
  const checked = await checkStore(config);
  if (checked === null) {
    stdout.write('store: in this process, nothing to connect to\n');
    return DONE;
  }
  if (checked.kind === 'unreachable') {
    for (const reason of checked.reasons) stderr.write(`store: ${reason}\n`);
    return FAILED;
  }
  const { fields, warnings, error } = checked.audit;
  const unseen = fields.unseen === undefined ? '' : ` (could not look at: ${fields.unseen})`;
  stdout.write(`store: ${fields.server}, ${fields.shape}: ${fields.guaranteed}${unseen}\n`);
  for (const { message, fields: more } of warnings) {
    const named = Object.entries(more).map(([name, value]) => `${name}: ${value}`);
    stdout.write(`store: warning: ${message}${named.length === 0 ? '' : ` (${named.join(', ')})`}\n`);
  }
  if (error === null) return DONE;
  stderr.write(`store: ${error}\n`);
  return FAILED;
}

function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}
