/** The configuration after loading: frozen, complete, every default applied. What the composition root reads. */

import type { Rule } from '../core/rule.js';

export type UpstreamConfig = {
  readonly name: string;
  /** Origin only (`http:` or `https:`): scheme, host, port. */
  readonly url: URL;
  /** Longest time to a usable connection (DNS, TCP, TLS). */
  readonly connectTimeoutMs: number;
  /** Longest silence from the end of the request to the response fields. */
  readonly headersTimeoutMs: number;
  /** Longest silence between two pieces of the response content. */
  readonly bodyTimeoutMs: number;
  /** Whether the upstream sees the client's `Host` (default) or its own. */
  readonly preserveHost: boolean;
};

/** PEM that is in the configuration itself, or in a file that may change while the gateway runs. */
export type PemSource =
  | { readonly kind: 'text'; readonly pem: string }
  | { readonly kind: 'file'; readonly path: string };

export type TlsConfig = {
  readonly cert: PemSource;
  readonly key: PemSource;
  readonly minVersion: 'TLSv1.2' | 'TLSv1.3';
};

export type ListenConfig = {
  readonly host: string;
  readonly port: number;
  /** Null: requests come in clear. */
  readonly tls: TlsConfig | null;
  /** Whether HTTP/2 is offered, which needs TLS. */
  readonly http2: boolean;
  /** Whether connections begin with a header that says who they are from. */
  readonly proxyProtocol: boolean;
};

/** What clients may take, and how slow they may be. */
export type LimitsConfig = {
  readonly maxFieldBytes: number;
  /** Infinity: any size. */
  readonly maxContentBytes: number;
  /** Infinity: any number. */
  readonly maxConnections: number;
  readonly maxConcurrentStreams: number;
  readonly fieldsTimeoutMs: number;
  readonly contentTimeoutMs: number;
  readonly stallTimeoutMs: number;
  readonly keepAliveTimeoutMs: number;
};

/** From whom a request id is taken. */
export type RequestIdTrust = 'always' | 'trusted-proxies' | 'never';

export type AdminConfig =
  | { readonly kind: 'off' }
  | { readonly kind: 'on'; readonly host: string; readonly port: number; readonly token: string | null };

export type StoreConfig =
  | { readonly kind: 'memory'; readonly maxMemoryBytes: number; readonly secrets: readonly string[] }
  | {
      readonly kind: 'redis';
      /** `redis://` or `rediss://`, with user, password and database where needed. */
      readonly url: string;
      /** Put before every key and channel. */
      readonly prefix: string;
      /** Longest wait for the reply to one command. */
      readonly commandTimeoutMs: number;
      /** Bound of the in-process store that `onStoreDown: local` falls back to. */
      readonly maxMemoryBytes: number;
      /** The first is in use; those behind it were, or will be. Empty: nothing is hidden or sealed. */
      readonly secrets: readonly string[];
    };

export type LogLevel = 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'fatal' | 'silent';

export type Config = {
  readonly listen: ListenConfig;
  readonly admin: AdminConfig;
  readonly store: StoreConfig;
  readonly upstreams: ReadonlyMap<string, UpstreamConfig>;
  /** In file order: the first that matches wins. */
  readonly rules: readonly Rule[];
  readonly unmatched: { readonly kind: 'upstream'; readonly name: string } | { readonly kind: 'not-found' };
  readonly limits: LimitsConfig;
  /** CIDRs of peers whose `X-Forwarded-*` fields are believed. */
  readonly trustedProxies: readonly string[];
  readonly requestId: { readonly trust: RequestIdTrust };
  readonly log: { readonly level: LogLevel };
  readonly drainMs: number;
};
