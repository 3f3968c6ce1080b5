/**
 * The questions to the API about operations of which nobody knows what became, for rules with `reconcile`.
 *
 * Invariants: one loop per key in this process, and at most `MOST_LOOPS` in all, of which `MOST_ASKING` ask at a time; the
 * key's value is held by its loop and by nothing else, and goes to the API only; before each question the store is asked
 * whether the outcome is still unknown, so that a loop ends when anybody has settled it or its time is over; what an
 * answer says is written only if it is unknown at that very moment; no timer keeps the process alive.
 */

import { setMaxListeners } from 'node:events';
import { derivedKey, type KeyMaterial } from '../core/claim.js';
import { questionTarget } from '../core/question-url.js';
import { answerLimitBytes, type Reconciled, reconciledAs, verdictOf } from '../core/reconcile.js';
import type { KeyedPolicy, Reconcile } from '../core/rule.js';
import { type Store, StoreUnavailable } from '../store/store.js';
import type { Upstream } from '../upstream/upstream.js';
import type { Caller } from './caller.js';
import type { ExchangeObserver } from './observer.js';
import { ask } from './question.js';

/** With more keys than that to ask about, the newest have to wait for a repeat of theirs. */
const MOST_LOOPS = 10_000;
const MOST_ASKING = 100;
/** The first question comes after `every`, but no later than this. */
const FIRST_AFTER_MS = 1_000;

export type ReconcilerOptions = {
  readonly observer: ExchangeObserver;
};

/** What is needed of a request of that key. */
export type Asker = Pick<Caller, 'route' | 'method' | 'upstream' | 'generation' | 'keyValue'>;

/** The flight in question and the store that holds its key. */
export type UnknownFlight = {
  readonly store: Store;
  readonly key: string;
  readonly flight: string;
  /** What an answer that is kept is sealed with. */
  readonly material: KeyMaterial;
};

/** All that is needed to ask, again and again. */
type Loop = UnknownFlight & {
  readonly route: string;
  readonly method: string;
  readonly policy: KeyedPolicy;
  readonly reconcile: Reconcile;
  /** Held until the loop ends. */
  readonly upstream: Upstream;
  /** Holds the key's value. */
  readonly target: string;
  /** Monotonic time (ms) by which it ends even if the store is not there to say so. */
  readonly untilMs: number;
  asked: number;
  timer: NodeJS.Timeout | null;
};

export class Reconciler {
  readonly #options: ReconcilerOptions;
  /** By key. */
  readonly #loops = new Map<string, Loop>();
  /** Loops whose time has come, in order. */
  readonly #due: Loop[] = [];
  #asking = 0;
  readonly #stopping = newStop();

  constructor(options: ReconcilerOptions) {
    this.#options = options;
  }

