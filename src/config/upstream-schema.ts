/**
 * Every option of an upstream, once: type, default, limit and a sentence.
 *
 * Invariants: those of schema.ts. What defaults to something else (`eject`) says so in its sentence.
 */

import { z } from 'zod';
import {
  FIELD_VALUE,
  isAddress,
  isEditableField,
  isListenHost,
  isOriginForm,
  isPrefix,
  isQuestionField,
} from './forms.js';
import { duration, fields, statusList, text, wholeNumber } from './schema-parts.js';

/** Of upstreams with several addresses. */
export const DEFAULT_EJECT = { failures: 3, for: '10s' } as const;

const address = text(
  'an http:// or https:// URL of host and port only, without path, query or credentials, or unix: and the path of a socket',
  isAddress,
);
const pem = text('a PEM file, or PEM text', /./);
const atLeastOne = 'at least one status or class';

const failures = wholeNumber('a number of failures', 1, 1_000_000);

const health = fields({
  path: text('a path such as /healthz', isOriginForm).describe('Path, and query, that is asked for with GET.'),
  every: duration('100ms', '1h').default('5s').describe('Time between two questions to one address.'),
  timeout: duration('10ms', '1m').default('2s').describe('Longest time for an answer.'),
  statuses: statusList(atLeastOne).default(['2xx', '3xx']).describe('The statuses of a healthy address.'),
  healthy: wholeNumber('a number of answers', 1, 100)
    .default(2)
    .describe('How many healthy answers in a row bring an address back.'),
  unhealthy: wholeNumber('a number of answers', 1, 100)
    .default(3)
    .describe('How many other answers, or failures, in a row take it out.'),
  headers: z
    .record(
      text('a field that HTTP and the gateway leave free', (name) => isQuestionField(name) || /^host$/i.test(name)),
      text('a field value', FIELD_VALUE),
    )
    .default({})
    .describe('Fields that the question carries, Host for one.'),
}).describe('Asks every address again and again; who is not healthy gets no requests.');

const eject = z
  .union([
    z.literal(false),
    fields({
      failures: failures.default(DEFAULT_EJECT.failures).describe('Failures in a row.'),
      for: duration('100ms', '1h')
        .default(DEFAULT_EJECT.for)
        .describe('How long the address is left out; doubled each time, up to eight times as long, until it answers.'),
    }),
  ])
  .describe(
    'Leaves an address out that requests fail at; false never does. When left out: { failures: 3, for: 10s } with several addresses, false with one.',
  );

const breaker = fields({
  failures: failures.default(10).describe('Failures in a row, whichever the address.'),
  for: duration('100ms', '1h').default('5s').describe('How long nothing is sent; then one request tries.'),
}).describe('Circuit breaker: answers 503 at once while the upstream fails.');

const connections = fields({
  max: wholeNumber('a number of connections', 1, 1_000_000).describe(
    'Most requests that this gateway has in progress there; a quarter of them is kept for routes with a key.',
  ),
  queue: wholeNumber('a number of requests', 0, 1_000_000)
    .default(1_000)
    .describe('How many more may wait for one of them to end; beyond, 503.'),
  wait: duration('0s', '1h').default('2s').describe('How long each of them may wait; after it, 503.'),
}).describe('Bounds what the upstream has to do at once. When left out: no bound.');

const tls = fields({
  ca: pem.optional().describe('Authorities that may have signed its certificate, instead of the well-known ones.'),
  cert: pem.optional().describe("The gateway's own certificate, with its chain."),
  key: pem.optional().describe('The key of that certificate.'),
  serverName: text('a host name', isListenHost)
    .optional()
    .describe("The name to ask for (SNI) and to find in its certificate; when left out the address's host."),
  verify: z.boolean().default(true).describe('False takes any certificate: for tests only.'),
}).describe('TLS towards https:// addresses.');

const editedName = text(
  'a field that edits may concern (not one of framing, encoding, range or connection, nor Host: see preserveHost)',
  isEditableField,
);
const editedValue = text('a field value', FIELD_VALUE);
const edits = fields({
  set: z.record(editedName, editedValue).default({}).describe('Fields with the one value that they have then.'),
  add: z
    .record(editedName, z.union([editedValue, z.array(editedValue).min(1, { error: 'at least one value' })]))
    .default({})
    .describe('Field lines that are added to those that are there.'),
  remove: z.array(editedName).default([]).describe('Names of fields whose lines are removed.'),
});

export const upstream = fields({
  url: address.optional().describe('Where the API is: scheme, host and port, or unix: and the path of a socket.'),
  urls: z
    .array(address)
    .min(1, { error: 'at least one address' })
    .max(256, { error: 'at most 256 addresses' })
    .optional()
    .describe('Where it is, when there are several servers of it.'),
  balance: z
    .enum(['round-robin', 'least-pending'])
    .default('round-robin')
    .describe('Which address the next request goes to: in turn, or the one with the fewest requests in progress.'),
  http2: z
    .boolean()
    .default(false)
    .describe(
      'Speaks HTTP/2, over TLS or in the clear, to every address, which must know it. Upgrades go over HTTP/1.1.',
    ),
  timeouts: fields({
    connect: duration('10ms', '5m')
      .default('2s')
      .describe('Longest time to a usable connection: name lookup, TCP and TLS.'),
    headers: duration('10ms', '24h')
      .default('60s')
      .describe('Longest silence from the end of the request to the response fields.'),
    body: duration('10ms', '24h')
      .default('30s')
      .describe('Longest silence between two pieces of the response content.'),
  })
    .prefault({})
    .describe('How long the upstream may take.'),
  maxConnectionAge: duration('1s', '24h')
    .default('5m')
    .describe('Older connections get no more requests, so that changes in DNS are followed.'),
  retries: wholeNumber('a number of attempts', 0, 10)
    .default(2)
    .describe(
      'Further attempts: at another address when nothing was written, or, with a safe method, over a new connection when the kept one had been closed.',
    ),
  eject: eject.optional(),
  breaker: breaker.optional(),
  failureStatuses: statusList(null)
    .default([])
    .describe('Statuses, or classes such as 5xx, that count as failures for eject and breaker.'),
  health: health.optional(),
  connections: connections.optional(),
  tls: tls.optional(),
  preserveHost: z.boolean().default(true).describe("Whether the upstream sees the client's Host field or its own."),
  stripPrefix: text('a path such as /api, without a slash at its end', isPrefix)
    .optional()
    .describe('What the paths of requests lose at their beginning on their way to the upstream.'),
  headers: fields({
    request: edits.optional().describe('Edits of the fields of requests, after rules and keys were decided.'),
    response: edits.optional().describe('Edits of the fields of responses, before it is decided who may share them.'),
  })
    .prefault({})
    .describe('Edits of fields: removed and set first, then added.'),
});

/** An upstream with its fixed defaults. */
export type UpstreamOutput = z.output<typeof upstream>;
export type EditsOutput = z.output<typeof edits>;
