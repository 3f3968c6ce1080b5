/** The log: where its lines go, and in which form. */

import { type DestinationStream, type Logger, pino } from 'pino';
import type { LogConfig } from '../config/config.js';

/** Makes the log of a process. */
export function createLog({ level, format }: Pick<LogConfig, 'level' | 'format'>): Logger {
  return pino({ level, timestamp: pino.stdTimeFunctions.isoTime }, new LogOutput(format));
}

/** The output of a log that `createLog` has made; null: it is another's. */
export function outputOf(log: Logger): LogOutput | null {
  const stream = (log as unknown as Readonly<Record<symbol, unknown>>)[pino.symbols.streamSym];
  return stream instanceof LogOutput ? stream : null;
}

export class LogOutput implements DestinationStream {
  format: LogConfig['format'];
  /** Not a system call a line: what comes while one is under way goes with the next, and the rest at the exit. */
  readonly #standard = pino.destination({ dest: 1, sync: false });

  constructor(format: LogConfig['format']) {
    this.format = format;
  }

  /** Takes a line as pino makes it. */
  write(line: string): void {
    this.#standard.write(this.format === 'json' ? line : textOf(line));
  }

  /** Writes a line as it is. */
  writeLine(line: string): void {
    this.#standard.write(`${line}\n`);
  }

  flushSync(): void {
    this.#standard.flushSync();
  }
}

/** What is the same in all lines of a process. */
const LEFT_OUT: ReadonlySet<string> = new Set(['level', 'time', 'pid', 'hostname', 'msg']);

/** `2026-11-30T15:50:01.123Z info  listening listener=http url=http://…`; a stack goes below. */
function textOf(line: string): string {
  const entry = JSON.parse(line) as Readonly<Record<string, unknown>> & { readonly level: number };
  const { time, level, msg = '', err } = entry;
  const stack = (err as { readonly stack?: unknown } | undefined)?.stack;
  const more = Object.entries(entry).filter(
    ([name]) => !LEFT_OUT.has(name) && !(name === 'err' && stack !== undefined),
  );
  const written = more.map(([name, value]) => ` ${name}=${valueText(value)}`).join('');
  const label = (pino.levels.labels[level] ?? String(level)).padEnd(5);
  return `${time} ${label} ${msg}${written}\n${stack === undefined ? '' : `${stack}\n`}`;
}

function valueText(value: unknown): string {
  if (typeof value === 'string' && /^[^\s"=\p{Cc}]+$/u.test(value)) return value;
  // JSON leaves DEL and those behind it as they are; terminals do not.
  return JSON.stringify(value).replace(/\p{Cc}/gu, (odd) => `\\u00${odd.charCodeAt(0).toString(16)}`);
}
