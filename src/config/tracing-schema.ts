/** Options of the traces of requests. See schema.ts. */

import { z } from 'zod';
import { FIELD_VALUE, isCollectorUrl, isFreeCollectorField } from './forms.js';
import { fields, text } from './schema-parts.js';

export const DEFAULT_SERVICE_NAME = 'oneflight';

const SHARE = 'a share from 0 to 1, or a percentage such as 5%';

const share = z
  .union([z.number({ error: SHARE }).min(0, { error: SHARE }).max(1, { error: SHARE }), text(SHARE, isPercentage)], {
    error: SHARE,
  })
  .default(1);

export const tracing = z
  .union([
    z.literal(false),
    fields({
      endpoint: text('an http or https URL without user, query and fragment', isCollectorUrl).describe(
        'Collector of OTLP over HTTP, such as http://127.0.0.1:4318; /v1/traces is added to it unless it ends so.',
      ),
      sample: share.describe(
        'Share of the requests that begin a trace of their own; those that come with a traceparent are traced if their sender is.',
      ),
      serviceName: text('a name', /^\S(?:.{0,254}\S)?$/)
        .default(DEFAULT_SERVICE_NAME)
        .describe('What the gateway is called in traces (service.name).'),
      headers: z
        .record(
          text('a field name that the exporter does not write itself', isFreeCollectorField),
          text('visible ASCII', FIELD_VALUE),
        )
        .default({})
        .describe('Fields of each request to the collector, such as its credentials.'),
    }),
  ])
  .optional()
  .describe(
    'OpenTelemetry traces of requests. When left out, the variables OTEL_EXPORTER_OTLP_ENDPOINT and its companions say it; false: no traces.',
  );

function isPercentage(written: string): boolean {
  return /^\d{1,3}(?:\.\d+)?%$/.test(written) && Number.parseFloat(written) <= 100;
}

/** `0.05`, or `5%`. */
export function shareOf(written: number | string): number {
  return typeof written === 'number' ? written : Number.parseFloat(written) / 100;
}

export type TracingOutput = z.output<typeof tracing>;
