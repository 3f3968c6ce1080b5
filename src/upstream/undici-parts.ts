/**
 * What of undici is in use. Its entrance loads all of it, fetch, WebSocket and caches included, which is a fifth of the time
 * until the gateway answers; its files load what they need. The lockfile pins the version that has them there.
 */

import { createRequire } from 'node:module';
import type { buildConnector, Client } from 'undici';

const load = createRequire(import.meta.url);

export const UndiciClient: typeof Client = load('undici/lib/dispatcher/client.js');
export const connectorOf: typeof buildConnector = load('undici/lib/core/connect.js');
