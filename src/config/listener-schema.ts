/** Options of the client's side of the gateway: where requests are accepted, and what a client may take. See schema.ts. */

import { z } from 'zod';
import { isListenHost } from './forms.js';
import { fields, text, wholeNumber } from './schema-parts.js';

export const port = wholeNumber('a port', 0, 65_535);
export const listenHost = text('an address or host name to listen on', isListenHost);

export const DEFAULT_LISTEN = { host: '0.0.0.0', port: 8080 } as const;

const tls = fields({
  cert: text('a PEM file, or PEM text', /./).describe(
    'Certificate of the server and its chain: path of a PEM file, or the PEM text itself.',
  ),
  key: text('a PEM file, or PEM text', /./).describe(
    'Its private key, not encrypted: path of a PEM file, or the PEM text itself.',
  ),
  minVersion: z.enum(['TLSv1.2', 'TLSv1.3']).default('TLSv1.2').describe('Oldest version of TLS that is spoken.'),
});

export const listen = fields({
  host: listenHost.default(DEFAULT_LISTEN.host).describe('Address to accept requests on.'),
  port: port.default(DEFAULT_LISTEN.port).describe('Port to accept requests on; 0 picks a free one.'),
  tls: tls
    .optional()
    .describe(
      'TLS with this certificate. Files that change, or SIGHUP, make new connections use the new pair; a pair that does not fit changes nothing.',
    ),
}).describe('Where requests are accepted.');
