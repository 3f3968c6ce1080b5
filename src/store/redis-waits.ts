/**
 * The waits of one process for flights of others.
 *
 * Invariants: a push may come before the reply of the claim that registered for it was read (two connections), and
 * before anybody waits, so every push is remembered for a while; a flight has one wait in a process, however many
 * callers it has, and so one fetch and one re-read; the re-read finds what a lost push would have said, and that a
 * flight is gone, soon after its lease; a failed re-read ends nothing; the registration of this process is withdrawn
 * when the last caller of a flight has left, and not while somebody who joined has still to wait. A claim under way then
 * needs no thought: it registers with a larger number than the withdrawal names.
 */

import { performance } from 'node:perf_hooks';
import type { FlightRef, Settlement } from '../core/claim.js';
import { Registry } from '../core/roster.js';
import type { WaitOptions } from './leases.js';
import type { StoreLog } from './redis-link.js';

/** What a re-read answers; null: the store did not. */
export type Looked =
  | { readonly kind: 'settled'; readonly frame: Buffer }
  | { readonly kind: 'in-flight'; readonly leaseLeftMs: number; readonly registration: number }
  | { readonly kind: 'gone' }
  | null;

export type WaitsOptions = {
  readonly look: (flight: FlightRef) => Promise<Looked>;
  /** Nobody here waits for the flight any more. Undoes the registration of that number and those before. */
  readonly withdraw: (flight: FlightRef, registration: number) => void;
  /** Reads a frame as that of the flight; throws when it cannot be. */
  readonly decode: (frame: Buffer, flight: FlightRef) => Settlement;
  /** A re-read found a settlement of which no push had told. */
  readonly onLostPush: () => void;
  readonly log: StoreLog;
};

type Push = { readonly marker: number; readonly frame: Buffer; readonly at: number };

type Caller = {
  readonly resolve: (settlement: Settlement) => void;
  readonly reject: (reason: unknown) => void;
  readonly signal: AbortSignal;
  readonly onAbort: () => void;
};

type Wait = {
  readonly flight: FlightRef;
  readonly callers: Set<Caller>;
  pollMs: number;
  timer: NodeJS.Timeout | null;
  looking: boolean;
  /** Something happened during a re-read that its answer may not contain. */
  lookAgain: boolean;
};

/** This process as a waiter of a flight that has not ended, as far as is known here. */
type Registration = {
  /** Of the last question that registered it. */
  number: number;
  /** Claims that joined and whose wait has not begun. */
  uncollected: number;
};

const RELEASED = 'r'.charCodeAt(0);
const GIVEN_UP = 'u'.charCodeAt(0);
const FETCH = 'f'.charCodeAt(0);

const REMEMBER_MS = 5_000;
const REMEMBER_MOST = 1_024;
/** The store's expiry and ours do not fall into the same instant. */
const LEASE_MARGIN_MS = 50;
/** While the store does not answer, a re-read is tried at least this often. */
const RETRY_MS = 500;

export class Waits {
  readonly #options: WaitsOptions;
  readonly #waits = new Registry<Wait>();
  readonly #pushes = new Registry<Push>();
  readonly #registered = new Registry<Registration>();
  #live = false;
  #blindUntil = Number.NEGATIVE_INFINITY;
  #joined = false;

  constructor(options: WaitsOptions) {
    this.#options = options;
  }

  /** Pushes arrive from now on. Whatever was joined before may have been settled unheard. */
  listening(): void {
    this.#live = true;
    if (this.#joined) this.#blindUntil = performance.now() + REMEMBER_MS;
    for (const wait of this.#waits.values()) this.#lookNow(wait);
  }

  deaf(): void {
    this.#live = false;
  }

  /** A claim registered this process with a flight, and a wait will follow. */
  joined(flight: string, registration: number): void {
    this.#joined = true;
    this.#register(flight, registration).uncollected += 1;
  }

  /** Takes a push as complete.lua and release.lua write it. */
  push(message: Buffer): void {
    const end = 2 + (message[1] ?? 0);
    const flight = message.toString('latin1', 2, end);
    const push: Push = { marker: message[0] ?? 0, frame: message.subarray(end), at: performance.now() };
    this.#remember(flight, push);
    this.#registered.delete(flight);
    const wait = this.#waits.get(flight);
    if (wait !== undefined) this.#take(wait, push);
  }

  settled(flight: FlightRef, { pollMs, signal }: WaitOptions): Promise<Settlement> {
    const registered = this.#registered.get(flight.flight);
    if (registered !== undefined) registered.uncollected = Math.max(0, registered.uncollected - 1);
    if (signal.aborted) {
      this.#withdrawUnwanted(flight);
      return Promise.reject(signal.reason);
    }
    return new Promise((resolve, reject) => {
      const wait = this.#waits.get(flight.flight) ?? this.#begin(flight, pollMs);
      const onAbort = () => this.#leave(wait, caller);
      const caller: Caller = { resolve, reject, signal, onAbort };
      wait.callers.add(caller);
      signal.addEventListener('abort', onAbort, { once: true });
      if (wait.callers.size === 1) this.#start(wait);
      else this.#pollSooner(wait, pollMs);
    });
  }

  /** Ends every wait with the reason. */
  close(reason: Error): void {
    for (const wait of this.#waits.values()) {
      for (const caller of this.#end(wait)) caller.reject(reason);
    }
    this.#pushes.clear();
    this.#registered.clear();
  }

  #begin(flight: FlightRef, pollMs: number): Wait {
    const wait: Wait = { flight, callers: new Set(), pollMs, timer: null, looking: false, lookAgain: false };
    this.#waits.set(flight.flight, wait);
    return wait;
  }

  #start(wait: Wait): void {
    const { flight } = wait.flight;
    const early = this.#pushes.get(flight);
    const pushComes = this.#live && performance.now() >= this.#blindUntil && this.#registered.has(flight);
    if (early !== undefined) this.#take(wait, early);
    else if (!pushComes) this.#lookNow(wait);
    else this.#schedule(wait, wait.flight.leaseLeftMs);
  }

  #pollSooner(wait: Wait, pollMs: number): void {
    if (pollMs >= wait.pollMs) return;
    wait.pollMs = pollMs;
    if (!wait.looking) this.#schedule(wait, wait.flight.leaseLeftMs);
  }

