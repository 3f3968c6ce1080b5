/**
 * A stub upstream on raw sockets: it counts, it is as slow as a test wants, and it can misbehave in every way.
 *
 * Invariant: a call counts when its request head arrived, whatever becomes of it afterwards. The number of calls is
 * what judges the gateway.
 */

import { spawn } from 'node:child_process';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { delay, Gate, within } from './gate.js';
import { listenOn } from './ports.js';
import {
  ByteReader,
  type Content,
  chunkBytes,
  fieldLines,
  fieldValue,
  type Head,
  headBytes,
  lastChunkBytes,
  readContent,
  readHead,
} from './wire.js';

export type Answer = {
  readonly status?: number;
  readonly reason?: string;
  /** Flat field lines, written before the framing fields. */
  readonly fields?: readonly string[];
  readonly content?: string | Buffer;
  /** How the content is delimited; `none` adds no field and writes no content (HEAD, 204, 304). */
  readonly framing?: 'length' | 'chunked' | 'until-close' | 'none';
  readonly trailers?: readonly string[];
};

export type Behaviour = (call: Call) => void | Promise<void>;
export type AnswerOf = Answer | ((call: Call) => Answer);

/** One request as it came, and the means to answer it or not. */
export class Call {
  readonly method: string;
  /** The request target exactly as it was sent. */
  readonly target: string;
  readonly path: string;
  /** Flat field lines as they were sent. */
  readonly fields: readonly string[];
  readonly startedAtMs = performance.now();
  /** When the answer was finished or the connection ended; null while neither. */
  endedAtMs: number | null = null;
  /** The other side closed the connection before the answer was finished. */
  aborted = false;
  /** Content bytes, as soon as they are here. */
  content: Buffer | null = null;
  readonly received: Promise<Content>;
  readonly #closed = new Gate();
  readonly #answered = new Gate();
  #finished = false;

  constructor(
    head: Head,
    /** Which call of its path this is, from 1. */
    readonly ordinal: number,
    readonly socket: Socket,
    received: Promise<Content>,
  ) {
    const [method = '', target = ''] = head.startLine.split(' ');
    this.method = method;
    this.target = target;
    this.path = target.split('?')[0]!;
    this.fields = head.fields;
    this.received = received.then((content) => {
      this.content = content.bytes;
      return content;
    });
    socket.once('close', () => {
      this.aborted = !this.#finished;
      this.endedAtMs ??= performance.now();
      this.#closed.open();
    });
  }

  header(name: string): string | null {
    return fieldValue(this.fields, name);
  }

  headerLines(name: string): string[] {
    return fieldLines(this.fields, name);
  }

  /** The connection has ended, in whatever way. */
  get closed(): Promise<void> {
    return this.#closed.opened;
  }

