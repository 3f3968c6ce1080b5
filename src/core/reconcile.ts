/**
 * What the API's answer says about an operation of which nobody knows what became. Pure: an answer goes in, what to do
 * with the key comes out.
 *
 * Invariants: only a 200 says that it was done and only a 404 that it was not; whatever else comes is no answer; with
 * `done`, content that cannot be read in one way says nothing; what is kept of an answer is what would have been kept of
 * the leader's, and never a cookie, which the API set for the gateway.
 */

import { isEncoded } from './content-coding.js';
import { readJson } from './json.js';
import { normalNumber } from './json-number.js';
import { parsePointer } from './json-pointer.js';
import { keepMsFor } from './policy.js';
import { kept, replayable } from './recorded.js';
import type { DoneCondition, KeyedPolicy, Reconcile } from './rule.js';
import { judge, type SharedResponse } from './sharing.js';

/** The API's whole answer. */
export type ReconcileAnswer = {
  readonly status: number;
  readonly reason: string;
  /** Without the connection-specific ones. */
  readonly fields: readonly string[];
  /** Null when there is more than `answerLimitBytes`. */
  readonly content: Buffer | null;
  readonly trailers: readonly string[];
};

/**
 * - `done`: it was executed, and this is its answer.
 * - `absent`: it was not executed.
 * - `pending`: an answer, from which nothing follows yet.
 * - `no-answer`: neither 200 nor 404.
 */
export type ReconcileVerdict = 'done' | 'absent' | 'pending' | 'no-answer';

/** What becomes of the key: freed, kept with a response, or with the fact that there was one. */
export type Reconciled =
  | { readonly kind: 'free' }
  | { readonly kind: 'response'; readonly response: SharedResponse; readonly keepMs: number }
  | { readonly kind: 'not-kept'; readonly keepMs: number };

/** Most content that is read to judge it by `done`, should less than that be kept. */
const JUDGED_BYTES = 1_048_576;
const NO_VARY = { names: [], digest: '' } as const;

/** How much of an answer's content is read. */
export function answerLimitBytes(policy: KeyedPolicy): number {
  return 'maxSharedBytes' in policy ? Math.max(policy.maxSharedBytes, JUDGED_BYTES) : JUDGED_BYTES;
}

/** What an answer says. */
export function verdictOf(reconcile: Reconcile, answer: ReconcileAnswer): ReconcileVerdict {
  if (answer.status === 404) return 'absent';
  if (answer.status !== 200) return 'no-answer';
  return reconcile.done.length === 0 || isDone(reconcile.done, answer) ? 'done' : 'pending';
}

function isDone(done: readonly DoneCondition[], { fields, content }: ReconcileAnswer): boolean {
  if (content === null || isEncoded(fields)) return false;
  const pointers = done.map(({ pointer }) => parsePointer(pointer) ?? unparsed(pointer));
  const found = readJson(content, pointers, normalNumber);
  if (found.kind === 'malformed') return false;
  return done.every(({ values }, index) => values.some((value) => canonical(value) === found.values[index]));
}

function unparsed(pointer: string): never {
  throw new Error(`not a JSON pointer: ${pointer}`);
}

/** A value of the configuration as `readJson` spells those of content. */
function canonical(value: DoneCondition['values'][number]): string | null {
  const read = readJson(Buffer.from(JSON.stringify(value)), [[]], normalNumber);
  return read.kind === 'values' ? (read.values[0] ?? null) : null;
}

/** What becomes of the key of an operation that was done. `method` is that of the request which did it. */
export function reconciledAs(policy: KeyedPolicy, method: string, answer: ReconcileAnswer): Reconciled {
  // A lock keeps nothing: it has only waited for the operation's end.
  if (policy.kind !== 'coalesce' && policy.kind !== 'replay') return { kind: 'free' };
  const keepMs = keepMsFor(policy, method, answer.status);
  const fields = replayable(answer.fields);
  const length = answer.content?.length ?? Number.POSITIVE_INFINITY;
  if (policy.kind === 'coalesce') {
    if (keepMs === 0 || judge(policy, answer.status, fields, length).kind === 'unshareable') return { kind: 'free' };
  } else if (policy.release.includes(answer.status)) {
    return { kind: 'free' };
  }
  if (answer.content === null || length > policy.maxSharedBytes) return { kind: 'not-kept', keepMs };
  const { status, reason, trailers, content } = answer;
  const whole = { status, reason, fields, content, trailers, vary: NO_VARY };
  return { kind: 'response', response: kept(policy, whole), keepMs };
}
