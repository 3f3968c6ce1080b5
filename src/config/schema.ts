/**
 * Every option of the configuration, once: type, default, limit and a sentence.
 *
 * Invariants: objects are strict; nothing is transformed, so that the schema describes what people write and a JSON
 * Schema or a reference page can be made from it; the message of an issue is a noun phrase, what was expected; the
 * message of unknown fields is the comma-separated list of the known ones. Defaults that depend on something else
 * (`unmatched`, and those of rules and upstreams) stand in their sentence and are applied by resolve.ts. Rules have a file
 * of their own, route-schema.ts, and so have upstreams, upstream-schema.ts, the client's side, listener-schema.ts, the log,
 * log-schema.ts, Redis, redis-schema.ts, and traces, tracing-schema.ts.
 */

import { z } from 'zod';
import { isIncludePattern, isNetworkRange } from './forms.js';
import { limits, listen, listenHost, port, requestId } from './listener-schema.js';
import { log } from './log-schema.js';
import { redisFields } from './redis-schema.js';
import { routes } from './route-schema.js';
import { duration, fields, name, secret, size, text, wholeNumber } from './schema-parts.js';
import { tracing } from './tracing-schema.js';
import { upstream } from './upstream-schema.js';

export const DEFAULT_ADMIN = { host: '127.0.0.1', port: 9090 } as const;

const admin = z
  .union([
    z.literal(false),
    fields({
      host: listenHost.default(DEFAULT_ADMIN.host).describe('Address of the admin listener.'),
      port: port.default(DEFAULT_ADMIN.port).describe('Port of the admin listener; 0 picks a free one.'),
      token: secret('a bearer token')
        .optional()
        .describe(
          'Bearer token that admin requests must carry, but for the yes or no of /livez and /readyz; required for any host but loopback.',
        ),
    }),
  ])
  .describe('The admin listener with health, metrics and flights; false switches it off.');

const WORKERS = 'a number of processes from 1 to 256, or auto';

const workers = z.union([wholeNumber('a number', 1, 256, WORKERS), z.literal('auto')], { error: WORKERS });

const SECRETS = 'one to four secrets';

const storeFields = {
  maxMemory: size('1MiB', '64GiB')
    .default('256MiB')
    .describe('Bound of all responses that the gateway, all its workers together, keeps in its memory.'),
  secret: z
    .union([secret('a secret'), z.array(secret('a secret')).min(1, { error: SECRETS }).max(4, { error: SECRETS })])
    .optional()
    .describe(
      'Hides key values (HMAC) and seals what Redis keeps; a list for its rotation: the first is used, what the others made is still found. Without it digests are plain SHA-256 and contents readable in Redis.',
    ),
};

/** The fields of each kind of store. */
export const STORE_KINDS = {
  memory: fields({
    kind: z
      .literal('memory')
      .optional()
      .meta({ default: 'memory' })
      .describe('Keys are claimed in the memory of this gateway.'),
    ...storeFields,
  }),
  redis: fields({
    kind: z.literal('redis').describe('Keys are claimed in a Redis that all gateway processes share.'),
    ...redisFields,
    ...storeFields,
  }),
};

/** Of the field that tells them apart. */
export const STORE_KIND_MEANING = 'Where keys are claimed.';

const store = z
  .discriminatedUnion('kind', [STORE_KINDS.memory, STORE_KINDS.redis])
  .describe('Who remembers which keys are taken.');

const DEFAULT_DRAIN = '30s';
export const DEFAULT_DRAIN_DELAY = '0s';
const drainTime = duration('0s', '1h');

export const configSchema = fields({
  listen: listen.prefault({}),
  admin: admin.prefault({}),
  workers: workers
    .default(1)
    .describe(
      'How many processes serve the port together; auto: as many as the machine has cores. What a limit says is their sum, and they share one store in memory.',
    ),
  store: store.prefault({}),
  upstreams: z
    .record(name, upstream)
    .refine((upstreams) => Object.keys(upstreams).length > 0, { error: 'at least one upstream' })
    .describe('The APIs behind the gateway, by name.'),
  routes,
  unmatched: z
    .union([name, z.literal(false)])
    .optional()
    .describe(
      'Upstream of every request that no route matches; false answers 404. When left out, the only upstream, or 404 when there are several.',
    ),
  limits: limits.prefault({}),
  trustedProxies: z
    .array(text('an address or a range such as 10.0.0.0/8', isNetworkRange))
    .default([])
    .describe('Peers whose X-Forwarded fields are believed.'),
  requestId: requestId.prefault({}),
  log: log.prefault({}),
  tracing,
  drain: z
    .union([
      drainTime,
      fields({
        delay: duration('0s', '1h')
          .default(DEFAULT_DRAIN_DELAY)
          .describe('How long requests are still accepted after the signal to stop, while /readyz is 503 already.'),
        timeout: drainTime
          .default(DEFAULT_DRAIN)
          .describe('How long flights may go on after that before they are cut.'),
      }),
    ])
    .default(DEFAULT_DRAIN)
    .describe('How long flights may go on after the signal to stop before they are cut; or delay and timeout.'),
  include: z
    .array(text('a path, or a pattern with * and ?', isIncludePattern))
    .default([])
    .describe(
      'Files whose routes and upstreams belong to this one, relative to it; of a pattern in the order of their names. Their routes come after those of this file.',
    ),
});

/** A configuration as written. */
export type ConfigInput = z.input<typeof configSchema>;
/** A valid configuration with its fixed defaults. */
export type ConfigOutput = z.output<typeof configSchema>;
