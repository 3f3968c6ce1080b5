/**
 * The HTTP/2 connections to one address (RFC 9113): one while it suffices, more when its streams are all in use.
 *
 * Invariants: who asks is told exactly once, unless it gave up, and not before the server has said how many streams it
 * allows: it refuses those beyond, and whoever does not speak HTTP/2 has then been sent nothing; a connection that is closing,
 * or older than `maxConnectionAgeMs`, gets no new stream and ends with its last one; without streams it is kept for a while
 * only.
 */

import { type ClientHttp2Session, connect } from 'node:http2';
import { connect as connectSocket, type Socket } from 'node:net';
import { connect as connectSecurely } from 'node:tls';
import type { AddressConfig, UpstreamConfig } from '../config/config.js';
import type { SecureOptions } from './address.js';

/** How many wait for one connection at most, until it is known how many streams the server allows. */
const STREAMS_AT_FIRST = 100;
/** How long a connection without streams is kept. */
const IDLE_MS = 60_000;
/** What may be on its way in one stream, and in one connection. */
const STREAM_WINDOW_BYTES = 1_048_576;
const CONNECTION_WINDOW_BYTES = 4 * STREAM_WINDOW_BYTES;

export type SessionOptions = {
  readonly place: AddressConfig;
  readonly config: UpstreamConfig;
  readonly secure: SecureOptions;
  readonly maxFieldBytes: number;
};

/** Who needs a connection. */
export type Asking = (error: Error | null, session: ClientHttp2Session | null, isReused: boolean) => void;

type Waiter = { readonly asking: Asking; entry: Entry };

type Entry = {
  readonly session: ClientHttp2Session;
  readonly sinceMs: number;
  /** Those who wait for it, in order. */
  readonly waiting: Set<Waiter>;
  /** How many streams its server allows; null: it is not there yet. */
  allowed: number | null;
  streams: number;
  isClosing: boolean;
};

export class Http2Sessions {
  readonly #options: SessionOptions;
  readonly #entries = new Map<ClientHttp2Session, Entry>();
  /** How many streams a new connection is likely to take. */
  #expected = STREAMS_AT_FIRST;

  constructor(options: SessionOptions) {
    this.#options = options;
  }

  get url(): URL {
    return this.#options.place.url;
  }

