/**
 * A copy of a request's content, made as it goes by to the upstream.
 *
 * Invariants: the request is never held up for it; no more than the limit is kept, and no more than the budget of all
 * copies has room for; what was kept is let go of as soon as it is known to be in vain.
 */

import type { ReadAheadBudget } from './read-ahead.js';

export type Copied =
  /** It is there to be taken, until the copy is dropped. */
  | { readonly kind: 'whole' }
  /** More than is read for a key. */
  | { readonly kind: 'too-large' }
  | { readonly kind: 'no-room' }
  /** Its end did not come. */
  | { readonly kind: 'broken' };

export class ContentCopy {
  readonly done: Promise<Copied>;
  readonly #limitBytes: number;
  readonly #budget: ReadAheadBudget;
  #chunks: Buffer[] = [];
  #bytes = 0;
  #isOver = false;
  #resolve: (copied: Copied) => void = () => {};

  constructor(limitBytes: number, announcedBytes: number, budget: ReadAheadBudget) {
    this.#limitBytes = limitBytes;
    this.#budget = budget;
    this.done = new Promise((resolve) => {
      this.#resolve = resolve;
    });
    if (announcedBytes > limitBytes) this.#end({ kind: 'too-large' });
  }

  add(piece: Buffer): void {
    if (this.#isOver) return;
    if (this.#bytes + piece.length > this.#limitBytes) return this.#end({ kind: 'too-large' });
    if (!this.#budget.take(piece.length)) return this.#end({ kind: 'no-room' });
    this.#bytes += piece.length;
    this.#chunks.push(piece);
  }

  /** The end of the content. */
  end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#resolve({ kind: 'whole' });
  }

  /** What is whole, for whoever reads it now; nothing of it is kept. */
  take(): Buffer {
    const content = Buffer.concat(this.#chunks, this.#bytes);
    this.#letGo();
    return content;
  }

  /** No more comes, or nobody wants it. */
  drop(): void {
    if (this.#isOver) this.#letGo();
    else this.#end({ kind: 'broken' });
  }

  #end(copied: Copied): void {
    this.#isOver = true;
    this.#letGo();
    this.#resolve(copied);
  }

  #letGo(): void {
    this.#budget.giveBack(this.#bytes);
    this.#bytes = 0;
    this.#chunks = [];
  }
}
