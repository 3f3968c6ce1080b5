/**
 * The listener for clients: Node's HTTP server in front, a `Caller` for each request behind. Why not Fastify here:
 * docs/decisions.md.
 *
 * Invariants: a request that was accepted is over only when its response is; stopping refuses new connections and new
 * requests, and lets running ones end.
 */

import { createServer, type IncomingMessage, type Server, type ServerResponse, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { LimitsConfig, ListenConfig, RequestIdTrust } from '../config/config.js';
import type { Pair } from '../config/tls-material.js';
import { Roster } from '../core/roster.js';
import { Caller, type Report } from '../exchange/caller.js';
import { type Asking, isKnownMethod } from '../exchange/judging.js';
import { forwardedFields, type Peer } from '../http/fields.js';
import { problemMessage } from '../http/problem.js';
import { Certificate, type CertificateNews } from './certificate.js';
import { Connection } from './connection.js';
import { endConnection } from './farewell.js';
import { Front, type RefusedConnection } from './front.js';
import type { Peers } from './peers.js';
import { requestIdOf } from './request-id.js';
import { SlowClients } from './slow-clients.js';
import type { StreamRequest } from './stream-request.js';
import type { StreamResponse } from './stream-response.js';
import { Streams } from './streams.js';
import { lastResponse, offerOfRequest, ordinaryBytes } from './upgrade-request.js';

/** How often Node looks for requests whose fields take too long, as a part of what they may take, and at most. */
const LOOKS_IN_FIELDS_TIMEOUT = 8;
const LOOK_MOST_MS = 5_000;
/** Time that refused clients have at the end to take their answer. */
const FAREWELL_MS = 250;
const FAREWELL_TRIES = 10;

const NOBODY = new Roster<Caller>();

export type ListenerOptions = {
  readonly listen: ListenConfig;
  readonly limits: LimitsConfig;
  readonly peers: Peers;
  readonly requestIdTrust: RequestIdTrust;
  /** The certificate that others show on this port, in place of files that cannot be used; null: there are no others. */
  readonly pair: Pair | null;
  /** A connection was closed before anything was read of it. */
  readonly onRefused: (reason: RefusedConnection) => void;
  /** Told of every change of the certificate, and of every pair that cannot be one. */
  readonly onCertificate: (news: CertificateNews) => void;
  /** Whether the connection of such a request may be handed over to another protocol. */
  readonly takesUpgrade: (asking: Asking) => boolean;
  readonly handle: (caller: Caller) => void;
  readonly over: (report: Report) => void;
};

export class Listener {
  /** HTTP/1 on connections that the front has accepted. It never listens itself. */
  readonly #server: Server;
  readonly #front: Front;
  readonly #certificate: Certificate | null;
  readonly #slow: SlowClients;
  readonly #streams: Streams | null;
  /** Connections between two requests, the longest idle one first; kept only where there is a limit to their number. */
  readonly #idle: Set<Socket> | null;
  readonly #options: ListenerOptions;
  #limits: LimitsConfig;
  #requestIdTrust: RequestIdTrust;
  readonly #callers = new Roster<Caller>();
  readonly #connections = new WeakMap<Duplex, Connection>();
  /** Upgrades that came behind requests which are not over, by connection. */
  readonly #behindOthers = new WeakMap<Duplex, () => void>();
  #draining = false;
  #onIdle: (() => void) | null = null;

  constructor(options: ListenerOptions) {
    this.#options = options;
    const { limits } = options;
    this.#limits = limits;
    this.#requestIdTrust = options.requestIdTrust;
    this.#slow = new SlowClients(limits);
    this.#idle = limits.maxConnections === Number.POSITIVE_INFINITY ? null : new Set();
    this.#server = createServer(
      {
        maxHeaderSize: limits.maxFieldBytes,
        headersTimeout: limits.fieldsTimeoutMs,
        connectionsCheckingInterval: Math.ceil(
          Math.min(limits.fieldsTimeoutMs / LOOKS_IN_FIELDS_TIMEOUT, LOOK_MOST_MS),
        ),
        // Content may take as long as it moves (`SlowClients`): uploads of any size pass through.
        requestTimeout: 0,
        keepAliveTimeout: limits.keepAliveTimeoutMs,
        // Refused by ourselves, in our own words.
        requireHostHeader: false,
      },
      (req, res) => this.#connectionOf(req.socket).admit(res, () => this.#onRequest(req, res)),
    );
    // The size of the fields is the bound. Node would drop those beyond a number in silence, Content-Length among them.
    this.#server.maxHeadersCount = 0;
    this.#server.on('clientError', (error: Unreadable, socket) => this.#onUnreadable(error, socket));
    // A proxy for one API is no tunnel (RFC 9110 section 9.3.6).
    this.#server.on('connect', (_req, socket) => this.#refuseUnreadable(socket, 501));
    this.#server.on('checkContinue', (req, res) => this.#onExpecting(req, res));
    this.#server.on('checkExpectation', (req, res) => {
      this.#connectionOf(req.socket).admit(res, () => this.#onRequest(req, res, 417));
    });
    this.#server.on('upgrade', (req, socket, first) => this.#onUpgrade(req, socket as Socket, first));
    const { host, port, tls } = options.listen;
    this.#certificate = tls === null ? null : new Certificate(tls, options.pair);
    this.#streams = options.listen.http2
      ? new Streams({ limits, slow: this.#slow, onRequest: (req, res, peer) => this.#onStream(req, res, peer) })
      : null;
    this.#front = new Front({
      host,
      port,
      tls: this.#certificate?.context ?? null,
      handshakeTimeoutMs: limits.fieldsTimeoutMs,
      maxConnections: limits.maxConnections,
      makeRoom: () => this.#closeIdle(),
      peers: options.peers,
      proxyProtocol: options.listen.proxyProtocol,
      headerTimeoutMs: limits.fieldsTimeoutMs,
      onRefused: options.onRefused,
      onHttp2: this.#streams === null ? null : (socket, peer) => this.#streams?.serve(socket, peer),
      onHttp: (socket, peer) => {
        this.#onConnection(socket, peer);
        this.#server.emit('connection', socket);
      },
    });
  }

  /** Binds, and answers the URL it is bound to. Rejects when it cannot. */
  async listen(): Promise<string> {
    const url = await this.#front.listen();
    // Node begins to look after slow requests when a server listens, which this one leaves to the front.
    this.#server.emit('listening');
    this.#certificate?.watch((context) => this.#front.secureWith(context), this.#options.onCertificate);
    return url;
  }

  /** Has other limits from the next request on: those that do not need a restart (config/changes.ts). */
  allow(limits: LimitsConfig, requestIdTrust: RequestIdTrust): void {
    this.#limits = limits;
    this.#requestIdTrust = requestIdTrust;
    this.#server.keepAliveTimeout = limits.keepAliveTimeoutMs;
    this.#slow.allow(limits);
    this.#streams?.keepAliveFor(limits.keepAliveTimeoutMs);
  }

  /** Reads the certificate's files again; what has not changed stays in use. */
  reloadCertificate(): void {
    this.#certificate?.reload();
  }

  /** Connections that are open now. */
  get connectionCount(): number {
    return this.#front.count;
  }

  /** Requests that are under way. */
  get requestCount(): number {
    return this.#callers.size;
  }

  get draining(): boolean {
    return this.#draining;
  }

  /** Stops accepting; resolves when every running request is over. */
  async drain(): Promise<void> {
    this.#draining = true;
    this.#front.stop();
    this.#server.closeIdleConnections();
    const ended = this.#streams?.drain();
    if (this.#callers.size > 0) {
      await new Promise<void>((resolve) => {
        this.#onIdle = resolve;
      });
    }
    this.#server.closeIdleConnections();
    // Of a stream that is over the last bytes may still be on their way; whoever does not take them is not waited for.
    await Promise.race([ended, new Promise((resolve) => setTimeout(resolve, FAREWELL_MS).unref())]);
  }

  /** Ends whatever is left: an answer that has not begun becomes a refusal, one that has is cut. */
  async close(): Promise<void> {
    this.#front.stop();
    this.#certificate?.close();
    this.#slow.close();
    for (const caller of this.#callers) caller.refuse('draining');
    // Time for the refusals to leave; whoever does not read them is not waited for.
    for (let i = 0; i < FAREWELL_TRIES && this.#callers.size > 0; i++) {
      await new Promise((resolve) => setTimeout(resolve, FAREWELL_MS / FAREWELL_TRIES));
    }
    this.#front.destroy();
    this.#server.close();
  }

  /** The parser has met something that it cannot read. */
  #onUnreadable(error: Unreadable, socket: Duplex): void {
    const { code = '' } = error;
    const connection = this.#connections.get(socket);
    const first = connection?.callers.first();
    if (LEFT.has(code)) return this.#refuseUnreadable(socket, null);
    if (connection !== undefined && isRefused(connection)) return;
    // What comes behind the last request of a connection is not read, and no reason to withhold the answer to that one.
    if (code === 'HPE_CLOSED_CONNECTION' && first !== undefined) return;
    const refusal = isUnknownMethod(error) ? 501 : (STATUS_OF_CODE[code] ?? 400);
    // It is the content of the only request there is, and its answer has not begun: it is told.
    if (connection?.callers.size === 1 && first !== undefined && !first.req.complete && !first.begun) {
      connection.refused = true;
      return first.contentUnreadable({ status: refusal });
    }
    this.#refuseUnreadable(socket, refusal);
  }

  /** Answers what cannot be taken as a request, and ends its connection: what follows cannot be read either. */
  #refuseUnreadable(socket: Duplex, refusal: number | null): void {
    // Node has let go of some of these sockets: an error of theirs, a reset say, is nobody's business any more.
    socket.on('error', () => {});
    const connection = this.#connections.get(socket);
    // Where an earlier request has still to be answered, the refusal would be taken for its answer.
    const busy = (connection?.callers.size ?? 0) > 0;
    if (!socket.writable || refusal === null || busy) {
      socket.destroy();
      return;
    }
    if (connection !== undefined) connection.refused = true;
    const { status, fields, content } = problemMessage('bad-request', { status: refusal });
    let head = `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nConnection: close\r\n`;
    for (let i = 0; i + 1 < fields.length; i += 2) head += `${fields[i]}: ${fields[i + 1]}\r\n`;
    endConnection(socket, Buffer.concat([Buffer.from(`${head}\r\n`, 'latin1'), content]));
  }

  #onConnection(socket: Socket, peer: Peer): void {
    // Of a connection that Node has let go of, as of every upgrade, an error would end the process.
    socket.on('error', () => {});
    const connection = new Connection(socket, peer, this.#options.limits.maxConcurrentStreams);
    this.#connections.set(socket, connection);
    this.#slow.watch(connection);
    socket.once('close', () => {
      this.#slow.forget(connection);
      this.#idle?.delete(socket);
      connection.ended();
      for (const caller of connection.callers) caller.connectionEnded();
    });
  }

  #closeIdle(): boolean {
    const [socket] = this.#idle ?? [];
    if (socket === undefined) return this.#streams?.closeIdle() ?? false;
    this.#idle?.delete(socket);
    socket.destroy();
    return true;
  }

  /**
   * Answers `Expect: 100-continue`. Behind other requests it waits for its turn, with nothing done, and so do those behind
   * it: written earlier, the 100 would go out with the answer, behind its fields and so as a part of its content.
   */
  #onExpecting(req: IncomingMessage, res: ServerResponse): void {
    const connection = this.#connectionOf(req.socket);
    connection.inTurn ||= res.socket === null;
    const proceed = () => {
      // Nobody need send what would be refused.
      if (Number(req.headers['content-length'] ?? 0) <= this.#limits.maxContentBytes) res.writeContinue();
      this.#onRequest(req, res);
    };
    connection.admit(res, proceed);
  }

  #onRequest(req: IncomingMessage, res: ServerResponse, refusal: 417 | null = null): void {
    const connection = this.#connections.get(req.socket);
    // It was sent behind a request that is refused: nobody knows whether it is one.
    if (connection !== undefined && isRefused(connection)) {
      req.resume();
      return;
    }
    this.#take(this.#arrived(req, res, null), refusal);
  }

  /** `first`: what came right behind the request's fields; nothing of the connection has been read beyond it. */
  #onUpgrade(req: IncomingMessage, socket: Socket, first: Buffer): void {
    if (first.length > 0) socket.unshift(first);
    const together = this.#connections.get(socket)?.callers ?? NOBODY;
    if (together.size === 0) return this.#upgrade(req, socket);
    // Its answer comes after those of the requests before it, which Node tells no more when there is room for them.
    const onDrain = () => {
      for (const caller of together) caller.connectionDrained();
    };
    socket.on('drain', onDrain);
    this.#behindOthers.set(socket, () => {
      this.#behindOthers.delete(socket);
      socket.off('drain', onDrain);
      this.#upgrade(req, socket);
    });
  }

  #upgrade(req: IncomingMessage, socket: Socket): void {
    if (socket.destroyed) return;
    const connection = this.#connections.get(socket);
    if (connection !== undefined && isRefused(connection)) return endConnection(socket);
    // The time for idle connections, which a request before it may have left running.
    socket.setTimeout(0);
    const offer = offerOfRequest(req);
    if (offer === null || !this.#options.takesUpgrade(this.#asking(req))) return this.#again(req, socket);
    this.#take(this.#arrived(req, lastResponse(req, socket), offer));
  }

  #asking(req: IncomingMessage): Asking {
    const { peer } = this.#connectionOf(req.socket);
    const fields = forwardedFields(req.rawHeaders, peer, requestIdOf(req.headers, peer, this.#requestIdTrust));
    return { method: req.method as string, target: req.url as string, fields };
  }

  /** Gives the connection back to the server, to read the request as an ordinary one. */
  #again(req: IncomingMessage, socket: Socket): void {
    socket.removeAllListeners('timeout');
    socket.unshift(ordinaryBytes(req));
    this.#server.emit('connection', socket);
  }

  /** Every socket that the server reads has been announced by the front. */
  #connectionOf(socket: Duplex): Connection {
    return this.#connections.get(socket) as Connection;
  }

  #arrived(req: IncomingMessage, res: ServerResponse, offer: string | null): Caller {
    const connection = this.#connectionOf(req.socket);
    const { peer } = connection;
    const requestId = requestIdOf(req.headers, peer, this.#requestIdTrust);
    this.#idle?.delete(req.socket);
    const caller = new Caller(req, res, requestId, peer, offer, this.#limits.maxContentBytes, (report) => {
      this.#callers.remove(place);
      connection.callers.remove(placeThere);
      connection.refused ||= caller.endsConnection;
      connection.admitNext();
      if (!req.complete) this.#awaitRest(req);
      if (connection.callers.size === 0 && !req.socket.destroyed) this.#idle?.add(req.socket);
      this.#options.over(report);
      if (connection.callers.size === 0) this.#behindOthers.get(req.socket)?.();
      if (this.#draining) this.#server.closeIdleConnections();
      if (this.#callers.size === 0) this.#onIdle?.();
    });
    const place = this.#callers.add(caller);
    const placeThere = connection.callers.add(caller);
    return caller;
  }

  /** Its answer is out. What is left of its upload is for nobody, and may not keep the connection for long, however it moves. */
  #awaitRest(req: IncomingMessage): void {
    const timer = setTimeout(() => {
      if (!req.complete) endConnection(req.socket);
    }, this.#limits.contentTimeoutMs).unref();
    req.once('close', () => clearTimeout(timer));
  }

  #onStream(req: StreamRequest, res: StreamResponse, peer: Peer): Caller {
    const limits = this.#limits;
    const requestId = requestIdOf(req.headers, peer, this.#requestIdTrust);
    const caller = new Caller(req, res, requestId, peer, null, limits.maxContentBytes, (report) => {
      this.#callers.remove(place);
      this.#options.over(report);
      if (this.#callers.size === 0) this.#onIdle?.();
    });
    const place = this.#callers.add(caller);
    const { expect } = req.headers;
    if (req.method === 'CONNECT') caller.refuse('bad-request', { status: 501 });
    else if (req.fieldBytes > limits.maxFieldBytes) caller.refuse('bad-request', { status: 431 });
    else if (req.fault !== null) caller.refuse('bad-request', { detail: req.fault });
    else if (expect !== undefined && expect.toLowerCase() !== '100-continue') this.#take(caller, 417);
    else {
      if (expect !== undefined && caller.announcedBytes <= limits.maxContentBytes) res.interim(100, []);
      this.#take(caller);
    }
    return caller;
  }

  #take(caller: Caller, refusal: 417 | null = null): void {
    if (refusal !== null) caller.refuse('bad-request', { status: refusal });
    // The parser knows methods of other protocols, and lets them through.
    else if (!isKnownMethod(caller.method)) caller.refuse('bad-request', { status: 501 });
    // A connection that was kept alive may still bring a request; it is told to go elsewhere, with nothing done.
    else if (this.#draining) caller.refuse('draining');
    else this.#options.handle(caller);
  }
}

function isRefused(connection: Connection): boolean {
  for (const caller of connection.callers) connection.refused ||= caller.endsConnection;
  return connection.refused;
}

/** The client has ended its connection, in the middle of a request too. */
const LEFT: ReadonlySet<string> = new Set(['ECONNRESET', 'HPE_INVALID_EOF_STATE']);

/** What the parser says of bytes that it cannot read, and those bytes. */
type Unreadable = NodeJS.ErrnoException & { readonly rawPacket?: Buffer };

const REQUEST_LINE = /^([!#$%&'*+\-.^_`|~\w]+) [!-~\x80-\xff]+ HTTP\/1\.[01]\r?\n/;
const REQUEST_LINE_BYTES = 4_096;

/** A request whose method the parser does not know (it has a list), and not just bytes: that is said as such (RFC 9110 section 9.1). */
function isUnknownMethod({ rawPacket }: Unreadable): boolean {
  const method = REQUEST_LINE.exec(rawPacket?.toString('latin1', 0, REQUEST_LINE_BYTES) ?? '')?.[1];
  return method !== undefined && !isKnownMethod(method);
}

const STATUS_OF_CODE: Readonly<Record<string, number>> = {
  HPE_HEADER_OVERFLOW: 431,
  HPE_CHUNK_EXTENSIONS_OVERFLOW: 413,
  ERR_HTTP_REQUEST_TIMEOUT: 408,
};
