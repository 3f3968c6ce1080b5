/** `GET /config`: the configuration in use, every default and every source with it, and no secret. */

import type { FastifyInstance } from 'fastify';
import { effectiveJson, effectiveOf } from '../config/effective.js';
import type { InUse } from '../config/reloading.js';

/** Adds `GET /config`. `inUse`: what is in use at the moment of the question. */
export function addConfig(fastify: FastifyInstance, inUse: () => InUse): void {
  fastify.get('/config', async () => {
    const { file, included, written } = inUse();
    return { file, included, ...effectiveJson(effectiveOf(written)) };
  });
}
