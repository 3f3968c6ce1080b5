/** Upstreams as configurations have them, with patience that no test comes near. */

import type { UpstreamConfig } from '../../src/config/config.js';
import { upstreamOf } from '../../src/config/resolve-upstream.js';
import { upstream as schema } from '../../src/config/upstream-schema.js';

/** The upstream `api` with the fields that are given, and defaults. */
export function upstreamConfig(fields: Parameters<typeof schema.parse>[0] & object): UpstreamConfig {
  const timeouts = { connect: '2s', headers: '30s', body: '30s' };
  return upstreamOf('api', schema.parse({ timeouts, ...fields }), '.');
}
