/** HTTP clients of the tests: one over node:http with a connection of its own a request, one over a raw socket. */

import http from 'node:http';
import https from 'node:https';
import type { Socket } from 'node:net';
import { dial, TRUSTING } from './dial.js';
import { within } from './gate.js';
import { ByteReader, fieldLines, fieldValue, readContent, readHead } from './wire.js';

const LONGEST_MS = 40_000;

export type RequestOptions = {
  readonly method?: string;
  /** Sent as it is; default `/`. */
  readonly path?: string;
  /** Flat field lines, sent in this order. `Host` and `Content-Length` are added unless they are among them. */
  readonly headers?: readonly string[];
  readonly body?: string | Buffer;
  /** Default: a new connection. */
  readonly agent?: http.Agent;
  readonly signal?: AbortSignal;
};

/** A response as it came. */
export class Answered {
  readonly text: string;

  constructor(
    readonly status: number,
    readonly reason: string,
    /** Flat field lines, in order. */
    readonly rawHeaders: readonly string[],
    readonly body: Buffer,
    /** Flat trailer field lines. */
    readonly trailers: readonly string[],
    /** The connection ended before the end of the message. */
    readonly cut: boolean,
    /** From the first byte sent to the last received. */
    readonly elapsedMs: number,
    /** From the first byte sent to the first of content; null without content, or where nobody looked. */
    readonly firstMs: number | null = null,
  ) {
    this.text = body.toString('latin1');
  }

  header(name: string): string | null {
    return fieldValue(this.rawHeaders, name);
  }

  headerLines(name: string): string[] {
    return fieldLines(this.rawHeaders, name);
  }

  get cacheStatus(): string | null {
    return this.header('cache-status');
  }

  json(): unknown {
    return JSON.parse(this.body.toString());
  }
}

export type Sent = {
  /** The whole request was handed to the system. */
  readonly sent: Promise<void>;
  /** Status and fields have arrived. */
  readonly started: Promise<void>;
  /** Rejects when the connection ended before the response's fields. */
  readonly answer: Promise<Answered>;
  /** Leaves: the connection is closed at once. */
  leave(): void;
};

/** Sends a request and hands out what happens to it step by step. */
export function send(url: string, options: RequestOptions = {}): Sent {
  const { hostname, port, host, protocol } = new URL(url);
  const began = performance.now();
  const request = (protocol === 'https:' ? https : http).request({
    ...TRUSTING,
    host: hostname,
    port,
    method: options.method ?? 'GET',
    path: options.path ?? '/',
    headers: fieldsOf(options, host),
    agent: options.agent ?? false,
    ...(options.signal === undefined ? {} : { signal: options.signal }),
  });
  const answer = new Promise<Answered>((resolve, reject) => {
    request.on('error', reject);
    request.on('response', (message) => collect(message, began, resolve));
  });
  const started = new Promise<void>((resolve) => request.once('response', () => resolve()));
  const sent = new Promise<void>((resolve) => request.once('finish', resolve));
  request.end(options.body);
  const bounded = within(LONGEST_MS, `an answer to ${options.method ?? 'GET'} ${options.path ?? '/'}`, answer);
  bounded.catch(() => request.destroy());
  return { sent, started, answer: bounded, leave: () => request.destroy() };
}

/** Sends a request and waits for the whole answer. */
export function request(url: string, options: RequestOptions = {}): Promise<Answered> {
  return send(url, options).answer;
}

function fieldsOf(options: RequestOptions, host: string): string[] {
  const fields = [...(options.headers ?? [])];
  if (fieldValue(fields, 'host') === null) fields.unshift('Host', host);
  const framed = fieldValue(fields, 'content-length') ?? fieldValue(fields, 'transfer-encoding');
  if (options.body !== undefined && framed === null) {
    fields.push('Content-Length', String(Buffer.byteLength(options.body)));
  }
  return fields;
}

function collect(message: http.IncomingMessage, began: number, resolve: (answer: Answered) => void): void {
  const pieces: Buffer[] = [];
  let firstMs: number | null = null;
  message.on('data', (piece: Buffer) => {
    firstMs ??= performance.now() - began;
    pieces.push(piece);
  });
  message.on('error', () => {});
  message.on('close', () =>
    resolve(
      new Answered(
        message.statusCode ?? 0,
        message.statusMessage ?? '',
        message.rawHeaders,
        Buffer.concat(pieces),
        message.rawTrailers,
        !message.complete,
        performance.now() - began,
        firstMs,
      ),
    ),
  );
}

