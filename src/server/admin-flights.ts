/**
 * The keys that are taken, over all processes, and the operator's word about those of which nobody knows what became.
 *
 * Invariants: a key is shown as its digest only; what an operator settles or purges is written to the log.
 */

import type { FastifyInstance, FastifyReply } from 'fastify';
import type { TakenKey } from '../core/claim.js';
import { replayable } from '../core/recorded.js';
import type { SharedResponse } from '../core/sharing.js';
import { isToken } from '../core/token.js';
import { clientFields, hasNoContent, withoutField } from '../http/fields.js';
import { type Store, StoreUnavailable } from '../store/store.js';

/** How many keys one answer lists at most. */
const LIMIT = 1_000;
/** Largest request of an operator, content in base64 or text. */
const BODY_LIMIT = 16 * 1_048_576;
const STATES = ['in-flight', 'unknown', 'kept', 'any'] as const;
const NO_VARY = { names: [], digest: '' } as const;

export type FlightsApi = {
  readonly store: Pick<Store, 'taken' | 'settle' | 'settleUnknown' | 'purge' | 'purgeRoute'>;
  /** What was seen of the keys of each rule, all workers together: names and counts. */
  readonly keyHealth: () => Promise<readonly object[]>;
  /** How long a response that an operator gives is kept by the rule of that name, ms; null: there is no such rule now. */
  readonly keepMsOf: (route: string) => number | null;
  readonly isRule: (name: string) => boolean;
  /** Writes what an operator did to the log. */
  readonly audit: (did: 'settled' | 'purged', entry: Readonly<Record<string, string | number>>) => void;
};

const SETTLE_MEMBERS = ['as', 'flight', 'state', 'status', 'fields', 'content'];

type SettleBody = {
  readonly as?: unknown;
  /** Id of the flight that is meant, as `GET /flights` gives it; without it, whatever outcome is unknown. */
  readonly flight?: unknown;
  /** `unknown`: the flight is meant only as long as its outcome is. */
  readonly state?: unknown;
  readonly status?: unknown;
  readonly fields?: unknown;
  readonly content?: unknown;
};

type Meant = {
  readonly flight: string | null;
  readonly isUnknown: boolean;
};

/** Adds `GET /flights`, `POST /flights/<digest>/settle`, `DELETE /flights/<digest>` and `DELETE /routes/<name>/kept`. */
export function addFlights(fastify: FastifyInstance, api: FlightsApi): void {
  fastify.get<{ Querystring: { state?: string } }>('/flights', async (request, reply) => {
    const state = STATES.find((known) => known === (request.query.state ?? 'any'));
    if (state === undefined) return refuse(reply, 400, `state must be one of ${STATES.join(', ')}`);
    return orUnavailable(reply, async () => ({
      flights: (await api.store.taken({ state, limit: LIMIT })).map(inWholeMs),
      keyHealth: await api.keyHealth(),
    }));
  });
  fastify.post<{ Params: { key: string }; Body: SettleBody | null }>(
    '/flights/:key/settle',
    { bodyLimit: BODY_LIMIT },
    async (request, reply) => {
      const { key } = request.params;
      const { as, flight = null, state = null } = request.body ?? {};
      const unknown = Object.keys(request.body ?? {}).find((name) => !SETTLE_MEMBERS.includes(name));
      if (unknown !== undefined) return refuse(reply, 400, `${unknown} is not one of ${SETTLE_MEMBERS.join(', ')}`);
      if (flight !== null && typeof flight !== 'string') return refuse(reply, 400, 'flight must be a text');
      if (state !== null && state !== 'unknown') return refuse(reply, 400, 'state must be "unknown", or left out');
      const meant: Meant = { flight, isUnknown: state === 'unknown' };
      if (as === 'free') return orUnavailable(reply, () => settle(api, reply, key, { kind: 'free' }, meant));
      if (as !== 'response') return refuse(reply, 400, 'as must be "free" or "response"');
      const response = responseOf(request.body ?? {});
      if (typeof response === 'string') return refuse(reply, 400, response);
      return orUnavailable(reply, async () => {
        const taken = await find(api, key);
        const keepMs = taken === null ? null : api.keepMsOf(taken.route);
        if (taken === null) return refuse(reply, 404, 'nothing has this key');
        if (keepMs === null)
          return refuse(reply, 409, 'its rule keeps no responses: nobody would get this one; free the key');
        return settle(api, reply, key, { kind: 'response', response, keepMs }, meant);
      });
    },
  );
  fastify.delete<{ Params: { key: string } }>('/flights/:key', (request, reply) =>
    orUnavailable(reply, () => purge(api, reply, request.params.key)),
  );
  fastify.delete<{ Params: { route: string } }>('/routes/:route/kept', (request, reply) =>
    orUnavailable(reply, () => purgeRoute(api, reply, request.params.route)),
  );
}

