/** Upstreams as configurations have them, with patience that no test comes near, and gateways in front of them. */

import type { UpstreamConfig } from '../../src/config/config.js';
import { upstreamOf } from '../../src/config/resolve-upstream.js';
import { upstream as schema } from '../../src/config/upstream-schema.js';
import { configOf, type Gateway, type Scope, startGateway } from './gateway.js';

const ROUTES = `
  - name: read
    match: { path: /read/* }
    upstream: api
    policy: coalesce
    key: [ { request: path } ]
    onUnshareable: fail
  - name: pay
    match: { path: /pay/* }
    upstream: api
    policy: reject
    key: [ { request: path } ]`;

/** A gateway with a route of either kind of key in front of `api`, which is YAML as a test writes it. */
export function gatewayBefore(t: Scope, api: string): Promise<Gateway> {
  const config = configOf({ upstream: 'http://127.0.0.1:1', routes: ROUTES });
  return startGateway(t, { config: config.replace(/^ {2}api: .*$/m, `  api: ${api}`) });
}

/** The upstream `api` with the fields that are given, and defaults. */
export function upstreamConfig(fields: Parameters<typeof schema.parse>[0] & object): UpstreamConfig {
  const timeouts = { connect: '2s', headers: '30s', body: '30s' };
  return upstreamOf('api', schema.parse({ timeouts, ...fields }), '.');
}
