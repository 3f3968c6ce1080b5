/**
 * The life that a request would have had if its rule did not only observe: its key, what would have become of it, and what
 * it would have held.
 *
 * Invariants: its request is on its way already and hears nothing of this; whatever goes wrong here is told to the observer
 * and ends the observation alone; what it holds in the store is given back once, when its own call is over.
 */

import { keyOf, needsContent } from '../core/key.js';
import type { Fate } from '../core/observed.js';
import type { KeyedPolicy } from '../core/rule.js';
import type { Target } from '../core/target.js';
import type { ContentCopy } from './content-copy.js';
import { fingerprintBy, otherNames, readsContentForFingerprint, unkeyed } from './judging.js';
import { LeaseKeeper } from './lease-keeper.js';
import { type AskedKey, type AskingOptions, type Holding, ObservedAsking, type Stood } from './observed-asking.js';
import { ObservedCall } from './observed-call.js';
import type { ExchangeObserver } from './observer.js';
import { Settler } from './settler.js';

/** What was found of a request before its key. */
export type Found = {
  readonly target: Target;
  readonly host: string;
  readonly params: ReadonlyMap<string, string>;
};

export type ObservationOptions = Pick<AskingOptions, 'store' | 'local' | 'first'> & {
  readonly request: Found &
    Pick<AskingOptions, 'route' | 'method' | 'fields'> & {
      readonly requestId: string;
      /** Null: neither key nor fingerprint is made of it. */
      readonly content: ContentCopy | null;
    };
  readonly policy: KeyedPolicy;
  /** Keys of the digests: the first is in use. */
  readonly secrets: readonly string[];
  readonly observer: ExchangeObserver;
};

type Judged = { readonly kind: 'key'; readonly key: AskedKey } | { readonly kind: 'fate'; readonly fate: Fate };

/** Of a lease that protects nothing, nobody needs to hear that it was lost. */
const UNHEARD = { leaseLost: () => {}, unsettled: () => {} };
const KEEPING = {
  until: () => Number.POSITIVE_INFINITY,
  inOutage: 'lost',
  onRenewed: () => {},
  onUnsure: () => {},
  onLost: () => {},
  onOverdue: () => {},
} as const;

export class Observation {
  readonly call: ObservedCall;
  readonly #options: ObservationOptions;
  readonly #asking: ObservedAsking;
  readonly #stopping = new AbortController();

  constructor(options: ObservationOptions) {
    this.#options = options;
    const { request, policy, observer, store, local, first } = options;
    const { route, method, fields, content } = request;
    this.call = new ObservedCall({ policy, method, fields, content, observer });
    this.#asking = new ObservedAsking({ route, method, fields, call: this.call, store, local, first });
  }

  /** Resolves when all of it is over; never rejects. */
  async live(): Promise<void> {
    let stood: Stood = { fate: { kind: 'unobserved', reason: 'failed' }, waitedMs: null, holding: null };
    try {
      stood = await this.#stand();
    } catch (error) {
      this.#options.observer.failed(error);
    }
    const held = stood.holding === null ? null : this.#hold(stood.holding).catch(this.#options.observer.failed);
    await this.call.over;
    this.#tell(stood);
    await held;
    this.#letGo(stood.holding);
  }

  /** Ends what it waits for, and gives back what it holds. */
  stop(): void {
    this.#asking.stop();
    this.call.onOver({ kind: 'left' });
    this.#stopping.abort();
  }

  async #stand(): Promise<Stood> {
    const judged = await this.#judge();
    if (judged.kind === 'fate') return { fate: judged.fate, waitedMs: null, holding: null };
    return this.#asking.ask(this.#options.policy, judged.key);
  }

  /** What its key is, or what would have become of it without one. */
  async #judge(): Promise<Judged> {
    const { policy, request, secrets } = this.#options;
    const { content: copy, method, fields, target, host, params } = request;
    let content: Buffer | null = null;
    const read = async (): Promise<Fate | null> => {
      const copied = (await copy?.done) ?? { kind: 'broken' };
      if (copied.kind === 'whole') content = copy?.take() ?? null;
      return copied.kind === 'whole' ? null : fateOfCopy(copied.kind);
    };
    const view = () => ({ method, fields, target, host, params, content });
    if (needsContent(policy)) {
      const fate = await read();
      if (fate !== null) return { kind: 'fate', fate };
    }
    const key = keyOf(policy, view(), secrets[0] ?? null);
    if (key.kind !== 'key') {
      copy?.drop();
      const { kind, reason } = unkeyed(policy, key);
      return {
        kind: 'fate',
        fate: kind === 'refuse' ? { kind: 'refused', code: reason } : { kind: 'bypassed', reason },
      };
    }
    if (content === null && readsContentForFingerprint(policy)) {
      const fate = await read();
      if (fate !== null) return { kind: 'fate', fate };
    }
    const named = { key: key.digest, material: key.material, others: otherNames(policy, view(), secrets) };
    return { kind: 'key', key: { named, fingerprint: fingerprintBy(policy, view(), secrets[0] ?? null) } };
  }

  /** Holds what the rule would have had it hold, and settles it as its own call ended. */
  async #hold({ lease, store, claimedAtMs, election, beginsAtMs }: Holding): Promise<void> {
    const { policy, request } = this.#options;
    const { call } = this;
    const settler = new Settler({ policy, lease, store, route: request.route, observer: UNHEARD });
    const keeper = new LeaseKeeper(lease, store, { ...KEEPING, claimedAtMs });
    let settled = await call.givenUp;
    if (settled === null) {
      const end = await call.over;
      // Its call began when its turn had not come: it would have taken as long from then on.
      if (beginsAtMs !== null) await this.#until(beginsAtMs + call.durationMs);
      settled = call.settlementBy(end, election);
    }
    const untilMs = this.#stopping.signal.aborted ? 0 : keeper.heldUntilMs;
    keeper.stop();
    if (!keeper.lost) await settler.settle(settled.settlement, settled.keepMs, untilMs);
    await call.over;
  }

  #letGo(holding: Holding | null): void {
    const { first } = this.#options;
    if (holding !== null && first.get(holding.lease.key) === this.call) first.delete(holding.lease.key);
    this.call.isSettled();
  }

  /** Resolves at a monotonic time (ms), or when the gateway stops. */
  #until(timeMs: number): Promise<void> {
    const { signal } = this.#stopping;
    const leftMs = timeMs - performance.now();
    if (leftMs <= 0 || signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const end = () => {
        clearTimeout(timer);
        resolve();
      };
      const timer = setTimeout(end, leftMs);
      signal.addEventListener('abort', end, { once: true });
    });
  }

  #tell({ fate, waitedMs }: Stood): void {
    const { policy, request, observer } = this.#options;
    const { route, method, requestId } = request;
    const callMs = this.call.sent ? this.call.durationMs : null;
    observer.observed({ route, policy: policy.kind, method, requestId, fate, waitedMs, callMs });
  }
}

/** What would have become of a request whose content could not be had for its key. */
function fateOfCopy(kind: 'too-large' | 'no-room' | 'broken'): Fate {
  if (kind === 'too-large') return { kind: 'refused', code: 'content-too-large' };
  return { kind: 'unobserved', reason: kind === 'no-room' ? 'no-room' : 'content' };
}
