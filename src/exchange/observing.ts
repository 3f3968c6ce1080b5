/**
 * The requests of rules that only observe: each is forwarded at once, and beside that lives the life that the rule would have
 * given it (observation.ts).
 *
 * Invariants: nothing that is asked or kept for an observation holds its request up or changes its answer; how many are
 * observed at a time, and what is copied for them, is bounded, and what is beyond that is forwarded and counted all the same.
 */

import { needsContent } from '../core/key.js';
import type { UnobservedReason } from '../core/observed.js';
import type { Outcome } from '../core/outcome.js';
import { Registry, Roster } from '../core/roster.js';
import type { KeyedPolicy } from '../core/rule.js';
import type { Store } from '../store/store.js';
import type { Caller } from './caller.js';
import type { Calls } from './calls.js';
import { ContentCopy } from './content-copy.js';
import { readableBytes, readsContentForFingerprint } from './judging.js';
import { type Found, Observation } from './observation.js';
import type { ObservedCall } from './observed-call.js';
import { ObservedPassing } from './observed-passing.js';
import type { ExchangeObserver } from './observer.js';
import { pass, placeFor } from './passing.js';
import { ReadAheadBudget } from './read-ahead.js';
import { passUpgrade } from './upgrading.js';

export type ObservingOptions = {
  readonly store: Store;
  /** The in-process store that `onStoreDown: local` falls back to. */
  readonly local: Store;
  readonly observer: ExchangeObserver;
  readonly calls: Calls;
  /** Keys of the digests: the first is in use. */
  readonly secrets: readonly string[];
};

/** Those that wait for a store which does not answer, or for what they would have waited for, among them. */
const MOST_AT_A_TIME = 20_000;
/** Of the content of all that is on its way. */
const COPIES_BYTES = 64 * 1_048_576;
/** What is not given back by then ends with its lease. */
const STOP_MS = 1_000;
const OBSERVED: Outcome = { kind: 'observed' };

export class Observing {
  readonly #options: ObservingOptions;
  readonly #all = new Roster<{ readonly observation: Observation; readonly over: Promise<void> }>();
  readonly #copies = new ReadAheadBudget(COPIES_BYTES);
  /** By key, the first of this process that has it or asks for it. */
  readonly #first = new Registry<ObservedCall>();

  constructor(options: ObservingOptions) {
    this.#options = options;
  }

  /** Forwards a request, and observes it. */
  arrive(caller: Caller, policy: KeyedPolicy, found: Found): void {
    const { observer } = this.#options;
    if (caller.offer !== null) {
      this.#unobserved(caller, policy, 'upgrade');
      return passUpgrade(caller, caller.offer, caller.upstream, this.#options, OBSERVED);
    }
    if (this.#all.size >= MOST_AT_A_TIME) {
      this.#unobserved(caller, policy, 'crowded');
      return pass(caller, caller.upstream, OBSERVED, this.#options);
    }
    if (caller.gone) return;
    const place = placeFor(caller, this.#options);
    if (place === null) return;
    const { secrets, store, local } = this.#options;
    const content = this.#contentOf(caller, policy);
    const { requestId, method, fields, route } = caller;
    const request = { ...found, requestId, method, fields, route, content };
    const observation = new Observation({ request, policy, secrets, store, local, observer, first: this.#first });
    new ObservedPassing(caller, observer, place, observation.call).start(caller.upstream);
    const over = observation.live();
    const entry = this.#all.add({ observation, over });
    void over.then(() => this.#all.remove(entry));
  }

  /** Ends what is left. Resolves when what it held is given back, or the store takes too long for that. */
  async stop(): Promise<void> {
    const all = [...this.#all];
    for (const { observation } of all) observation.stop();
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, STOP_MS);
    });
    await Promise.race([Promise.all(all.map(({ over }) => over)), late]);
    clearTimeout(timer);
  }

  #contentOf(caller: Caller, policy: KeyedPolicy): ContentCopy | null {
    if (!needsContent(policy) && !readsContentForFingerprint(policy)) return null;
    const limitBytes = readableBytes(policy, caller.maxContentBytes);
    const copy = new ContentCopy(limitBytes, caller.announcedBytes, this.#copies);
    if (!caller.announcesContent) copy.end();
    return copy;
  }

  #unobserved({ route, method, requestId }: Caller, policy: KeyedPolicy, reason: UnobservedReason): void {
    const fate = { kind: 'unobserved', reason } as const;
    this.#options.observer.observed({
      route,
      method,
      requestId,
      policy: policy.kind,
      fate,
      waitedMs: null,
      callMs: null,
    });
  }
}
