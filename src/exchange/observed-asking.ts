/**
 * What the store says of an observed request, and what the policy would have made of it: the questions that flights.ts and
 * turns.ts ask, for one request alone, whose answers hold up nobody.
 *
 * Invariants: what is decided is decided by core/policy.ts; a wait that the store was promised is begun and ended; a request
 * asks behind a call of its key in this process that is over, but not yet settled: it came after its end.
 */

import { type ClaimResult, type FlightRef, type Lease, newFlightId, type Settlement } from '../core/claim.js';
import type { Fate } from '../core/observed.js';
import type { ProblemCode } from '../core/outcome.js';
import { type Decision, decide, endingOf, waitOf, waits } from '../core/policy.js';
import type { Registry } from '../core/roster.js';
import type { ClaimPolicy, KeyedPolicy, QueuePolicy } from '../core/rule.js';
import { type Vary, varyMatches } from '../core/sharing.js';
import type { Leases, WaitOptions } from '../store/leases.js';
import type { Entered } from '../store/queue.js';
import { type Store, StoreUnavailable } from '../store/store.js';
import { type NamedKey, variantOf } from './judging.js';
import type { ObservedCall } from './observed-call.js';

export type AskingOptions = {
  readonly route: string;
  readonly method: string;
  readonly fields: readonly string[];
  readonly call: ObservedCall;
  readonly store: Store;
  readonly local: Store;
  /** By key, the first call of this process that has it, or asks for it. */
  readonly first: Registry<ObservedCall>;
};

/** What a request holds in the store as long as the rule would have had it hold that. */
export type Holding = {
  readonly lease: Lease;
  readonly store: Leases;
  readonly claimedAtMs: number;
  readonly election: number;
  /** Monotonic time (ms) at which its call would have begun; null: when it did. */
  readonly beginsAtMs: number | null;
};

/** What would have become of it. */
export type Stood = {
  readonly fate: Fate;
  /** How long it would have waited, ms; null: not at all. */
  readonly waitedMs: number | null;
  readonly holding: Holding | null;
};

/** What a request must equal to be a duplicate, beside its key. */
export type AskedKey = { readonly named: NamedKey; readonly fingerprint: string };

type Asked = AskedKey & { readonly election: number; readonly after: string };
type Answer =
  | { readonly kind: 'claim'; readonly claim: ClaimResult; readonly store: Store; readonly claimedAtMs: number }
  | { readonly kind: 'fate'; readonly fate: Fate };

const AS_EXPECTED = { kind: 'unshareable', reason: 'expected' } as const satisfies Settlement;
const STOPPED: Fate = { kind: 'unobserved', reason: 'stopped' };

export class ObservedAsking {
  readonly #options: AskingOptions;
  readonly #sinceMs = performance.now();
  #wait: AbortController | null = null;
  #waited = false;
  #stopped = false;

  constructor(options: AskingOptions) {
    this.#options = options;
  }

  /** Asks, and waits as it would have waited. */
  ask(policy: KeyedPolicy, { named, fingerprint }: AskedKey): Promise<Stood> {
    if (policy.kind === 'queue') return this.#enter(policy, named);
    return this.#claim(policy, { named, fingerprint, election: 0, after: '' });
  }

  /** Ends its wait; nothing is asked any more. */
  stop(): void {
    this.#stopped = true;
    this.#wait?.abort();
  }

  async #claim(policy: ClaimPolicy, asked: Asked): Promise<Stood> {
    const { call, first } = this.#options;
    const { key } = asked.named;
    const ahead = first.get(key);
    if (ahead?.isOver && ahead !== call) await ahead.settled;
    if (this.#stopped) return this.#stood(STOPPED);
    if (!first.has(key)) first.set(key, call);
    let holds = false;
    try {
      const answer = await this.#answer(policy, asked);
      if (answer.kind === 'fate') return this.#stood(answer.fate);
      const { store, claimedAtMs } = answer;
      const decision = decide(policy, answer.claim);
      if (decision.kind === 'forward') {
        holds = true;
        const holding = { lease: decision.lease, store, claimedAtMs, election: asked.election, beginsAtMs: null };
        return { fate: { kind: 'led' }, waitedMs: this.#waitedMs, holding };
      }
      // Whoever waits, or asks about another key, holds nothing under this one.
      this.#letGo(key);
      return await this.#without(policy, asked, decision, store);
    } finally {
      if (!holds) this.#letGo(key);
    }
  }

  #letGo(key: string): void {
    const { call, first } = this.#options;
    if (first.get(key) !== call) return;
    first.delete(key);
    call.isSettled();
  }

