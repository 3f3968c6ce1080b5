/**
 * One end of a connection, byte by byte: what came, whether the other side ended it in order or reset it, and an end of
 * one's own that leaves the other direction open.
 */

import { createServer, type Socket } from 'node:net';
import { dial } from './dial.js';
import { Gate, within } from './gate.js';
import { listenOn } from './ports.js';
import { ByteReader, type Head, headBytes, readHead } from './wire.js';

const LONGEST_MS = 10_000;

export class RawEnd {
  readonly reader: ByteReader;
  /** Bytes received so far. */
  bytes = 0;
  readonly #ended = new Gate();
  readonly #closed: Promise<'in order' | 'reset'>;

  constructor(readonly socket: Socket) {
    this.reader = new ByteReader(socket);
    let how: 'in order' | 'reset' = 'in order';
    socket.on('data', (piece: Buffer) => {
      this.bytes += piece.length;
    });
    socket.on('end', () => this.#ended.open());
    socket.on('error', () => {
      how = 'reset';
    });
    this.#closed = new Promise((resolve) => socket.once('close', () => resolve(how)));
  }

  /** Connects; nothing is ended by itself when the other side ends. */
  static async connect(url: string): Promise<RawEnd> {
    const socket = dial(url, { allowHalfOpen: true });
    await new Promise<void>((resolve, reject) => socket.once('connect', resolve).once('error', reject));
    return new RawEnd(socket);
  }

  write(bytes: string | Buffer): void {
    this.socket.write(typeof bytes === 'string' ? Buffer.from(bytes, 'latin1') : bytes);
  }

  /** Writes a message head. */
  head(startLine: string, fields: readonly string[], behind = ''): void {
    this.write(Buffer.concat([headBytes(startLine, fields), Buffer.from(behind, 'latin1')]));
  }

  /** The next message head. */
  async nextHead(): Promise<Head> {
    const head = await within(LONGEST_MS, 'a message head', readHead(this.reader));
    if (head === null) throw new Error('the connection ended before a message head');
    return head;
  }

  /** The next bytes, as text. */
  async text(length: number): Promise<string> {
    const bytes = await within(LONGEST_MS, `${length} bytes`, this.reader.exactly(length));
    return bytes === null ? '(ended)' : bytes.toString('latin1');
  }

  /** The other side has ended its direction in order. */
  ended(): Promise<void> {
    return within(LONGEST_MS, 'the end of the other direction', this.#ended.opened);
  }

  /** How the connection ended. */
  closed(): Promise<'in order' | 'reset'> {
    return within(LONGEST_MS, 'the end of the connection', this.#closed);
  }
}

/** An upstream that hands out its connections to the test, one after the other. */
export class RawUpstream {
  /** Connections accepted so far. */
  count = 0;
  readonly #waiting: ((end: RawEnd) => void)[] = [];
  readonly #accepted: RawEnd[] = [];

  private constructor(readonly url: string) {}

  static async start(t: { teardown(end: () => void): void }): Promise<RawUpstream> {
    const ends: RawEnd[] = [];
    let upstream: RawUpstream | null = null;
    const server = createServer({ noDelay: true, allowHalfOpen: true }, (socket) => {
      const end = new RawEnd(socket);
      ends.push(end);
      upstream?.accept(end);
    });
    upstream = new RawUpstream(`http://127.0.0.1:${await listenOn(server, 0)}`);
    t.teardown(() => {
      server.close();
      for (const { socket } of ends) socket.destroy();
    });
    return upstream;
  }

  /** The next connection that was accepted. */
  next(): Promise<RawEnd> {
    const accepted = this.#accepted.shift();
    if (accepted !== undefined) return Promise.resolve(accepted);
    const next = new Promise<RawEnd>((resolve) => this.#waiting.push(resolve));
    return within(LONGEST_MS, 'a connection to the upstream', next);
  }

  accept(end: RawEnd): void {
    this.count += 1;
    const waiting = this.#waiting.shift();
    if (waiting === undefined) this.#accepted.push(end);
    else waiting(end);
  }
}
