/**
 * One flight as this process sees it: what is known of its leader, and who waits for it here.
 *
 * Invariants: whoever waits is in the set until it is taken out, exactly once, by its end, its deadline or its leaving;
 * one timer serves all of them.
 */

import type { Expects } from '../core/claim.js';
import type { Likeness } from '../core/likeness.js';
import { waitOf } from '../core/policy.js';
import type { ClaimPolicy } from '../core/rule.js';
import type { SpanContext } from '../core/trace-context.js';
import type { Caller, KeyNames } from './caller.js';
import type { Following } from './following.js';
import type { Leading } from './leading.js';
import type { Recording } from './recording.js';

/** Granularity of deadlines: waiters that are due within it end together. */
const WAIT_TICK_MS = 20;

export type FlightState =
  /** The store was asked who has the key. */
  | { readonly kind: 'claiming' }
  /** This process leads. */
  | { readonly kind: 'leading'; readonly leading: Leading }
  /** Another process leads. */
  | { readonly kind: 'following'; readonly following: Following };

export type FlightListener = {
  /** A waiter's time is over. It has been taken out. */
  readonly onExpired: (caller: Caller, flight: Flight) => void;
  /** Nobody waits any more, for somebody left or expired. */
  readonly onEmpty: (flight: Flight) => void;
};

export class Flight {
  readonly key: string;
  readonly id: string;
  readonly names: KeyNames;
  /** What a duplicate must equal; empty: its key says enough. */
  readonly fingerprint: string;
  /** Name of the opener's rule. */
  readonly route: string;
  readonly policy: ClaimPolicy;
  readonly election: number;
  /** Flight after whose failure this one was opened for election; empty: none. */
  readonly after: string;
  /** Id of the flight whose settlement is awaited here: its own, or that of another process's leader. */
  leaderFlight: string;
  /** Span of whoever leads, in whichever process; null: there is none, or nobody knows it. */
  leaderSpan: SpanContext | null = null;
  state: FlightState = { kind: 'claiming' };
  /** What its leader asked, or whoever opened it where the leader is elsewhere; null: not known. */
  likeness: Likeness | null = null;
  /** Whether key health knows of a duplicate. */
  met: 'by-nobody' | 'by-duplicates' = 'by-nobody';
  /** Nobody waits for a response that is expected to be for its leader's client alone. */
  expects: Expects = 'shareable';
  /** The response as it comes, once it may be read; null before. */
  recording: Recording | null = null;
  /** Of those who read it, who is to be compared with the upstream's own answer when it is whole. */
  readonly verified: Caller[] = [];
  readonly #waiting = new Set<Caller>();
  readonly #listener: FlightListener;
  #timer: NodeJS.Timeout | null = null;
  /** Monotonic time (ms) of the timer; infinite without one. */
  #armedForMs = Number.POSITIVE_INFINITY;

  constructor(
    key: string,
    id: string,
    names: KeyNames,
    fingerprint: string,
    route: string,
    policy: ClaimPolicy,
    election: number,
    after: string,
    listener: FlightListener,
  ) {
    this.key = key;
    this.id = id;
    this.names = names;
    this.fingerprint = fingerprint;
    this.route = route;
    this.policy = policy;
    this.election = election;
    this.after = after;
    this.leaderFlight = id;
    this.#listener = listener;
  }

  /** How many wait for the settlement. */
  get waitingCount(): number {
    return this.#waiting.size;
  }

  get awaited(): boolean {
    return this.#waiting.size > 0;
  }

  /** Takes a request in: until the claim is answered nobody knows whether it leads or follows. */
  add(caller: Caller): void {
    caller.waitingSinceMs ??= performance.now();
    this.#waiting.add(caller);
    caller.whenLeft(() => this.#drop(caller));
    if (deadlineMs(caller) < this.#armedForMs) this.#arm();
  }

  /** The first waiter that is still there; it goes on waiting. */
  first(): Caller | null {
    for (const caller of this.#waiting) if (!caller.gone) return caller;
    return null;
  }

  /** Takes the first waiter out that is still there. */
  takeFirst(): Caller | null {
    for (const caller of this.#waiting) {
      this.#takeOut(caller);
      if (!caller.gone) return caller;
    }
    return null;
  }

  /** Takes all waiters out. */
  takeAll(): Caller[] {
    const all = [...this.#waiting];
    this.#waiting.clear();
    this.#disarm();
    return all;
  }

  /** Makes all waiters followers: somebody leads. */
  markFollowers(): void {
    for (const caller of this.#waiting) caller.follows(this.leaderSpan);
  }

  #drop(caller: Caller): void {
    if (this.#takeOut(caller) && this.#waiting.size === 0) this.#listener.onEmpty(this);
  }

  #takeOut(caller: Caller): boolean {
    const was = this.#waiting.delete(caller);
    if (this.#waiting.size === 0) this.#disarm();
    return was;
  }

  #disarm(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    this.#armedForMs = Number.POSITIVE_INFINITY;
  }

  #arm(): void {
    this.#disarm();
    for (const caller of this.#waiting) this.#armedForMs = Math.min(this.#armedForMs, deadlineMs(caller));
    if (this.#armedForMs === Number.POSITIVE_INFINITY) return;
    const inMs = Math.max(WAIT_TICK_MS, this.#armedForMs - performance.now());
    this.#timer = setTimeout(() => this.#expire(), inMs);
  }

  #expire(): void {
    const nowMs = performance.now();
    let some = false;
    for (const caller of this.#waiting) {
      if (deadlineMs(caller) > nowMs) continue;
      this.#waiting.delete(caller);
      some = true;
      this.#listener.onExpired(caller, this);
    }
    if (some && this.#waiting.size === 0) this.#listener.onEmpty(this);
    this.#arm();
  }
}

/** Monotonic time (ms) at which a waiter's patience ends, by its own rule; without a wait, never. */
function deadlineMs(caller: Caller): number {
  const policy = caller.rule?.policy;
  const wait = policy === undefined || policy.kind === 'pass' ? null : waitOf(policy);
  return wait === null || caller.waitingSinceMs === null
    ? Number.POSITIVE_INFINITY
    : caller.waitingSinceMs + wait.waitMs;
}
