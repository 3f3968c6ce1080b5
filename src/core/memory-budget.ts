/**
 * How much of this process's memory is taken by responses: those that pass and are recorded, those that are kept, and
 * those that clients have still to read.
 *
 * Invariants: what several hold is counted once; before anybody is told that there is no room, whoever can do without
 * something has been asked for it, in the order in which they offered to.
 */

/** Gives up what can be done without, of so many bytes that are missing, as much as there is. */
export type GiveUp = (missingBytes: number) => void;

type Held = { readonly bytes: number; holders: number };

export class MemoryBudget {
  readonly #mostBytes: number;
  #usedBytes = 0;
  readonly #held = new Map<object, Held>();
  readonly #givers: GiveUp[] = [];

  constructor(mostBytes: number) {
    this.#mostBytes = mostBytes;
  }

  get mostBytes(): number {
    return this.#mostBytes;
  }

  get usedBytes(): number {
    return this.#usedBytes;
  }

  /** Offers to give something up when room is short. */
  onShort(giveUp: GiveUp): void {
    this.#givers.push(giveUp);
  }

  /** Whether there is room for so many bytes, now or when others have given up what they can do without. */
  hasRoomFor(bytes: number): boolean {
    for (const giveUp of this.#givers) {
      const missing = this.#usedBytes + bytes - this.#mostBytes;
      if (missing <= 0) return true;
      // Were it all given up, it would be for nothing.
      if (bytes > this.#mostBytes) return false;
      giveUp(missing);
    }
    return this.#usedBytes + bytes <= this.#mostBytes;
  }

  /** After something was held anyway: asks for room for it. */
  reclaim(): void {
    this.hasRoomFor(0);
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

  /** To be called once for each time that it was held. */
  letGo(what: object): void {
    const held = this.#held.get(what);
    if (held === undefined) return;
    held.holders -= 1;
    if (held.holders > 0) return;
    this.#held.delete(what);
    this.#usedBytes -= held.bytes;
  }
}
