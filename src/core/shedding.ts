/**
 * Which part of the new requests is refused while the event loop is late. Pure: what was measured goes in.
 *
 * Invariants: one pause, however long, refuses nobody (a collection of garbage, a process that was stopped); while the loop
 * stays late the part grows, the faster the later it is; as soon as it is on time again the part is halved every quarter of
 * a second, so that the load settles where the loop just keeps up, and nothing is refused two seconds after the end.
 */

/** Looks in a row that must be late, and time for which, before anybody is refused. */
const LATE_LOOKS = 2;
const LATE_MS = 1_000;
/** By which the part grows at a look, for each limit that it is late; several count, but no more than all. */
const MORE = 0.25;
const HALVED_IN_MS = 250;
/** A smaller part is none. */
const LEAST = 0.05;

export class Shedding {
  readonly #limitMs: number;
  /** Looks in a row that were late, and the time that they span. */
  #lateLooks = 0;
  #lateMs = 0;
  #share = 0;
  /** Sum of the parts of the requests that were let in since the last refusal. */
  #due = 0;

  constructor(limitMs: number) {
    this.#limitMs = limitMs;
  }

  /** The part of the new requests that is refused now: 0 to 1. */
  get share(): number {
    return this.#share;
  }

  /** `delayMs`: how late a look came; `sinceMs`: how long after the one before. */
  looked(delayMs: number, sinceMs: number): void {
    if (delayMs > this.#limitMs) {
      this.#share = this.#shareAt(delayMs);
      this.#lateLooks += 1;
      this.#lateMs += countedMs(delayMs);
      return;
    }
    this.#lateLooks = 0;
    this.#lateMs = 0;
    const left = this.#share * 0.5 ** (sinceMs / HALVED_IN_MS);
    this.#share = left < LEAST ? 0 : left;
  }

  /** Whether the next request is refused; `delayMs`: how late the next look is already. As many as the part says, evenly. */
  refusesNext(delayMs: number): boolean {
    const share = this.#shareAt(delayMs);
    if (share === 0) return false;
    this.#due += share;
    if (this.#due < 1) return false;
    this.#due -= 1;
    return true;
  }

  /** What the part is when a look comes so late. */
  #shareAt(delayMs: number): number {
    if (delayMs <= this.#limitMs) return this.#share;
    const isLasting = this.#lateLooks + 1 >= LATE_LOOKS && this.#lateMs + countedMs(delayMs) >= LATE_MS;
    if (this.#share === 0 && !isLasting) return 0;
    return Math.min(1, this.#share + MORE * (delayMs / this.#limitMs));
  }
}

/** A single look may come very late indeed: of a process that was stopped, say. */
function countedMs(delayMs: number): number {
  return Math.min(delayMs, LATE_MS / LATE_LOOKS);
}
