/**
 * A gateway with one route of every kind, between bytes on both sides: an upstream that reads strictly and keeps what it was
 * sent, and connections of clients of which everything is seen to their end.
 */

import { createServer, type Socket } from 'node:net';
import { dial } from '../support/dial.js';
import { eventually, within } from '../support/gate.js';
import { configOf, type Gateway, type Scope, startGateway } from '../support/gateway.js';
import { listenOn } from '../support/ports.js';
import { type Message, readRequest, readResponses } from './strict-reading.js';

/** `coalesce`, `replay` and `queue` read the content for the key; `pass` and `reject` let it stream. */
export const KINDS = ['pass', 'coalesce', 'reject', 'replay', 'queue'] as const;
export type Kind = (typeof KINDS)[number];

const ROUTES = `
  - { name: coalesce, match: { path: "/coalesce/*" }, policy: coalesce, identity: public, keep: 0, key: [ { request: target }, { request: content } ] }
  - { name: reject, match: { path: "/reject/*" }, policy: reject, key: [ { request: target } ] }
  - { name: replay, match: { path: "/replay/*" }, policy: replay, identity: public, key: [ { request: target } ] }
  - { name: queue, match: { path: "/queue/*" }, policy: queue, key: [ { request: target }, { request: content } ] }`;

export type Received = Message & {
  readonly method: string;
  readonly target: string;
  readonly socket: Socket;
};

export type Reply = (received: Received) => void;

/** Every request is read strictly, and answered as its path says; by default with its own target. */
export class Witness {
  readonly received: Received[] = [];
  /** What was sent and is no request, in words. A connection that ends within one is none: nothing can follow it. */
  readonly faults: string[] = [];
  readonly #replies = new Map<string, Reply>();
  readonly #handed = new Map<string, (socket: Socket) => void>();
  readonly #server = createServer({ noDelay: true }, (socket) => this.#serve(socket));
  url = '';

  async open(): Promise<void> {
    this.url = `http://127.0.0.1:${await listenOn(this.#server, 0, 512)}`;
  }

  on(target: string, reply: Reply): void {
    this.#replies.set(target, reply);
  }

  /** A connection on which a request of this target begins is handed over, and not read any further. */
  hands(target: string, to: (socket: Socket) => void): void {
    this.#handed.set(target, to);
  }

  /** Requests whose target begins so. */
  of(prefix: string): Received[] {
    return this.received.filter(({ target }) => target.startsWith(prefix));
  }

  close(): void {
    this.#server.close();
  }

  #serve(socket: Socket): void {
    let bytes: Buffer = Buffer.alloc(0);
    socket.on('error', () => {});
    socket.on('data', (piece: Buffer) => {
      const hand = bytes.length > 0 ? undefined : this.#handed.get(piece.toString('latin1').split(' ')[1] ?? '');
      if (hand !== undefined) {
        socket.removeAllListeners('data').pause();
        hand(socket);
        return;
      }
      bytes = Buffer.concat([bytes, piece]);
      for (let read = readRequest(bytes); bytes.length > 0 && read.kind !== 'incomplete'; read = readRequest(bytes)) {
        if (read.kind === 'fault') {
          this.faults.push(`${read.why} in ${JSON.stringify(bytes.toString('latin1').slice(0, 300))}`);
          socket.destroy();
          return;
        }
        bytes = bytes.subarray(read.length);
        const [method = '', target = ''] = read.message.startLine.split(' ');
        const received = { ...read.message, method, target, socket };
        this.received.push(received);
        (this.#replies.get(target) ?? answersItsTarget)(received);
      }
    });
  }
}

function answersItsTarget({ target, method, socket }: Received): void {
  const content = method === 'HEAD' ? '' : target;
  socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${target.length}\r\n\r\n${content}`);
}

/** Answers with these bytes. */
export function bytesOf(text: string): Reply {
  return ({ socket }) => socket.write(Buffer.from(text, 'latin1'));
}

/** Answers with these bytes, which the end of the connection ends. */
export function lastBytesOf(text: string): Reply {
  return ({ socket }) => socket.end(Buffer.from(text, 'latin1'));
}

export type Stage = { readonly gateway: Gateway; readonly witness: Witness };

export async function startStage(t: Scope): Promise<Stage> {
  const witness = new Witness();
  await witness.open();
  const gateway = await startGateway(t, { config: configOf({ upstream: witness.url, routes: ROUTES }) });
  t.teardown(() => witness.close());
  return { gateway, witness };
}

/** A connection of which every byte is kept. */
export class Wire {
  readonly socket: Socket;
  readonly #pieces: Buffer[] = [];
  readonly closed: Promise<'closed'>;

  constructor(url: string) {
    this.socket = dial(url);
    this.socket.on('error', () => {});
    this.socket.on('data', (piece: Buffer) => this.#pieces.push(piece));
    this.closed = new Promise((resolve) => this.socket.once('close', () => resolve('closed')));
  }

  get bytes(): Buffer {
    return Buffer.concat(this.#pieces);
  }

  get text(): string {
    return this.bytes.toString('latin1');
  }

  write(text: string | Buffer): void {
    this.socket.write(typeof text === 'string' ? Buffer.from(text, 'latin1') : text);
  }

  /** Resolves when what came holds this. */
  async has(what: string | RegExp): Promise<void> {
    await eventually(String(what), () => (typeof what === 'string' ? this.text.includes(what) : what.test(this.text)));
  }
}

/** The request that ends a connection: it is answered when nothing before it was refused. */
export function lastRequest(target: string): string {
  return `GET ${target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`;
}

/** Sends bytes that end in a `lastRequest`, and reads all responses to the end of the connection. */
export async function allResponses(url: string, text: string, heads?: ReadonlySet<number>): Promise<Message[]> {
  const wire = new Wire(url);
  wire.write(text);
  await within(20_000, `the end of the connection after ${JSON.stringify(text.slice(0, 200))}`, wire.closed);
  return readResponses(wire.bytes, heads);
}

/** Field lines without those that the gateway adds, and those that frame a message or belong to a connection. */
export function own(fields: readonly string[]): string[] {
  const added =
    /^(host|via|x-forwarded-(for|proto|host)|x-request-id|connection|content-length|transfer-encoding|keep-alive|cache-status)$/i;
  return fields.filter((_, at) => !added.test(fields[at - (at % 2)]!));
}
