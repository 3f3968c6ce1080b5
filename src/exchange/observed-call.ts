/**
 * What is seen of the upstream call of an observed request: what its response would have settled a flight as.
 *
 * Invariants: nothing of the content is kept, only its length; what is seen is said once, whatever comes after it.
 */

import type { Settlement } from '../core/claim.js';
import { keepMsFor, sharesResponses } from '../core/policy.js';
import type { CoalescePolicy, KeyedPolicy, ReplayPolicy } from '../core/rule.js';
import { judge, type SharedResponse, varyDigest } from '../core/sharing.js';
import { clientFields, contentLengthOf, hasNoContent } from '../http/fields.js';
import type { ContentCopy } from './content-copy.js';
import type { CallEnd, OnLooker } from './observed-passing.js';
import type { ExchangeObserver } from './observer.js';
import { replayFate } from './recorder.js';
import type { UploadListener } from './uploading.js';

/** How a flight would have ended, and for how long that would have been kept. */
export type Settled = { readonly settlement: Settlement; readonly keepMs: number };

export type ObservedCallOptions = {
  readonly policy: KeyedPolicy;
  readonly method: string;
  readonly fields: readonly string[];
  /** Null: neither key nor fingerprint is made of it. */
  readonly content: ContentCopy | null;
  readonly observer: Pick<ExchangeObserver, 'failed'>;
};

const NOTHING = Buffer.alloc(0);

export class ObservedCall implements OnLooker {
  readonly uploading: UploadListener | null;
  /** Resolves when its key would have been given up at the response's fields, or else with null at the end. */
  readonly givenUp: Promise<Settled | null>;
  readonly over: Promise<CallEnd>;
  /** Resolves when it holds, and asks for, nothing in the store any more. */
  readonly settled: Promise<void>;
  readonly #options: ObservedCallOptions;
  readonly #startedAtMs = performance.now();
  #durationMs: number | null = null;
  #response: SharedResponse | null = null;
  /** What the response settles a flight as; null: its whole end is needed for that. */
  #byHead: Settled | null = null;
  #receivedBytes = 0;
  #sent = false;
  #giveUp: (settled: Settled | null) => void = () => {};
  #end: (end: CallEnd) => void = () => {};
  #settle: () => void = () => {};

  constructor(options: ObservedCallOptions) {
    this.#options = options;
    const { content } = options;
    this.uploading = content === null ? null : { onPiece: (piece) => content.add(piece), onDone: () => content.end() };
    this.givenUp = new Promise((resolve) => {
      this.#giveUp = resolve;
    });
    this.over = new Promise((resolve) => {
      this.#end = resolve;
    });
    this.settled = new Promise((resolve) => {
      this.#settle = resolve;
    });
  }

  get isOver(): boolean {
    return this.#durationMs !== null;
  }

  /** Until its end, or until now, milliseconds. */
  get durationMs(): number {
    return this.#durationMs ?? performance.now() - this.#startedAtMs;
  }

  /** Whether it came to be a call at all. */
  get sent(): boolean {
    return this.#sent;
  }

  onSent(): void {
    this.#sent = true;
  }

  onHead(status: number, fields: readonly string[]): void {
    const { policy, method, observer } = this.#options;
    if (!sharesResponses(policy)) return;
    try {
      const passed = clientFields([...fields]);
      const expectedBytes = hasNoContent(method, status) ? 0 : contentLengthOf(passed);
      if (policy.kind === 'replay') this.#judgeReplay(policy, status, passed, expectedBytes);
      else this.#judgeCoalesce(policy, status, passed, expectedBytes);
    } catch (error) {
      observer.failed(error);
    }
  }

  onBytes(bytes: number): void {
    this.#receivedBytes += bytes;
  }

  onOver(end: CallEnd): void {
    if (this.isOver) return;
    this.#durationMs = performance.now() - this.#startedAtMs;
    this.#options.content?.drop();
    this.#giveUp(null);
    this.#end(end);
  }

  /** Nothing of it is in the store any more. */
  isSettled(): void {
    this.#settle();
  }

  /** What its end settles a flight as. */
  settlementBy(end: CallEnd, election: number): Settled {
    const { policy, method } = this.#options;
    // What the call would have come to is not known: whoever waits for it asks once more.
    if (end.kind === 'left') return { settlement: { kind: 'withdrawn', election }, keepMs: 0 };
    if (end.kind === 'failed') {
      const kind = end.failure.kind === 'not-sent' ? 'failed' : 'unknown';
      return { settlement: { kind, election }, keepMs: kind === 'unknown' ? policy.unknownForMs : 0 };
    }
    const response = this.#response;
    if (!sharesResponses(policy) || (response === null && this.#byHead === null)) {
      return { settlement: { kind: 'failed', election }, keepMs: 0 };
    }
    if (response === null) return this.#byHead as Settled;
    if (this.#receivedBytes > policy.maxSharedBytes) return outgrown(policy);
    return { settlement: { kind: 'response', response }, keepMs: keepMsFor(policy, method, response.status) };
  }

  #judgeCoalesce(
    policy: CoalescePolicy,
    status: number,
    fields: readonly string[],
    expectedBytes: number | null,
  ): void {
    const verdict = judge(policy, status, fields, expectedBytes);
    if (verdict.kind === 'unshareable') {
      this.#byHead = unshareable(policy, verdict.reason);
      return this.#giveUp(this.#byHead);
    }
    const { varyNames: names } = verdict;
    this.#response = headOf(status, { names, digest: varyDigest(names, this.#options.fields) });
  }

  #judgeReplay(policy: ReplayPolicy, status: number, fields: readonly string[], expectedBytes: number | null): void {
    const fate = replayFate(policy, status, fields, expectedBytes);
    if (fate === 'recorded') this.#response = headOf(status, { names: [], digest: '' });
    else if (fate === 'not-kept') this.#byHead = outgrown(policy);
    else if (fate === 'unknown') {
      this.#byHead = { settlement: { kind: 'unknown', election: 0 }, keepMs: policy.unknownForMs };
    } else this.#byHead = { settlement: { kind: 'failed', election: 0 }, keepMs: 0 };
  }
}

/** Stands for a response: what decides who would have got it, and nothing that anybody could be given. */
function headOf(status: number, vary: SharedResponse['vary']): SharedResponse {
  return { status, reason: '', fields: [], content: NOTHING, trailers: [], vary };
}

function outgrown(policy: CoalescePolicy | ReplayPolicy): Settled {
  if (policy.kind === 'coalesce') return unshareable(policy, 'too-large');
  return { settlement: { kind: 'not-kept' }, keepMs: policy.keepMs };
}

function unshareable(policy: CoalescePolicy, reason: string): Settled {
  return { settlement: { kind: 'unshareable', reason }, keepMs: policy.unshareableForMs };
}
