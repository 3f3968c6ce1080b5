/**
 * One address of an upstream: its connections, and the forwarding of one request over them. What undici cannot do goes
 * over Node's own client (node-exchange.ts), and HTTP/2 over Node's as well (http2-exchange.ts).
 *
 * Invariants, whichever client carries a request: it is sent at most once; TLS asks for, and checks, the name that the
 * configuration gives, never one that a client sent; a new connection resolves the name anew, and none is older than
 * `maxConnectionAgeMs` when a request is handed to it.
 */

import type http from 'node:http';
import { isIP } from 'node:net';
import { buildConnector, type Client, type Dispatcher } from 'undici';
import type { AddressConfig, UpstreamConfig } from '../config/config.js';
import { ClientPool } from './client-pool.js';
import type {
  Exchange,
  ForwardSink,
  SendableRequest,
  UpgradeExchange,
  UpgradeSink,
  UpstreamRequest,
} from './exchange.js';
import { Http2Exchange } from './http2-exchange.js';
import { Http2Sessions } from './http2-sessions.js';
import { keepingAgent } from './keeping-agent.js';
import { NodeExchange } from './node-exchange.js';
import { endWhenRead } from './paused-end.js';
import { Standing } from './standing.js';
import { ignoreContinue } from './unasked-continue.js';
import { UndiciExchange } from './undici-exchange.js';

/** Total size of the fields of one message, both ways. */
export const MAX_FIELD_BYTES = 65_536;

/**
 * What a request may use: calls of rules with a key have connections of their own, so that slow pass-through traffic cannot
 * starve them; `fresh` is a connection that nothing was sent over yet.
 */
export type Connections = 'keyed' | 'open' | 'fresh';

/** TLS options as Node names them. */
export type SecureOptions = {
  readonly servername: string;
  readonly rejectUnauthorized: boolean;
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
};

export class Address {
  /** `host:port`, or `unix:` and the path. */
  readonly name: string;
  readonly standing: Standing;
  /** Exchanges that are not over. */
  pending = 0;
  readonly #place: AddressConfig;
  readonly #config: UpstreamConfig;
  readonly #secure: SecureOptions;
  readonly #pools: Readonly<Record<'keyed' | 'open', ClientPool>>;
  /** The same for Node's client. A connection of an upgrade is its own: whatever became of it, nothing else follows. */
  readonly #agents: Readonly<Record<Connections, http.Agent>>;
  readonly #sessions: Readonly<Record<'keyed' | 'open', Http2Sessions>> | null;

  constructor(place: AddressConfig, config: UpstreamConfig) {
    this.name = place.name;
    this.standing = new Standing(config.eject);
    this.#place = place;
    this.#config = config;
    this.#secure = secureOptions(place, config);
    const options: Client.Options = {
      pipelining: 1,
      connect: this.#connector(),
      headersTimeout: config.headersTimeoutMs,
      bodyTimeout: config.bodyTimeoutMs,
      maxHeaderSize: MAX_FIELD_BYTES,
      // The length is the client's to state; a request whose content falls short fails as such, not as a warning.
      strictContentLength: true,
    };
    const pool = () => new ClientPool(place.url.origin, options, config.maxConnectionAgeMs);
    this.#pools = { keyed: pool(), open: pool() };
    const agent = (maxAgeMs: number) => keepingAgent(place.url.protocol, maxAgeMs, this.#secure);
    const { maxConnectionAgeMs } = config;
    this.#agents = { keyed: agent(maxConnectionAgeMs), open: agent(maxConnectionAgeMs), fresh: agent(0) };
    const sessionOptions = { place, config, secure: this.#secure, maxFieldBytes: MAX_FIELD_BYTES };
    this.#sessions =
      config.protocol === 'h2'
        ? { keyed: new Http2Sessions(sessionOptions), open: new Http2Sessions(sessionOptions) }
        : null;
  }

  /** Its own `Host`. */
  get host(): string {
    return this.#place.url.host;
  }

  /** Sends one request, once. Every way it can end is told to the sink. */
  forward(request: UpstreamRequest, sink: ForwardSink, connections: Connections): Exchange {
    const sendable = this.#sendable(request);
    if (this.#sessions !== null) {
      const sessions = this.#sessions[connections === 'keyed' ? 'keyed' : 'open'];
      return new Http2Exchange(sendable, sink, sessions, this.#config).start(connections === 'fresh');
    }
    // undici drops trailers, takes no target but a path, and does not say which of its connections it will use.
    const isForNode =
      connections === 'fresh' || request.trailers !== null || (request.method === 'OPTIONS' && request.target === '*');
    if (isForNode) return this.#overNode(sendable, sink, null, this.#agents[connections]);
    const exchange = new UndiciExchange(request.method, sink);
    const options: Dispatcher.DispatchOptions & { servername: string } = {
      path: sendable.target,
      method: sendable.method as Dispatcher.HttpMethod,
      headers: sendable.fields as string[],
      body: sendable.content,
      // undici closes the connection after every HEAD unless told otherwise.
      reset: false,
      // The connector has the true one. undici would take it from the request, and connect anew whenever it changes.
      servername: this.#place.url.hostname,
    };
    this.#pools[connections].dispatch(options, exchange as unknown as Dispatcher.DispatchHandler);
    return exchange;
  }

  /** Sends a request whose fields offer to switch protocols, once: over HTTP/1.1, whatever else the address speaks. */
  upgrade(request: UpstreamRequest, sink: UpgradeSink): UpgradeExchange {
    return this.#overNode(this.#sendable(request), sink, sink, this.#agents.fresh);
  }

  /** Cuts every running exchange. */
  async destroy(): Promise<void> {
    for (const agent of Object.values(this.#agents)) agent.destroy();
    for (const sessions of Object.values(this.#sessions ?? {})) sessions.destroy();
    await Promise.all(Object.values(this.#pools).map((pool) => pool.destroy()));
  }

  #sendable(request: UpstreamRequest): SendableRequest {
    const { content } = request;
    return typeof content === 'function' ? { ...request, content: content() } : (request as SendableRequest);
  }

  #overNode(request: SendableRequest, sink: ForwardSink, upgrade: UpgradeSink | null, agent: http.Agent): NodeExchange {
    const options = { config: this.#config, place: this.#place, agent, maxFieldBytes: MAX_FIELD_BYTES };
    return new NodeExchange(request, sink, upgrade, options).start();
  }

  #connector(): buildConnector.connector {
    const { servername } = this.#secure;
    const connect = buildConnector({
      timeout: this.#config.connectTimeoutMs,
      socketPath: this.#place.socketPath,
      ...this.#secure,
    });
    return (options, callback) =>
      connect({ ...options, servername }, (...[error, socket]) => {
        if (error !== null) return callback(error, null);
        endWhenRead(socket);
        ignoreContinue(socket, MAX_FIELD_BYTES);
        callback(null, socket);
      });
  }
}

function secureOptions({ url }: AddressConfig, { tls }: UpstreamConfig): SecureOptions {
  const host = url.hostname.replace(/^\[|\]$/g, '');
  return {
    // An address is no name to ask for (RFC 6066 section 3); it is checked as an address then.
    servername: tls.serverName ?? (isIP(host) === 0 ? host : ''),
    rejectUnauthorized: tls.verify,
    ...(tls.ca === null ? {} : { ca: tls.ca }),
    ...(tls.cert === null ? {} : { cert: tls.cert }),
    ...(tls.key === null ? {} : { key: tls.key }),
  };
}
