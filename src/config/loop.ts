/** Whether an upstream is this gateway itself. */

import { isIP } from 'node:net';
import type { Config } from './config.js';
import type { Doubt, FieldPath } from './fault.js';
import { isLoopback } from './forms.js';
import { valueAt } from './locate.js';
import type { Located } from './source.js';

/** Upstreams that are this gateway's own listener. */
export function loopDoubts({ listen, upstreams }: Config, root: Located): Doubt[] {
  return [...upstreams.values()].flatMap(({ name, addresses }) =>
    addresses.flatMap(({ url, socketPath }, index) => {
      const isOwn = socketPath === null && portOf(url) === listen.port && reaches(listen.host, bareHost(url.hostname));
      const message = 'this is where the gateway itself listens: every request would go round in a loop';
      return isOwn ? [{ code: 'loop' as const, path: placeOf(['upstreams', name], index, root), message }] : [];
    }),
  );
}

function placeOf(path: FieldPath, index: number, root: Located): FieldPath {
  const list = [...path, 'urls'];
  return valueAt(root, list) === undefined ? [...path, 'url'] : [...list, index];
}

/** `URL` leaves out the port that its scheme implies. */
function portOf(url: URL): number {
  if (url.port !== '') return Number(url.port);
  return url.protocol === 'https:' ? 443 : 80;
}

/**
 * Whether a connection to `host` ends at a listener on `listenHost`. An unspecified address is this machine, for
 * listening and for connecting. A listener on one address of the network leaves loopback to others.
 */
function reaches(listenHost: string, host: string): boolean {
  const own = canonical(listenHost);
  if (host === own) return true;
  return (isUnspecified(own) || isLoopback(own)) && (isUnspecified(host) || isLoopback(host));
}

function isUnspecified(host: string): boolean {
  return host === '0.0.0.0' || host === '::';
}

/** The host as URLs spell it (`0:0:0:0:0:0:0:1` is `::1`); as it is when no URL can hold it. */
function canonical(host: string): string {
  const url = `http://${isIP(host) === 6 ? `[${host}]` : host}`;
  return URL.canParse(url) ? bareHost(new URL(url).hostname) : host;
}

function bareHost(hostname: string): string {
  return hostname.startsWith('[') ? hostname.slice(1, -1) : hostname;
}