/** A request whose answer is read while it comes, at the pace that the test wants. */
export class Watching {
  readonly answer: Promise<Answered>;
  readonly #request: http.ClientRequest;
  #message: http.IncomingMessage | null = null;
  #bytes = 0;
  readonly #watchers = new Set<() => void>();

  /** `reads` false: nothing is read until `resume`. */
  constructor(url: string, options: RequestOptions = {}, reads = true) {
    const { hostname, port, host, protocol } = new URL(url);
    const began = performance.now();
    const { method = 'GET', path = '/' } = options;
    const headers = fieldsOf(options, host);
    const open = (protocol === 'https:' ? https : http).request;
    const { agent = false } = options;
    this.#request = open({ ...TRUSTING, host: hostname, port, method, path, headers, agent });
    this.answer = new Promise<Answered>((resolve, reject) => {
      this.#request.on('error', reject);
      this.#request.on('response', (message) => {
        this.#message = message;
        collect(message, began, resolve);
        message.on('data', (piece: Buffer) => {
          this.#bytes += piece.length;
          for (const look of this.#watchers) look();
        });
        if (!reads) message.pause();
        for (const look of this.#watchers) look();
      });
    });
    this.answer.catch(() => {});
    this.#request.end(options.body);
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Resolves when the fields and so many bytes of content are here. */
  async received(bytes: number): Promise<void> {
    await within(
      10_000,
      `${bytes} bytes`,
      new Promise<void>((resolve) => {
        const look = () => {
          if (this.#message === null || this.#bytes < bytes) return;
          this.#watchers.delete(look);
          resolve();
        };
        this.#watchers.add(look);
        look();
      }),
    );
  }

  pause(): void {
    this.#message?.pause();
  }

  resume(): void {
    this.#message?.resume();
  }

  leave(): void {
    this.#request.destroy();
  }
}

/** Makes `count` requests at once, in order, and waits for all answers. */
export function burst(count: number, make: (index: number) => Promise<Answered>): Promise<Answered[]> {
  return Promise.all(Array.from({ length: count }, (_, index) => make(index)));
}

/** A connection on which a test writes what it likes and reads one response after the other. */
export class RawClient {
  readonly #reader: ByteReader;
  readonly #opened = performance.now();
  /** The other side has ended the connection. */
  readonly closed: Promise<void>;

  private constructor(readonly socket: Socket) {
    this.#reader = new ByteReader(socket);
    this.closed = new Promise((resolve) => socket.once('close', () => resolve()));
    socket.on('error', () => {});
  }

  static async connect(url: string): Promise<RawClient> {
    const socket = dial(url);
    const client = new RawClient(socket);
    await new Promise<void>((resolve, reject) => {
      socket.once('connect', resolve);
      socket.once('error', reject);
    });
    return client;
  }

  write(bytes: string | Buffer): void {
    this.socket.write(typeof bytes === 'string' ? Buffer.from(bytes, 'latin1') : bytes);
  }

  /** The next response; null when the connection ended instead. `bodiless`: the answer to HEAD has no content. */
  async answer(bodiless = false): Promise<Answered | null> {
    const head = await within(LONGEST_MS, 'a response head', readHead(this.#reader));
    if (head === null) return null;
    const [, status = '0', ...reason] = head.startLine.split(' ');
    const code = Number(status);
    const empty = bodiless || code < 200 || code === 204 || code === 304;
    const content = empty
      ? { bytes: Buffer.alloc(0), trailers: [], whole: true }
      : await within(LONGEST_MS, 'the response content', readContent(this.#reader, head.fields, true));
    return new Answered(
      code,
      reason.join(' '),
      head.fields,
      content.bytes,
      content.trailers,
      !content.whole,
      performance.now() - this.#opened,
    );
  }

  close(): void {
    this.socket.destroy();
  }
}

/** One response to bytes as they are, on a connection of their own. */
export async function rawRequest(url: string, bytes: string | Buffer, bodiless = false): Promise<Answered | null> {
  const client = await RawClient.connect(url);
  try {
    client.write(bytes);
    return await client.answer(bodiless);
  } finally {
    client.close();
  }
}
