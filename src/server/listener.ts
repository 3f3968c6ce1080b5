/**
 * The listener for clients: Node's HTTP server in front, a `Caller` for each request behind. Why not Fastify here:
 * docs/decisions.md.
 *
 * Invariants: a request that was accepted is over only when its response is; stopping refuses new connections and new
 * requests, and lets running ones end.
 */

import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse, STATUS_CODES } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { Caller, type Report } from '../exchange/caller.js';
import type { Asking } from '../exchange/handle.js';
import { forwardedFields, type Peer } from '../http/fields.js';
import { problemMessage } from '../http/problem.js';
import { MAX_FIELD_BYTES } from '../upstream/upstream.js';
import { lastResponse, offerOfRequest, ordinaryBytes } from './upgrade-request.js';

/** Clients and load balancers keep idle connections for about a minute; closing first would break their next request. */
const KEEP_ALIVE_MS = 65_000;
/** Longest time for the fields of one request. */
const FIELDS_TIMEOUT_MS = 30_000;
/** Time that refused clients have at the end to take their answer. */
const FAREWELL_MS = 250;
const FAREWELL_TRIES = 10;
/** Longest request id that is taken from a client. */
const MAX_REQUEST_ID = 200;

const NOBODY: ReadonlySet<Caller> = new Set();

export type ListenerOptions = {
  readonly host: string;
  readonly port: number;
  readonly peerOf: (socket: IncomingMessage['socket']) => Peer;
  /** Whether the connection of such a request may be handed over to another protocol. */
  readonly takesUpgrade: (asking: Asking) => boolean;
  readonly handle: (caller: Caller) => void;
  readonly over: (report: Report) => void;
};

export class Listener {
  readonly #server: Server;
  readonly #options: ListenerOptions;
  readonly #callers = new Set<Caller>();
  /** Requests by connection: pipelined ones learn of its end from here (see `Caller.connectionEnded`). */
  readonly #byConnection = new WeakMap<Duplex, Set<Caller>>();
  /** Upgrades that came behind requests which are not over, by connection. */
  readonly #behindOthers = new WeakMap<Duplex, () => void>();
  #draining = false;
  #onIdle: (() => void) | null = null;