  /** The answer is out or the connection has ended. */
  get over(): Promise<void> {
    return Promise.race([this.#answered.opened, this.#closed.opened]);
  }

  /** Bytes as they are. */
  raw(bytes: string | Buffer): void {
    this.socket.write(typeof bytes === 'string' ? Buffer.from(bytes, 'latin1') : bytes);
  }

  head(status: number, reason: string, fields: readonly string[]): void {
    this.raw(headBytes(`HTTP/1.1 ${status} ${reason}`, fields));
  }

  /** The answer is finished: what the connection does from here on is no abort of this call. */
  finish(): void {
    this.#finished = true;
    this.endedAtMs ??= performance.now();
    this.#answered.open();
  }

  /** Ends the connection with RST. */
  reset(): void {
    this.finish();
    this.socket.resetAndDestroy();
  }

  /** Ends the connection with FIN. */
  hangUp(): void {
    this.finish();
    this.socket.end();
  }

  /** Answers, unless the test or its behaviour has done so before. */
  answer(answer: Answer): void {
    if (this.#finished) return;
    const content = contentOf(answer);
    const framing = answer.framing ?? 'length';
    const fields = [...(answer.fields ?? []), ...framingFields(framing, content.length)];
    const pieces = [headBytes(`HTTP/1.1 ${answer.status ?? 200} ${answer.reason ?? 'OK'}`, fields)];
    if (framing === 'chunked') pieces.push(chunkBytes(content), lastChunkBytes(answer.trailers));
    else if (framing !== 'none') pieces.push(content);
    this.raw(Buffer.concat(pieces));
    if (framing === 'until-close') this.hangUp();
    this.finish();
  }
}

function contentOf(answer: Answer): Buffer {
  const content = answer.content ?? '';
  return typeof content === 'string' ? Buffer.from(content) : content;
}

function framingFields(framing: NonNullable<Answer['framing']>, length: number): string[] {
  if (framing === 'length') return ['Content-Length', String(length)];
  if (framing === 'chunked') return ['Transfer-Encoding', 'chunked'];
  return framing === 'until-close' ? ['Connection', 'close'] : [];
}

function resolveAnswer(answer: AnswerOf, call: Call): Answer {
  return typeof answer === 'function' ? answer(call) : answer;
}

/** Calls of one path that wait for the test. */
export type Held = {
  /** Resolves when that many calls of the path have arrived in all. */
  arrived(count: number): Promise<Call>;
  /** Lets the waiting calls and all later ones be answered. */
  release(): void;
};

export class StubUpstream {
  readonly calls: Call[] = [];
  /** Connections accepted so far. */
  connections = 0;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #behaviours = new Map<string, Behaviour>();
  readonly #ordinals = new Map<string, number>();
  readonly #watchers = new Set<() => void>();
  #resetAtAccept = false;
  #port = 0;

  private constructor() {
    this.#server = createServer({ noDelay: true }, (socket) => this.#accept(socket));
  }

  static async start(): Promise<StubUpstream> {
    const stub = new StubUpstream();
    await stub.listen();
    return stub;
  }

  get port(): number {
    return this.#port;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  /** Connections that are open now. */
  get open(): number {
    return this.#sockets.size;
  }

  /** How calls of a path are treated; the default answers at once with which call of its path it is. */
  on(path: string, behaviour: Behaviour): void {
    this.#behaviours.set(path, behaviour);
  }

  /** Calls of the path wait until `release`, and get the answer then. */
  holds(path: string, answer: AnswerOf = ordinalAnswer): Held {
    const gate = new Gate();
    this.on(path, gated(gate, answers(answer)));
    return {
      arrived: async (count) => {
        await this.arrived(count, path);
        return this.callsOf(path)[count - 1]!;
      },
      release: () => gate.open(),
    };
  }

  callsOf(path: string): Call[] {
    return this.calls.filter((call) => call.path === path);
  }

  /** Number of calls of a path, or of all. */
  count(path?: string): number {
    return path === undefined ? this.calls.length : this.callsOf(path).length;
  }

  /** Number of calls by whatever the test counts by. */
  countBy(keyOf: (call: Call) => string): Map<string, number> {
    const counts = new Map<string, number>();
    for (const call of this.calls) counts.set(keyOf(call), (counts.get(keyOf(call)) ?? 0) + 1);
    return counts;
  }

  /** Resolves when that many calls have arrived in all, of a path or of all paths. */
  async arrived(count: number, path?: string): Promise<void> {
    const reached = new Gate();
    const look = () => {
      if (this.count(path) >= count) reached.open();
    };
    this.#watchers.add(look);
    look();
    try {
      await within(10_000, `${count} calls of ${path ?? 'the upstream'}`, reached.opened);
    } finally {
      this.#watchers.delete(look);
    }
  }

  /** Every new connection is reset before a byte of it is read. */
  resetAtAccept(on: boolean): void {
    this.#resetAtAccept = on;
  }

  /** Closes the port and every connection: what follows is refused. */
  async refuse(): Promise<void> {
    const closed = new Promise((resolve) => {
      this.#server.close(resolve);
    });
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  /** Opens the port, the same one as before; nothing when it is open. */
  async listen(): Promise<void> {
    if (this.#server.listening) return;
    this.#port = await listenOn(this.#server, this.#port, 2_048);
  }

  async close(): Promise<void> {
    if (this.#server.listening) await this.refuse();
  }

  #accept(socket: Socket): void {
    this.connections += 1;
    this.#sockets.add(socket);
    socket.on('close', () => this.#sockets.delete(socket));
    socket.on('error', () => {});
    socket.setMaxListeners(0);
    if (this.#resetAtAccept) socket.resetAndDestroy();
    else void this.#serve(socket);
  }

  async #serve(socket: Socket): Promise<void> {
    const reader = new ByteReader(socket);
    for (;;) {
      const head = await readHead(reader);
      if (head === null) return;
      const received = readContent(reader, head.fields, false);
      const call = this.#record(head, socket, received);
      const behaviour = this.#behaviours.get(call.path) ?? answers(ordinalAnswer);
      await Promise.all([received, Promise.race([behaviour(call), call.over]).then(() => call.over)]);
      if (socket.destroyed) return;
    }
  }

  #record(head: Head, socket: Socket, received: Promise<Content>): Call {
    const path = head.startLine.split(' ')[1]?.split('?')[0] ?? '';
    const ordinal = (this.#ordinals.get(path) ?? 0) + 1;
    this.#ordinals.set(path, ordinal);
    const call = new Call(head, ordinal, socket, received);
    this.calls.push(call);
    for (const look of this.#watchers) look();
    return call;
  }
}

/** Starts a stub upstream that ends with the test. */
export async function startUpstream(t: { teardown(end: () => Promise<void>): void }): Promise<StubUpstream> {
  const stub = await StubUpstream.start();
  t.teardown(() => stub.close());
  return stub;
}

/** Says which call of its path it is, so that two calls never give equal content. */
export function ordinalAnswer(call: Call): Answer {
  return {
    fields: ['Content-Type', 'application/json'],
    content: JSON.stringify({ path: call.path, call: call.ordinal }),
  };
}

/** Reads the whole request, then answers. */
export function answers(answer: AnswerOf): Behaviour {
  return async (call) => {
    const { whole } = await call.received;
    if (whole) call.answer(resolveAnswer(answer, call));
  };
}

export function gated(gate: Gate, behaviour: Behaviour): Behaviour {
  return async (call) => {
    await gate.opened;
    await behaviour(call);
  };
}

export function answersAfter(ms: number, answer: AnswerOf = ordinalAnswer): Behaviour {
  return async (call) => {
    await delay(ms);
    await answers(answer)(call);
  };
}

/** The nth call behaves as the nth in the list; the last one stands for all later ones. */
export function inTurn(...behaviours: readonly Behaviour[]): Behaviour {
  return (call) => behaviours[Math.min(call.ordinal, behaviours.length) - 1]!(call);
}

/** Resets the connection at the request's head, its content unread. */
export const resetsBeforeReading: Behaviour = (call) => call.reset();

/** Resets the connection after the whole request was read. */
export const resetsAfterReading: Behaviour = async (call) => {
  await call.received;
  call.reset();
};

/** Ends the connection in order, after the whole request, with no answer. */
export const hangsUpAfterReading: Behaviour = async (call) => {
  await call.received;
  call.hangUp();
};

/** Reads the request and never says anything. */
export const stalls: Behaviour = async (call) => {
  await call.closed;
};

export const answersGarbage: Behaviour = async (call) => {
  await call.received;
  call.raw('\x00\x01 this is no HTTP at all\r\n\r\n');
  call.hangUp();
};

/** Announces 1000 bytes of content, sends 10 and ends the connection, when `gate` opens. */
export function cutsContentLength(gate: Gate): Behaviour {
  return async (call) => {
    await call.received;
    call.head(200, 'OK', ['Content-Type', 'text/plain', 'Content-Length', '1000']);
    call.raw('0123456789');
    await gate.opened;
    call.hangUp();
  };
}

/** Sends one chunk and ends the connection without the last one, when `gate` opens. */
export function cutsChunked(gate: Gate): Behaviour {
  return async (call) => {
    await call.received;
    call.head(200, 'OK', ['Content-Type', 'text/plain', 'Transfer-Encoding', 'chunked']);
    call.raw(chunkBytes(Buffer.from('0123456789')));
    await gate.opened;
    call.hangUp();
  };
}

/** Sends the fields at once and the content in pieces with a pause before each. */
export function answersSlowly(pieces: readonly Buffer[], pauseMs: number): Behaviour {
  return async (call) => {
    await call.received;
    const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
    call.head(200, 'OK', ['Content-Type', 'application/octet-stream', 'Content-Length', String(length)]);
    for (const piece of pieces) {
      await delay(pauseMs);
      call.raw(piece);
    }
    call.finish();
  };
}

/** A port on which connecting hangs until it is opened. */
export type Unconnectable = {
  readonly url: string;
  /** From now on connections are made, those that hang too. */
  open(): void;
  /** What clients have sent since. */
  received(): string;
};

/**
 * Starts a port on which connecting hangs: its process is stopped and its accept queue is full, so that the kernel drops
 * what comes. Ends with the test.
 */
export async function startUnconnectable(t: { teardown(end: () => void): void }): Promise<Unconnectable> {
  const script = `const s = require('net').createServer((c) => c.on('error', () => {}).pipe(process.stdout, { end: false }));
    s.listen({ host: '127.0.0.1', port: 0, backlog: 1 }, () => process.stdout.write(String(s.address().port)));`;
  const child = spawn(process.execPath, ['-e', script], { stdio: ['ignore', 'pipe', 'inherit'] });
  const fillers: Socket[] = [];
  t.teardown(() => {
    for (const filler of fillers) filler.destroy();
    child.kill('SIGKILL');
  });
  const port = Number(await new Promise<Buffer>((resolve) => child.stdout.once('data', resolve)));
  let received = '';
  child.stdout.on('data', (piece: Buffer) => {
    received += piece.toString('latin1');
  });
  child.kill('SIGSTOP');
  for (let stuck = 0; stuck < 2; ) {
    const filler = connect({ host: '127.0.0.1', port });
    filler.on('error', () => {});
    fillers.push(filler);
    const connected = await Promise.race([
      new Promise<boolean>((resolve) => filler.once('connect', () => resolve(true))),
      delay(150).then(() => false),
    ]);
    if (!connected) stuck += 1;
  }
  return { url: `http://127.0.0.1:${port}`, open: () => child.kill('SIGCONT'), received: () => received };
}

/** Sends the fields and the first part at once and the other parts when `gate` opens, chunked. */
export function chunkedInParts(parts: readonly Buffer[], gate: Gate, fields: readonly string[] = []): Behaviour {
  return async (call) => {
    await call.received;
    call.head(200, 'OK', ['Content-Type', 'application/octet-stream', ...fields, 'Transfer-Encoding', 'chunked']);
    const [first = Buffer.alloc(0), ...others] = parts;
    call.raw(chunkBytes(first));
    await gate.opened;
    for (const part of others) call.raw(chunkBytes(part));
    call.raw(lastChunkBytes());
    call.finish();
  };
}
