/** How much of this process's memory its recordings have, and may have, together. */
export class MemoryBudget {
  readonly #mostBytes: number;
  #usedBytes = 0;

  constructor(mostBytes: number) {
    this.#mostBytes = mostBytes;
  }

  get usedBytes(): number {
    return this.#usedBytes;
  }

  /** Whether there is room for so many bytes now. */
  hasRoomFor(bytes: number): boolean {
    return this.#usedBytes + bytes <= this.#mostBytes;
  }

  /** False, and nothing is taken, when there is no room for so many bytes. */
  take(bytes: number): boolean {
    if (this.#usedBytes + bytes > this.#mostBytes) return false;
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
}
