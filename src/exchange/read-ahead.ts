/**
 * Reads a request's content ahead while the request waits for its turn: a connection that is not read tells nothing, not
 * even that its client has gone.
 *
 * Invariants: no more than the limit is read, and no more than the budget of all who wait has room for; what was read is
 * forwarded before the rest, byte for byte.
 */

import type { ClientRequest } from './client-side.js';

/** All that waiting requests have been read ahead of, and may be, together. */
export class ReadAheadBudget {
  readonly #mostBytes: number;
  #usedBytes = 0;

  constructor(mostBytes: number) {
    this.#mostBytes = mostBytes;
  }

  take(bytes: number): boolean {
    if (this.#usedBytes + bytes > this.#mostBytes) return false;
    this.#usedBytes += bytes;
    return true;
  }

  giveBack(bytes: number): void {
    this.#usedBytes -= bytes;
  }
}

export class ReadAhead {
  readonly #req: ClientRequest;
  readonly #limitBytes: number;
  readonly #budget: ReadAheadBudget;
  readonly #chunks: Buffer[] = [];
  #bytes = 0;
  #ended = false;
  readonly #onData = (chunk: Buffer) => this.#take(chunk);
  readonly #onEnd = () => {
    this.#ended = true;
  };

  constructor(req: ClientRequest, limitBytes: number, budget: ReadAheadBudget) {
    this.#req = req;
    this.#limitBytes = limitBytes;
    this.#budget = budget;
    req.on('data', this.#onData).on('end', this.#onEnd);
  }

  /** Ends it. The whole content when it is here; null when what was read is back in the stream, with the rest to come. */
  finish(): Buffer | null {
    this.#req.pause();
    this.#req.off('data', this.#onData).off('end', this.#onEnd);
    this.#budget.giveBack(this.#bytes);
    const read = this.#chunks.length === 1 ? (this.#chunks[0] as Buffer) : Buffer.concat(this.#chunks);
    if (this.#ended) return read;
    if (read.length > 0 && !this.#req.destroyed) this.#req.unshift(read);
    return null;
  }

  #take(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
    const fits = this.#budget.take(chunk.length);
    if (!fits) this.#bytes -= chunk.length;
    // What is here is held anyway; nothing more is read.
    if (!fits || this.#bytes >= this.#limitBytes) this.#req.pause();
  }
}
