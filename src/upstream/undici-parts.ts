/**
 * What of undici is in use. Its entrance loads all of it, fetch, WebSocket and caches included, which is a fifth of the time
 * until the gateway answers; its files load what they need. The lockfile pins the version that has them there.
 */

export { default as connectorOf } from 'undici/lib/core/connect.js';
export { default as UndiciClient } from 'undici/lib/dispatcher/client.js';
