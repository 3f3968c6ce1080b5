/**
 * Every option of a rule, once: type, default, limit and a sentence.
 *
 * Invariants: those of schema.ts; a policy's routes have the fields of that policy and no others. What defaults to something
 * else (`scope`, `key`, `keep`, `unknownFor`, `onUnshareable`) says so in its sentence.
 */

import { z } from 'zod';
import { parsePointer } from '../core/json-pointer.js';
import { isParamName, pathFault } from '../core/path-pattern.js';
import { parseQuestionUrl } from '../core/question-url.js';
import { KEY_SOURCES, REQUEST_PROPERTIES } from '../core/rule.js';
import { isToken } from '../core/token.js';
import { goesUpstream } from '../http/fields.js';
import { FIELD_VALUE, isFreeField, isHostPattern, isMethod, isQuestionField } from './forms.js';
import { duration, fields, name, size, statusList, text, wholeNumber } from './schema-parts.js';
import { DURATION, durationMs, PERCENTAGE, shareOf } from './units.js';

export const DEFAULT_POLL = '500ms';
/** What a response is read by, and where it leads. */
export const DEFAULT_VERIFIED_FIELDS = ['content-type', 'content-encoding', 'location'];
export const DEFAULT_ELECTIONS = 1;
/** Of the routes with `onUnknown: hold`. */
export const DEFAULT_UNKNOWN_FOR = { coalesce: '5m', reject: '5m', replay: '24h', queue: '5m' } as const;
export const DEFAULT_ON_UNKNOWN = { coalesce: 'release', reject: 'release', replay: 'hold', queue: 'release' } as const;
/**
 * Statuses that say "not done, not now" or "not you": of the caller's credentials, of time and of the connection. A repeat
 * of the request may well be answered otherwise.
 */
const DEFAULT_RELEASE = [401, 407, 408, 421, 425, 429, 503];

// What the upstream never sees cannot make two requests different, nor choose a rule.
const fieldName = text('a field name such as x-tenant', isToken).refine(goesUpstream, {
  error: 'a field that goes upstream (connection-specific ones, expect and trailer never do)',
});

function keyPart(optionalByDefault: boolean) {
  return fields({
    header: fieldName.optional().describe('Name of a request field.'),
    query: text('the name of a query parameter', /./s).optional().describe('Name of a query parameter.'),
    param: text('the name of a :param in match.path', isParamName)
      .optional()
      .describe('Name of a :param in match.path.'),
    cookie: text('the name of a cookie', isToken).optional().describe('Name of a cookie.'),
    body: text('a JSON pointer such as /refreshToken (RFC 6901)', (pointer) => parsePointer(pointer) !== null)
      .optional()
      .describe('JSON pointer into the request content (RFC 6901).'),
    form: text('the name of a form field', /./s)
      .optional()
      .describe('Name of a field of a form in the request content.'),
    request: z
      .enum(REQUEST_PROPERTIES)
      .optional()
      .describe('A property of the request itself: its host, path, target (path and query) or content.'),
    optional: z
      .boolean()
      .default(optionalByDefault)
      .describe('True: absence is a value of its own. False: without it the key is missing.'),
  }).refine((part) => KEY_SOURCES.filter((source) => part[source] !== undefined).length === 1, {
    error: `exactly one of ${KEY_SOURCES.join(', ')}`,
  });
}

const match = fields({
  methods: z
    .array(text('a method such as GET or POST (upper case: methods are case-sensitive)', isMethod))
    .min(1, { error: 'at least one method (leave the field out for all)' })
    .optional()
    .describe('Methods to match; all when left out.'),
  path: z
    .string({ error: 'a path such as /orders/:id' })
    .check((context) => {
      const fault = pathFault(context.value);
      if (fault !== null) context.issues.push({ code: 'custom', message: fault, input: context.value });
    })
    .describe('Path to match: literal segments, :param segments and an optional trailing *.'),
  host: text('a host name without port, or *.example.com', isHostPattern)
    .optional()
    .describe('Host to match, exactly or as *.example.com; any when left out.'),
  headers: z
    .record(fieldName, text('a text, exactly or as *.suffix', FIELD_VALUE))
    .optional()
    .describe('Request fields to match, exactly or as *.suffix; any when left out.'),
}).describe('Which requests the route takes; the first route that matches wins.');

const routeFields = {
  name: name.describe('Unique label of the route in metrics, logs and keys.'),
  match,
  upstream: name.optional().describe('Name of the upstream; may be left out when there is only one.'),
  maxRequests: wholeNumber('a number of requests', 1, 1_000_000)
    .optional()
    .describe(
      'Most requests of the route that the upstream has at a time, of one gateway; more are refused with 503. Followers, and who is answered with what is kept, do not count.',
    ),
};

