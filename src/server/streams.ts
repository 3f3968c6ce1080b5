/**
 * HTTP/2 on connections that have agreed on it: each stream becomes a request and a response of its own.
 *
 * Invariants: a connection is ended by GOAWAY, and its streams may end first, whenever it is the gateway's wish; no client
 * has more streams than it was granted, nor more resets, pings and settings than an honest one needs; a connection that
 * takes nothing is closed.
 */

import { constants, createServer, type Http2Server, type ServerHttp2Session, type ServerHttp2Stream } from 'node:http2';
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { LimitsConfig } from '../config/config.js';
import type { Caller } from '../exchange/caller.js';
import { reset, tcpOf } from '../exchange/tunnel.js';
import type { Peer } from '../http/fields.js';
import { queuedBytes } from './connection.js';
import type { Dealing, SlowClients } from './slow-clients.js';
import { StreamRequest } from './stream-request.js';
import { StreamResponse } from './stream-response.js';

/** What a client may send of one stream before the upstream has taken any of it, and of all streams of a connection. */
const STREAM_WINDOW_BYTES = 131_072;
const CONNECTION_WINDOW_BYTES = 4 * 1_048_576;
/** A line costs HTTP/2 32 bytes more than it has (RFC 9113 section 6.5.2), HTTP/1 four. */
const LEAST_LINE_BYTES = 5;
const LINE_COST_BYTES = 32;
/** Streams that a client may reset at once, and a second: one that opens and resets them in a row makes others work for nothing. */
const RESET_BURST = 200;
const RESETS_PER_SECOND = 20;
/** Frames that break the rules, and streams that are refused, until the connection ends. */
const MOST_INVALID = 100;

export type StreamsOptions = {
  readonly limits: LimitsConfig;
  readonly slow: SlowClients;
  /** Takes a request; answers the caller that was made of it. */
  readonly onRequest: (req: StreamRequest, res: StreamResponse, peer: Peer) => Caller;
};

export class Streams {
  readonly #options: StreamsOptions;
  readonly #server: Http2Server;
  /** Connections, and how many streams each has open. */
  readonly #sessions = new Map<ServerHttp2Session, number>();
  #onNone: (() => void) | null = null;

  constructor(options: StreamsOptions) {
    this.#options = options;
    const { maxFieldBytes, maxConcurrentStreams } = options.limits;
    const lines = Math.ceil(maxFieldBytes / LEAST_LINE_BYTES);
    this.#server = createServer({
      maxHeaderListPairs: lines,
      maxSessionInvalidFrames: MOST_INVALID,
      maxSessionRejectedStreams: MOST_INVALID,
      settings: {
        maxConcurrentStreams,
        initialWindowSize: STREAM_WINDOW_BYTES,
        // Beyond the limit of fields the answer is 431, where it can still be read; far beyond, the stream is reset.
        maxHeaderListSize: 2 * maxFieldBytes + LINE_COST_BYTES * Math.min(lines, 1_000),
        enablePush: false,
      },
    });
    this.#server.on('sessionError', () => {});
  }

  /** Speaks HTTP/2 on a connection. */
  serve(socket: Socket, peer: Peer): void {
    this.#server.once('session', (session) => this.#onSession(session, socket, peer));
    this.#server.emit('connection', socket);
    // A socket that has ended meanwhile becomes no session, and the next one is not its.
    this.#server.removeAllListeners('session');
  }

  /** Ends a connection that has no streams; false when there is none. */
  closeIdle(): boolean {
    for (const [session, streams] of this.#sessions) {
      if (streams > 0) continue;
      this.#sessions.delete(session);
      session.destroy();
      return true;
    }
    return false;
  }

  /** Tells every client that no more requests are taken; resolves when all connections have ended. */
  async drain(): Promise<void> {
    for (const session of this.#sessions.keys()) session.close();
    if (this.#sessions.size === 0) return;
    await new Promise<void>((resolve) => {
      this.#onNone = resolve;
    });
  }

  #onSession(session: ServerHttp2Session, socket: Socket, peer: Peer): void {
    const { limits, slow } = this.#options;
    this.#sessions.set(session, 0);
    session.setLocalWindowSize(CONNECTION_WINDOW_BYTES);
    const ofConnection = new Unread(socket, session);
    slow.watch(ofConnection);
    const resets = new Allowance(RESET_BURST, RESETS_PER_SECOND);
    session.on('stream', (stream: ServerHttp2Stream, _headers: unknown, _flags: number, fields: string[]) => {
      this.#onStream(session, stream, fields, socket, peer, resets);
    });
    // Until its first request a client has the time that fields have, and between two that of an idle connection.
    session.setTimeout(limits.fieldsTimeoutMs, () => {
      if (this.#sessions.get(session) === 0) session.close();
    });
    session.once('close', () => {
      slow.forget(ofConnection);
      this.#sessions.delete(session);
      if (this.#sessions.size === 0) this.#onNone?.();
    });
  }

  #onStream(
    session: ServerHttp2Session,
    stream: ServerHttp2Stream,
    fields: readonly string[],
    socket: Socket,
    peer: Peer,
    resets: Allowance,
  ): void {
    const { slow, limits, onRequest } = this.#options;
    session.setTimeout(limits.keepAliveTimeoutMs);
    this.#count(session, 1);
    const req = new StreamRequest(stream, fields, socket);
    const res = new StreamResponse(stream, req);
    const caller = onRequest(req, res, peer);
    const dealing = new StreamDealing(caller, req, res);
    slow.watch(dealing);
    stream.once('close', () => {
      slow.forget(dealing);
      this.#count(session, -1);
      const isReset = !res.writableFinished && stream.rstCode !== constants.NGHTTP2_INTERNAL_ERROR;
      if (isReset && !resets.take() && !session.destroyed)
        session.destroy(undefined, constants.NGHTTP2_ENHANCE_YOUR_CALM);
    });
  }

  #count(session: ServerHttp2Session, change: 1 | -1): void {
    const open = this.#sessions.get(session);
    if (open !== undefined) this.#sessions.set(session, open + change);
  }
}

