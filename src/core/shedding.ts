/**
 * Which part of the new requests is refused while the event loop is late. Pure: what was measured goes in.
 *
 * Invariants: one long pause, or several within a second, refuse nobody (a collection of garbage, a process that was
 * stopped); while the loop stays late the part grows, as soon as it is on time again it is halved at every look, so that
 * the load settles where the loop just keeps up, and nothing is refused a second or two after the end.
 */

/** Looks in a row that must be late, and time for which, before anybody is refused. */
const LATE_LOOKS = 3;
const LATE_MS = 1_000;
const MORE = 0.25;
const LESS = 0.5;
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
    if (delayMs <= this.#limitMs) {
      this.#lateLooks = 0;
      this.#lateMs = 0;
      this.#share = this.#share * LESS < LEAST ? 0 : this.#share * LESS;
      return;
    }
    this.#lateLooks += 1;
    // A single look may come very late indeed: of a process that was stopped, say.
    this.#lateMs += Math.min(sinceMs, LATE_MS / (LATE_LOOKS - 1));
    const isLasting = this.#lateLooks >= LATE_LOOKS && this.#lateMs >= LATE_MS;
    if (this.#share > 0 || isLasting) this.#share = Math.min(1, this.#share + MORE);
  }

  /** Whether the next request is refused: spread evenly, as many as the part says. */
  refusesNext(): boolean {
    if (this.#share === 0) return false;
    this.#due += this.#share;
    if (this.#due < 1) return false;
    this.#due -= 1;
    return true;
  }
}