const forwardedField = text(
  'the name of a field that is free, such as x-fence (not Host, Content-Length, connection-specific and the like)',
  isFreeField,
);

const forward = fields({
  fence: forwardedField.optional().describe('Field for the fence, a number that only grows per key.'),
  idempotencyKey: forwardedField
    .optional()
    .describe("Field for a key derived from the flight's key, the same for every attempt."),
})
  .prefault({})
  .describe('Fields that tell the upstream about the flight; none when left out.');

const doneValue = z.union([z.string(), z.number(), z.boolean(), z.null()], {
  error: 'a text, a number, true, false or null',
});

const reconcile = fields({
  url: z
    .string({ error: 'a path such as /operations/{key} or an http(s) URL' })
    .check((context) => {
      const parsed = parseQuestionUrl(context.value);
      if (parsed.kind === 'fault') {
        context.issues.push({ code: 'custom', message: parsed.expected, input: context.value });
      }
    })
    .describe(
      "Path on the route's upstream, or http(s) URL, that is asked by GET; {key} is the value of the key, {idempotencyKey} the derived key of forward.",
    ),
  every: duration('500ms', '1h').default('5s').describe('Interval of the questions.'),
  headers: z
    .record(
      text('a field name that a question may carry (not Host, Accept-Encoding, Range and the like)', isQuestionField),
      text('a text of visible ASCII', FIELD_VALUE),
    )
    .default({})
    .describe('Fields of the question, such as credentials.'),
  done: z
    .record(
      text('a JSON pointer such as /status (RFC 6901)', (pointer) => parsePointer(pointer) !== null),
      z.union([doneValue, z.array(doneValue).min(1, { error: 'at least one value' })]),
    )
    .refine((done) => Object.keys(done).length > 0, { error: 'at least one JSON pointer' })
    .optional()
    .describe('JSON pointers into the content of a 200 and the values that say it is done; every 200 when left out.'),
}).describe('How the API is asked what became of an operation whose outcome nobody knows, with onUnknown: hold.');

const keyedFields = {
  observe: z
    .boolean()
    .default(false)
    .describe(
      'Whether the route only observes: every request is forwarded, and what would have become of it is counted and logged.',
    ),
  scope: name
    .optional()
    .describe("Namespace of the key, the route's name when left out: routes of one policy with one scope share keys."),
  key: z
    .array(keyPart(false))
    .min(1, { error: 'at least one key part' })
    .describe('The parts that make two requests the same.'),
  onMissingKey: z
    .enum(['pass', 'reject'])
    .default('pass')
    .describe('What happens to a request without a key: forwarded unprotected, or refused with 400.'),
  lease: duration('100ms', '1h')
    .default('30s')
    .describe("The leader's time-bound right to the key, renewed while the upstream works."),
  maxKeyBody: size('1B', '64MiB')
    .default('1MiB')
    .describe('Largest request content that is read for a key or a fingerprint; more is refused with 413.'),
  unknownFor: duration('1s', '168h')
    .optional()
    .describe(
      'How long an outcome that nobody knows holds the key, with onUnknown: hold; when left out 24h for replay, else 5m.',
    ),
  forward,
};
/** Of the policies whose held outcomes `Store.settleUnknown` reaches. */
const reconcilable = { reconcile: reconcile.optional() };

function onUnknown(byDefault: 'hold' | 'release') {
  return z
    .enum(['hold', 'release'])
    .default(byDefault)
    .describe(
      'After an outcome that nobody knows: no second execution until it is settled or unknownFor passes, or the next request may run.',
    );
}

const identity = z.union([
  z.literal('public'),
  z.array(keyPart(true)).min(1, { error: 'at least one part, or public' }),
]);
const callerFields = [
  { header: 'authorization', optional: true },
  { header: 'cookie', optional: true },
];
const onStoreDown = z.enum(['local', 'pass', 'reject']);
const maxShared = size('1B', '1GiB').default('8MiB').describe('Largest response that is kept for others.');

const percentage = text(
  'a percentage above 0% and up to 100%, such as 1%',
  (share) => PERCENTAGE.test(share) && shareOf(share) > 0,
);

