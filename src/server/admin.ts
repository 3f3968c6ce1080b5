/**
 * The admin listener: liveness, readiness, metrics, the keys that are taken, the configuration, and a live page of them. On its own port, for operators only.
 *
 * Invariants: it shows no key, no field value and no content of anybody's request; who may ask is
 * decided in one place, for every route (admin-access.ts); operators are few, so that a crowd has no room here.
 */

import type { AddressInfo } from 'node:net';
import Fastify, { type FastifyInstance } from 'fastify';
import type { AdminConfig } from '../config/config.js';
import type { ConfigState, InUse, ReloadResult } from '../config/reloading.js';
import { problemMessage } from '../http/problem.js';
import { accessOf, guard } from './admin-access.js';
import { addConfig } from './admin-config.js';
import { addEvents } from './admin-events.js';
import { addExplain, type ExplainApi } from './admin-explain.js';
import { addFlights, type FlightsApi } from './admin-flights.js';
import { addLogLevel, type LogLevelApi } from './admin-log-level.js';
import { addMetrics, type MetricsApi } from './admin-metrics.js';
import { addPage } from './admin-page.js';
import { addReload } from './admin-reload.js';
import { listenerUrl } from './front.js';
import { PageFeed } from './page-feed.js';

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
  readonly explain: ExplainApi;
  readonly reload: () => Promise<ReloadResult>;
  readonly logLevel: LogLevelApi;
  /** The configuration in use; null: it came from no file. */
  readonly inUse: (() => InUse) | null;
  readonly metrics: MetricsApi;
};

/** Longest time for a whole request of an operator. */
const REQUEST_TIMEOUT_MS = 30_000;
const LOOK_EVERY_MS = 5_000;
const KEEP_ALIVE_MS = 30_000;
const MOST_CONNECTIONS = 256;

export class Admin {
  readonly #fastify: FastifyInstance;
  readonly #options: AdminOptions;
  readonly #feed: PageFeed;
  #looking: Promise<Readiness> | null = null;

  constructor(options: AdminOptions) {
    this.#options = options;
    const { config } = options;
    const fastify = Fastify({
      logger: false,
      forceCloseConnections: true,
      requestTimeout: REQUEST_TIMEOUT_MS,
      keepAliveTimeout: KEEP_ALIVE_MS,
      http: { headersTimeout: REQUEST_TIMEOUT_MS, connectionsCheckingInterval: LOOK_EVERY_MS },
    });
    fastify.server.maxConnections = MOST_CONNECTIONS;
    this.#fastify = fastify;
    guard(fastify, config);
    fastify.get('/livez', async () => ({ live: true }));
    fastify.get('/readyz', async (request, reply) => {
      const readiness = await this.#look();
      const { ready } = readiness;
      // What is wrong is for operators.
      return reply.code(ready ? 200 : 503).send(accessOf(request, config).kind === 'operator' ? readiness : { ready });
    });
    addMetrics(fastify, options.metrics);
    this.#feed = new PageFeed({
      store: options.flights.store,
      readiness: () => this.#look(),
      metrics: options.metrics.figures,
    });
    addPage(fastify);
    addEvents(fastify, this.#feed);
    addFlights(fastify, options.flights);
    addExplain(fastify, options.explain);
    addReload(fastify, options.reload);
    addLogLevel(fastify, options.logLevel);
    if (options.inUse !== null) addConfig(fastify, options.inUse);
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

  /** One look for all who ask meanwhile: each is a question to the store and a connection to every upstream. */
  #look(): Promise<Readiness> {
    this.#looking ??= this.#options.readiness().finally(() => {
      this.#looking = null;
    });
    return this.#looking;
  }

  async close(): Promise<void> {
    this.#feed.close();
    await this.#fastify.close();
  }
}
