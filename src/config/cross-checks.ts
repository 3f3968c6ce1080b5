/**
 * What the schema cannot say because it takes two fields: names that must exist or be unique, ports, tokens.
 *
 * Works on the draft, so that these faults are told together with the schema's. A field that is there as `undefined`
 * was invalid: its fault is told already, and nothing is concluded from it.
 */

import { paramNames } from '../core/path-pattern.js';
import { isSafe } from '../core/rule.js';
import type { ConfigDraft, RouteDraft } from './check.js';
import { type Fault, type FieldPath, pathText } from './fault.js';
import { isLoopback } from './forms.js';
import { DEFAULT_LISTEN } from './listener-schema.js';
import { faultAt, namePosition, valueAt, writtenPath } from './locate.js';
import { reconcileFaults } from './reconcile-faults.js';
import { redisFaults } from './redis-faults.js';
import { DEFAULT_ON_UNKNOWN } from './route-schema.js';
import { DEFAULT_ADMIN } from './schema.js';
import type { Located } from './source.js';
import { nearest } from './suggest.js';
import { upstreamFieldFaults } from './upstream-faults.js';
import { workerFaults } from './worker-faults.js';

/** Checks fields against each other. */
export function crossCheck(draft: ConfigDraft, root: Located): Fault[] {
  const faults = [
    ...http2Faults(draft, root),
    ...listenerFaults(draft, root),
    ...secretFaults(draft, root),
    ...redisFaults(draft, root),
    ...workerFaults(draft, root),
  ];
  const upstreams = draft.upstreams === undefined ? null : Object.keys(draft.upstreams);
  for (const [name, upstream] of Object.entries(draft.upstreams ?? {})) {
    if (upstream !== undefined) faults.push(...upstreamFieldFaults(upstream, ['upstreams', name], root));
  }
  if (typeof draft.unmatched === 'string') {
    faults.push(...upstreamFaults(draft.unmatched, upstreams, ['unmatched'], root));
  }
  const firstOfName = new Map<string, number>();
  for (const [index, route] of draft.routes?.entries() ?? []) {
    if (route === undefined) continue;
    const path = ['routes', index];
    faults.push(...nameFaults(route.name, index, firstOfName, root));
    if (route.upstream !== undefined || !('upstream' in route)) {
      faults.push(...upstreamFaults(route.upstream, upstreams, [...path, 'upstream'], root));
    }
    faults.push(
      ...headerFaults(route, path, root),
      ...paramFaults(route, path, root),
      ...electionFaults(route, path, root),
      ...verifyFaults(route, path, root),
      ...unknownFaults(route, path, root),
      ...reconcileFaults(route, path, root),
      ...forwardFaults(route, path, root),
    );
  }
  return faults;
}

function listenerFaults(draft: ConfigDraft, root: Located): Fault[] {
  if (draft.admin === false) return [];
  const faults: Fault[] = [];
  const { host, port, token } = { ...DEFAULT_ADMIN, ...(sound(draft, 'admin') ? draft.admin : { port: undefined }) };
  const tokenGiven = token !== undefined || valueAt(root, ['admin', 'token']) !== undefined;
  if (host !== undefined && !isLoopback(host) && !tokenGiven) {
    faults.push(faultAt(root, ['admin', 'host'], 'a loopback host, or admin.token to be set'));
  }
  const listenPort = { ...DEFAULT_LISTEN, ...(sound(draft, 'listen') ? draft.listen : { port: undefined }) }.port;
  if (port !== undefined && port !== 0 && port === listenPort) {
    const place: FieldPath = valueAt(root, ['admin', 'port']) === undefined ? ['listen', 'port'] : ['admin', 'port'];
    faults.push(faultAt(root, place, 'different ports for listen and admin', { got: `${port} for both` }));
  }
  return faults;
}

/** Browsers speak HTTP/2 over TLS alone, and what is agreed on there (ALPN) decides between it and HTTP/1.1. */
function http2Faults({ listen }: ConfigDraft, root: Located): Fault[] {
  if (listen?.http2 !== true || 'tls' in listen) return [];
  return [faultAt(root, ['listen', 'http2'], 'listen.tls to be set, without which there is no HTTP/2')];
}

/** A secret that stands twice was to be another one. */
function secretFaults({ store }: ConfigDraft, root: Located): Fault[] {
  const secrets = store?.secret;
  if (!Array.isArray(secrets)) return [];
  return secrets.flatMap((secret, index) => {
    const first = secrets.indexOf(secret);
    if (secret === undefined || first === index) return [];
    const got = `that of secret[${first}]`;
    return [faultAt(root, ['store', 'secret', index], 'another secret than those before', { got })];
  });
}

/** False for a section that is there but invalid as a whole. */
function sound(draft: ConfigDraft, section: 'admin' | 'listen'): boolean {
  return draft[section] !== undefined || !(section in draft);
}