function inWholeMs(taken: TakenKey): TakenKey {
  return { ...taken, ageMs: Math.round(taken.ageMs), leftMs: Math.round(taken.leftMs) };
}

async function settle(
  api: FlightsApi,
  reply: FastifyReply,
  key: string,
  as: Parameters<Store['settle']>[1],
  meant: Meant,
): Promise<object> {
  const { flight } = meant;
  const result = await settleMeant(api, key, as, meant);
  api.audit('settled', { key, as: as.kind, result });
  if (result === 'settled') return { settled: key, as: as.kind };
  if (result === 'absent') return refuse(reply, 404, 'nothing has this key');
  // Somebody else may have settled it since it was looked at, and a request may be running.
  const sentence =
    flight === null
      ? 'its outcome is not unknown: name the flight that GET /flights shows to end it all the same'
      : 'another flight has this key now, or the outcome of this one is known';
  return refuse(reply, 409, sentence);
}

/** Who looked at an unknown outcome before it said this must not take away an answer that was recorded meanwhile. */
async function settleMeant(
  { store }: FlightsApi,
  key: string,
  as: Parameters<Store['settle']>[1],
  { flight, isUnknown }: Meant,
): Promise<'settled' | 'absent' | 'other'> {
  if (flight === null || !isUnknown) return store.settle(key, as, flight);
  if ((await store.settleUnknown(key, flight, as, null)) === 'settled') return 'settled';
  const all = await store.taken({ state: 'any', limit: Number.MAX_SAFE_INTEGER });
  const taken = all.filter((one) => one.key === key);
  if (taken.length === 0) return 'absent';
  // A turn of a queue has no answer that could be lost, and is no claim.
  const isTurn = taken.some((one) => one.flight === flight && one.state === 'unknown');
  return isTurn ? store.settle(key, as, flight) : 'other';
}

async function purge(api: FlightsApi, reply: FastifyReply, key: string): Promise<object> {
  const result = await api.store.purge(key);
  api.audit('purged', { key, result });
  switch (result) {
    case 'purged':
      return { purged: key };
    case 'absent':
      return refuse(reply, 404, 'nothing is kept under this key');
    case 'taken':
      return refuse(
        reply,
        409,
        `a flight or an unknown outcome has this key; POST /flights/${key}/settle frees it or ends it`,
      );
  }
}

/** A name that no rule has any more may still have responses that are kept; one that has none is a slip. */
async function purgeRoute(api: FlightsApi, reply: FastifyReply, route: string): Promise<object> {
  const count = await api.store.purgeRoute(route);
  api.audit('purged', { route, count });
  if (count === 0 && !api.isRule(route)) return refuse(reply, 404, 'no rule has this name, and nothing is kept by it');
  return { route, purged: count };
}

async function find(api: FlightsApi, key: string): Promise<TakenKey | null> {
  const taken = await api.store.taken({ state: 'any', limit: Number.MAX_SAFE_INTEGER });
  return taken.find((one) => one.key === key) ?? null;
}

/** Reads `status`, `fields` (a list of name and value pairs) and `content` (text); a sentence when they are wrong. */
function responseOf({ status, fields = [], content = '' }: SettleBody): SharedResponse | string {
  if (typeof status !== 'number' || !Number.isInteger(status) || status < 200 || status > 599 || status === 304) {
    return 'status must be a number from 200 to 599, and not 304, which answers a condition of one client';
  }
  if (typeof content !== 'string') return 'content must be text';
  if (!Array.isArray(fields) || !fields.every(isFieldLine)) return 'fields must be a list of [name, value] pairs';
  const bytes = Buffer.from(content);
  if (bytes.length > 0 && hasNoContent('POST', status)) return `${status} has no content`;
  // How the message is delimited is the business of the connection that carries it.
  const lines = replayable(clientFields(withoutField(fields.flat(), 'content-length')));
  return { status, reason: '', fields: lines, content: bytes, trailers: [], vary: NO_VARY };
}

function isFieldLine(line: unknown): line is [string, string] {
  return (
    Array.isArray(line) &&
    line.length === 2 &&
    typeof line[0] === 'string' &&
    isToken(line[0]) &&
    typeof line[1] === 'string' &&
    /^[\t\x20-\x7e\x80-\xff]*$/.test(line[1])
  );
}

async function orUnavailable(reply: FastifyReply, answer: () => Promise<object>): Promise<object> {
  try {
    return await answer();
  } catch (error) {
    if (!(error instanceof StoreUnavailable)) throw error;
    return refuse(reply, 503, error.message);
  }
}

function refuse(reply: FastifyReply, status: number, error: string): FastifyReply {
  return reply.code(status).send({ error });
}
