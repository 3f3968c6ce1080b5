/** `oneflight validate`: what is wrong or doubtful in a configuration, without starting anything; with `--connect`, in its store too. */

import type { Config } from '../config/config.js';
import { formatError, formatWarning } from '../config/fault.js';
import { findAndLoadConfig, type LoadResult, loadConfig } from '../config/load.js';
import { BAD_CONFIG, DONE } from './exit-code.js';
import { connectionOf, exitCodeOf } from './store-connection.js';

export type ValidateOptions = {
  /** The file that `-c` named; `-` is standard input. */
  readonly config: string | undefined;
  /** Whether to connect to the store, and look at it. */
  readonly connect: boolean;
  /** Whether to print the configuration in effect. */
  readonly print: boolean;
  readonly format: 'text' | 'json';
  readonly env: NodeJS.ProcessEnv;
  /** Opened only when it is read. */
  readonly stdin: () => AsyncIterable<Buffer | string>;
  readonly stdout: { write(text: string): unknown };
  readonly stderr: { write(text: string): unknown };
};

type Loaded = Extract<LoadResult, { kind: 'loaded' }>;

/** What errors call a configuration that came on standard input. */
const STDIN = '<stdin>';

/** Says whether the file is fine, and why not. Answers the exit code. */
export async function validate(options: ValidateOptions): Promise<number> {
  const result = options.config === '-' ? await loadStdin(options) : findAndLoadConfig(options.config, options.env);
  if (options.format === 'json') {
    const { validateJson } = await import('./validate-json.js');
    return validateJson(result, options);
  }
  if (result.kind === 'invalid') {
    options.stderr.write(result.errors.map((error) => `${formatError(error)}\n`).join(''));
    return BAD_CONFIG;
  }
  await report(result, options);
  return options.connect ? tellConnection(result.config.store, options) : DONE;
}

async function loadStdin({ stdin, env }: ValidateOptions): Promise<LoadResult> {
  const pieces: Buffer[] = [];
  for await (const piece of stdin()) pieces.push(Buffer.from(piece));
  return loadConfig(STDIN, env, Buffer.concat(pieces));
}

/** Lines that say that all is fine. What is printed stands alone on stdout, so that it can be a file. */
async function report(result: Loaded, { print, stdout, stderr }: ValidateOptions): Promise<void> {
  const { file, warnings, included, config } = result;
  const facts = [
    counted(config.rules.length, 'route'),
    counted(config.upstreams.size, 'upstream'),
    `${config.store.kind} store`,
  ];
  const observing = config.rules.filter(({ policy }) => policy.kind !== 'pass' && policy.mode === 'observes').length;
  if (observing > 0) facts.splice(1, 0, `${observing} of them only observing`);
  if (included.length > 0) facts.push(counted(included.length, 'included file'));
  if (warnings.length > 0) facts.push(counted(warnings.length, 'warning'));
  const beside = print ? stderr : stdout;
  beside.write(`${file}: ok (${facts.join(', ')})\n`);
  for (const warning of warnings) beside.write(`${formatWarning(warning)}\n`);
  if (!print) return;
  const [{ effectiveOf }, { configYaml }] = await Promise.all([
    import('../config/effective.js'),
    import('./config-yaml.js'),
  ]);
  stdout.write(configYaml(effectiveOf(result.written)));
}

/** Prints what a gateway would log of the store at its start. */
async function tellConnection(config: Config['store'], { print, stdout, stderr }: ValidateOptions): Promise<number> {
  const connection = await connectionOf(config);
  const beside = print ? stderr : stdout;
  if (connection.kind === 'in-process') beside.write('store: in this process, nothing to connect to\n');
  if (connection.kind === 'unreachable') for (const reason of connection.reasons) stderr.write(`store: ${reason}\n`);
  if (connection.kind === 'good' || connection.kind === 'bad') {
    const { server, shape, guaranteed, unseen, warnings } = connection;
    const partly = unseen === null ? '' : ` (could not look at: ${unseen})`;
    beside.write(`store: ${server}, ${shape}: ${guaranteed}${partly}\n`);
    for (const { message, ...more } of warnings) {
      const named = Object.entries(more).map(([name, value]) => `${name}: ${value}`);
      beside.write(`store: warning: ${message}${named.length === 0 ? '' : ` (${named.join(', ')})`}\n`);
    }
  }
  if (connection.kind === 'bad') stderr.write(`store: ${connection.error}\n`);
  return exitCodeOf(connection);
}

function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}