  constructor(options: ListenerOptions) {
    this.#options = options;
    this.#server = createServer(
      {
        maxHeaderSize: MAX_FIELD_BYTES,
        headersTimeout: FIELDS_TIMEOUT_MS,
        // Content may take as long as it moves: uploads of any size pass through.
        requestTimeout: 0,
        keepAliveTimeout: KEEP_ALIVE_MS,
        // Refused by ourselves, in our own words.
        requireHostHeader: false,
      },
      (req, res) => this.#onRequest(req, res),
    );
    // The size of the fields is the bound. Node would drop those beyond a number in silence, Content-Length among them.
    this.#server.maxHeadersCount = 0;
    this.#server.on('connection', (socket) => this.#onConnection(socket));
    this.#server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
      this.#refuseUnreadable(socket, error.code === 'ECONNRESET' ? null : (STATUS_OF_CODE[error.code ?? ''] ?? 400));
    });
    // A proxy for one API is no tunnel (RFC 9110 section 9.3.6).
    this.#server.on('connect', (_req, socket) => this.#refuseUnreadable(socket, 501));
    this.#server.on('checkExpectation', (req, res) => this.#onRequest(req, res, 417));
    this.#server.on('upgrade', (req, socket, first) => this.#onUpgrade(req, socket as Socket, first));
  }

  /** Binds, and answers the URL it is bound to. Rejects when it cannot. */
  async listen(): Promise<string> {
    const { host, port } = this.#options;
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(port, host, () => {
        this.#server.off('error', reject);
        resolve();
      });
    });
    return listenerUrl(this.#server.address() as AddressInfo);
  }

  get draining(): boolean {
    return this.#draining;
  }

  /** Stops accepting; resolves when every running request is over. */
  async drain(): Promise<void> {
    this.#draining = true;
    this.#server.close();
    this.#server.closeIdleConnections();
    if (this.#callers.size > 0) {
      await new Promise<void>((resolve) => {
        this.#onIdle = resolve;
      });
    }
    this.#server.closeIdleConnections();
  }

  /** Ends whatever is left: an answer that has not begun becomes a refusal, one that has is cut. */
  async close(): Promise<void> {
    this.#server.close();
    for (const caller of this.#callers) caller.refuse('draining');
    // Time for the refusals to leave; whoever does not read them is not waited for.
    for (let i = 0; i < FAREWELL_TRIES && this.#callers.size > 0; i++) {
      await new Promise((resolve) => setTimeout(resolve, FAREWELL_MS / FAREWELL_TRIES));
    }
    this.#server.closeAllConnections();
  }

  /** Answers what cannot be taken as a request, and ends its connection: what follows cannot be read either. */
  #refuseUnreadable(socket: Duplex, refusal: number | null): void {
    // Node has let go of some of these sockets: an error of theirs, a reset say, is nobody's business any more.
    socket.on('error', () => {});
    // Where an earlier request has still to be answered, the refusal would be taken for its answer.
    const busy = (this.#byConnection.get(socket)?.size ?? 0) > 0;
    if (!socket.writable || refusal === null || busy) {
      socket.destroy();
      return;
    }
    const { status, fields, content } = problemMessage('bad-request', { status: refusal });
    let head = `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nConnection: close\r\n`;
    for (let i = 0; i + 1 < fields.length; i += 2) head += `${fields[i]}: ${fields[i + 1]}\r\n`;
    socket.end(Buffer.concat([Buffer.from(`${head}\r\n`, 'latin1'), content]));
  }

  #onConnection(socket: Duplex): void {
    // One that was given back by `#again` is not new.
    if (this.#byConnection.has(socket)) return;
    // Of a connection that Node has let go of, as of every upgrade, an error would end the process.
    socket.on('error', () => {});
    const callers = new Set<Caller>();
    this.#byConnection.set(socket, callers);
    socket.once('close', () => {
      for (const caller of callers) caller.connectionEnded();
    });
  }

  #onRequest(req: IncomingMessage, res: ServerResponse, refusal: 417 | null = null): void {
    const caller = this.#arrived(req, res, null);
    if (refusal !== null) return caller.refuse('bad-request', { status: refusal });
    this.#take(caller);
  }

  /** `first`: what came right behind the request's fields; nothing of the connection has been read beyond it. */
  #onUpgrade(req: IncomingMessage, socket: Socket, first: Buffer): void {
    if (first.length > 0) socket.unshift(first);
    const together = this.#byConnection.get(socket) ?? NOBODY;
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
    // The time for idle connections, which a request before it may have left running.
    socket.setTimeout(0);
    const offer = offerOfRequest(req);
    if (offer === null || !this.#options.takesUpgrade(this.#asking(req))) return this.#again(req, socket);
    this.#take(this.#arrived(req, lastResponse(req, socket), offer));
  }

  #asking(req: IncomingMessage): Asking {
    const fields = forwardedFields(req.rawHeaders, this.#options.peerOf(req.socket), requestIdOf(req));
    return { method: req.method as string, target: req.url as string, fields };
  }

  /** Gives the connection back to the server, to read the request as an ordinary one. */
  #again(req: IncomingMessage, socket: Socket): void {
    socket.removeAllListeners('timeout');
    socket.unshift(ordinaryBytes(req));
    this.#server.emit('connection', socket);
  }

  #arrived(req: IncomingMessage, res: ServerResponse, offer: string | null): Caller {
    const together = this.#byConnection.get(req.socket);
    const caller = new Caller(req, res, requestIdOf(req), this.#options.peerOf(req.socket), offer, (report) => {
      this.#callers.delete(caller);
      together?.delete(caller);
      this.#options.over(report);
      if (together?.size === 0) this.#behindOthers.get(req.socket)?.();
      if (this.#draining) this.#server.closeIdleConnections();
      if (this.#callers.size === 0) this.#onIdle?.();
    });
    this.#callers.add(caller);
    together?.add(caller);
    return caller;
  }

  #take(caller: Caller): void {
    // A connection that was kept alive may still bring a request; it is told to go elsewhere, with nothing done.
    if (this.#draining) caller.refuse('draining');
    else this.#options.handle(caller);
  }
}

const STATUS_OF_CODE: Readonly<Record<string, number>> = {
  HPE_HEADER_OVERFLOW: 431,
  ERR_HTTP_REQUEST_TIMEOUT: 408,
};

/** The client's own request id where it is one line of moderate, visible text; a new one otherwise. */
function requestIdOf(req: IncomingMessage): string {
  const given = req.headers['x-request-id'];
  return typeof given === 'string' && given.length <= MAX_REQUEST_ID && /^[\x21-\x7e]+$/.test(given)
    ? given
    : randomUUID();
}

/** `http://host:port` of a bound address. */
export function listenerUrl({ address, port, family }: AddressInfo): string {
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`;
}
