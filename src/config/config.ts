/** The configuration after loading: frozen, complete, every default applied. What the composition root reads. */

import type { Rule, StatusRange } from '../core/rule.js';
import type { FieldEdits } from '../http/edits.js';

/** Where one server of an upstream is. */
export type AddressConfig = {
  /** `host:port`, or `unix:` and the path: for logs and metrics. */
  readonly name: string;
  /** Origin only (`http:` or `https:`): scheme, host, port. Of a Unix socket `http://localhost`. */
  readonly url: URL;
  /** Path of a Unix socket; null: TCP to the URL's host and port. */
  readonly socketPath: string | null;
};

/** An address that so many requests in a row fail at is left out for a while. */
export type EjectRule = { readonly failures: number; readonly forMs: number };

/** After so many failures in a row, at whichever address, nothing is sent for a while. */
export type BreakerRule = { readonly failures: number; readonly forMs: number };

/** Bounds of what an upstream has to do at once. */
export type ConnectionLimits = {
  readonly max: number;
  /** How many requests may wait for a connection. */
  readonly queue: number;
  /** How long each of them may. */
  readonly waitMs: number;
};

export type HealthRule = {
  /** Path and query of the question. */
  readonly path: string;
  /** Flat field lines that it carries. */
  readonly fields: readonly string[];
  readonly everyMs: number;
  readonly timeoutMs: number;
  /** The statuses that are an answer of a healthy one. */
  readonly statuses: readonly StatusRange[];
  /** How many answers in a row bring it back, and how many failures take it out. */
  readonly healthy: number;
  readonly unhealthy: number;
};

export type UpstreamTls = {
  /** PEM; null: the authorities that Node knows. */
  readonly ca: string | null;
  /** The gateway's own certificate and key, PEM. */
  readonly cert: string | null;
  readonly key: string | null;
  /** The name to ask for and to check; null: the address's host. */
  readonly serverName: string | null;
  readonly verify: boolean;
};

export type UpstreamConfig = {
  readonly name: string;
  readonly addresses: readonly AddressConfig[];
  readonly balance: 'round-robin' | 'least-pending';
  readonly protocol: 'http/1.1' | 'h2';
  /** Longest time to a usable connection (DNS, TCP, TLS). */
  readonly connectTimeoutMs: number;
  /** Longest silence from the end of the request to the response fields. */
  readonly headersTimeoutMs: number;
  /** Longest silence between two pieces of the response content. */
  readonly bodyTimeoutMs: number;
  /** Connections that are older get no further request. */
  readonly maxConnectionAgeMs: number;
  /** How many further attempts a request may have that certainly was not executed, or that is safe. */
  readonly retries: number;
  readonly eject: EjectRule | null;
  readonly breaker: BreakerRule | null;
  /** Statuses that count as failures for both of them. */
  readonly failureStatuses: readonly StatusRange[];
  readonly health: HealthRule | null;
  readonly connections: ConnectionLimits | null;
  readonly tls: UpstreamTls;
  /** Whether the upstream sees the client's `Host` (default) or its own. */
  readonly preserveHost: boolean;
  /** What the paths of requests lose at their beginning; normalised, without a slash at its end. */
  readonly stripPrefix: string | null;
  /** Null: none. */
  readonly edits: { readonly request: FieldEdits | null; readonly response: FieldEdits | null };
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
  /** Of one connection, HTTP/1's as well. */
  readonly maxConcurrentStreams: number;
  /** Of all connections. */
  readonly maxRequests: number;
  /** Infinity: the event loop may be however late. */
  readonly eventLoopDelayMs: number;
  /** Of clients that are read from, or written to; 0: any movement will do. */
  readonly minBytesPerSecond: number;
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

export type HostPort = { readonly host: string; readonly port: number };

/** Where the servers of a store are. */
export type RedisServers =
  | { readonly kind: 'single'; readonly at: HostPort }
  | {
      readonly kind: 'sentinel';
      /** What the sentinels call the primary. */
      readonly name: string;
      readonly hosts: readonly HostPort[];
      /** Of the sentinels, who have their own. */
      readonly username: string | null;
      readonly password: string | null;
      readonly tls: UpstreamTls | null;
    }
  /** Some of its nodes. */
  | { readonly kind: 'cluster'; readonly hosts: readonly HostPort[] };

/** How to get at the servers of a store in Redis. */
export type RedisAccess = {
  readonly servers: RedisServers;
  readonly username: string | null;
  readonly password: string | null;
  /** Null: in the clear. */
  readonly tls: UpstreamTls | null;
  readonly db: number;
};

export type StoreConfig =
  | { readonly kind: 'memory'; readonly maxMemoryBytes: number; readonly secrets: readonly string[] }
  | {
      readonly kind: 'redis';
      readonly access: RedisAccess;
      /** Put before every key and channel. */
      readonly prefix: string;
      /** Longest wait for the reply to one command. */
      readonly commandTimeoutMs: number;
      /** How many replicas must have a claim for it to count. */
      readonly waitReplicas: number;
      /** Bound of the in-process store that `onStoreDown: local` falls back to. */
      readonly maxMemoryBytes: number;
      /** The first is in use; those behind it were, or will be. Empty: nothing is hidden or sealed. */
      readonly secrets: readonly string[];
    };

/** Which requests are traced. */
export type Sampler = {
  /** `followed`: whose sender is traced is, and whose sender is not is not. */
  readonly parent: 'followed' | 'ignored';
  /** Share of the others. */
  readonly ratio: number;
};

export type TracingConfig =
  | { readonly kind: 'off' }
  | {
      readonly kind: 'otlp';
      readonly url: URL;
      readonly sampler: Sampler;
      /** Flat field lines of each request to the collector. */
      readonly fields: readonly string[];
      /** What the gateway is, by OpenTelemetry's names; the later of two counts. */
      readonly resource: readonly (readonly [string, string])[];
    };

export const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

export const ACCESS_FORMATS = ['json', 'clf', 'combined', 'off'] as const;

/** The line of each request that is over. */
export type AccessLogConfig = {
  readonly format: (typeof ACCESS_FORMATS)[number];
  /** Part of the requests that ended well that have one, 0 to 1; all others have one. */
  readonly share: number;
  /** `pattern`: the path of the rule, where it has a key. */
  readonly target: 'none' | 'pattern' | 'path' | 'full';
  readonly client: 'none' | 'truncated' | 'full';
};

export type LogConfig = {
  readonly level: LogLevel;
  readonly format: 'json' | 'text';
  readonly access: AccessLogConfig;
};

export type Config = {
  readonly listen: ListenConfig;
  readonly admin: AdminConfig;
  /** Processes that serve the port together; auto: as many as the machine has cores. */
  readonly workers: number | 'auto';
  readonly store: StoreConfig;
  readonly upstreams: ReadonlyMap<string, UpstreamConfig>;
  /** In file order: the first that matches wins. */
  readonly rules: readonly Rule[];
  readonly unmatched: { readonly kind: 'upstream'; readonly name: string } | { readonly kind: 'not-found' };
  readonly limits: LimitsConfig;
  /** CIDRs of peers whose `X-Forwarded-*` fields are believed. */
  readonly trustedProxies: readonly string[];
  readonly requestId: { readonly trust: RequestIdTrust };
  readonly log: LogConfig;
  readonly tracing: TracingConfig;
  /** How long flights may go on once nothing more is accepted. */
  readonly drainMs: number;
  /** How long requests are still accepted before, while it says that it is not ready. */
  readonly drainDelayMs: number;
};
