/** The client's side of a valid file → what the listener reads. See resolve.ts. */

import type { LimitsConfig, ListenConfig } from './config.js';
import { limits } from './listener-schema.js';
import type { ConfigOutput } from './schema.js';
import { pemSourceOf } from './tls-material.js';
import { durationMs, sizeBytes } from './units.js';

export function listenOf({ tls, ...listen }: ConfigOutput['listen'], directory: string): ListenConfig {
  if (tls === undefined) return { ...listen, tls: null };
  const { cert, key, minVersion } = tls;
  return { ...listen, tls: { cert: pemSourceOf(cert, directory), key: pemSourceOf(key, directory), minVersion } };
}

export function limitsOf(limits: ConfigOutput['limits']): LimitsConfig {
  return {
    maxFieldBytes: sizeBytes(limits.maxFields),
    maxContentBytes: limits.maxContent === undefined ? Number.POSITIVE_INFINITY : sizeBytes(limits.maxContent),
    maxConnections: limits.maxConnections ?? Number.POSITIVE_INFINITY,
    maxConcurrentStreams: limits.maxConcurrentStreams,
    maxRequests: limits.maxRequests,
    eventLoopDelayMs: limits.eventLoopDelay === false ? Number.POSITIVE_INFINITY : durationMs(limits.eventLoopDelay),
    minBytesPerSecond: sizeBytes(limits.minRate),
    fieldsTimeoutMs: durationMs(limits.fieldsTimeout),
    contentTimeoutMs: durationMs(limits.contentTimeout),
    stallTimeoutMs: durationMs(limits.stallTimeout),
    keepAliveTimeoutMs: durationMs(limits.keepAliveTimeout),
  };
}

/** The limits of a file that says nothing of them. */
export const DEFAULT_LIMITS: LimitsConfig = limitsOf(limits.parse({}));