  /** It would not have led. */
  async #without(
    policy: ClaimPolicy,
    asked: Asked,
    decision: Exclude<Decision, { kind: 'forward' }>,
    store: Store,
  ): Promise<Stood> {
    switch (decision.kind) {
      case 'reject':
        return this.#refused('in-flight');
      case 'refuse':
        return this.#refused(decision.code);
      case 'replay':
        return this.#orVariant(policy, asked, decision.response.vary, { kind: 'hit' });
      case 'apart':
        return this.#ended(policy, asked, AS_EXPECTED, '');
      case 'wait': {
        const settlement = await this.#settled(policy, store, decision.flight);
        if (settlement !== null) return this.#ended(policy, asked, settlement, decision.flight.flight);
        if (this.#stopped) return this.#stood(STOPPED);
        // As for those who wait in earnest: a repeat of a replayed request is told what it would have been told at once.
        return this.#refused(policy.kind === 'replay' ? 'in-flight' : 'wait-timeout');
      }
    }
  }

  /** It would have followed, and its flight has ended. */
  #ended(policy: ClaimPolicy, asked: Asked, settlement: Settlement, flight: string): Stood | Promise<Stood> {
    if (!waits(policy)) throw new Error('a request of this policy follows no flight');
    const ending = endingOf(policy, this.#options.method, settlement);
    switch (ending.kind) {
      case 'answer':
        return this.#orVariant(policy, asked, ending.response.vary, { kind: 'collapsed' });
      case 'elect':
        return this.#claim(policy, { ...asked, election: ending.election, after: flight });
      case 'ask-again':
        return this.#claim(policy, { ...asked, election: ending.election, after: '' });
      case 'forward':
        return this.#stood({ kind: 'bypassed', reason: 'not-shareable' });
      case 'refuse':
        return this.#refused(ending.code);
    }
  }

  #orVariant(policy: ClaimPolicy, asked: Asked, vary: Vary, fate: Fate): Stood | Promise<Stood> {
    const { fields } = this.#options;
    if (varyMatches(vary, fields)) return this.#stood(fate);
    return this.#claim(policy, { ...asked, named: variantOf(asked.named, vary, fields), election: 0, after: '' });
  }

  async #answer(policy: ClaimPolicy, { named, fingerprint, election, after }: Asked): Promise<Answer> {
    const { route, store, local } = this.#options;
    const request = {
      ...named,
      flight: newFlightId(),
      fingerprint,
      route,
      leaseMs: policy.leaseMs,
      holdMs: policy.unknownForMs,
      election,
      after,
      join: waits(policy),
    };
    const claimedAtMs = performance.now();
    try {
      return { kind: 'claim', claim: await store.claim(request), store, claimedAtMs };
    } catch (error) {
      if (!(error instanceof StoreUnavailable)) throw error;
      const fate = withoutStore(policy);
      if (fate !== null) return { kind: 'fate', fate };
      return { kind: 'claim', claim: await local.claim(request), store: local, claimedAtMs };
    }
  }

  /** Waits for a flight's end; null: its patience ended before. */
  async #settled(policy: KeyedPolicy, store: Store, flight: FlightRef): Promise<Settlement | null> {
    return this.#patiently(policy, ({ pollMs, signal }) => store.settled(flight, { pollMs, signal }));
  }

  async #enter(policy: QueuePolicy, { key, others }: NamedKey): Promise<Stood> {
    const { route, store, local } = this.#options;
    const { leaseMs, unknownForMs: holdMs, concurrency, maxQueue } = policy;
    const otherKeys = others.map((other) => other.key);
    const request = { key, otherKeys, flight: newFlightId(), route, leaseMs, holdMs, concurrency, maxQueue };
    let { queue } = store;
    let entered: Entered;
    try {
      entered = await queue.enter(request);
    } catch (error) {
      if (!(error instanceof StoreUnavailable)) throw error;
      const fate = withoutStore(policy);
      if (fate !== null) return this.#stood(fate);
      queue = local.queue;
      entered = await queue.enter(request);
    }
    const came = entered.kind;
    const result =
      entered.kind === 'queued'
        ? await this.#patiently(policy, (options) => queue.turn(entered.place, options))
        : entered;
    if (result === null) return this.#stopped ? this.#stood(STOPPED) : this.#refused('wait-timeout');
    if (result.kind === 'full') return this.#refused('queue-full');
    if (result.kind === 'unknown') return this.#refused('outcome-unknown');
    const { lease, claimedAtMs } = result;
    const beginsAtMs = came === 'queued' ? performance.now() : null;
    const holding = { lease, store: queue, claimedAtMs, election: 0, beginsAtMs };
    return { fate: { kind: came === 'queued' ? 'queued' : 'led' }, waitedMs: this.#waitedMs, holding };
  }

  /** Waits as long as the rule has a request wait in all; null: that is over, or the gateway stops. */
  async #patiently<T>(policy: KeyedPolicy, begin: (options: WaitOptions) => Promise<T>): Promise<T | null> {
    const { waitMs, pollMs } = waitOf(policy) ?? { waitMs: 0, pollMs: 0 };
    const wait = new AbortController();
    this.#wait = wait;
    this.#waited = true;
    if (this.#stopped) wait.abort();
    const timer = setTimeout(() => wait.abort(), Math.max(0, this.#sinceMs + waitMs - performance.now()));
    try {
      return await begin({ pollMs, signal: wait.signal });
    } catch (error) {
      // Given up by the signal, or the store was closed under the wait.
      if (!wait.signal.aborted && !(error instanceof StoreUnavailable)) throw error;
      return null;
    } finally {
      clearTimeout(timer);
      this.#wait = null;
    }
  }

  get #waitedMs(): number | null {
    return this.#waited ? performance.now() - this.#sinceMs : null;
  }

  #stood(fate: Fate): Stood {
    return { fate, waitedMs: this.#waitedMs, holding: null };
  }

  #refused(code: ProblemCode): Stood {
    return this.#stood({ kind: 'refused', code });
  }
}

/** By the rule's `onStoreDown`; null: it goes on inside this process. */
function withoutStore({ onStoreDown }: KeyedPolicy): Fate | null {
  switch (onStoreDown) {
    case 'local':
      return null;
    case 'pass':
      return { kind: 'bypassed', reason: 'store-unavailable' };
    case 'reject':
      return { kind: 'refused', code: 'store-unavailable' };
  }
}