  #take(wait: Wait, push: Push): void {
    if (push.marker === FETCH) this.#lookNow(wait);
    else if (push.marker === RELEASED || push.marker === GIVEN_UP) this.#settle(wait, released(wait, push.marker));
    else this.#settle(wait, this.#read(wait, push.frame));
  }

  #schedule(wait: Wait, leaseLeftMs: number): void {
    if (wait.timer !== null) clearTimeout(wait.timer);
    const ms = Math.min(wait.pollMs, Math.max(0, leaseLeftMs) + LEASE_MARGIN_MS);
    wait.timer = setTimeout(() => this.#lookNow(wait), ms);
  }

  #lookNow(wait: Wait): void {
    if (wait.looking) {
      wait.lookAgain = true;
      return;
    }
    if (wait.timer !== null) clearTimeout(wait.timer);
    wait.timer = null;
    wait.looking = true;
    void this.#look(wait);
  }

  async #look(wait: Wait): Promise<void> {
    // A reply that cannot be read is no reply: the wait goes on.
    const looked = await this.#options.look(wait.flight).catch(() => null);
    wait.looking = false;
    if (wait.callers.size === 0) return this.#lookedForNobody(wait.flight, looked);
    if (this.#waits.get(wait.flight.flight) !== wait) return;
    if (looked?.kind === 'in-flight') this.#register(wait.flight.flight, looked.registration);
    const again = wait.lookAgain;
    wait.lookAgain = false;
    if (looked?.kind === 'settled') {
      if (this.#live && !this.#pushes.has(wait.flight.flight)) this.#options.onLostPush();
      this.#settle(wait, this.#read(wait, looked.frame));
    } else if (looked?.kind === 'gone') {
      this.#settle(wait, { kind: 'unknown', election: wait.flight.election });
    } else if (again) {
      this.#lookNow(wait);
    } else {
      this.#schedule(wait, looked === null ? RETRY_MS : looked.leaseLeftMs);
    }
  }

  #read(wait: Wait, frame: Buffer): Settlement {
    if (frame.length === 1) return released(wait, frame[0]);
    try {
      return this.#options.decode(frame, wait.flight);
    } catch (error) {
      this.#options.log('warn', 'settlement cannot be read', { error: (error as Error).message });
      return { kind: 'unknown', election: wait.flight.election };
    }
  }

  #settle(wait: Wait, settlement: Settlement): void {
    this.#registered.delete(wait.flight.flight);
    for (const caller of this.#end(wait)) caller.resolve(settlement);
  }

  /** Takes the wait out of everything and gives its callers. */
  #end(wait: Wait): Iterable<Caller> {
    this.#waits.delete(wait.flight.flight);
    if (wait.timer !== null) clearTimeout(wait.timer);
    for (const caller of wait.callers) caller.signal.removeEventListener('abort', caller.onAbort);
    return wait.callers;
  }

  #leave(wait: Wait, caller: Caller): void {
    wait.callers.delete(caller);
    caller.reject(caller.signal.reason);
    if (wait.callers.size > 0) return;
    this.#end(wait);
    this.#withdrawUnwanted(wait.flight);
  }

  /** The last caller left during a re-read, which may have registered this process once more. */
  #lookedForNobody(flight: FlightRef, looked: Looked): void {
    if (looked?.kind === 'in-flight') this.#register(flight.flight, looked.registration);
    else if (looked !== null) this.#registered.delete(flight.flight);
    this.#withdrawUnwanted(flight);
  }

  #register(flight: string, number: number): Registration {
    let registered = this.#registered.get(flight);
    if (registered === undefined) {
      registered = { number, uncollected: 0 };
      this.#registered.set(flight, registered);
    }
    registered.number = Math.max(registered.number, number);
    return registered;
  }

  #withdrawUnwanted(flight: FlightRef): void {
    const registered = this.#registered.get(flight.flight);
    if (registered === undefined || registered.uncollected > 0 || this.#waits.has(flight.flight)) return;
    this.#registered.delete(flight.flight);
    if (!this.#pushes.has(flight.flight)) this.#options.withdraw(flight, registered.number);
  }

  #remember(flight: string, push: Push): void {
    // In order of arrival: the first is the oldest.
    for (const [old, { at }] of this.#pushes) {
      if (this.#pushes.size < REMEMBER_MOST && push.at - at < REMEMBER_MS) break;
      this.#pushes.delete(old);
    }
    this.#pushes.set(flight, push);
  }
}

/** What release.lua says of a flight. Its election is the one that the follower was told. */
function released(wait: Wait, marker: number | undefined): Settlement {
  return { kind: marker === RELEASED ? 'failed' : 'unknown', election: wait.flight.election };
}
