/** A map that holds what was used last, up to a number: what is dropped for room is counted. */
export class Recent<T> {
  readonly #most: number;
  readonly #all = new Map<string, T>();
  /** How many were dropped that might still have been asked for. */
  dropped = 0;

  constructor(most: number) {
    this.#most = most;
  }

  get(key: string): T | undefined {
    return this.#all.get(key);
  }

  /** Makes it the one that was used last. `isOver`: whether nobody will ask for what is dropped. */
  set(key: string, value: T, isOver: (old: T) => boolean): void {
    this.#all.delete(key);
    this.#all.set(key, value);
    if (this.#all.size <= this.#most) return;
    for (const [oldest, old] of this.#all) {
      this.#all.delete(oldest);
      if (!isOver(old)) this.dropped += 1;
      return;
    }
  }
}
