/**
 * The admin listener: liveness, readiness, metrics, and the keys that are taken. On its own port, for operators only.
 *
 * Invariants: it shows no key, no field value and no content of anybody's request; off loopback it answers nobody
 * without the token.
 */

import { createHash, timingSafeEqual } from 'node:crypto';
import type { AddressInfo } from 'node:net';
import Fastify, { type FastifyInstance, type FastifyRequest } from 'fastify';
import type { AdminConfig } from '../config/config.js';
import type { ConfigState, ReloadResult } from '../config/reloading.js';
import { problemMessage } from '../http/problem.js';
import { addFlights, type FlightsApi } from './admin-flights.js';
import { addReload } from './admin-reload.js';
import { listenerUrl } from './front.js';

export type Readiness = {
  readonly ready: boolean;
  /** What was looked at, and `ok` or what is wrong with it. */
  readonly checks: Readonly<Record<string, string>>;
  /** How the files of the configuration stand to what is in use; null: it came from none. A bad file is no reason not to be ready. */
  readonly config: ConfigState | null;
};

export type AdminOptions = {
  readonly config: AdminConfig & { readonly kind: 'on' };
  readonly readiness: () => Promise<Readiness>;
  readonly flights: FlightsApi;
  readonly reload: () => Promise<ReloadResult>;
  readonly metrics: { readonly contentType: string; readonly expose: () => Promise<string> };
};

export class Admin {
  readonly #fastify: FastifyInstance;
  readonly #options: AdminOptions;

  constructor(options: AdminOptions) {
    this.#options = options;
    const { token } = options.config;
    const fastify = Fastify({ logger: false, forceCloseConnections: true });
    this.#fastify = fastify;
    if (token !== null) {
      fastify.addHook('onRequest', async (request, reply) => {
        if (carriesToken(request, token)) return;
        await reply.code(401).header('www-authenticate', 'Bearer realm="oneflight"').send({ error: 'token required' });
      });
    }
    fastify.get('/livez', async () => ({ live: true }));
    fastify.get('/readyz', async (_request, reply) => {
      const readiness = await options.readiness();
      return reply.code(readiness.ready ? 200 : 503).send(readiness);
    });
    fastify.get('/metrics', async (_request, reply) => {
      return reply.header('content-type', options.metrics.contentType).send(await options.metrics.expose());
    });
    addFlights(fastify, options.flights);
    addReload(fastify, options.reload);
    fastify.setNotFoundHandler((_request, reply) => {
      const { status, content } = problemMessage('no-route');
      return reply.code(status).header('content-type', 'application/problem+json').send(content);
    });
  }

  /** Binds, and answers the URL it is bound to. Rejects when it cannot. */
  async listen(): Promise<string> {
    const { host, port } = this.#options.config;
    await this.#fastify.listen({ host, port });
    return listenerUrl(this.#fastify.server.address() as AddressInfo);
  }

  async close(): Promise<void> {
    await this.#fastify.close();
  }
}

/** Compares digests, so that neither the token's length nor a common beginning can be measured. */
function carriesToken(request: FastifyRequest, token: string): boolean {
  const [scheme, given] = (request.headers.authorization ?? '').split(' ', 2);
  if (scheme?.toLowerCase() !== 'bearer' || given === undefined) return false;
  const digest = (text: string): Buffer => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(given), digest(token));
}
