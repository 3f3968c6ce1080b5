/** The log of a valid file → what the gateway reads. See resolve.ts. */

import type { AccessLogConfig, LogConfig } from './config.js';
import type { ConfigOutput } from './schema.js';

type Access = ConfigOutput['log']['access'];

export function logOf({ level, format, access }: ConfigOutput['log']): LogConfig {
  return { level, format, access: accessOf(access) };
}

function accessOf(access: Access): AccessLogConfig {
  const { format, sample, target, client } =
    typeof access === 'object' ? access : { format: access, sample: '100%', target: undefined, client: undefined };
  // A line of our own says by default what no client has sent; the other formats have a place that is not to be empty.
  const isOurs = format === 'json';
  return {
    format,
    share: Number.parseFloat(sample) / 100,
    target: target ?? (isOurs ? 'none' : 'pattern'),
    client: client ?? (isOurs ? 'none' : 'full'),
  };
}
