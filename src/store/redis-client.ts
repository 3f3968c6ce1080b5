/**
 * The one place that makes a client of Redis: what it connects to, and how it behaves.
 *
 * Invariants: nothing is queued while a connection is down and nothing is resent behind our back; no password is part of a
 * name, an address or a message.
 */

import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { type ConnectionOptions, connect as connectTls } from 'node:tls';
import { AbstractConnector, Redis, type RedisOptions, SentinelConnector } from 'ioredis';
import type { HostPort, RedisAccess, UpstreamTls } from '../config/config.js';

type Argument = string | number | Buffer;
type Script = (...keysAndArguments: Argument[]) => Promise<unknown>;
/** Each script of lua/ under its own name; its file says what it takes and gives. Replies come as bytes. */
export type Scripted = {
  readonly oneflightClaimBuffer: Script;
  readonly oneflightRenewBuffer: Script;
  readonly oneflightCompleteBuffer: Script;
  readonly oneflightReleaseBuffer: Script;
  readonly oneflightLookBuffer: Script;
  readonly oneflightLeaveBuffer: Script;
  readonly oneflightPurgeBuffer: Script;
  readonly oneflightSettleBuffer: Script;
  readonly oneflightQueueBuffer: Script;
  readonly oneflightRelayBuffer: Script;
  readonly oneflightRelayOnBuffer: Script;
  readonly oneflightPiecesBuffer: Script;
  readonly oneflightStandingBuffer: Script;
};
/** What a question may use of a client. */
export type ScriptedRedis = Scripted &
  Pick<
    Redis,
    | 'call'
    | 'callBuffer'
    | 'cluster'
    | 'config'
    | 'hget'
    | 'hmgetBuffer'
    | 'info'
    | 'on'
    | 'ping'
    | 'pipeline'
    | 'publish'
    | 'scan'
    | 'subscribe'
    | 'unlink'
    | 'wait'
  >;

const lua = (file: string) => readFileSync(new URL(`./lua/${file}`, import.meta.url), 'utf8');

const SCRIPTS = {
  oneflightClaim: { lua: lua('claim.lua'), numberOfKeys: 4 },
  oneflightRenew: { lua: lua('renew.lua'), numberOfKeys: 1 },
  oneflightComplete: { lua: lua('complete.lua'), numberOfKeys: 4 },
  oneflightRelease: { lua: lua('release.lua'), numberOfKeys: 2 },
  oneflightLook: { lua: lua('look.lua'), numberOfKeys: 2 },
  oneflightLeave: { lua: lua('leave.lua'), numberOfKeys: 1 },
  oneflightPurge: { lua: lua('purge.lua'), numberOfKeys: 3 },
  oneflightSettle: { lua: lua('settle.lua'), numberOfKeys: 2 },
  oneflightRelay: { lua: lua('relay.lua'), numberOfKeys: 3 },
  oneflightRelayOn: { lua: lua('relay-on.lua'), numberOfKeys: 2 },
  oneflightPieces: { lua: lua('pieces.lua'), numberOfKeys: 3 },
  oneflightQueue: { lua: lua('queue.lua'), numberOfKeys: 3 },
  oneflightStanding: { lua: lua('standing.lua'), numberOfKeys: 1 },
};

/** By the names of `Scripted`. */
const WHOLE: ReadonlyMap<string, { readonly lua: string; readonly numberOfKeys: number }> = new Map(
  Object.entries(SCRIPTS).map(([name, script]) => [`${name}Buffer`, script]),
);

/**
 * The client for a question to a node to which a slot is on its way: ASKING goes before each command, and holds for that
 * one alone. Scripts are sent whole. For one that the node does not know the client would come back with its text and
 * without ASKING, and be sent away.
 */
export function askingOf(client: ScriptedRedis): ScriptedRedis {
  return new Proxy(client, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name);
      if (typeof value !== 'function') return value;
      const script = typeof name === 'string' ? WHOLE.get(name) : undefined;
      return (...given: Argument[]): unknown => {
        // One that fails is told by what follows.
        target.call('ASKING').catch(() => {});
        return script === undefined
          ? Reflect.apply(value, target, given)
          : target.callBuffer('EVAL', script.lua, script.numberOfKeys, ...given);
      };
    },
  });
}

const CONNECT_MS = 2_000;
const DISCONNECT_MS = 100;
const SENTINEL_MS = 1_000;
/** How often a sentinel that is gone is tried again for its news. */
const SENTINEL_AGAIN_MS = 5_000;

/** From 20 ms, doubled up to 1 s, the upper half of it at random: a fleet does not come back in step. */
function retryDelayMs(attempt: number): number {
  const most = Math.min(1_000, 20 * 2 ** Math.min(attempt - 1, 6));
  return most / 2 + (Math.random() * most) / 2;
}

export type ClientOptions = {
  readonly access: RedisAccess;
  /** Where the next connection goes to; null: the sentinels know. */
  readonly next: () => HostPort | null;
  readonly commandTimeoutMs: number;
};

