/**
 * Who may ask the admin listener: one look at every request, whatever it is for, so that a route which is added later is
 * covered as well.
 *
 * Invariants: where there is a token, nobody is told anything without it; where there is none, nobody but a program on
 * this machine is, and a page in a browser on this machine is not one, whatever name it has made point here (DNS
 * rebinding) and whatever it makes the browser send; probes are told yes or no, and nothing else; the live page is given to
 * who has no token, to be asked for it, and nothing that it shows.
 */

import { createHash, timingSafeEqual } from 'node:crypto';
import { isIP } from 'node:net';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { AdminConfig } from '../config/config.js';
import { fieldLines } from '../core/field-lines.js';
import { PAGE_PATHS } from './admin-page.js';

/** What kubelets and balancers ask, which have no token and say the address of the pod as `Host`. */
const PROBES: ReadonlySet<string | undefined> = new Set(['/livez', '/readyz']);

export type Access =
  | { readonly kind: 'operator' }
  /** Why not; `status` says whose fault it is. */
  | { readonly kind: 'nobody'; readonly status: 401 | 403 | 421; readonly error: string };

const OPERATOR: Access = { kind: 'operator' };

/** Has every request looked at before anything is done for it. */
export function guard(fastify: FastifyInstance, config: AdminConfig & { kind: 'on' }): void {
  fastify.addHook('onRequest', async (request, reply) => {
    // Nothing here is for caches, nor for pages that name it as an image or a script.
    reply.headers({
      'cache-control': 'no-store',
      'x-content-type-options': 'nosniff',
      'cross-origin-resource-policy': 'same-origin',
    });
    const access = accessOf(request, config);
    if (access.kind === 'operator' || PROBES.has(request.routeOptions.url)) return;
    if (access.status === 401 && PAGE_PATHS.has(request.routeOptions.url)) return;
    if (access.status === 401) reply.header('www-authenticate', 'Bearer realm="oneflight"');
    await reply.code(access.status).send({ error: access.error });
  });
}

/** Who asks, as far as the request tells. */
export function accessOf({ headers, raw }: FastifyRequest, { token, host }: AdminConfig & { kind: 'on' }): Access {
  const page = pageFault(headers);
  if (page !== null) return { kind: 'nobody', status: 403, error: page };
  if (token !== null) {
    // No page has the token, so that the name by which it asks tells nothing more.
    return carriesToken(headers.authorization, token)
      ? OPERATOR
      : { kind: 'nobody', status: 401, error: 'token required' };
  }
  if (fieldLines(raw.rawHeaders, 'host').every((line) => isOwnName(hostNameOf(line), host))) return OPERATOR;
  const error = 'Host must be an address, localhost or admin.host: a name could be made to point here by anybody';
  return { kind: 'nobody', status: 421, error };
}

type Headers = FastifyRequest['headers'];

/** What says that the request was made by a page from elsewhere; null: nothing does. Only browsers send these fields. */
function pageFault(headers: Headers): string | null {
  const { origin, host = '' } = headers;
  if (origin !== undefined && !/^https?:\/\//i.test(origin)) return 'Origin is none of the admin listener';
  if (origin !== undefined && origin.replace(/^https?:\/\//i, '').toLowerCase() !== host.toLowerCase()) {
    return 'Origin is not the admin listener';
  }
  const site = headers['sec-fetch-site'];
  // What somebody clicks on or types leads here, and is read by nobody else.
  const isVisit = headers['sec-fetch-mode'] === 'navigate' && headers['sec-fetch-dest'] === 'document';
  if (site === undefined || site === 'same-origin' || site === 'none' || (isVisit && origin === undefined)) return null;
  return 'the request was made by a page from elsewhere';
}

/** Names that cannot be made to point here: addresses point to themselves. */
function isOwnName(name: string, configured: string): boolean {
  return name === 'localhost' || isIP(name) !== 0 || name === configured.toLowerCase();
}

/** Lower case, without port, brackets and the dot of a fully qualified name. */
function hostNameOf(host: string): string {
  const name = /^(?:\[([^\]]*)\]|([^:]*))(?::\d*)?$/.exec(host.toLowerCase());
  return (name?.[1] ?? name?.[2] ?? host).replace(/\.$/, '');
}

/** Compares digests, so that neither the token's length nor a common beginning can be measured. */
function carriesToken(authorization: string | undefined, token: string): boolean {
  const [scheme, given] = (authorization ?? '').split(' ', 2);
  if (scheme?.toLowerCase() !== 'bearer' || given === undefined) return false;
  const digest = (text: string): Buffer => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(given), digest(token));
}