  /** The outcome of a flight is unknown: its end here, or a request of the same key, has shown it. */
  unknown(caller: Asker, policy: KeyedPolicy, unknown: UnknownFlight): void {
    const { reconcile } = policy;
    if (reconcile === null || this.#stopping.signal.aborted) return;
    const there = this.#loops.get(unknown.key);
    if (there?.flight === unknown.flight) return;
    // That flight is over: another one has had the key since.
    if (there !== undefined) this.#end(there);
    const value = reconcile.url.placeholder === 'key' ? caller.keyValue : derivedKey(unknown.key);
    const target = value === null ? null : questionTarget(reconcile.url, value);
    const { route, method } = caller;
    if (target === null || this.#loops.size >= MOST_LOOPS) {
      const answer = target === null ? 'not-askable' : 'too-many';
      const { key, flight } = unknown;
      this.#options.observer.asked({ key, flight, route, verdict: 'no-answer', answer, count: 1 });
      return;
    }
    const upstream = heldUpstream(caller, reconcile.url.origin);
    const untilMs = performance.now() + policy.leaseMs + policy.unknownForMs;
    const loop: Loop = {
      ...unknown,
      ...{ route, method, policy, reconcile, upstream, target, untilMs },
      ...{ asked: 0, timer: null },
    };
    this.#loops.set(loop.key, loop);
    this.#wait(loop, Math.min(FIRST_AFTER_MS, reconcile.everyMs));
  }

  /** Ends all loops and the questions under way. */
  stop(): void {
    this.#stopping.abort();
    for (const loop of [...this.#loops.values()]) this.#end(loop);
    this.#due.length = 0;
  }

  #wait(loop: Loop, ms: number): void {
    loop.timer = setTimeout(() => {
      this.#due.push(loop);
      this.#next();
    }, ms).unref();
  }

  #next(): void {
    while (this.#asking < MOST_ASKING) {
      const loop = this.#due.shift();
      if (loop === undefined) return;
      this.#asking += 1;
      this.#turn(loop)
        .catch((error) => {
          this.#options.observer.failed(error);
          this.#end(loop);
        })
        .finally(() => {
          this.#asking -= 1;
          this.#next();
        });
    }
  }

  /** One question, if it is still one. */
  async #turn(loop: Loop): Promise<void> {
    const { store, key, flight, reconcile } = loop;
    if (!this.#runs(loop)) return;
    let leftMs = loop.untilMs - performance.now();
    try {
      const standing = await store.standing(key, flight);
      if (!this.#runs(loop)) return;
      if (standing.kind === 'over') return this.#end(loop);
      if (standing.kind === 'unknown') {
        leftMs = standing.leftMs;
        if (await this.#isSettled(loop)) return this.#end(loop);
      }
    } catch (error) {
      // Without the store nothing could be settled, whatever the answer.
      if (!(error instanceof StoreUnavailable)) throw error;
    }
    if (!this.#runs(loop)) return;
    if (leftMs <= reconcile.everyMs) this.#end(loop);
    else this.#wait(loop, reconcile.everyMs);
  }

  /** Asks, and settles by the answer; false: it is to be asked again. */
  async #isSettled(loop: Loop): Promise<boolean> {
    const { upstream, target, reconcile, policy, method } = loop;
    const question = { upstream, target, fields: reconcile.fields, limitBytes: answerLimitBytes(policy) };
    const asked = await ask(question, this.#stopping.signal);
    if (!this.#runs(loop)) return false;
    const verdict = asked.kind === 'answered' ? verdictOf(reconcile, asked.answer) : 'no-answer';
    this.#tellAsked(loop, verdict, asked.kind === 'answered' ? String(asked.answer.status) : asked.cause);
    if (asked.kind === 'failed' || verdict === 'pending' || verdict === 'no-answer') return false;
    await this.#settle(loop, verdict === 'absent' ? { kind: 'free' } : reconciledAs(policy, method, asked.answer));
    return true;
  }

  #tellAsked(loop: Loop, verdict: ReturnType<typeof verdictOf>, answer: string): void {
    const { route, key, flight } = loop;
    loop.asked += 1;
    this.#options.observer.asked({ route, key, flight, verdict, answer, count: loop.asked });
  }

  /** Somebody else may have settled it meanwhile; then nothing happens and nothing is told. */
  async #settle({ store, route, key, flight, material }: Loop, as: Reconciled): Promise<void> {
    const report = { route, key, flight, as: as.kind };
    try {
      if ((await store.settleUnknown(key, flight, as, material)) === 'settled') {
        this.#options.observer.reconciled({ ...report, result: 'settled' });
      }
    } catch (error) {
      // It may have been done: it is told, and the next look at the store will show whether it was.
      if (error instanceof StoreUnavailable) this.#options.observer.reconciled({ ...report, result: 'unanswered' });
      throw error;
    }
  }

  /** False once it has ended: while the store or the API was asked, everything may have been stopped. */
  #runs(loop: Loop): boolean {
    return this.#loops.get(loop.key) === loop;
  }

  #end(loop: Loop): void {
    if (loop.timer !== null) clearTimeout(loop.timer);
    if (!this.#runs(loop)) return;
    this.#loops.delete(loop.key);
    loop.upstream.letGo();
  }
}

/** Whom the rule asks: its upstream, or what stands at the origin that it names. */
function heldUpstream({ upstream, generation }: Asker, origin: string | null): Upstream {
  if (origin !== null) return generation.askedAt(upstream.name, origin);
  upstream.hold();
  return upstream;
}

/** One signal for all questions under way: as many listeners as there are questions are no leak. */
function newStop(): AbortController {
  const stop = new AbortController();
  setMaxListeners(0, stop.signal);
  return stop;
}
