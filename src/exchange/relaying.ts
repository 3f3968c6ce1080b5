/**
 * The leader's end of a response on its way to followers in other processes: a reader of the leader's record that sends
 * it piece by piece.
 *
 * Invariants: one piece is under way at a time, and what comes meanwhile goes as one; a flight's end is told by its
 * settlement, which also has whatever did not arrive, and never by a piece. Only when the record is not whole any more,
 * so that no settlement has the response, do the pieces go on to their own end, for the processes that read already: who
 * of them is `WINDOW_BYTES` behind holds the record up, for `stallMs` at most, and is then given up.
 */

import type { Lease } from '../core/claim.js';
import type { Piece, Relay } from '../store/relay.js';
import { encodeContent, encodeHead, encodeOver } from './pieces.js';
import type { Recording, RecordingReader } from './recording.js';

/** How much may wait to be sent before the record is read no further. */
const AHEAD_BYTES = 1_048_576;
/** How much of a response that goes on beyond its flight may be sent and not yet read by all. */
const WINDOW_BYTES = 4 * 1_048_576;
/** How often it is asked then how far the slowest has come. */
const LOOK_MS = 25;

export type RelayingOptions = {
  readonly relay: Relay;
  readonly lease: Lease;
  readonly recording: Recording;
  /** How long a process may hold up the others. */
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
  /** How long the slowest have held up the record since all had everything. */
  #heldUpMs = 0;
  #sending = false;
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
    this.#waitingBytes += chunk.length;
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
    const { relay, lease, recording } = this.#options;
    this.#unread.push({ index: piece.index, bytes: piece.bytes.length });
    this.#unreadBytes += piece.bytes.length;
    if (!recording.outgrown && (await relay.relay(lease, piece)) === 'held') return;
    // The flight may have ended for everybody else while this was under way.
    if (!recording.outgrown) return this.#stop();
    await this.#sendOn(piece, 0);
    while (!this.gone && this.#unreadBytes > WINDOW_BYTES) {
      const sinceMs = performance.now();
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
      this.#heldUpMs += performance.now() - sinceMs;
      const stalled = this.#heldUpMs >= this.#options.stallMs;
      await this.#sendOn(null, stalled ? (this.#unread[0]?.index ?? 0) + 1 : 0);
      if (stalled) this.#heldUpMs = 0;
    }
    if (this.#unread.length === 0) this.#heldUpMs = 0;
  }

  /** Sends beyond the flight, or only asks; `dropBefore`: who still wants an earlier piece is given up. */
  async #sendOn(piece: Piece | null, dropBefore: number): Promise<void> {
    const { relay, lease } = this.#options;
    const wanted = await relay.relayOn(lease, piece, dropBefore);
    if (wanted === null) return this.#stop();
    while (this.#unread.length > 0 && (this.#unread[0] as { index: number }).index < wanted) {
      this.#unreadBytes -= (this.#unread.shift() as { bytes: number }).bytes;
    }
  }

  #drained(): void {
    const drained = this.#onDrain;
    this.#onDrain = null;
    drained?.();
  }
}
