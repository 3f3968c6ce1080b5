/**
 * The HTTP/2 connections to one address (RFC 9113): one while it suffices, more when its streams are all in use.
 *
 * Invariants: who asks is told exactly once, unless it gave up; a connection that is closing, or older than
 * `maxConnectionAgeMs`, gets no new stream and ends with its last one; without streams it is kept for a while only.
 */

import { type ClientHttp2Session, connect } from 'node:http2';
import { connect as connectSocket, type Socket } from 'node:net';
import { connect as connectSecurely } from 'node:tls';
import type { AddressConfig, UpstreamConfig } from '../config/config.js';
import type { SecureOptions } from './address.js';

/** How many streams a connection takes before its server has said how many it allows. */
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

type Entry = {
  readonly session: ClientHttp2Session;
  readonly sinceMs: number;
  /** Those who wait for it to be there; null: it is. */
  asking: Set<Asking> | null;
  streams: number;
  isClosing: boolean;
};

export class Http2Sessions {
  readonly #options: SessionOptions;
  readonly #entries = new Map<ClientHttp2Session, Entry>();

  constructor(options: SessionOptions) {
    this.#options = options;
  }

  get url(): URL {
    return this.#options.place.url;
  }

  /** Asks for a connection with room for a stream. `fresh`: one that nothing was sent over. Answers how to give up. */
  take(asking: Asking, fresh: boolean): () => void {
    const entry = (fresh ? null : this.#withRoom()) ?? this.#open();
    entry.streams++;
    if (entry.asking === null) {
      asking(null, entry.session, true);
      return () => {};
    }
    const { asking: waiting } = entry;
    waiting.add(asking);
    return () => {
      if (!waiting.delete(asking)) return;
      entry.streams--;
      // Nobody is left to use it.
      if (waiting.size === 0 && entry.asking !== null) entry.session.destroy();
    };
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
      const { maxConcurrentStreams = STREAMS_AT_FIRST } = entry.asking === null ? entry.session.remoteSettings : {};
      if (!entry.isClosing && entry.streams < maxConcurrentStreams) return entry;
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
      settings: { enablePush: false, initialWindowSize: STREAM_WINDOW_BYTES },
    });
    const entry: Entry = { session, sinceMs: performance.now(), asking: new Set(), streams: 0, isClosing: false };
    this.#entries.set(session, entry);
    const timer = setTimeout(() => {
      session.destroy(Object.assign(new Error('no connection in time'), { code: 'ETIMEDOUT' }));
    }, this.#options.config.connectTimeoutMs);
    let failure: Error | null = null;
    session.once('connect', () => {
      clearTimeout(timer);
      session.setLocalWindowSize(CONNECTION_WINDOW_BYTES);
      this.#connected(entry);
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
      const waiting = entry.asking;
      entry.asking = null;
      for (const asking of waiting ?? []) asking(failure ?? new Error('the connection ended'), null, false);
    });
    return entry;
  }

  #connected(entry: Entry): void {
    const waiting = entry.asking ?? [];
    entry.asking = null;
    for (const asking of waiting) asking(null, entry.session, false);
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
