/** Tracing as the composition root has it; what it is made of is loaded by who traces. */

import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import type { Logger } from 'pino';
import type { TracingConfig } from '../config/config.js';
import type { RequestTrace, TracedRequest } from '../exchange/trace.js';
import type { Metrics } from '../observe/metrics.js';

export type OpenTracing = {
  /** Null: the request is not traced. */
  begin(request: TracedRequest): RequestTrace | null;
  /** Sends what is left, within a bounded time. */
  close(): Promise<void>;
};

export type TracingOptions = { readonly version: string; readonly metrics: Metrics; readonly log: Logger };

/** Null: nobody asked for traces. */
export async function openTracing(config: TracingConfig, options: TracingOptions): Promise<OpenTracing | null> {
  if (config.kind === 'off') return null;
  const { version, metrics, log } = options;
  const { url, fields, sampler, resource } = config;
  const [{ OtlpExporter }, { Tracing }] = await Promise.all([
    import('../observe/otlp-exporter.js'),
    import('../observe/tracing.js'),
  ]);
  const own: readonly (readonly [string, string | number])[] = [
    ['service.version', version],
    // Each worker is one.
    ['service.instance.id', randomUUID()],
    ['host.name', hostname()],
    ['process.pid', process.pid],
  ];
  const exporter = new OtlpExporter({
    url,
    fields,
    version,
    // The later of two counts.
    resource: [...new Map([...own, ...resource])].flat(),
    onCounted: metrics.countSpans(),
    onState: (state, reason) => {
      const collector = url.origin;
      if (state === 'working') log.info({ collector }, 'tracing: the collector takes spans again');
      else log.warn({ collector, reason }, 'tracing: the collector takes no spans; those that cannot wait are dropped');
    },
  });
  const tracing = new Tracing(sampler, exporter);
  return { begin: (request) => tracing.begin(request), close: () => exporter.close() };
}
