/**
 * HTTP/2 on connections that have agreed on it: each stream becomes a request and a response of its own.
 *
 * Invariants: a connection is ended by GOAWAY, and its streams may end first, whenever it is the gateway's wish; no client
 * has more streams than it was granted, nor more resets, pings and settings than an honest one needs, nor sends much that is
 * neither fields nor content; a connection that takes nothing is closed.
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
/** Pings and settings, each of which has to be answered. */
const ANSWERED_BURST = 1_000;
const ANSWERED_PER_SECOND = 100;
/**
 * What a client may send that is neither fields nor content, at once and a second: windows, priorities, heads of frames,
 * frames that nobody knows. Node tells of none of them, so that bytes are counted. Content that is not read yet, and what
 * was on its way to streams that have ended, is not known as content: the burst has room for it.
 */
const BESIDE_BURST_BYTES = 16 * 1_048_576;
const BESIDE_BYTES_PER_SECOND = 65_536;
/** What goes with one stream: the frames that every one has, and content that nobody reads any more. */
const BESIDE_STREAM_BYTES = STREAM_WINDOW_BYTES + 1_024;
/** Windows are opened for what was sent, and content has heads of frames: so much for each byte of either. */
const BESIDE_SHARE = 1 / 8;
const LOOK_EVERY_MS = 500;
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
  readonly #sessions = new Map<ServerHttp2Session, Spoken>();
  #keepAliveTimeoutMs: number;
  #looking: NodeJS.Timeout | null = null;
  #onNone: (() => void) | null = null;

  constructor(options: StreamsOptions) {
    this.#options = options;
    const { maxFieldBytes, maxConcurrentStreams, keepAliveTimeoutMs } = options.limits;
    this.#keepAliveTimeoutMs = keepAliveTimeoutMs;
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

  /** How long connections without a stream stay open, counted from their next stream on. */
  keepAliveFor(timeoutMs: number): void {
    this.#keepAliveTimeoutMs = timeoutMs;
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
    for (const [session, { streams }] of this.#sessions) {
      if (streams.size > 0) continue;
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
    const spoken = new Spoken(socket);
    this.#sessions.set(session, spoken);
    this.#looking ??= setInterval(() => this.#look(), LOOK_EVERY_MS).unref();
    session.setLocalWindowSize(CONNECTION_WINDOW_BYTES);
    const ofConnection = new Unread(socket, session);
    slow.watch(ofConnection);
    const resets = new Allowance(RESET_BURST, RESETS_PER_SECOND);
    session.on('stream', (stream: ServerHttp2Stream, _headers: unknown, _flags: number, fields: string[]) => {
      this.#onStream(session, spoken, stream, fields, socket, peer, resets);
    });
    const answered = new Allowance(ANSWERED_BURST, ANSWERED_PER_SECOND);
    const onAnswered = () => {
      if (!answered.take()) calm(session);
    };
    session.on('ping', onAnswered);
    session.on('remoteSettings', onAnswered);
    // Until its first request a client has the time that fields have, and between two that of an idle connection.
    session.setTimeout(limits.fieldsTimeoutMs, () => {
      if (spoken.streams.size === 0) session.close();
    });
    session.once('close', () => {
      slow.forget(ofConnection);
      this.#sessions.delete(session);
      if (this.#sessions.size > 0) return;
      if (this.#looking !== null) clearInterval(this.#looking);
      this.#looking = null;
      this.#onNone?.();
    });
  }

  #look(): void {
    for (const [session, spoken] of this.#sessions) if (spoken.isFlood()) calm(session);
  }

  #onStream(
    session: ServerHttp2Session,
    spoken: Spoken,
    stream: ServerHttp2Stream,
    fields: readonly string[],
    socket: Socket,
    peer: Peer,
    resets: Allowance,
  ): void {
    const { slow, onRequest } = this.#options;
    session.setTimeout(this.#keepAliveTimeoutMs);
    const req = new StreamRequest(stream, fields, socket);
    const res = new StreamResponse(stream, req);
    const said = { req, res };
    spoken.streams.add(said);
    const caller = onRequest(req, res, peer);
    const dealing = new StreamDealing(caller, req, res);
    slow.watch(dealing);
    stream.once('close', () => {
      slow.forget(dealing);
      spoken.ended(said);
      const isReset = !res.writableFinished && stream.rstCode !== constants.NGHTTP2_INTERNAL_ERROR;
      if (isReset && !resets.take()) calm(session);
    });
  }
}

function calm(session: ServerHttp2Session): void {
  // Without an error the code would not be told.
  if (!session.destroyed) session.destroy(new Error('a flood of frames'), constants.NGHTTP2_ENHANCE_YOUR_CALM);
}

type Said = { readonly req: StreamRequest; readonly res: StreamResponse };

/** What a client has sent on a connection, and what for. */
class Spoken {
  /** Those that are open. */
  readonly streams = new Set<Said>();
  readonly #socket: Socket;
  readonly #beside = new Allowance(BESIDE_BURST_BYTES, BESIDE_BYTES_PER_SECOND);
  /** What the streams that have ended account for. */
  #endedBytes = 0;
  /** What was neither fields nor content when that was last looked at. */
  #besideBytes = 0;

  constructor(socket: Socket) {
    this.#socket = socket;
  }

  ended(stream: Said): void {
    if (this.streams.delete(stream)) this.#endedBytes += BESIDE_STREAM_BYTES + accountedBytes(stream);
  }

  /** Whether more than is called for has come beside fields and content. */
  isFlood(): boolean {
    let besideBytes = this.#socket.bytesRead - this.#endedBytes;
    for (const stream of this.streams) besideBytes -= accountedBytes(stream);
    const more = besideBytes - this.#besideBytes;
    this.#besideBytes = besideBytes;
    return !this.#beside.take(more);
  }
}

function accountedBytes({ req, res }: Said): number {
  // Coding may make fields longer, though not twice as long.
  return 2 * req.fieldBytes + req.receivedBytes + BESIDE_SHARE * (req.receivedBytes + res.takenBytes);
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

  take(amount = 1): boolean {
    const nowMs = performance.now();
    this.#left = Math.min(this.#burst, this.#left + ((nowMs - this.#atMs) / 1_000) * this.#perSecond);
    this.#atMs = nowMs;
    if (this.#left < amount) return false;
    this.#left -= amount;
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

  /** How much of it was taken is not known here, and none of it is not read at all: any change counts. */
  get taken(): number {
    return queuedBytes(this.#tcp) * Number.MAX_SAFE_INTEGER;
  }

  contentLate(): void {}

  stalled(): void {
    this.#session.destroy(undefined, constants.NGHTTP2_CANCEL);
    reset(this.#socket);
  }
}
