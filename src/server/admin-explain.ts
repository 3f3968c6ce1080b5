/**
 * `POST /explain`: what the gateway would make of a request, by the configuration in use.
 *
 * Invariants: nothing is claimed and nothing is sent; values of the request are in the answer only where the body asks for
 * them, the store is asked only where the body says so.
 */

import type { FastifyInstance } from 'fastify';
import { readTold, TOLD_MEMBERS, type ToldJson, type ToldRequest } from '../http/told-request.js';

/** A request to explain, and how. */
export type ExplainAsked = {
  readonly request: ToldRequest;
  readonly values: 'masked' | 'shown';
  readonly store: 'asked' | 'not-asked';
};

export type ExplainApi = (asked: ExplainAsked) => Promise<object>;

/** Largest body, with the content of the request in it. */
const BODY_LIMIT = 16 * 1_048_576;
const SWITCHES = ['showValues', 'live'] as const;
const MEMBERS: ReadonlySet<string> = new Set([...TOLD_MEMBERS, ...SWITCHES]);

/** Adds `POST /explain`. */
export function addExplain(fastify: FastifyInstance, explain: ExplainApi): void {
  fastify.post<{ Body: unknown }>('/explain', { bodyLimit: BODY_LIMIT }, async ({ body }, reply) => {
    const asked = readAsked(body);
    return typeof asked === 'string' ? reply.code(400).send({ error: asked }) : explain(asked);
  });
}

function readAsked(body: unknown): ExplainAsked | string {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) return 'the body must be a JSON object';
  const told = body as ToldJson & { readonly [name in (typeof SWITCHES)[number]]?: unknown };
  const unknown = Object.keys(told).find((name) => !MEMBERS.has(name));
  if (unknown !== undefined) return `unknown member ${JSON.stringify(unknown)}: expected ${[...MEMBERS].join(', ')}`;
  for (const name of SWITCHES) {
    if (told[name] !== undefined && typeof told[name] !== 'boolean') return `${name} must be true or false`;
  }
  const request = readTold(told);
  if (typeof request === 'string') return request;
  return {
    request,
    values: told.showValues === true ? 'shown' : 'masked',
    store: told.live === true ? 'asked' : 'not-asked',
  };
}
