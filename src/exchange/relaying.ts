/**
 * The leader's end of a response on its way to followers in other processes: a reader of the leader's record that sends
 * it piece by piece.
 *
 * Invariants: one piece is under way at a time, and what comes meanwhile goes as one; a flight's end is told by its
 * settlement, which also has whatever did not arrive, and never by a piece. Only when the record is not whole any more,
 * so that no settlement has the response, do the pieces go on to their own end, for the processes that read already, with
 * a sign of life every `SIGN_MS` while there is none: they are told of the end, or miss the signs. Who of them is
 * `WINDOW_BYTES` behind holds the record up, for twice `stallMs` at most, in which it can have cut whoever holds it up
 * itself, and is then given up.
 */

import type { Lease } from '../core/claim.js';
import type { Piece, Relay } from '../store/relay.js';
import { encodeContent, encodeHead, encodeOver } from './pieces.js';
import { IDLE_MS, type Recording, type RecordingReader } from './recording.js';

/** How much may wait to be sent before the record is read no further. */
const AHEAD_BYTES = 1_048_576;
/** How much of a response that goes on beyond its flight may be sent and not yet read by all. */
const WINDOW_BYTES = 4 * 1_048_576;
/** How often it is asked then how far the slowest has come. */
const LOOK_MS = 25;
/** What holding a piece costs beside its bytes. */
const CHUNK_COST_BYTES = 256;
const SIGN_MS = 1_000;
/** How long, and how often, a piece is tried to be sent: longer than a short outage of the store. */
const TRY_FOR_MS = 5_000;
const TRY_EVERY_MS = 200;

export type RelayingOptions = {
  readonly relay: Relay;
  readonly lease: Lease;
  readonly recording: Recording;
  /** How long a process may hold up the others; one that is alone holds up nobody (`IDLE_MS`). */
  readonly stallMs: number;
};

export class RelayingReader implements RecordingReader {
  /** Nothing more is sent: nobody reads, the lease is lost, or the store away. */
  gone = false;
  readonly #options: RelayingOptions;
  readonly #waiting: Buffer[] = [];
  #waitingBytes = 0;
  #headSent = false;
  #index = 0;
  /** What the last piece is, once it is known. */
  #over: Buffer | null = null;
  /** Pieces that somebody may not have read yet. */
  readonly #unread: { readonly index: number; readonly bytes: number }[] = [];
  #unreadBytes = 0;
  /** How long the slowest have held up the record, since all had what there was when that began. */
  #heldUpMs = 0;
  #caughtUpWith = 0;
  /** How many processes read beyond the flight. */
  #processes = 0;
  #sending = false;
  #signs: NodeJS.Timeout | null = null;
  #onDrain: (() => void) | null = null;

  /** Resolves when everything is sent that ever will be. */
  readonly done: Promise<void>;
  readonly #onDone: () => void;

  constructor(options: RelayingOptions) {
    this.#options = options;
    let onDone = () => {};
    this.done = new Promise((resolve) => {
      onDone = resolve;
    });
    this.#onDone = onDone;
    void this.#sendAll();
  }

  write(chunk: Buffer): boolean {
    if (this.gone) return true;
    this.#waiting.push(chunk);
    this.#waitingBytes += chunk.length + CHUNK_COST_BYTES;
    void this.#sendAll();
    return this.#waitingBytes < AHEAD_BYTES;
  }

  whenDrained(listener: () => void): void {
    this.#onDrain = listener;
  }

  hold(): void {}

