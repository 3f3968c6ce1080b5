/**
 * The pieces of responses under way, for followers in other processes that share the store in this one's memory.
 *
 * Invariants: a reader is told pieces in order, without a gap, each once, and nothing while it is full; the pieces of a
 * flight stay until it ends, for those who join later, as long as the budget has room: without it the rest of them is left
 * to the settlement. Beyond the flight each piece is let go when every reader has it, and whoever has lost one is told.
 */

import { performance } from 'node:perf_hooks';
import type { FlightRef, Lease, Settlement } from '../core/claim.js';
import type { MemoryBudget } from '../core/memory-budget.js';
import { Registry } from '../core/roster.js';
import type { Piece, PieceReader, Reading, StillRead } from './relay.js';

type Reader = {
  readonly to: PieceReader;
  /** Index of the piece that it wants next. */
  next: number;
  full: boolean;
};

type Pieces = {
  /** `blind`: a piece is missing. Beyond the flight that means that everything is lost. */
  state: 'up' | 'blind' | 'beyond';
  /** Index of the first that is here. */
  first: number;
  readonly here: Buffer[];
  readonly readers: Set<Reader>;
  /** When something was last heard of a response beyond its flight. */
  signAtMs: number;
};

/** How often readers are told that the flight is up. */
const LOOK_MS = 2_000;
/** Age at which a sign of life of a response beyond its flight is none any more. */
const SIGN_MS = 6_000;
/** What holding a piece costs beside its bytes. */
const OVERHEAD_BYTES = 256;

export class MemoryRelay {
  readonly #budget: MemoryBudget;
  readonly #flights = new Registry<Pieces>();
  #looks: NodeJS.Timeout | null = null;

  constructor(budget: MemoryBudget) {
    this.#budget = budget;
  }

  /** A piece of a flight that is up. */
  add({ flight }: Lease, { index, bytes }: Piece): void {
    const pieces = this.#flights.get(flight) ?? this.#begin(flight);
    const next = pieces.first + pieces.here.length;
    if (pieces.state !== 'up' || index < next) return;
    // Behind a gap it is worth nothing, and a record without a beginning neither.
    if (index > next || !this.#budget.take(bytes.length + OVERHEAD_BYTES)) return this.#blind(pieces);
    pieces.here.push(bytes);
    for (const reader of [...pieces.readers]) this.#tell(pieces, reader);
  }

  /** Sends beyond the flight, or gives a sign of life; who still wants a piece before `dropBefore` is given up. */
  goOn({ flight }: Lease, piece: Piece | null, dropBefore: number): StillRead | null {
    const pieces = this.#flights.get(flight);
    if (pieces === undefined || pieces.state === 'blind') return null;
    pieces.signAtMs = performance.now();
    for (const reader of [...pieces.readers]) if (reader.next < dropBefore) this.#lose(pieces, reader);
    if (piece !== null && piece.index === pieces.first + pieces.here.length) {
      // Whoever sends has a window, and waits for the slowest.
      this.#budget.takeAnyway(piece.bytes.length + OVERHEAD_BYTES);
      pieces.here.push(piece.bytes);
      for (const reader of [...pieces.readers]) this.#tell(pieces, reader);
    }
    if (pieces.state === 'beyond') this.#letGo(pieces);
    if (pieces.readers.size > 0) return { wanted: slowestOf(pieces), processes: pieces.readers.size };
    if (pieces.state === 'beyond') this.#drop(flight, pieces);
    return null;
  }

  /** Reads a flight that is up; of any other nothing comes. */
  read({ flight }: FlightRef, to: PieceReader, signal: AbortSignal, isUp: boolean): Reading {
    const reader: Reader = { to, next: 0, full: false };
    const pieces = isUp ? (this.#flights.get(flight) ?? this.#begin(flight)) : null;
    const resume = (): void => {
      if (!reader.full || pieces === null || !pieces.readers.has(reader)) return;
      reader.full = false;
      this.#tell(pieces, reader);
    };
    if (signal.aborted) return { resume };
    // Not before whoever reads has what is returned.
    queueMicrotask(() => {
      if (signal.aborted) return;
      if (pieces === null || this.#flights.get(flight) !== pieces) return to.onLost();
      pieces.readers.add(reader);
      signal.addEventListener('abort', () => pieces.readers.delete(reader), { once: true });
      to.onAlive();
      this.#tell(pieces, reader);
    });
    return { resume };
  }

  /** The flight is over. For those who read a response that turned out too large for others, its pieces go on. */
  ended(flight: string, { kind }: Settlement): void {
    const pieces = this.#flights.get(flight);
    if (pieces === undefined) return;
    if (kind !== 'unshareable' || pieces.state === 'blind' || pieces.readers.size === 0)
      return this.#drop(flight, pieces);
    pieces.state = 'beyond';
    pieces.signAtMs = performance.now();
    this.#letGo(pieces);
  }

  close(): void {
    for (const [flight, pieces] of [...this.#flights]) this.#drop(flight, pieces);
  }

  #begin(flight: string): Pieces {
    const pieces: Pieces = { state: 'up', first: 0, here: [], readers: new Set(), signAtMs: 0 };
    this.#flights.set(flight, pieces);
    this.#looks ??= setInterval(() => this.#look(), LOOK_MS).unref();
    return pieces;
  }

  #tell(pieces: Pieces, reader: Reader): void {
    while (!reader.full && pieces.readers.has(reader)) {
      const bytes = pieces.here[reader.next - pieces.first];
      if (bytes === undefined) return;
      const index = reader.next;
      reader.next += 1;
      reader.full = !reader.to.onPiece({ index, bytes });
    }
  }

  #look(): void {
    const nowMs = performance.now();
    for (const [flight, pieces] of [...this.#flights]) {
      if (pieces.state === 'beyond' && nowMs - pieces.signAtMs > SIGN_MS) this.#drop(flight, pieces);
      else for (const { full, to } of [...pieces.readers]) if (!full) to.onAlive();
    }
  }

  #lose(pieces: Pieces, reader: Reader): void {
    if (pieces.readers.delete(reader)) reader.to.onLost();
  }

  #blind(pieces: Pieces): void {
    pieces.state = 'blind';
    this.#giveBack(pieces, pieces.here.length);
  }

  /** Lets go of what every reader has. */
  #letGo(pieces: Pieces): void {
    this.#giveBack(pieces, Math.min(pieces.here.length, slowestOf(pieces) - pieces.first));
  }

  #giveBack(pieces: Pieces, count: number): void {
    for (const { length } of pieces.here.splice(0, count)) this.#budget.giveBack(length + OVERHEAD_BYTES);
    pieces.first += count;
  }

  #drop(flight: string, pieces: Pieces): void {
    this.#flights.delete(flight);
    this.#giveBack(pieces, pieces.here.length);
    for (const reader of [...pieces.readers]) this.#lose(pieces, reader);
    if (this.#flights.size > 0 || this.#looks === null) return;
    clearInterval(this.#looks);
    this.#looks = null;
  }
}

/** Index of the piece that the slowest reader wants; infinite without readers. */
function slowestOf({ readers }: Pieces): number {
  let slowest = Number.POSITIVE_INFINITY;
  for (const { next } of readers) slowest = Math.min(slowest, next);
  return slowest;
}
