/**
 * Sees to it that no client keeps a connection, and the upstream call behind it, by doing nothing: not sending what it
 * has announced, or not reading its answer.
 *
 * Invariants: who moves is left alone, however slowly; what the gateway itself holds back is not the client's fault; one
 * timer looks after all, a part of the shortest limit apart.
 */

/** What a client and the gateway have to do with each other: a connection, or one stream of several on it. */
export type Dealing = {
  /** Whether content is being read that is not all there. */
  readonly owes: boolean;
  /** A number that grows by the bytes that come or go. */
  readonly moved: number;
  /** Whether something waits for the client to read it. */
  readonly isAwaited: boolean;
  /** A number that grows by the bytes that the client takes. */
  readonly taken: number;
  /** Ends an upload that has stopped. */
  contentLate(): void;
  /** Ends an answer that is not read. */
  stalled(): void;
};

export type SlowLimits = {
  readonly contentTimeoutMs: number;
  readonly stallTimeoutMs: number;
  /** What must move, on average over either of them; 0: anything. */
  readonly minBytesPerSecond: number;
};

const LOOKS = 8;
const LEAST_MS = 20;
const MOST_MS = 5_000;

/** A number and since when it has not moved far enough while that mattered. */
class Stillness {
  #value = Number.NaN;
  #sinceMs = 0;

  readonly #least: number;

  /** `least`: how far it must move to count. */
  constructor(least: number) {
    this.#least = least;
  }

  /** For how long it has been still. */
  look(matters: boolean, value: number, nowMs: number): number {
    if (!matters) {
      this.#value = Number.NaN;
      return 0;
    }
    // Not a number is far from any.
    if (!(Math.abs(value - this.#value) < this.#least)) {
      this.#value = value;
      this.#sinceMs = nowMs;
    }
    return nowMs - this.#sinceMs;
  }
}

type Marks = { readonly upload: Stillness; readonly answer: Stillness };

export class SlowClients {
  #limits: SlowLimits;
  readonly #dealings = new Map<Dealing, Marks>();
  #timer: NodeJS.Timeout;

  constructor(limits: SlowLimits) {
    this.#limits = limits;
    this.#timer = this.#started();
  }

  /** Has other limits from now on, for those who are watched already as well. */
  allow(limits: SlowLimits): void {
    this.close();
    this.#limits = limits;
    this.#timer = this.#started();
  }

  watch(dealing: Dealing): void {
    const { contentTimeoutMs, stallTimeoutMs, minBytesPerSecond } = this.#limits;
    const leastIn = (ms: number) => Math.max(1, (minBytesPerSecond * ms) / 1_000);
    const upload = new Stillness(leastIn(contentTimeoutMs));
    this.#dealings.set(dealing, { upload, answer: new Stillness(leastIn(stallTimeoutMs)) });
  }

  forget(dealing: Dealing): void {
    this.#dealings.delete(dealing);
  }

  close(): void {
    clearInterval(this.#timer);
  }

  #started(): NodeJS.Timeout {
    const everyMs = Math.min(this.#limits.contentTimeoutMs, this.#limits.stallTimeoutMs) / LOOKS;
    return setInterval(() => this.#look(), Math.max(LEAST_MS, Math.min(MOST_MS, everyMs))).unref();
  }

  #look(): void {
    const nowMs = performance.now();
    for (const [dealing, { upload, answer }] of this.#dealings) {
      const { owes, isAwaited } = dealing;
      if (upload.look(owes, owes ? dealing.moved : 0, nowMs) >= this.#limits.contentTimeoutMs) dealing.contentLate();
      if (answer.look(isAwaited, isAwaited ? dealing.taken : 0, nowMs) >= this.#limits.stallTimeoutMs)
        dealing.stalled();
    }
  }
}
