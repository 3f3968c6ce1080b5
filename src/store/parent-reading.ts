/**
 * A response under way, as its pieces come to a worker from its parent.
 *
 * Invariants: a reader that is full is told nothing; what came meanwhile, the window at most, waits here, and the parent
 * sends more when it has been taken; that the rest is lost is told behind what is here.
 */

import type { Told } from './questions.js';
import type { Piece, PieceReader, Reading } from './relay.js';

export class ParentReading implements Reading {
  readonly #reader: PieceReader;
  readonly #onTaken: (bytes: number) => void;
  readonly #here: Piece[] = [];
  #full = false;
  #state: 'reading' | 'lost' | 'over' = 'reading';

  constructor(reader: PieceReader, onTaken: (bytes: number) => void) {
    this.#reader = reader;
    this.#onTaken = onTaken;
  }

  readonly resume = (): void => {
    this.#full = false;
    this.#tell();
  };

  onTold(told: Told, bytes: Buffer): void {
    if (told.kind === 'piece') this.#here.push({ index: told.index, bytes });
    else if (told.kind === 'lost' && this.#state === 'reading') this.#state = 'lost';
    else if (told.kind === 'alive' && !this.#full && this.#state === 'reading') return this.#reader.onAlive();
    this.#tell();
  }

  onGone(): void {
    if (this.#state === 'reading') this.#state = 'lost';
    this.#tell();
  }

  /** Nobody reads any more. */
  end(): void {
    this.#state = 'over';
    this.#here.length = 0;
  }

  #tell(): void {
    while (!this.#full && this.#state !== 'over') {
      const piece = this.#here.shift();
      if (piece === undefined) break;
      this.#onTaken(piece.bytes.length);
      this.#full = !this.#reader.onPiece(piece);
    }
    if (this.#state !== 'lost' || this.#full) return;
    this.end();
    this.#reader.onLost();
  }
}
