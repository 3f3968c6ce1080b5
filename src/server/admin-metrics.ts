/** `GET /metrics`: in OpenMetrics for scrapers that prefer it, which Prometheus does, and in Prometheus' text format else. */

import type { FastifyInstance } from 'fastify';
import type { Metric } from './page-figures.js';

export type MetricsApi = {
  /** Of the text format. */
  readonly contentType: string;
  readonly expose: () => Promise<string>;
  readonly exposeOpenMetrics: () => Promise<string>;
  /** The same as numbers, for the live page. */
  readonly figures: () => Promise<readonly Metric[]>;
};

const OPEN_METRICS = 'application/openmetrics-text; version=1.0.0; charset=utf-8';

export function addMetrics(fastify: FastifyInstance, metrics: MetricsApi): void {
  fastify.get('/metrics', async (request, reply) => {
    reply.header('vary', 'Accept');
    return prefersOpenMetrics(request.headers.accept ?? '')
      ? reply.header('content-type', OPEN_METRICS).send(await metrics.exposeOpenMetrics())
      : reply.header('content-type', metrics.contentType).send(await metrics.expose());
  });
}

/** Wildcards do not count: who does not name it gets what everybody reads. */
function prefersOpenMetrics(accept: string): boolean {
  let [open, plain] = [0, 0];
  for (const range of accept.split(',')) {
    const [type = '', ...parameters] = range.split(';').map((part) => part.trim().toLowerCase());
    const version = parameterOf(parameters, 'version');
    const weight = Number(parameterOf(parameters, 'q') ?? 1);
    if (type === 'text/plain') plain = Math.max(plain, weight);
    else if (type === 'application/openmetrics-text' && (version === null || version === '1.0.0')) {
      open = Math.max(open, weight);
    }
  }
  return open > 0 && open >= plain;
}

function parameterOf(parameters: readonly string[], name: string): string | null {
  const found = parameters.find((parameter) => parameter.startsWith(`${name}=`));
  return found === undefined ? null : found.slice(name.length + 1).replace(/^"|"$/g, '');
}