  end(lastChunk: Buffer | null, trailers: readonly string[]): void {
    // Of a whole response the settlement has the rest.
    if (!this.#options.recording.outgrown) return this.#stop();
    if (lastChunk !== null) this.#waiting.push(lastChunk);
    this.#finish(encodeOver({ kind: 'end', trailers }));
  }

  cut(): void {
    if (!this.#options.recording.outgrown) return this.#stop();
    this.#waiting.length = 0;
    this.#finish(encodeOver({ kind: 'cut' }));
  }

  #finish(over: Buffer): void {
    if (this.gone) return;
    this.#over ??= over;
    void this.#sendAll();
  }

  #stop(): void {
    if (this.gone) return;
    this.gone = true;
    if (this.#signs !== null) clearInterval(this.#signs);
    this.#waiting.length = 0;
    this.#waitingBytes = 0;
    this.#options.recording.detach(this);
    this.#onDone();
  }

  async #sendAll(): Promise<void> {
    if (this.#sending) return;
    this.#sending = true;
    try {
      for (let bytes = this.#take(); bytes !== null && !this.gone; bytes = this.#take()) {
        const isLast = this.#over === bytes;
        await this.#send({ index: this.#index++, bytes });
        if (isLast) this.#stop();
        this.#drained();
      }
    } catch {
      // A piece that is missing makes the later ones worthless.
      this.#stop();
    }
    this.#sending = false;
    this.#drained();
  }

  /** What is to be sent next; null: nothing yet. */
  #take(): Buffer | null {
    if (!this.#headSent) {
      this.#headSent = true;
      return encodeHead(this.#options.recording.head);
    }
    if (this.#waiting.length > 0) {
      this.#waitingBytes = 0;
      return encodeContent(this.#waiting.splice(0));
    }
    return this.#over;
  }

  async #send(piece: Piece): Promise<void> {
    const { recording } = this.#options;
    this.#unread.push({ index: piece.index, bytes: piece.bytes.length });
    this.#unreadBytes += piece.bytes.length;
    await this.#inTime(() => this.#sendOnce(piece));
    // Nobody may read any more by now: signs of life would go on for ever.
    if (!recording.outgrown || this.gone) return;
    this.#signs ??= setInterval(() => this.#giveSign(), SIGN_MS);
    if (this.#unreadBytes > WINDOW_BYTES) await this.#waitForSlowest();
  }

  /** A piece can be sent twice; of a store that is away for a moment it need not be given up. */
  async #inTime(send: () => Promise<void>): Promise<void> {
    const untilMs = performance.now() + TRY_FOR_MS;
    for (;;) {
      try {
        return await send();
      } catch (error) {
        if (this.gone || performance.now() >= untilMs) throw error;
      }
      await new Promise((resolve) => setTimeout(resolve, TRY_EVERY_MS));
    }
  }

  async #sendOnce(piece: Piece): Promise<void> {
    const { relay, lease, recording } = this.#options;
    if (!recording.outgrown && (await relay.relay(lease, piece)) === 'held') return;
    // The flight may have ended for everybody else while this was under way.
    if (recording.outgrown) await this.#goOn(piece, 0);
    else this.#stop();
  }

  async #waitForSlowest(): Promise<void> {
    const { recording, stallMs } = this.#options;
    while (!this.gone && this.#unreadBytes > WINDOW_BYTES) {
      const sinceMs = performance.now();
      const oldest = this.#oldestUnread;
      if (this.#heldUpMs === 0) this.#caughtUpWith = (this.#unread.at(-1) as { index: number }).index;
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
      this.#heldUpMs += performance.now() - sinceMs;
      const alone = recording.readerCount() === 0 && this.#processes === 1;
      const isOver = this.#heldUpMs >= (alone ? IDLE_MS : 2 * stallMs);
      await this.#inTime(() => this.#goOn(null, isOver ? oldest + 1 : 0));
      if (isOver || (alone && this.#oldestUnread > oldest)) this.#heldUpMs = 0;
    }
  }

  /** Sends beyond the flight, or gives a sign of life; `dropBefore`: who still wants an earlier piece is given up. */
  async #goOn(piece: Piece | null, dropBefore: number): Promise<void> {
    const { relay, lease } = this.#options;
    const read = await relay.relayOn(lease, piece, dropBefore);
    if (read === null) return this.#stop();
    this.#processes = read.processes;
    while (this.#unread.length > 0 && (this.#unread[0] as { index: number }).index < read.wanted) {
      this.#unreadBytes -= (this.#unread.shift() as { bytes: number }).bytes;
    }
    if (this.#oldestUnread > this.#caughtUpWith) this.#heldUpMs = 0;
  }

  get #oldestUnread(): number {
    return this.#unread[0]?.index ?? Number.POSITIVE_INFINITY;
  }

  #giveSign(): void {
    // A store that does not answer is asked again with the next one.
    if (!this.#sending) this.#goOn(null, 0).catch(() => {});
  }

  #drained(): void {
    const drained = this.#onDrain;
    this.#onDrain = null;
    drained?.();
  }
}
