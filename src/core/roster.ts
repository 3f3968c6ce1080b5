/**
 * Collections whose members come and go with every request.
 *
 * V8 links every table that a Set or Map has outgrown to the one that took its place, members and all. A table that has
 * become old garbage keeps each later one until the next full collection, and with it whatever was in there at its end:
 * where some dozens are in at a time, nearly everything that ever was. Collecting garbage took a fifth of the CPU time of
 * a flight by that.
 *
 * Invariant: what has been taken out cannot be reached from here, whatever became of the table that it was in.
 */

/** Where a member of a roster stands; empty once it is taken out. */
export type Place<T> = { member: T | null };

/** Members in the order in which they came. */
export class Roster<T> {
  readonly #places = new Set<Place<T>>();

  get size(): number {
    return this.#places.size;
  }

  /** Takes a member in; it is taken out by the place that it is given. */
  add(member: T): Place<T> {
    const place = { member };
    this.#places.add(place);
    return place;
  }

  /** Whether it was still in. */
  remove(place: Place<T>): boolean {
    place.member = null;
    return this.#places.delete(place);
  }

  /** The one that came first of those that are in. */
  first(): T | undefined {
    for (const member of this) return member;
    return undefined;
  }

  *[Symbol.iterator](): Generator<T> {
    for (const { member } of this.#places) if (member !== null) yield member;
  }
}

/** Members by a name, in the order in which they came. */
export class Registry<T> {
  readonly #places = new Map<string, Place<T>>();

  get size(): number {
    return this.#places.size;
  }

  has(name: string): boolean {
    return this.#places.has(name);
  }

  get(name: string): T | undefined {
    return this.#places.get(name)?.member ?? undefined;
  }

  /** Puts a member in the place of whoever has the name. */
  set(name: string, member: T): void {
    const place = this.#places.get(name);
    if (place === undefined) this.#places.set(name, { member });
    else place.member = member;
  }

  /** Whether there was one. */
  delete(name: string): boolean {
    const place = this.#places.get(name);
    if (place === undefined) return false;
    place.member = null;
    return this.#places.delete(name);
  }

  clear(): void {
    for (const place of this.#places.values()) place.member = null;
    this.#places.clear();
  }

  keys(): IterableIterator<string> {
    return this.#places.keys();
  }

  *values(): Generator<T> {
    for (const { member } of this.#places.values()) if (member !== null) yield member;
  }

  *[Symbol.iterator](): Generator<[string, T]> {
    for (const [name, { member }] of this.#places) if (member !== null) yield [name, member];
  }
}
