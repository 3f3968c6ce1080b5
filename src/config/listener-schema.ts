/** Options of the client's side of the gateway: where requests are accepted, and what a client may take. See schema.ts. */

import { z } from 'zod';
import { isListenHost } from './forms.js';
import { duration, fields, size, text, wholeNumber } from './schema-parts.js';

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
  http2: z.boolean().default(false).describe('Whether HTTP/2 is offered beside HTTP/1.1; needs tls.'),
  proxyProtocol: z
    .boolean()
    .default(false)
    .describe(
      'Whether each connection begins with a PROXY protocol header, version 1 or 2, that says who it is from; only trustedProxies may open one, or anybody where that list is empty.',
    ),
}).describe('Where requests are accepted.');

export const limits = fields({
  maxFields: size('1KiB', '1MiB')
    .default('64KiB')
    .describe('Largest request line and fields of a request together; more is 431.'),
  maxContent: size('0B', '9999GiB')
    .optional()
    .describe('Largest content of a request; more is 413. Without it content may have any size.'),
  maxConnections: wholeNumber('a number', 1, 1_000_000)
    .optional()
    .describe('Most connections at a time; beyond them the longest idle one is closed, or the new one gets 503.'),
  maxConcurrentStreams: wholeNumber('a number', 1, 10_000)
    .default(128)
    .describe(
      'Most requests that one connection may have under way: streams of HTTP/2, or pipelined ones of HTTP/1.1, of which one more gets 503 and ends the connection.',
    ),
  maxRequests: wholeNumber('a number', 1, 10_000_000)
    .default(50_000)
    .describe('Most requests under way in one gateway, those that wait among them; more are refused with 503.'),
  eventLoopDelay: z
    .union([z.literal(false), duration('10ms', '1m')])
    .default('2s')
    .describe(
      'How late the event loop may be, for a second or more, until new requests are refused with 503; false: however late.',
    ),
  fieldsTimeout: duration('100ms', '10m')
    .default('30s')
    .describe('Longest time for the fields of a request, and for a TLS handshake.'),
  contentTimeout: duration('100ms', '1h')
    .default('60s')
    .describe('Longest silence of a client whose content is still coming.'),
  stallTimeout: duration('100ms', '1h')
    .default('60s')
    .describe('Longest time for which a client may take nothing of an answer that waits for it.'),
  minRate: size('0B', '1MiB')
    .default('0B')
    .describe(
      'Least bytes a second, on average over contentTimeout or stallTimeout, of a client that uploads or has an answer to read; 0B: any movement will do.',
    ),
  keepAliveTimeout: duration('1s', '1h').default('65s').describe('How long a connection without a request stays open.'),
}).describe('What a client may take of the gateway, and how slow it may be.');

export const requestId = fields({
  trust: z
    .enum(['always', 'trusted-proxies', 'never'])
    .default('always')
    .describe(
      "Whose X-Request-Id is kept: everybody's, that of trustedProxies, or nobody's. It must be one line of at most 200 visible characters; else the gateway makes one.",
    ),
}).describe('The X-Request-Id that the upstream and the log get.');