/** It does not connect yet. */
export function newClient({ access, next, commandTimeoutMs }: ClientOptions): Redis & Scripted {
  const client: Redis = new Redis({
    ...placeOf(access, next()),
    ...credentialsOf(access),
    ...(access.tls === null ? {} : { tls: tlsOf(access.tls) }),
    db: access.db,
    lazyConnect: true,
    enableOfflineQueue: false,
    // A drop rejects at once what is under way. A resend by the client could come after we had given up.
    maxRetriesPerRequest: 0,
    autoResendUnfulfilledCommands: false,
    // The client would subscribe again without anybody to catch the failure.
    autoResubscribe: false,
    retryStrategy: (attempt) => {
      // The place is read from its options when it connects.
      Object.assign(client.options, next());
      return retryDelayMs(attempt);
    },
    // Only a sentinel's word is checked, that the server is a primary. A server that is still loading says so to every
    // question, and one that forbids INFO would be complained about on standard error.
    enableReadyCheck: access.servers.kind === 'sentinel',
    connectTimeout: CONNECT_MS,
    // Commands have deadlines of their own. This one is for the connection: silence with a question open means that
    // the server is stopped or the network gone, and also ends a handshake that is never answered.
    socketTimeout: Math.max(1_000, 4 * commandTimeoutMs),
    disconnectTimeout: DISCONNECT_MS,
    // After a failover behind one address the old primary is still connected, as a replica.
    // Before Redis 7 the word stands within the error of the script that wanted to write.
    reconnectOnError: (error: Error) => /\bREADONLY\b/.test(error.message),
    scripts: SCRIPTS,
  });
  return client as Redis & Scripted;
}

type Settings = Omit<RedisOptions, 'replyMapping'>;

/**
 * The client listens for one error of a connection. With TLS there can be another behind it (an alert after a reset), and
 * an error that nobody listens for ends the process. So every connection is made here, or at least gets an ear here.
 */
class HeardConnector extends AbstractConnector {
  readonly #options: RedisOptions;

  constructor(options: unknown) {
    super((options as RedisOptions).disconnectTimeout ?? DISCONNECT_MS);
    this.#options = options as RedisOptions;
  }

  override async connect(): Promise<Socket> {
    const { host = 'localhost', port = 0, tls } = this.#options;
    this.connecting = true;
    const stream = tls ? connectTls({ host, port, ...tls }) : connect({ host, port });
    this.stream = stream;
    stream.once('error', (error: Error) => {
      this.firstError = error;
    });
    stream.on('error', () => {});
    return stream;
  }
}

class HeardSentinelConnector extends SentinelConnector {
  constructor(options: unknown) {
    super(options as ConstructorParameters<typeof SentinelConnector>[0]);
    const own = this as unknown as {
      connectToSentinel(at: unknown, options?: object): Redis;
      initFailoverDetector(): Promise<void>;
      resolve(at: unknown): Promise<unknown>;
    };
    let heard: Error | null = null;
    const toSentinel = own.connectToSentinel.bind(this);
    own.connectToSentinel = (at, more) => {
      const client = toSentinel(at, { ...more, Connector: HeardConnector });
      // A sentinel that is gone is tried again. The client would print each attempt on standard error.
      client.on('error', (error) => {
        heard = error;
      });
      // Connected again it subscribes again by itself, and a failure that nobody hears of (a sentinel that takes
      // connections and says nothing, or one that is given up just then) would end the process.
      const subscribe = client.subscribe.bind(client) as (...channels: unknown[]) => Promise<unknown>;
      client.subscribe = (...channels: unknown[]) => {
        const subscribed = subscribe(...channels);
        subscribed.catch(() => {});
        return subscribed;
      };
      return client;
    };
    const ask = own.resolve.bind(this);
    // Why a connection could not be made (a certificate) is known to the connection alone.
    own.resolve = async (at) => {
      heard = null;
      try {
        return await ask(at);
      } catch (error) {
        throw heard ?? error;
      }
    };
    const detect = own.initFailoverDetector.bind(this);
    // Of a connection that was given up meanwhile nobody would end the ones to the sentinels.
    own.initFailoverDetector = async () => {
      if (this.connecting) await detect();
    };
  }

  override async connect(...args: Parameters<SentinelConnector['connect']>) {
    const stream = await super.connect(...args);
    stream.on('error', () => {});
    return stream;
  }
}

function placeOf({ servers, tls }: RedisAccess, at: HostPort | null): Settings {
  if (servers.kind !== 'sentinel') return { ...at, Connector: HeardConnector };
  return {
    Connector: HeardSentinelConnector,
    sentinels: servers.hosts.map(({ host, port }) => ({ host, port })),
    name: servers.name,
    ...(servers.username === null ? {} : { sentinelUsername: servers.username }),
    ...(servers.password === null ? {} : { sentinelPassword: servers.password }),
    ...(servers.tls === null ? {} : { sentinelTLS: tlsOf(servers.tls) }),
    enableTLSForSentinelMode: tls !== null,
    // The sentinels say that there is another primary before the old one is known to be gone.
    failoverDetector: true,
    sentinelReconnectStrategy: () => SENTINEL_AGAIN_MS,
    // Also of a sentinel that takes connections and says nothing: the next one is asked then.
    sentinelCommandTimeout: SENTINEL_MS,
    sentinelRetryStrategy: retryDelayMs,
  };
}

function credentialsOf({ username, password }: RedisAccess): Settings {
  return { ...(username === null ? {} : { username }), ...(password === null ? {} : { password }) };
}

function tlsOf({ ca, cert, key, serverName, verify }: UpstreamTls): ConnectionOptions {
  return {
    ...(ca === null ? {} : { ca }),
    ...(cert === null || key === null ? {} : { cert, key }),
    ...(serverName === null ? {} : { servername: serverName }),
    rejectUnauthorized: verify,
  };
}