const verify = z.union([
  percentage,
  fields({
    share: percentage.describe('Of how many of them.'),
    fields: z
      .array(fieldName)
      .default(DEFAULT_VERIFIED_FIELDS)
      .describe('Fields of the responses that are compared, beside status and content.'),
    unsafeMethods: z
      .enum(['refuse', 'execute-twice'])
      .default('refuse')
      .describe(
        'Whether unsafe methods may be verified too: what such a request does is then done a second time. Without it the methods of the route must be safe.',
      ),
  }),
]);

const waitMax = duration('1ms', '1h');

function wait(who: string, afterIt: string) {
  return z.union([
    waitMax,
    fields({
      max: waitMax.default('10s').describe(`Longest time ${who} waits; after it, ${afterIt}.`),
      poll: duration('10ms', '1m').default(DEFAULT_POLL).describe('Interval of the safety re-read of the store.'),
    }),
  ]);
}

/** The fields of each policy's routes. A field that a policy does not have is an error there. */
export const ROUTE_POLICIES = {
  pass: fields({
    ...routeFields,
    policy: z.literal('pass').optional().meta({ default: 'pass' }).describe('Forwards every request.'),
  }),
  coalesce: fields({
    ...routeFields,
    policy: z.literal('coalesce').describe("Duplicates wait for the leader's response and get it too."),
    ...keyedFields,
    ...reconcilable,
    identity: identity
      .default(callerFields)
      .describe('The parts that separate callers; public shares responses across callers.'),
    wait: wait('a follower', '504').default('10s').describe('Longest time a follower waits, or { max, poll }.'),
    keep: duration('0s', '168h')
      .optional()
      .describe('How long a response answers later duplicates; when left out 5s for unsafe methods, 0s for safe ones.'),
    keepStatuses: statusList('at least one status or class (keep: 0 keeps nothing)')
      .default(['2xx', '3xx'])
      .describe(
        'Statuses, or classes such as 4xx, whose responses are kept; others are for those who joined the flight.',
      ),
    maxShared,
    maxFollowers: wholeNumber('a number of followers', 1, 1_000_000)
      .default(10_000)
      .describe('How many wait for, or read, the response of one flight in a gateway; more are refused with 503.'),
    stream: z
      .boolean()
      .default(false)
      .describe('Whether followers on other gateways get the response as it comes; event streams are shared only so.'),
    stallTimeout: duration('100ms', '10m')
      .default('10s')
      .describe(
        'How long, in all, a follower may hold up the others of a response longer than maxShared; then it is cut.',
      ),
    onLeaderFailure: z
      .enum(['fail', 'elect'])
      .default('fail')
      .describe('When the leader fails: all followers fail with it, or exactly one of them takes over.'),
    elections: wholeNumber('a number of elections', 1, 10)
      .optional()
      .meta({ default: DEFAULT_ELECTIONS })
      .describe('How many followers may take over one after the other, with onLeaderFailure: elect.'),
    onStoreDown: onStoreDown
      .default('local')
      .describe('When the store is unreachable: go on inside this process, forward unprotected, or refuse with 503.'),
    onUnknown: onUnknown(DEFAULT_ON_UNKNOWN.coalesce),
    onUnshareable: z
      .enum(['forward', 'fail'])
      .optional()
      .describe(
        'What followers of a response do that must not be shared; when left out safe methods forward, others fail.',
      ),
    unshareableFor: duration('0s', '1h')
      .default('60s')
      .describe(
        'How long it is remembered that a response must not be shared: until then nobody waits for the next; 0s: not at all.',
      ),
    verify: verify
      .optional()
      .describe(
        'Of this part of the requests that are given the response of another one, the upstream is asked as well, and what differs is counted and logged; a percentage, or { share, fields, unsafeMethods }. None when left out.',
      ),
  }),
  reject: fields({
    ...routeFields,
    policy: z.literal('reject').describe('A duplicate is refused while the first request is in flight.'),
    ...keyedFields,
    ...reconcilable,
    identity: identity
      .default('public')
      .describe('The parts that separate callers; public is one lock for all callers.'),
    onStoreDown: onStoreDown
      .default('reject')
      .describe('When the store is unreachable: go on inside this process, forward unprotected, or refuse with 503.'),
    onUnknown: onUnknown(DEFAULT_ON_UNKNOWN.reject),
    conflict: fields({
      status: z.literal([409, 429]).default(409).describe('Status of the refusal.'),
      retryAfter: z
        .union([wholeNumber('seconds', 1, 3600), z.string().regex(DURATION)], {
          error: 'whole seconds from 1s to 1h, such as 5s',
        })
        .refine((value) => retryAfterSeconds(value) !== null, { error: 'whole seconds from 1s to 1h, such as 5s' })
        .optional()
        .describe('Value of Retry-After instead of the computed one: a duration, or a number of seconds.'),
    })
      .prefault({})
      .describe('The answer to a rejected duplicate.'),
  }),
  replay: fields({
    ...routeFields,
    policy: z.literal('replay').describe('A repeat of a request gets the response that the first one got.'),
    ...keyedFields,
    ...reconcilable,
    key: keyedFields.key
      .optional()
      .describe('The parts that make two requests the same; when left out the Idempotency-Key field, quoted or not.'),
    identity: identity
      .default(callerFields)
      .describe('The parts that separate callers; public replays responses across callers.'),
    wait: wait('a repeat', '409')
      .optional()
      .describe('Longest time a repeat waits for the first one, or { max, poll }; when left out it gets 409 at once.'),
    keep: duration('1s', '168h')
      .default('24h')
      .describe('How long a response answers later repeats, counted from its completion.'),
    maxShared,
    fingerprint: z
      .enum(['exact', 'canonical', 'none'])
      .default('exact')
      .describe(
        'What a repeat must equal, or it gets 422: method, target and content bytes, or JSON content by value, or nothing.',
      ),
    release: z
      .array(wholeNumber('a status', 200, 999))
      .default(DEFAULT_RELEASE)
      .describe('Statuses that are not recorded and free the key, so that a repeat runs again.'),
    keepContent: z
      .union([
        z.enum(['full', 'none']),
        z
          .array(
            text(
              'a JSON pointer such as /id (RFC 6901)',
              (pointer) => pointer !== '' && parsePointer(pointer) !== null,
            ),
          )
          .min(1, { error: 'at least one JSON pointer, or none' }),
      ])
      .default('full')
      .describe('What of the content is kept: all, nothing, or the members that these JSON pointers name.'),
    onStoreDown: onStoreDown
      .default('reject')
      .describe('When the store is unreachable: go on inside this process, forward unprotected, or refuse with 503.'),
    onUnknown: onUnknown(DEFAULT_ON_UNKNOWN.replay),
  }),
  queue: fields({
    ...routeFields,
    policy: z.literal('queue').describe('Requests of one key are forwarded one after the other, first come first.'),
    ...keyedFields,
    identity: identity
      .default('public')
      .describe('The parts that separate callers; public is one queue for all callers.'),
    wait: wait('a request', '504 with nothing sent')
      .default('10s')
      .describe('Longest time a request waits for its turn, or { max, poll }.'),
    concurrency: wholeNumber('a number of requests', 1, 1_000)
      .default(1)
      .describe('How many requests of a key are forwarded at a time.'),
    maxQueue: wholeNumber('a number of requests', 1, 10_000)
      .default(100)
      .describe('How many requests of a key wait, over all gateways; one more is refused with 429.'),
    onStoreDown: onStoreDown
      .default('reject')
      .describe('When the store is unreachable: go on inside this process, forward unprotected, or refuse with 503.'),
    onUnknown: onUnknown(DEFAULT_ON_UNKNOWN.queue),
  }),
};

