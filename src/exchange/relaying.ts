/**
 * A response on its way to followers in other processes, at both ends: the leader's, which reads its own record and sends
 * it piece by piece, and the follower's, which makes a record of the pieces for those who wait there.
 *
 * Invariants: one piece is under way at a time, and what comes meanwhile goes as one; nothing here ends a response: that
 * is the settlement's, which also has whatever of it did not arrive.
 */

import type { FlightRef, Lease, Settlement } from '../core/claim.js';
import type { CoalescePolicy } from '../core/rule.js';
import type { Piece, Relay } from '../store/relay.js';
import type { MemoryBudget } from './memory-budget.js';
import { Recording, type RecordingReader, type ResponseHead } from './recording.js';

/** How much may wait to be sent before the record is read no further. */
const AHEAD_BYTES = 1_048_576;

/** The leader's end: a reader of the record beside the clients. */
export class RelayingReader implements RecordingReader {
  /** Nothing more is sent: the lease is lost, or the store away. */
  gone = false;
  readonly #relay: Relay;
  readonly #lease: Lease;
  #waiting: Buffer[] = [];
  #waitingBytes = 0;
  #index = 0;
  #sending = false;
  #onDrain: (() => void) | null = null;
  readonly #onGone: (reader: RelayingReader) => void;

  /** `onGone`: it reads no more. */
  constructor(relay: Relay, lease: Lease, head: ResponseHead, onGone: (reader: RelayingReader) => void) {
    this.#onGone = onGone;
    this.#relay = relay;
    this.#lease = lease;
    this.#waiting.push(encodeHead(head));
    void this.#send();
  }

  write(chunk: Buffer): boolean {
    if (this.gone) return true;
    this.#waiting.push(chunk);
    this.#waitingBytes += chunk.length;
    void this.#send();
    return this.#waitingBytes < AHEAD_BYTES;
  }

  whenDrained(listener: () => void): void {
    this.#onDrain = listener;
  }

  hold(): void {}

  /** The settlement has the rest. */
  end(): void {
    this.#stop();
  }

  cut(): void {
    this.#stop();
  }

  #stop(): void {
    if (this.gone) return;
    this.gone = true;
    this.#waiting = [];
    this.#waitingBytes = 0;
    this.#onGone(this);
  }

  async #send(): Promise<void> {
    if (this.#sending || this.#waiting.length === 0) return;
    this.#sending = true;
    // The head is a piece of its own.
    const bytes = this.#index === 0 ? (this.#waiting.shift() as Buffer) : Buffer.concat(this.#waiting.splice(0));
    if (this.#index > 0) this.#waitingBytes = 0;
    const piece: Piece = { index: this.#index++, bytes };
    try {
      if ((await this.#relay.relay(this.#lease, piece)) === 'lost') this.#stop();
    } catch {
      // A piece that is missing makes the later ones worthless.
      this.#stop();
    }
    this.#sending = false;
    const drained = this.#onDrain;
    this.#onDrain = null;
    drained?.();
    void this.#send();
  }
}

export type RemoteOptions = {
  readonly relay: Relay;
  readonly flight: FlightRef;
  readonly policy: CoalescePolicy;
  readonly budget: MemoryBudget;
  /** Ends the reading. */
  readonly signal: AbortSignal;
  /** The head is here: whoever waits may read. */
  readonly onRecording: (recording: Recording) => void;
  readonly onReaderGone: () => void;
  /** How long the leader may be silent: it ends its flight before, and not to hear of that means to be cut off. */
  readonly silenceMs: number;
};

/** The follower's end: reads the pieces of somebody else's flight into a record. */
export function recordRemote({ relay, flight, policy, signal, ...options }: RemoteOptions): void {
  let recording: Recording | null = null;
  let timer: NodeJS.Timeout | undefined;
  signal.addEventListener('abort', () => clearTimeout(timer), { once: true });
  const onPiece = ({ index, bytes }: Piece): void => {
    clearTimeout(timer);
    timer = setTimeout(() => recording?.fail(), options.silenceMs);
    if (index > 0) {
      // There is no way to hold the leader back from here.
      if (recording?.add(bytes, false) === 'outgrown') recording.fail();
      return;
    }
    const head = decodeHead(bytes);
    if (head === null) return;
    recording = new Recording(head, {
      limitBytes: policy.maxSharedBytes,
      budget: options.budget,
      stallMs: policy.stallMs,
      onRoom: () => {},
      onReaderGone: options.onReaderGone,
    });
    options.onRecording(recording);
  };
  relay.relayed(flight, onPiece, { pollMs: policy.pollMs, signal });
}

/** Brings a record that was made of pieces to the end that the settlement tells. */
export function endRemote(recording: Recording, settlement: Settlement): void {
  // Somebody else's word, an operator's, may have taken the place of what is being read.
  if (settlement.kind !== 'response' || !recording.isBeginningOf(settlement.response)) return recording.fail();
  const { content, trailers } = settlement.response;
  if (recording.receivedBytes < content.length) recording.add(content.subarray(recording.receivedBytes), true);
  recording.conclude(trailers);
}

function encodeHead({ status, reason, fields, vary }: ResponseHead): Buffer {
  return Buffer.from(JSON.stringify({ status, reason, fields, vary }));
}

/** Null for what another version may have written. */
function decodeHead(bytes: Buffer): ResponseHead | null {
  try {
    const { status, reason, fields, vary } = JSON.parse(bytes.toString()) as Partial<ResponseHead>;
    const sound =
      Number.isInteger(status) &&
      typeof reason === 'string' &&
      Array.isArray(fields) &&
      Array.isArray(vary?.names) &&
      typeof vary.digest === 'string';
    return sound ? ({ status, reason, fields, vary } as ResponseHead) : null;
  } catch {
    return null;
  }
}
