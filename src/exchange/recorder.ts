/**
 * What becomes of a leader's response for others: whether it is recorded, how far, and what it settles the flight as.
 *
 * Invariants: decided at the response's fields, once, before anybody but the leader's client is given a byte; a record
 * that outgrows its bounds settles nothing: the response goes on for those who read it already.
 */

import type { Settlement } from '../core/claim.js';
import type { MemoryBudget } from '../core/memory-budget.js';
import { keepMsFor, sharesResponses } from '../core/policy.js';
import { kept, replayable } from '../core/recorded.js';
import type { CoalescePolicy, KeyedPolicy, ReplayPolicy } from '../core/rule.js';
import { judge, type SharedResponse, type UnshareableReason, varyDigest } from '../core/sharing.js';
import { sharedFields, withoutField } from '../http/fields.js';
import { ownAnswer } from '../http/problem.js';
import type { Caller } from './caller.js';
import { Recording, type ResponseHead } from './recording.js';

/** Largest response that is held back whole until the store has it, so that its fields can say whether it was recorded. */
const HELD_BACK_BYTES = 65_536;
const NO_VARY = { names: [], digest: '' } as const;

export type RecorderOptions = {
  readonly caller: Caller;
  readonly policy: KeyedPolicy;
  readonly budget: MemoryBudget;
  /** The record has room again after it was full. */
  readonly onRoom: () => void;
  /** Somebody who read the record has left, or was cut. */
  readonly onReaderGone: () => void;
};

export class Recorder {
  readonly #options: RecorderOptions;
  #recording: Recording | null = null;
  #keepMs = 0;
  #holdsBack = false;
  /** What the flight is settled as without a record. */
  #unrecorded: 'unshareable' | 'not-kept' | 'freed' | 'unknown' = 'unshareable';

  constructor(options: RecorderOptions) {
    this.#options = options;
  }

  /** The record; null where there is none. */
  get recording(): Recording | null {
    return this.#recording;
  }

  /** How long the response answers later claims, ms. */
  get keepMs(): number {
    return this.#keepMs;
  }

  /**
   * Whether the answer goes out whole, when it is settled: a repeat of a replayed request must not be mistaken, so that
   * whether the answer was recorded is told where it can be.
   */
  get holdsBack(): boolean {
    return this.#holdsBack;
  }

  /**
   * Takes the response's fields, as clients get them. `expectedBytes`: announced length of the content, null when the end
   * of the message tells. Answers why nobody else may have the response; null: the end of the message will tell.
   */
  begin(status: number, reason: string, fields: readonly string[], expectedBytes: number | null) {
    const { policy, caller, budget } = this.#options;
    if (!sharesResponses(policy)) return null;
    this.#keepMs = keepMsFor(policy, caller.method, status);
    if (policy.kind === 'replay') {
      this.#beginReplay(policy, status, reason, fields, expectedBytes);
      return null;
    }
    const verdict = judge(policy, status, fields, expectedBytes);
    if (verdict.kind === 'unshareable') return verdict.reason;
    if (expectedBytes !== null && !budget.hasRoomFor(expectedBytes)) return 'memory-short';
    const vary = { names: verdict.varyNames, digest: varyDigest(verdict.varyNames, caller.fields) };
    this.#recording = this.#newRecording(policy, { status, reason, fields: sharedFields(fields), vary });
    return null;
  }

  /** The record is not whole any more. Answers why nobody else may have the response; null: the end will tell. */
  outgrown(): UnshareableReason | null {
    const { policy } = this.#options;
    this.#holdsBack = false;
    this.#unrecorded = policy.kind === 'replay' ? 'not-kept' : 'unshareable';
    if (policy.kind !== 'coalesce') return null;
    return (this.#recording?.receivedBytes ?? 0) > policy.maxSharedBytes ? 'too-large' : 'memory-short';
  }

  /** The trailers of a whole message for everybody but the leader's client. */
  trailersForOthers(trailers: readonly string[]): readonly string[] {
    const { policy } = this.#options;
    if (policy.kind === 'replay') return trailers;
    const shared = sharedFields(trailers);
    // A cookie that comes at the end is for its own client as well, when nothing has set callers apart.
    return policy.identity.kind === 'public' ? withoutField(shared, 'set-cookie') : shared;
  }

  /** What the end of the message settles the flight as. */
  settlement(recorded: SharedResponse | null, election: number): Settlement {
    if (recorded !== null) return { kind: 'response', response: kept(this.#options.policy, recorded) };
    if (this.#unrecorded === 'freed') return { kind: 'failed', election };
    if (this.#unrecorded === 'unknown') return { kind: 'unknown', election };
    return this.#unrecorded === 'not-kept' ? { kind: 'not-kept' } : { kind: 'unshareable', reason: 'not-recorded' };
  }

  /** The end will not come: whoever has begun to read is cut. */
  fail(): void {
    this.#recording?.fail();
    this.#recording = null;
  }

  #beginReplay(
    policy: ReplayPolicy,
    status: number,
    reason: string,
    fields: readonly string[],
    expectedBytes: number | null,
  ): void {
    const fate = replayFate(policy, status, fields, expectedBytes);
    if (fate !== 'recorded') {
      this.#unrecorded = fate;
      if (fate === 'unknown') this.#keepMs = policy.unknownForMs;
    } else {
      this.#recording = this.#newRecording(policy, { status, reason, fields: replayable(fields), vary: NO_VARY });
      this.#holdsBack = expectedBytes !== null && expectedBytes <= HELD_BACK_BYTES;
    }
  }

  #newRecording(policy: CoalescePolicy | ReplayPolicy, head: ResponseHead): Recording {
    const { budget, onRoom, onReaderGone } = this.#options;
    return new Recording(head, {
      limitBytes: policy.maxSharedBytes,
      budget,
      // Of a replayed request nobody but its own client reads while it comes.
      stallMs: policy.kind === 'coalesce' ? policy.stallMs : Number.POSITIVE_INFINITY,
      onRoom,
      onReaderGone,
    });
  }
}

/** What becomes of a replayed request's record, by its head: it is made, or what the flight is settled as without one. */
export function replayFate(
  policy: ReplayPolicy,
  status: number,
  fields: readonly string[],
  expectedBytes: number | null,
): 'recorded' | 'freed' | 'unknown' | 'not-kept' {
  const own = ownAnswer(fields);
  if (own === 'not-executed' || policy.release.includes(status)) return 'freed';
  if (own === 'unknown') return 'unknown';
  return expectedBytes !== null && expectedBytes > policy.maxSharedBytes ? 'not-kept' : 'recorded';
}
