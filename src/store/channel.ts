/**
 * What a worker and its parent say to each other about the store: frames over a pair of sockets that nobody else has.
 *
 * Frame: length of all that follows (4 bytes, big endian), length of the head (4 bytes), head (JSON, UTF-8), bytes. Both
 * ends are of one build, so that a frame has no version.
 * Invariants: frames arrive whole and in the order in which they were sent; the bytes of a frame are the receiver's own,
 * so that keeping them keeps nothing else; what is sent in one turn goes out in one write; a channel that is closed takes
 * frames and drops them.
 */

import type { Duplex } from 'node:stream';

export type ChannelEnd = {
  readonly onFrame: (head: unknown, bytes: Buffer) => void;
  /** The other end is gone, or this one was closed. Told once, after every frame that had arrived. */
  readonly onClosed: () => void;
};

const LENGTH_BYTES = 4;
const PREFIX_BYTES = 2 * LENGTH_BYTES;
/** Below this a copy of everything costs less than a vector of writes. */
const JOIN_BYTES = 65_536;
const NOTHING = Buffer.alloc(0);

export class Channel {
  readonly #stream: Duplex;
  readonly #end: ChannelEnd;
  #out: Buffer[] = [];
  #outBytes = 0;
  /** What has arrived of a frame that is not whole. */
  #in: Buffer[] = [];
  #inBytes = 0;
  /** How much must be here to go on. */
  #wantedBytes = PREFIX_BYTES;
  #closed = false;

  constructor(stream: Duplex, end: ChannelEnd) {
    this.#stream = stream;
    this.#end = end;
    // Why it is gone changes nothing: it is closed then.
    stream.on('error', () => {});
    stream.on('data', (chunk: Buffer) => this.#onData(chunk));
    stream.once('end', () => this.close());
    stream.once('close', () => this.close());
  }

  send(head: object, bytes: Buffer = NOTHING): void {
    if (this.#closed) return;
    const text = JSON.stringify(head);
    const headBytes = Buffer.byteLength(text);
    const start = Buffer.allocUnsafe(PREFIX_BYTES + headBytes);
    start.writeUInt32BE(LENGTH_BYTES + headBytes + bytes.length, 0);
    start.writeUInt32BE(headBytes, LENGTH_BYTES);
    start.write(text, PREFIX_BYTES);
    if (this.#out.length === 0) process.nextTick(() => this.#flush());
    this.#out.push(start);
    if (bytes.length > 0) this.#out.push(bytes);
    this.#outBytes += start.length + bytes.length;
  }

  /** Sends within this call, behind what waits: it is on its way before anything that is said elsewhere afterwards. */
  sendNow(head: object): void {
    this.send(head);
    this.#flush();
  }

  close(): void {
    if (this.#closed) return;
    this.#flush();
    this.#closed = true;
    // Ended and not destroyed: what was said last still arrives.
    this.#stream.end(() => this.#stream.destroy());
    this.#end.onClosed();
  }

  #flush(): void {
    const out = this.#out;
    const bytes = this.#outBytes;
    this.#out = [];
    this.#outBytes = 0;
    if (out.length === 0 || !this.#stream.writable) return;
    if (bytes < JOIN_BYTES) {
      this.#stream.write(out.length === 1 ? (out[0] as Buffer) : Buffer.concat(out, bytes));
      return;
    }
    this.#stream.cork();
    for (const piece of out) this.#stream.write(piece);
    this.#stream.uncork();
  }

  #onData(chunk: Buffer): void {
    this.#in.push(chunk);
    this.#inBytes += chunk.length;
    if (this.#inBytes < this.#wantedBytes) return;
    const all = this.#in.length === 1 ? chunk : Buffer.concat(this.#in, this.#inBytes);
    let at = 0;
    this.#wantedBytes = PREFIX_BYTES;
    while (!this.#closed && all.length - at >= PREFIX_BYTES) {
      const end = at + LENGTH_BYTES + all.readUInt32BE(at);
      if (end > all.length) {
        this.#wantedBytes = end - at;
        break;
      }
      const headEnd = at + PREFIX_BYTES + all.readUInt32BE(at + LENGTH_BYTES);
      const head: unknown = JSON.parse(all.toString('utf8', at + PREFIX_BYTES, headEnd));
      this.#end.onFrame(head, headEnd === end ? NOTHING : Buffer.from(all.subarray(headEnd, end)));
      at = end;
    }
    this.#in = at === all.length ? [] : [all.subarray(at)];
    this.#inBytes = all.length - at;
  }
}