function nameFaults(name: string | undefined, index: number, firstOfName: Map<string, number>, root: Located): Fault[] {
  if (name === undefined) return [];
  const first = firstOfName.get(name);
  if (first === undefined) {
    firstOfName.set(name, index);
    return [];
  }
  const { file, line, column } = namePosition(root, ['routes', first]);
  const isInOneFile = file === namePosition(root, ['routes', index]).file;
  const there = isInOneFile ? pathText(writtenPath(root, ['routes', first])) : `the route at ${file}:${line}:${column}`;
  const got = `${JSON.stringify(name)}, which ${there} has`;
  return [faultAt(root, ['routes', index, 'name'], 'a name that no other route has', { got })];
}

function upstreamFaults(
  name: string | undefined,
  known: readonly string[] | null,
  path: FieldPath,
  root: Located,
): Fault[] {
  if (known === null || (name === undefined ? known.length === 1 : known.includes(name))) return [];
  const suggestion = name === undefined ? null : nearest(name, known);
  return [faultAt(root, path, `the name of an upstream (${known.join(', ')})`, { suggestion })];
}

/** Field names are case-insensitive: two spellings of one would contradict each other. */
function headerFaults(route: RouteDraft, path: FieldPath, root: Located): Fault[] {
  const seen = new Set<string>();
  return Object.keys(route.match?.headers ?? {}).flatMap((name) => {
    const lower = name.toLowerCase();
    if (!seen.has(lower)) {
      seen.add(lower);
      return [];
    }
    return [faultAt(root, [...path, 'match', 'headers', name], `${lower} once`, { got: 'it in two spellings' })];
  });
}

function paramFaults(route: RouteDraft, path: FieldPath, root: Located): Fault[] {
  const pattern = route.match?.path;
  if (pattern === undefined) return [];
  const params = paramNames(pattern);
  const expected = params.length === 0 ? 'a :param in match.path' : `a :param of match.path (${params.join(', ')})`;
  const lists = {
    key: 'key' in route ? route.key : undefined,
    identity: 'identity' in route && typeof route.identity === 'object' ? route.identity : undefined,
  };
  return Object.entries(lists).flatMap(([field, parts]) =>
    (parts ?? []).flatMap((part, index) => {
      if (part?.param === undefined || params.includes(part.param)) return [];
      const suggestion = nearest(part.param, params);
      return [faultAt(root, [...path, field, index, 'param'], expected, { suggestion })];
    }),
  );
}

function electionFaults(route: RouteDraft, path: FieldPath, root: Located): Fault[] {
  if (route.policy !== 'coalesce' || route.elections === undefined) return [];
  const settled = route.onLeaderFailure !== undefined || !('onLeaderFailure' in route);
  if (!settled || route.onLeaderFailure === 'elect') return [];
  return [faultAt(root, [...path, 'elections'], 'no elections without onLeaderFailure: elect')];
}

/** A second call of an unsafe method is a second execution. */
function verifyFaults(route: RouteDraft, path: FieldPath, root: Located): Fault[] {
  if (route.policy !== 'coalesce' || route.verify === undefined) return [];
  if (typeof route.verify === 'object' && route.verify.unsafeMethods !== 'refuse') return [];
  // What is invalid in them has been told already.
  if (route.match === undefined || ('methods' in route.match && route.match.methods === undefined)) return [];
  const { methods } = route.match;
  if (methods?.every((method) => method === undefined || isSafe(method))) return [];
  const got = methods === undefined ? 'all methods' : methods.join(', ');
  const expected = 'match.methods to be safe ones such as GET, or verify.unsafeMethods: execute-twice';
  return [faultAt(root, [...path, 'verify'], expected, { got })];
}

function unknownFaults(route: RouteDraft, path: FieldPath, root: Located): Fault[] {
  if (!('unknownFor' in route || 'reconcile' in route) || route.policy === undefined) return [];
  if (route.onUnknown === undefined && 'onUnknown' in route) return [];
  if ((route.onUnknown ?? DEFAULT_ON_UNKNOWN[route.policy]) === 'hold') return [];
  const needing = {
    unknownFor: 'unknownFor' in route ? route.unknownFor : undefined,
    reconcile: 'reconcile' in route ? route.reconcile : undefined,
  };
  return Object.entries(needing).flatMap(([field, value]) =>
    value === undefined ? [] : [faultAt(root, [...path, field], `no ${field} without onUnknown: hold`)],
  );
}

/** Two values in one field would be a list of both. */
function forwardFaults(route: RouteDraft, path: FieldPath, root: Located): Fault[] {
  if (!('forward' in route)) return [];
  const { fence, idempotencyKey } = route.forward ?? {};
  if (fence === undefined || fence.toLowerCase() !== idempotencyKey?.toLowerCase()) return [];
  return [faultAt(root, [...path, 'forward', 'idempotencyKey'], 'another field than that of forward.fence')];
}
