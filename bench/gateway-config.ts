/** The configuration with which Oneflight is measured: everything switched on that a request passes through. */

import { fileURLToPath } from 'node:url';

/** The built program. */
export const PROGRAM = fileURLToPath(new URL('../bin/main.js', import.meta.url));

export type GatewayParts = {
  readonly upstream: string;
  readonly port: number;
  readonly store: string;
  readonly log: 'info' | 'warn';
};

/**
 * Rules of every policy stand before the one that is measured, so that requests are matched against them; admin listener
 * and metrics are on, and so are the upstream's breaker, ejection, health checks, bounds and edits of fields.
 */
export function gatewayYaml({ upstream, port, store, log }: GatewayParts): string {
  return `
listen: { host: 127.0.0.1, port: ${port} }
admin: { host: 127.0.0.1, port: 0 }
store: ${store}
trustedProxies: [10.0.0.0/8]
log: { level: ${log} }
upstreams:
  api:
    url: ${upstream}
    retries: 1
    eject: { failures: 3, for: 10s }
    breaker: { failures: 10, for: 5s }
    connections: { max: 20000 }
    health: { path: /healthy, every: 5s }
    headers: { response: { set: { X-Served-By: oneflight } } }
routes:
  - name: session-refresh
    match: { methods: [POST], path: /auth/sessions/refresh }
    policy: coalesce
    key: [ { body: /refreshToken } ]
  - name: step-proceed
    match: { methods: [POST], path: "/sessions/:session/steps/:step/proceed" }
    policy: reject
    key: [ { param: session }, { param: step } ]
  - name: orders
    match: { methods: [POST], path: /orders }
    policy: replay
  - name: stock
    match: { methods: [POST, PATCH], path: "/stock/:sku" }
    policy: queue
    key: [ { param: sku } ]
  - name: slow
    match: { path: "/slow/*" }
    policy: coalesce
    key: [ { request: target } ]
    identity: public
    wait: 60s
    maxFollowers: 20000
  - name: distinct
    match: { path: "/distinct/*" }
    policy: coalesce
    key: [ { request: path } ]
    identity: public
  - name: open
    match: { path: "/open/*" }
unmatched: api
`;
}