/** Seconds of `conflict.retryAfter`, or null when they are not whole or out of bounds. */
export function retryAfterSeconds(value: string | number): number | null {
  const seconds = typeof value === 'number' ? value : durationMs(value) / 1000;
  return Number.isInteger(seconds) && seconds >= 1 && seconds <= 3600 ? seconds : null;
}

/** Of the field that tells them apart. */
export const POLICY_MEANING = 'What a duplicate gets, a request whose key is taken.';

const unknownPolicyFields = fields({
  ...ROUTE_POLICIES.queue.shape,
  ...ROUTE_POLICIES.replay.shape,
  ...ROUTE_POLICIES.reject.shape,
  ...ROUTE_POLICIES.coalesce.shape,
  conflict: ROUTE_POLICIES.reject.shape.conflict,
}).partial();
/** What can be said of a route whose policy is none: a field of any policy is fine, and only these two are missed. */
export const routeOfUnknownPolicy = unknownPolicyFields.extend({ ...routeFields, policy: z.unknown() });

export const routes = z
  .array(
    z.discriminatedUnion('policy', [
      ROUTE_POLICIES.pass,
      ROUTE_POLICIES.coalesce,
      ROUTE_POLICIES.reject,
      ROUTE_POLICIES.replay,
      ROUTE_POLICIES.queue,
    ]),
  )
  .default([])
  .describe('The rules; the first that matches a request wins.');

export type RouteOutput = z.output<typeof routes>[number];
export type KeyPartOutput = z.output<ReturnType<typeof keyPart>>;
