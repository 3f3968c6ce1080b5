/** Requests of HTTP/2 frame by frame, for fields that no client library would send. */

import { connect } from 'node:net';
import { secured } from './dial.js';
import { within } from './gate.js';

const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
const [HEADERS, RST_STREAM, SETTINGS, GOAWAY] = [1, 3, 4, 7];
const [ACK, END_STREAM, END_HEADERS] = [1, 1, 4];
/** Of HPACK's static table (RFC 7541 appendix A). */
const STATUSES = new Map([
  [8, 200],
  [12, 400],
]);
const LONGEST_MS = 10_000;

/** A literal field that is not indexed, its texts not coded, each under 127 bytes. */
function literal(name: string, value: string): Buffer {
  const [n, v] = [Buffer.from(name, 'latin1'), Buffer.from(value, 'latin1')];
  return Buffer.concat([Buffer.from([0, n.length]), n, Buffer.from([v.length]), v]);
}

function frame(type: number, flags: number, stream: number, content: Buffer = Buffer.alloc(0)): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(content.length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, content]);
}

export class Http2Frames {
  readonly #socket: ReturnType<typeof secured>;
  #unread: Buffer = Buffer.alloc(0);
  #answer: (status: number | null) => void = () => {};

  private constructor(url: string) {
    const { port } = new URL(url);
    this.#socket = secured(connect({ host: '127.0.0.1', port: Number(port) }), { ALPNProtocols: ['h2'] });
    this.#socket.on('error', () => {}).on('data', (piece: Buffer) => this.#read(piece));
    this.#socket.once('close', () => this.#answer(null));
    this.#socket.write(Buffer.concat([PREFACE, frame(SETTINGS, 0, 0), frame(SETTINGS, ACK, 0)]));
  }

  static async connect(t: { teardown(end: () => void): void }, url: string): Promise<Http2Frames> {
    const client = new Http2Frames(url);
    t.teardown(() => client.#socket.destroy());
    return client;
  }

  /** The status of the answer, 0 where it is not one of a few; null: the stream or the connection was ended instead. */
  ask(fields: Readonly<Record<string, string>>): Promise<number | null> {
    const block = Buffer.concat(Object.entries(fields).map(([name, value]) => literal(name, value)));
    this.#socket.write(frame(HEADERS, END_STREAM | END_HEADERS, 1, block));
    const answer = new Promise<number | null>((resolve) => {
      this.#answer = resolve;
    });
    return within(LONGEST_MS, 'an answer', answer);
  }

  #read(piece: Buffer): void {
    this.#unread = Buffer.concat([this.#unread, piece]);
    while (this.#unread.length >= 9) {
      const length = this.#unread.readUIntBE(0, 3);
      if (this.#unread.length < 9 + length) return;
      const [type, content] = [this.#unread[3], this.#unread.subarray(9, 9 + length)];
      this.#unread = this.#unread.subarray(9 + length);
      if (type === HEADERS) this.#answer(STATUSES.get((content[0] ?? 0) & 0x7f) ?? 0);
      if (type === RST_STREAM || type === GOAWAY) this.#answer(null);
    }
  }
}
