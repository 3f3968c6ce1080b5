/**
 * How much of this process's memory is taken by responses: those that pass and are recorded, those that are kept, and
 * those that clients have still to read.
 *
 * Invariants: what several hold is counted once; before anybody is told that there is no room, whoever can do without
 * something has been asked for it, in the order in which they offered to.
 */

/** Somebody who holds what can be done without. */
export interface Giver {
  /** The most that it could give up. */
  spareBytes(): number;
  /** Gives up so many bytes, or as much as there is. */
  giveUp(missingBytes: number): void;
}

type Held = { readonly bytes: number; holders: number };

export class MemoryBudget {
  readonly #mostBytes: number;
  #usedBytes = 0;
  /** Weak, as a map that grows and shrinks would hold on to what was let go of (roster.ts). */
  readonly #held = new WeakMap<object, Held>();
  readonly #givers: Giver[] = [];

  constructor(mostBytes: number) {
    this.#mostBytes = mostBytes;
  }

  get mostBytes(): number {
    return this.#mostBytes;
  }

  get usedBytes(): number {
    return this.#usedBytes;
  }

  /** Whether more is taken than there is, of what had to be held anyway. */
  get isOver(): boolean {
    return this.#usedBytes > this.#mostBytes;
  }

  /** Will be asked when room is short. */
  onShort(giver: Giver): void {
    this.#givers.push(giver);
  }

  /** Whether there is room for so many bytes, now or when others have given up what they can do without. */
  hasRoomFor(bytes: number): boolean {
    const missing = this.#usedBytes + bytes - this.#mostBytes;
    if (missing <= 0) return true;
    // Were it all given up, and not enough, it would be for nothing.
    let spare = 0;
    for (const giver of this.#givers) spare += giver.spareBytes();
    if (spare < missing) return false;
    this.#ask(bytes);
    return this.#usedBytes + bytes <= this.#mostBytes;
  }

  /** After something was held anyway: asks for room for it, as much as there is. */
  reclaim(): void {
    this.#ask(0);
  }

  /** False, and nothing is taken, when there is no room for so many bytes. */
  take(bytes: number): boolean {
    if (!this.hasRoomFor(bytes)) return false;
    this.#usedBytes += bytes;
    return true;
  }

  /** Takes what has to be held anyway: it is bounded by whoever holds it. */
  takeAnyway(bytes: number): void {
    this.#usedBytes += bytes;
  }

  giveBack(bytes: number): void {
    this.#usedBytes -= bytes;
  }

  /** Takes room for something that others may hold too. False, and it is not held, when there is none. */
  hold(what: object, bytes: number): boolean {
    if (!this.#held.has(what) && !this.hasRoomFor(bytes)) return false;
    this.holdAnyway(what, bytes);
    return true;
  }

  /** The same for what is there anyway. */
  holdAnyway(what: object, bytes: number): void {
    const held = this.#held.get(what);
    if (held !== undefined) {
      held.holders += 1;
      return;
    }
    this.#held.set(what, { bytes, holders: 1 });
    this.#usedBytes += bytes;
  }

  /** Whether letting go of it once would give something back. */
  isHeldOnce(what: object): boolean {
    return this.#held.get(what)?.holders === 1;
  }

  /** To be called once for each time that it was held. */
  letGo(what: object): void {
    const held = this.#held.get(what);
    if (held === undefined) return;
    held.holders -= 1;
    if (held.holders > 0) return;
    this.#held.delete(what);
    this.#usedBytes -= held.bytes;
  }

  #ask(bytes: number): void {
    // What two of them hold is given back when both have let go: who was asked before the other is asked once more.
    for (const giver of [...this.#givers, ...this.#givers]) {
      const missing = this.#usedBytes + bytes - this.#mostBytes;
      if (missing <= 0) return;
      giver.giveUp(missing);
    }
  }
}