/** So many at once, and so many more with each second. */
class Allowance {
  readonly #burst: number;
  readonly #perSecond: number;
  #left: number;
  #atMs = performance.now();

  constructor(burst: number, perSecond: number) {
    this.#burst = burst;
    this.#perSecond = perSecond;
    this.#left = burst;
  }

  take(): boolean {
    const nowMs = performance.now();
    this.#left = Math.min(this.#burst, this.#left + ((nowMs - this.#atMs) / 1_000) * this.#perSecond);
    this.#atMs = nowMs;
    if (this.#left < 1) return false;
    this.#left -= 1;
    return true;
  }
}

/** One stream, as far as its client can be slow on it. */
class StreamDealing implements Dealing {
  readonly #caller: Caller;
  readonly #req: StreamRequest;
  readonly #res: StreamResponse;

  constructor(caller: Caller, req: StreamRequest, res: StreamResponse) {
    this.#caller = caller;
    this.#req = req;
    this.#res = res;
  }

  get owes(): boolean {
    return !this.#req.complete && this.#req.readableFlowing === true;
  }

  get moved(): number {
    return this.#req.receivedBytes + this.#res.takenBytes;
  }

  get isAwaited(): boolean {
    return this.#res.waitingBytes > 0;
  }

  get taken(): number {
    return this.#res.takenBytes;
  }

  contentLate(): void {
    this.#caller.contentUnreadable({ status: 408, detail: 'The content stopped coming.' });
  }

  stalled(): void {
    this.#caller.cut();
  }
}

/** A connection that takes nothing at all, so that not even the end of a stream can be told on it. */
class Unread implements Dealing {
  readonly owes = false;
  readonly moved = 0;
  readonly #socket: Socket;
  readonly #tcp: Socket;
  readonly #session: ServerHttp2Session;

  constructor(socket: Socket, session: ServerHttp2Session) {
    this.#socket = socket;
    this.#session = session;
    this.#tcp = (socket instanceof TLSSocket ? tcpOf(socket) : null) ?? socket;
  }

  get isAwaited(): boolean {
    return queuedBytes(this.#tcp) > 0;
  }

  get taken(): number {
    return queuedBytes(this.#tcp);
  }

  contentLate(): void {}

  stalled(): void {
    this.#session.destroy(undefined, constants.NGHTTP2_CANCEL);
    reset(this.#socket);
  }
}
