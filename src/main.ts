#!/usr/bin/env node
/**
 * The process: arguments in, exit code out. What a command does stands in its file in `cli/`, loaded when it is asked for:
 * a health check every few seconds must not load a gateway.
 */

import './cli/young-objects.js';
import { readFileSync } from 'node:fs';
import { Command, CommanderError, InvalidArgumentError, Option } from 'commander';
import { DONE, FAILED, USAGE } from './cli/exit-code.js';
import type { ExplainOptions } from './cli/explain.js';
import { listenForSignals } from './cli/signals.js';
import type { DataArgument } from './cli/told-arguments.js';

const { env } = process;
const write = (text: string): void => void process.stdout.write(text);
const writeError = (text: string): void => void process.stderr.write(text);
const version = versionOf(new URL('../../package.json', import.meta.url));
/** What commander leaves out of the options object when it was not given. */
const absent = { config: undefined, url: undefined, vary: undefined };
const CONFIG = [
  '-c, --config <file>',
  'configuration; else ONEFLIGHT_CONFIG, ./config/gateway.yaml, /etc/oneflight/gateway.yaml',
] as const;

// Not left to the event loop: after a drain nothing that is still open may keep the process alive.
process.exit(await run(process.argv));

async function run(argv: readonly string[]): Promise<number> {
  let code = 0;
  const program = new Command('oneflight')
    .description('HTTP gateway: for one identity, one upstream call is in flight')
    .version(version)
    .showSuggestionAfterError()
    .exitOverride();
  const action =
    <Given extends unknown[]>(command: (...given: Given) => Promise<number>) =>
    async (...given: Given): Promise<void> => {
      code = await command(...given).catch((error: unknown) => {
        writeError(`oneflight: ${error instanceof Error ? error.message : String(error)}\n`);
        return FAILED;
      });
    };

  program
    .command('start', { isDefault: true })
    .description('run the gateway (the default command)')
    .option(...CONFIG)
    .action(
      action(async ({ config }: ConfigOption) => {
        const signals = listenForSignals();
        const { start } = await import('./cli/start.js');
        return start({ config, version, env, writeError, signals });
      }),
    );
  program
    .command('validate')
    .description('check a configuration: every error with file, line and column')
    .option('--connect', 'look at the store too: what it can promise; exit code 1 when it cannot be used', false)
    .option('--print', 'print the configuration in effect: every default, and where each value came from', false)
    .addOption(new Option('--format <format>', 'what is printed').choices(['text', 'json']).default('text'))
    .option(CONFIG[0], `${CONFIG[1]}; - is standard input`)
    .action(
      action(async (options: ValidateFlags) => {
        const { validate } = await import('./cli/validate.js');
        const { stdout, stderr } = process;
        return validate({ config: undefined, ...options, env, stdin: () => process.stdin, stdout, stderr });
      }),
    );
  program
    .command('init')
    .description('write a configuration to begin with, and its schema for editors')
    .argument('[file]', 'where; - is standard output', './config/gateway.yaml')
    .option('--stdout', 'write it to standard output', false)
    .action(
      action(async (file: string, { stdout }: { stdout: boolean }) => {
        const { init } = await import('./cli/init.js');
        return init({ file: stdout ? '-' : file, write, writeError });
      }),
    );
  program
    .command('schema')
    .description('print the JSON Schema of the configuration, for editors')
    .action(
      action(async () => {
        const { editorSchemaText } = await import('./config/editor-schema.js');
        write(editorSchemaText());
        return DONE;
      }),
    );
  program
    .command('demo')
    .description('slow API, gateway and a burst of requests: the proof in a table')
    .option('--once', 'end after the proof; exit code 0 when it held', false)
    .option('--port <port>', 'port of the gateway (with --api: of the API)', portOf, 0)
    .option('--api', 'run the slow API alone, as an upstream to try a configuration with', false)
    .option('--host <host>', 'address of the API when it runs alone', '127.0.0.1')
    .action(
      action(async (options: DemoFlags) => {
        const { demo, serveDemoApi } = await import('./cli/demo.js');
        return options.api ? serveDemoApi({ ...options, write }) : demo({ ...options, version, write });
      }),
    );
  program
    .command('smoke')
    .description('check the key of a rule against the running gateway')
    .requiredOption('--route <name>', 'name of the rule')
    .requiredOption('--request <file>', 'request in .http form')
    .option('--url <url>', 'the gateway; else as configured')
    .option('--vary <part>', 'part to change for different keys, e.g. "body: /refreshToken"; else the first key part')
    .option('--fresh <part>', 'part that clients make anew for each attempt (repeatable)', collect, [])
    .option(...CONFIG)
    .action(
      action(async (options: SmokeFlags) => {
        const { smoke } = await import('./cli/smoke.js');
        return smoke({ ...absent, ...options, env, write, writeError });
      }),
    );
  const data: DataArgument[] = [];
  const piece = (kind: DataArgument['kind']) => (text: string) => void data.push({ kind, text });
  program
    .command('explain')
    .argument('[words...]', 'METHOD and TARGET')
    .usage("[METHOD] TARGET [-H 'name: value'] [-d data] | --request FILE | --log FILE")
    .description('why a request gets what it gets: rule, key, and what becomes of it; nothing is sent')
    .option('-X <method>', 'the method; else GET, with data POST')
    .option('-H, --header <line>', "field, as 'name: value' (repeatable)", collect, [])
    .option('-d, --data <data>', 'content, or @file without its line breaks, or @- (repeatable)', piece('data'))
    .option('--data-raw <data>', 'content as it stands', piece('raw'))
    .option('--data-binary <data>', 'content, or @file as it is', piece('binary'))
    .option('--json <data>', 'content of type application/json, or @file', piece('json'))
    .option('--host <host>', 'the Host field; else that of the URL, or of the gateway')
    .option('--request <file>', 'request in .http form, or - for standard input')
    .option('--log <file>', 'replay a log of requests, one JSON object a line, or - for standard input')
    .option('--show-values', 'values of key parts and of the query, in place of their kind and length', false)
    .option('--live', 'ask the store what has the key now', false)
    .option('--url <url>', 'the admin listener that --live asks where the store is in memory; else as configured')
    .addOption(new Option('--format <format>').choices(['text', 'json']).default('text'))
    .option(...CONFIG)
    .action(
      action(async (words: string[], { X: method, header: headers, ...flags }: ExplainFlags) => {
        const { explain } = await import('./cli/explain.js');
        const absent = { config: undefined, url: undefined, host: undefined, request: undefined, log: undefined };
        return explain({ ...absent, ...flags, words, method, headers, data, env, write, writeError });
      }),
    );
  program
    .command('health')
    .description('ask the admin listener: exit code 0 when the gateway is ready')
    .option('--url <url>', 'the admin listener; else as configured')
    .option(...CONFIG)
    .action(
      action(async (options: ConfigOption & { url?: string }) => {
        const { health } = await import('./cli/health.js');
        return health({ ...absent, ...options, env, write, writeError });
      }),
    );

  // Commander would take an unknown command for an argument of the default one.
  const [first] = argv.slice(2);
  const names = ['help', ...program.commands.map((command) => command.name())];
  if (first !== undefined && !first.startsWith('-') && !names.includes(first)) {
    writeError(`error: unknown command '${first}': expected one of ${names.join(', ')}\n`);
    return USAGE;
  }
  try {
    await program.parseAsync(argv);
    return code;
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    return error.exitCode === 0 ? 0 : USAGE;
  }
}

type ConfigOption = { config?: string };
type ValidateFlags = ConfigOption & { connect: boolean; print: boolean; format: 'text' | 'json' };
type DemoFlags = { once: boolean; port: number; api: boolean; host: string };
type ExplainFlags = Partial<Pick<ExplainOptions, 'config' | 'url' | 'host' | 'request' | 'log'>> &
  Pick<ExplainOptions, 'showValues' | 'live' | 'format'> & { X?: string; header: string[] };
type SmokeFlags = ConfigOption & { route: string; request: string; fresh: string[]; url?: string; vary?: string };

function portOf(text: string): number {
  const port = Number(text);
  if (!/^\d+$/.test(text) || port > 65_535) throw new InvalidArgumentError('expected a port from 0 to 65535.');
  return port;
}

function collect(text: string, before: readonly string[]): string[] {
  return [...before, text];
}

function versionOf(file: URL): string {
  const manifest: unknown = JSON.parse(readFileSync(file, 'utf8'));
  const { version: text } = manifest as { version: string };
  return text;
}
