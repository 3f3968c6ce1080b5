/** A checked store → what the gateway reads of it. */

import type { HostPort, RedisAccess, StoreConfig, UpstreamTls } from './config.js';
import { hostAndPortOf } from './forms.js';
import type { ConfigOutput } from './schema.js';
import { pemSourceOf, pemText } from './tls-material.js';
import { durationMs, sizeBytes } from './units.js';

type RedisOutput = Extract<ConfigOutput['store'], { kind: 'redis' }>;
type TlsOutput = RedisOutput['tls'];

const REDIS_PORT = 6_379;
const SENTINEL_PORT = 26_379;

/** `directory`: where relative paths begin. */
export function storeOf(store: ConfigOutput['store'], directory: string): StoreConfig {
  const shared = { maxMemoryBytes: sizeBytes(store.maxMemory), secrets: [store.secret ?? []].flat() };
  if (store.kind !== 'redis') return { kind: 'memory', ...shared };
  const { prefix, commandTimeout, waitReplicas } = store;
  return {
    kind: 'redis',
    access: accessOf(store, directory),
    prefix,
    commandTimeoutMs: durationMs(commandTimeout),
    waitReplicas,
    ...shared,
  };
}

function accessOf(store: RedisOutput, directory: string): RedisAccess {
  const tls = tlsOf(store.tls, directory);
  const own = { username: store.username ?? null, password: store.password ?? null, tls, db: store.db ?? 0 };
  if (store.sentinel !== undefined) {
    const { name, hosts, username, password } = store.sentinel;
    return {
      ...own,
      servers: {
        kind: 'sentinel',
        name,
        hosts: hosts.map((host) => hostPortOf(host, SENTINEL_PORT)),
        username: username ?? null,
        password: password ?? null,
        tls: tlsOf(store.sentinel.tls, directory),
      },
    };
  }
  if (store.cluster !== undefined) {
    return { ...own, servers: { kind: 'cluster', hosts: store.cluster.map((host) => hostPortOf(host, REDIS_PORT)) } };
  }
  // The cross-checks have refused a store without a place already.
  if (store.url === undefined) throw new Error('a store in Redis is nowhere');
  return accessByUrl(store.url, own);
}

const DEFAULT_TLS: UpstreamTls = { ca: null, cert: null, key: null, serverName: null, verify: true };

/** What a checked URL says, and beside it what it leaves open. */
export function accessByUrl(text: string, own: Omit<RedisAccess, 'servers'>): RedisAccess {
  const url = new URL(text);
  const port = url.port === '' ? REDIS_PORT : Number(url.port);
  return {
    servers: { kind: 'single', at: { host: url.hostname.replace(/^\[|\]$/g, ''), port } },
    username: url.username === '' ? own.username : decodeURIComponent(url.username),
    password: url.password === '' ? own.password : decodeURIComponent(url.password),
    tls: url.protocol === 'rediss:' ? (own.tls ?? DEFAULT_TLS) : null,
    db: url.pathname.length > 1 ? Number(url.pathname.slice(1)) : own.db,
  };
}

function hostPortOf(written: string, defaultPort: number): HostPort {
  const at = hostAndPortOf(written);
  // The schema has refused such a text already.
  if (at === null) throw new Error(`not a server: ${written}`);
  return { host: at.host, port: at.port ?? defaultPort };
}

function tlsOf(tls: TlsOutput, directory: string): UpstreamTls | null {
  if (tls === undefined) return null;
  const pem = (written: string | undefined) =>
    written === undefined ? null : pemText(pemSourceOf(written, directory));
  const { ca, cert, key, serverName, verify } = tls;
  return { ca: pem(ca), cert: pem(cert), key: pem(key), serverName: serverName ?? null, verify };
}
