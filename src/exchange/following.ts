/**
 * Another process's flight, as it is followed here: until when it is known to be up, its response as it comes, and how it
 * ended.
 *
 * Invariants: the settlement is waited for once, whatever the number of requests, and that wait is owed to the store even
 * when everybody has left: it tells it so; what is read here ends cleanly only when a settlement has the whole of it, or,
 * of a response that is for nobody else any more, when its own last piece says so; anything else cuts it.
 */

import type { FlightRef, Settlement } from '../core/claim.js';
import type { MemoryBudget } from '../core/memory-budget.js';
import type { CoalescePolicy } from '../core/rule.js';
import type { Piece, Reading } from '../store/relay.js';
import type { Store } from '../store/store.js';
import { type Over, readPiece } from './pieces.js';
import { Recording, type ResponseHead } from './recording.js';

export type StreamOptions = {
  readonly policy: CoalescePolicy;
  readonly budget: MemoryBudget;
  /** How long the leader may be silent: it ends its flight before, and not to hear of that means to be cut off. */
  readonly silenceMs: number;
  /** The same beyond the flight, where it gives signs of life: not to hear of them means that nothing more comes. */
  readonly silenceBeyondMs: number;
  /** The head is here: whoever waits may read. */
  readonly onRecording: (recording: Recording) => void;
  /** Somebody who read has left, or was cut. */
  readonly onReaderGone: () => void;
};

export type FollowingOptions = {
  readonly store: Store;
  readonly pollMs: number;
  /** Null: its end is all that is waited for. */
  readonly stream: StreamOptions | null;
};

export class Following {
  readonly #options: FollowingOptions;
  readonly #waiting = new AbortController();
  readonly #reading = new AbortController();
  #ref: FlightRef;
  /** When the store said what is known, by the monotonic clock (ms). */
  #sinceMs = performance.now();
  #recording: Recording | null = null;
  #source: Reading | null = null;
  /** No more pieces come. */
  #lost = false;
  /** The flight is over, and its response for nobody else: what is read here has its pieces and nothing else. */
  #beyond = false;
  #silence: NodeJS.Timeout | undefined;

  constructor(ref: FlightRef, options: FollowingOptions) {
    this.#ref = ref;
    this.#options = options;
  }

  /** The flight as it is now, by what is known of it. */
  get ref(): FlightRef {
    return { ...this.#ref, ageMs: this.#ref.ageMs + performance.now() - this.#sinceMs };
  }

  /**
   * Whether the flight may have ended without a word here: it was last known to be up for a time that is over. It goes on
   * being waited for; who comes now asks the store, which knows better or is away.
   */
  get isOutOfDate(): boolean {
    return performance.now() - this.#sinceMs > this.#ref.leaseLeftMs;
  }

  /** The store has been asked again. */
  isKnown(ref: FlightRef): void {
    this.#ref = ref;
    this.#sinceMs = performance.now();
  }

  /** Nobody is here any more. */
  leave(): void {
    this.#waiting.abort();
    this.#cut();
  }

  /** Follows the flight to its end. */
  async settled(): Promise<Settlement> {
    const { store, pollMs } = this.#options;
    this.#read();
    let settlement: Settlement;
    try {
      settlement = await store.settled(this.#ref, { pollMs, signal: this.#waiting.signal });
    } catch {
      // Nobody waits any more, or the store was closed under the wait: what became of the flight is not known here.
      settlement = { kind: 'unknown', election: this.#ref.election };
    }
    this.#conclude(settlement);
    return settlement;
  }

  #read(): void {
    const { store, pollMs, stream } = this.#options;
    const { signal } = this.#reading;
    if (stream === null || signal.aborted) return;
    const reader = {
      onPiece: (piece: Piece) => this.#onPiece(stream, piece),
      onAlive: () => this.#listen(stream),
      onLost: () => this.#onLost(),
    };
    this.#source = store.relayed(this.#ref, reader, { pollMs, signal });
  }

  #onPiece(stream: StreamOptions, piece: Piece): boolean {
    const read = readPiece(piece);
    if (read === null || read.kind === 'over') {
      this.#over(read?.over ?? { kind: 'cut' });
      return false;
    }
    if (read.kind === 'head') this.#begin(stream, read.head);
    else this.#recording?.add(read.bytes, false);
    this.#listen(stream);
    return !(this.#recording?.full ?? false);
  }

  /** Who has begun to read waits so long for the next sign of life, unless it is itself what is waited for. */
  #listen(stream: StreamOptions): void {
    clearTimeout(this.#silence);
    if (this.#recording === null || this.#recording.full || this.#reading.signal.aborted) return;
    this.#silence = setTimeout(() => this.#cut(), this.#beyond ? stream.silenceBeyondMs : stream.silenceMs);
  }

  /** How the flight has ended is on its way, unless it is known. */
  #onLost(): void {
    this.#lost = true;
    if (this.#beyond) this.#cut();
  }

  #begin(stream: StreamOptions, head: ResponseHead): void {
    this.#recording = new Recording(head, {
      limitBytes: stream.policy.maxSharedBytes,
      budget: stream.budget,
      stallMs: stream.policy.stallMs,
      onRoom: () => {
        this.#source?.resume();
        this.#listen(stream);
      },
      onReaderGone: stream.onReaderGone,
    });
    stream.onRecording(this.#recording);
  }

  #over(over: Over): void {
    if (over.kind === 'end') this.#recording?.conclude(over.trailers);
    this.#cut();
  }

  /** Brings what is read here to the end that the settlement tells. */
  #conclude(settlement: Settlement): void {
    const { stream } = this.#options;
    const recording = this.#recording;
    if (recording === null || stream === null) return this.#endReading();
    // It is for nobody else; those who have begun go on.
    if (settlement.kind === 'unshareable' && recording.isRead && !this.#lost) {
      this.#beyond = true;
      return this.#listen(stream);
    }
    // Somebody else's word, an operator's, may have taken the place of what is being read.
    if (settlement.kind === 'response' && recording.isBeginningOf(settlement.response)) {
      recording.concludeWith(settlement.response);
    }
    this.#cut();
  }

  /** Nothing more comes: who has not come to the end is cut. */
  #cut(): void {
    this.#recording?.fail();
    this.#endReading();
  }

  #endReading(): void {
    clearTimeout(this.#silence);
    this.#reading.abort();
  }
}
