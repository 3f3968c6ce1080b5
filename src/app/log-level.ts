/** The level and the form of the log, as they change while the gateway runs. */

import type { Logger } from 'pino';
import type { LogConfig, LogLevel } from '../config/config.js';
import { outputOf } from '../observe/log-output.js';

/** An operator has said so. It is logged at whatever level. */
export function setLevelByOperator(log: Logger, level: LogLevel): void {
  const before = log.level;
  log.level = level;
  log.child({}, { level: 'warn' }).warn({ from: before, to: level }, 'log level set by an operator');
}

/** What an operator did is written down, whatever the level is. */
export function auditBy(
  log: Logger,
  did: 'settled' | 'purged',
  entry: Readonly<Record<string, string | number>>,
): void {
  log.child({}, { level: 'warn' }).warn(entry, `${did} by an operator`);
}

/** Another configuration is in use. A level that an operator has set stays, unless the file has another one than before. */
export function takeLog(log: Logger, before: LogConfig, next: LogConfig): void {
  if (next.level !== before.level) log.level = next.level;
  const output = outputOf(log);
  if (output !== null) output.format = next.format;
}
