/**
 * What this gateway calls itself in `Via`.
 *
 * Invariants: all processes that share a store and the upstreams have one name, since a request that comes from one of
 * them to another goes round as well; gateways in front of each other have different ones. It tells nobody anything: a
 * digest, cut short.
 */

import { createHash, randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { PRODUCT } from '../http/via.js';
import type { Config } from './config.js';

const LENGTH = 8;

export function pseudonymOf(config: Config): string {
  const upstreams = [...config.upstreams.values()].map(({ addresses }) => addresses.map(({ name }) => name));
  const identity = JSON.stringify([shared(config), upstreams]);
  return `${PRODUCT}-${createHash('sha256').update(identity).digest('hex').slice(0, LENGTH)}`;
}

/** What the processes of one gateway have in common, and no others. */
function shared({ store, listen }: Config): unknown {
  if (store.kind === 'redis') {
    const { servers, db } = store.access;
    return [servers.kind, servers.kind === 'single' ? servers.at : servers.hosts, db, store.prefix];
  }
  // Without a port of its own nothing but the process itself is certain to be the same.
  return listen.port === 0 ? randomUUID() : [hostname(), listen.host, listen.port];
}
