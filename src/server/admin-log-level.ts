/** `GET` and `PUT /log-level`: from which level on the gateway logs, all its workers together, until it is restarted or a changed file says otherwise. */

import type { FastifyInstance } from 'fastify';
import { LOG_LEVELS, type LogLevel } from '../config/config.js';

export type LogLevelApi = {
  readonly level: () => LogLevel;
  /** Rejects when part of the gateway could not be told. */
  readonly set: (level: LogLevel) => Promise<void>;
};

/** Adds `GET /log-level` and `PUT /log-level`. */
export function addLogLevel(fastify: FastifyInstance, api: LogLevelApi): void {
  fastify.get('/log-level', async () => ({ level: api.level() }));
  fastify.put<{ Body: unknown }>('/log-level', async ({ body }, reply) => {
    const level = levelIn(body);
    if (level === null) {
      return reply.code(400).send({ error: `the body must be {"level": …}, one of ${LOG_LEVELS.join(', ')}` });
    }
    try {
      await api.set(level);
      return { level };
    } catch (error) {
      return reply.code(503).send({ error: (error as Error).message });
    }
  });
}

function levelIn(body: unknown): LogLevel | null {
  if (typeof body !== 'object' || body === null) return null;
  const { level, ...others } = body as { readonly level?: unknown };
  const known = LOG_LEVELS.find((one) => one === level);
  return known === undefined || Object.keys(others).length > 0 ? null : known;
}