  /** Asks for a connection with room for a stream. `fresh`: one that nothing was sent over. Answers how to give up. */
  take(asking: Asking, fresh: boolean): () => void {
    const entry = (fresh ? null : this.#withRoom()) ?? this.#open();
    // Nobody else uses it, and it ends with its one stream.
    if (fresh) entry.isClosing = true;
    const waiter = { asking, entry };
    seat(waiter, entry);
    return () => giveUp(waiter);
  }

  /** A stream that was asked for is over. */
  leave(session: ClientHttp2Session): void {
    const entry = this.#entries.get(session);
    if (entry === undefined) return;
    entry.streams--;
    if (entry.streams === 0 && entry.isClosing) session.close();
  }

  /** Finds out whether a connection whose upstream was silent still works, and ends it otherwise. */
  doubt(session: ClientHttp2Session): void {
    if (session.destroyed) return;
    const timer = setTimeout(() => session.destroy(), this.#options.config.connectTimeoutMs);
    session.once('close', () => clearTimeout(timer));
    session.ping((error) => {
      clearTimeout(timer);
      if (error !== null) session.destroy();
    });
  }

  destroy(): void {
    for (const session of this.#entries.keys()) session.destroy();
  }

  #withRoom(): Entry | null {
    const nowMs = performance.now();
    for (const entry of this.#entries.values()) {
      if (nowMs - entry.sinceMs > this.#options.config.maxConnectionAgeMs) this.#retire(entry);
      const allowed = entry.allowed ?? this.#expected;
      // One that has ended is told of a little later.
      const isUsable = !entry.isClosing && !entry.session.closed && !entry.session.destroyed;
      if (isUsable && entry.streams < allowed) return entry;
    }
    return null;
  }

  /** No new streams. */
  #retire(entry: Entry): void {
    entry.isClosing = true;
    if (entry.streams === 0) entry.session.close();
  }

  #open(): Entry {
    const { url } = this.#options.place;
    const session = connect(url.origin, {
      createConnection: () => this.#socket(),
      maxHeaderListPairs: 2_000,
      // The client's fields, and those that are added to them.
      maxSendHeaderBlockLength: 2 * this.#options.maxFieldBytes,
      settings: { enablePush: false, initialWindowSize: STREAM_WINDOW_BYTES },
    });
    const entry: Entry = {
      session,
      sinceMs: performance.now(),
      waiting: new Set(),
      allowed: null,
      streams: 0,
      isClosing: false,
    };
    this.#entries.set(session, entry);
    const timer = setTimeout(() => {
      session.destroy(Object.assign(new Error('no connection in time'), { code: 'ETIMEDOUT' }));
    }, this.#options.config.connectTimeoutMs);
    let failure: Error | null = null;
    session.once('connect', () => session.setLocalWindowSize(CONNECTION_WINDOW_BYTES));
    session.on('remoteSettings', ({ maxConcurrentStreams = STREAMS_AT_FIRST }) => {
      clearTimeout(timer);
      this.#allowed(entry, maxConcurrentStreams);
    });
    session.on('error', (error) => {
      failure = error;
    });
    session.once('goaway', () => this.#retire(entry));
    session.setTimeout(IDLE_MS, () => {
      if (entry.streams === 0) this.#retire(entry);
    });
    session.once('close', () => {
      clearTimeout(timer);
      this.#entries.delete(session);
      refuse(entry, failure ?? new Error('the connection ended'));
    });
    return entry;
  }

  /** The server has said how many streams it allows. Who has no place here waits for another connection. */
  #allowed(entry: Entry, allowed: number): void {
    entry.allowed = allowed;
    this.#expected = Math.max(1, Math.min(allowed, STREAMS_AT_FIRST));
    if (allowed === 0) {
      refuse(entry, new Error('the server allows no streams'));
      return this.#retire(entry);
    }
    const moving = [...entry.waiting].slice(allowed);
    for (const waiter of moving) {
      entry.waiting.delete(waiter);
      entry.streams--;
      seat(waiter, this.#withRoom() ?? this.#open());
    }
    for (const waiter of entry.waiting) {
      entry.waiting.delete(waiter);
      waiter.asking(null, entry.session, false);
    }
  }

  #socket(): Socket {
    const { place, secure } = this.#options;
    const { url, socketPath } = place;
    const host = url.hostname.replace(/^\[|\]$/g, '');
    const port = Number(url.port === '' ? (url.protocol === 'https:' ? 443 : 80) : url.port);
    const to = socketPath === null ? { host, port } : { path: socketPath };
    return url.protocol === 'https:' ? connectSecurely({ ...to, ...secure, ALPNProtocols: ['h2'] }) : connectSocket(to);
  }
}

/** It gets a stream of that connection, now or when it is there. */
function seat(waiter: Waiter, entry: Entry): void {
  waiter.entry = entry;
  entry.streams++;
  if (entry.allowed === null) entry.waiting.add(waiter);
  else waiter.asking(null, entry.session, true);
}

/** It waits no longer. */
function giveUp(waiter: Waiter): void {
  const { entry } = waiter;
  if (!entry.waiting.delete(waiter)) return;
  entry.streams--;
  // Nobody is left to use it.
  if (entry.waiting.size === 0 && entry.allowed === null) entry.session.destroy();
}

/** There will be no connection for those who wait. */
function refuse(entry: Entry, error: Error): void {
  for (const waiter of entry.waiting) {
    entry.waiting.delete(waiter);
    entry.streams--;
    waiter.asking(error, null, false);
  }
}
