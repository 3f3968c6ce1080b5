/**
 * Whole responses on their way to clients, each at its own pace.
 *
 * Invariants: a response of a key is in memory once, however many clients read it and however often it was fetched, and
 * is counted until the last of them has it or is gone; who takes nothing of it is cut after `IDLE_MS`, and after
 * `STALL_MS` when room is short: what does not read cannot keep others from being served.
 */

import type { Giver, MemoryBudget } from '../core/memory-budget.js';
import type { Outcome } from '../core/outcome.js';
import { Registry } from '../core/roster.js';
import { type SharedResponse, sizeOf } from '../core/sharing.js';
import type { Caller } from './caller.js';
import { IDLE_MS, PART_BYTES } from './recording.js';

/** Up to this size a response goes to the client's connection as it is, whose buffers are as large. */
const SMALL_BYTES = 65_536;
const STALL_MS = 2_000;
/** How often it is looked for those who take nothing; with room short, at most so often. */
const LOOK_MS = 15_000;
const LOOK_AGAIN_MS = 100;

/** Who is given a response. */
export type Recipient = Pick<Caller, 'gone' | 'give' | 'write' | 'whenDrained' | 'whenOver' | 'end' | 'cut'>;

type Reader = {
  readonly caller: Recipient;
  readonly key: string;
  readonly response: SharedResponse;
  at: number;
  progressAtMs: number;
};

export type Given = {
  /** Age of a kept response, ms; null for a flight's own followers. */
  readonly ageMs: number | null;
  readonly outcome: Outcome;
  /** Field lines of this copy. */
  readonly added: readonly string[];
};

export class HandingOut implements Giver {
  readonly #budget: MemoryBudget;
  readonly #now: () => number;
  /** Who reads what, by key: two responses of one key are read at a time only when one has taken the other's place. */
  readonly #readers = new Registry<Set<Reader>>();
  #timer: NodeJS.Timeout | null = null;
  #lookedAtMs = Number.NEGATIVE_INFINITY;

  /** `now`: monotonic time, ms. */
  constructor(budget: MemoryBudget, now: () => number = () => performance.now()) {
    this.#budget = budget;
    this.#now = now;
    budget.onShort(this);
  }

  /**
   * Gives a response that answers the key. `overloaded`, and nothing is given, when there is no room for it. One that is
   * here `anyway` is given all the same, unless the bound is overstepped already.
   */
  give(
    caller: Recipient,
    key: string,
    response: SharedResponse,
    given: Given,
    anyway: boolean,
  ): 'given' | 'overloaded' {
    const { ageMs, outcome, added } = given;
    if (caller.gone) return 'given';
    if (response.content.length <= SMALL_BYTES) {
      caller.give(response, ageMs, outcome, added);
      return 'given';
    }
    const readers = this.#readers.get(key) ?? new Set<Reader>();
    const one = sameOf(readers, response);
    const bytes = sizeOf(one);
    if (!this.#budget.hold(one, bytes)) {
      if (!anyway || this.#budget.isOver) return 'overloaded';
      this.#budget.holdAnyway(one, bytes);
    }
    const reader: Reader = { caller, key, response: one, at: 0, progressAtMs: this.#now() };
    this.#readers.set(key, readers.add(reader));
    this.#timer ??= setInterval(() => this.#cutIdle(), LOOK_MS).unref();
    caller.whenOver(() => this.#remove(reader));
    caller.give(one, ageMs, outcome, added, () => this.#write(reader));
    return 'given';
  }

  #write(reader: Reader): void {
    const { caller, response } = reader;
    const { content, trailers } = response;
    for (;;) {
      const part = content.subarray(reader.at, reader.at + PART_BYTES);
      reader.at += part.length;
      if (reader.at === content.length) return caller.end(part, trailers);
      if (caller.write(part)) continue;
      return caller.whenDrained(() => {
        reader.progressAtMs = this.#now();
        this.#write(reader);
      });
    }
  }

  #remove(reader: Reader): void {
    const { key, response } = reader;
    const readers = this.#readers.get(key);
    if (readers === undefined || !readers.delete(reader)) return;
    this.#budget.letGo(response);
    if (readers.size === 0) this.#readers.delete(key);
    if (this.#readers.size > 0 || this.#timer === null) return;
    clearInterval(this.#timer);
    this.#timer = null;
  }

  #cut(reader: Reader): void {
    this.#remove(reader);
    reader.caller.cut();
  }

  #cutIdle(): void {
    for (const reader of this.#idleFor(IDLE_MS)) this.#cut(reader);
  }

  /** Those who have taken nothing for so long, the longest first. */
  #idleFor(ms: number): Reader[] {
    const since = this.#now() - ms;
    const idle: Reader[] = [];
    for (const readers of this.#readers.values()) {
      for (const reader of readers) if (reader.progressAtMs <= since) idle.push(reader);
    }
    return idle.sort((one, other) => one.progressAtMs - other.progressAtMs);
  }

  spareBytes(): number {
    const now = this.#now();
    if (now - this.#lookedAtMs < LOOK_AGAIN_MS) return 0;
    this.#lookedAtMs = now;
    const responses = new Set(this.#idleFor(STALL_MS).map(({ response }) => response));
    let bytes = 0;
    for (const response of responses) bytes += sizeOf(response);
    return bytes;
  }

  giveUp(missingBytes: number): void {
    const until = this.#budget.usedBytes - missingBytes;
    for (const reader of this.#idleFor(STALL_MS)) {
      if (this.#budget.usedBytes <= until) return;
      this.#cut(reader);
    }
  }
}

/** The same response as somebody reads it already. */
function sameOf(readers: Iterable<Reader>, response: SharedResponse): SharedResponse {
  let compared: SharedResponse | null = null;
  for (const { response: other } of readers) {
    if (other === response) return other;
    if (other === compared) continue;
    if (isSame(other, response)) return other;
    compared = other;
  }
  return response;
}

function isSame(one: SharedResponse, other: SharedResponse): boolean {
  return (
    one.status === other.status &&
    one.reason === other.reason &&
    areSame(one.fields, other.fields) &&
    areSame(one.trailers, other.trailers) &&
    one.vary.digest === other.vary.digest &&
    areSame(one.vary.names, other.vary.names) &&
    one.content.equals(other.content)
  );
}

function areSame(some: readonly string[], others: readonly string[]): boolean {
  return some.length === others.length && some.every((text, i) => text === others[i]);
}
