/**
 * What becomes of a request that has been judged, by what the store says of its key where it is asked.
 *
 * Invariants: the store is looked at, never claimed; what its answer means is `core/policy.ts`'s to say, as it is for requests
 * that arrive.
 */

import { type ClaimResult, newFlightId, type TakenKey } from '../core/claim.js';
import type { BypassReason, ProblemCode } from '../core/outcome.js';
import { conflictOf, decide, endingOf, repeatStatusOf, waitOf, waits } from '../core/policy.js';
import { type ClaimPolicy, type KeyedPolicy, keepMsOf, type QueuePolicy } from '../core/rule.js';
import { varyMatches } from '../core/sharing.js';
import { type NamedKey, variantOf } from '../exchange/judging.js';
import { statusOf } from '../http/problem.js';
import { type Looked, type Store, StoreUnavailable } from '../store/store.js';
import { ANY_RESPONSE, SOMEBODY } from './imagined.js';
import type { JudgedRequest, Step } from './judged-request.js';

/** What becomes of the request. */
export type Becomes =
  | { readonly kind: 'refused'; readonly code: ProblemCode; readonly status: number; readonly detail: string | null }
  /** Forwarded by a rule without a key, or by none. */
  | { readonly kind: 'passed' }
  | { readonly kind: 'bypassed'; readonly reason: BypassReason }
  /** Forwarded by a rule that only observes. */
  | { readonly kind: 'observed'; readonly would: Becomes }
  /** It has a key, and the store was not asked who else has. */
  | {
      readonly kind: 'claims';
      readonly ifInFlight: Becomes;
      /** Null: nothing is kept. */
      readonly ifKept: Becomes | null;
      /** Where the key is taken by a request of another fingerprint; null: there is none. */
      readonly ifOther: Becomes | null;
    }
  | { readonly kind: 'led' }
  /** Waits for a flight's response. */
  | { readonly kind: 'collapsed'; readonly waitMs: number }
  /** Waits for its turn. */
  | { readonly kind: 'queued'; readonly waitMs: number }
  | { readonly kind: 'hit'; readonly ttlMs: number };

/** What the store says of the key. Times by its clock. */
export type Standing =
  | { readonly kind: 'free' }
  | { readonly kind: 'in-flight'; readonly ageMs: number; readonly leaseLeftMs: number }
  | { readonly kind: 'kept'; readonly ageMs: number; readonly ttlMs: number }
  | { readonly kind: 'unknown'; readonly ttlMs: number }
  /** In flight, kept or unknown, for another request. */
  | { readonly kind: 'other-fingerprint' }
  | { readonly kind: 'turns'; readonly taken: number; readonly concurrency: number; readonly waiting: number }
  | { readonly kind: 'unavailable'; readonly reason: string };

/** What is asked about a key. */
export type AskedStore = Pick<Store, 'look' | 'taken'>;

/** What becomes of a request, and why; `standing` is null where the store was not asked. */
export type Stood = { readonly becomes: Becomes; readonly standing: Standing | null };

/** Responses vary by what earlier ones varied by; so often at most is that followed. */
const MOST_VARIANTS = 8;

/** What becomes of it, with what the store says where it is asked. */
export async function becomesOf(judged: JudgedRequest, store: AskedStore | null): Promise<Stood> {
  const { becomes, standing } = await wouldBecome(judged, store);
  return { becomes: judged.mode === 'observed' ? { kind: 'observed', would: becomes } : becomes, standing };
}

/** The same, as if its rule did not only observe. */
async function wouldBecome(judged: JudgedRequest, store: AskedStore | null): Promise<Stood> {
  const { step } = judged;
  if (step.kind !== 'keyed' || store === null) return { becomes: unasked(step, judged.view.method), standing: null };
  const { policy } = step;
  try {
    if (policy.kind === 'queue') return byTurns(policy, await turnsOf(step, policy, store));
    return byLooked(policy, judged, await lookAt(judged, step, policy, store));
  } catch (error) {
    if (!(error instanceof StoreUnavailable)) throw error;
    return { becomes: withoutStore(policy), standing: { kind: 'unavailable', reason: error.message } };
  }
}

/** Nobody was asked who has the key. */
function unasked(step: Step, method: string): Becomes {
  switch (step.kind) {
    case 'refused':
    case 'passed':
      return step;
    case 'unkeyed':
      return step.effect.kind === 'bypass'
        ? { kind: 'bypassed', reason: step.effect.reason }
        : refused(step.effect.reason, statusOf(step.effect.reason), `Key part "${step.part}".`);
    case 'keyed':
      return claims(step.policy, method);
  }
}

/** What its duplicates would be told, and what it would be told if it were one. */
function claims(policy: KeyedPolicy, method: string): Becomes {
  if (policy.kind === 'queue') {
    return { kind: 'claims', ifInFlight: { kind: 'queued', waitMs: policy.waitMs }, ifKept: null, ifOther: null };
  }
  const ttlMs = policy.kind === 'replay' ? policy.keepMs : policy.kind === 'coalesce' ? keepMsOf(policy, method) : 0;
  const kept: ClaimResult = {
    kind: 'stored',
    flight: '',
    ended: { kind: 'response', response: ANY_RESPONSE },
    ageMs: 0,
    ttlMs,
  };
  const compares = policy.kind === 'replay' && policy.fingerprint !== 'none';
  return {
    kind: 'claims',
    ifInFlight: becomesBy(policy, method, { kind: 'follower', flight: SOMEBODY, expects: 'shareable' }),
    ifKept: ttlMs === 0 ? null : becomesBy(policy, method, kept),
    ifOther: compares ? becomesBy(policy, method, { kind: 'mismatch' }) : null,
  };
}

type Keyed = Step & { readonly kind: 'keyed' };

/** What has the key, or the variant of it that the request would come to. */
async function lookAt(
  { view, rule }: JudgedRequest,
  { key, fingerprint, others }: Keyed,
  policy: ClaimPolicy,
  store: AskedStore,
): Promise<Looked> {
  let named: NamedKey = { key: key.digest, material: key.material, others };
  const claim = { flight: newFlightId(), leaseMs: policy.leaseMs, election: 0, after: '', fingerprint };
  const more = { holdMs: policy.unknownForMs, route: rule?.name ?? '', join: false };
  for (let tries = 0; ; tries += 1) {
    const looked = await store.look({ ...named, ...claim, ...more });
    const response = looked.kind === 'stored' && looked.ended.kind === 'response' ? looked.ended.response : null;
    if (response === null || tries === MOST_VARIANTS || varyMatches(response.vary, view.fields)) return looked;
    named = variantOf(named, response.vary, view.fields);
  }
}

function byLooked(policy: ClaimPolicy, { view }: JudgedRequest, looked: Looked): Stood {
  if (looked.kind === 'free') return { becomes: { kind: 'led' }, standing: { kind: 'free' } };
  return { becomes: becomesBy(policy, view.method, looked), standing: standingBy(looked) };
}

function becomesBy(policy: ClaimPolicy, method: string, claim: ClaimResult): Becomes {
  const decision = decide(policy, claim);
  switch (decision.kind) {
    case 'forward':
      return { kind: 'led' };
    case 'wait':
      return { kind: 'collapsed', waitMs: waitOf(policy)?.waitMs ?? 0 };
    case 'apart':
      return apart(policy, method);
    case 'replay':
      return { kind: 'hit', ttlMs: Math.round(decision.ttlMs) };
    case 'reject':
      return refused('in-flight', conflictOf(policy, decision.flight, null).status);
    case 'refuse':
      return refused(decision.code, repeatStatusOf(decision.code) ?? statusOf(decision.code));
  }
}

/** Its key is marked: an earlier response was for one client alone. */
function apart(policy: ClaimPolicy, method: string): Becomes {
  const ending = waits(policy) ? endingOf(policy, method, { kind: 'unshareable', reason: 'expected' }) : null;
  return ending?.kind === 'forward'
    ? { kind: 'bypassed', reason: 'not-shareable' }
    : refused('not-shareable', statusOf('not-shareable'));
}

function standingBy(claim: ClaimResult): Standing {
  switch (claim.kind) {
    case 'follower':
      return {
        kind: 'in-flight',
        ageMs: Math.round(claim.flight.ageMs),
        leaseLeftMs: Math.round(claim.flight.leaseLeftMs),
      };
    case 'stored':
      return { kind: 'kept', ageMs: Math.round(claim.ageMs), ttlMs: Math.round(claim.ttlMs) };
    case 'unknown':
      return { kind: 'unknown', ttlMs: Math.round(claim.ttlMs) };
    case 'mismatch':
      return { kind: 'other-fingerprint' };
    case 'leader':
    case 'late':
      return { kind: 'free' };
  }
}

type Turns = Standing & { readonly kind: 'turns' };

/** Operators' lists are all that a store tells of a queue without entering it. */
async function turnsOf({ key, others }: Keyed, { concurrency }: QueuePolicy, store: AskedStore) {
  const names = [key.digest, ...others.map((other) => other.key)];
  const all = await store.taken({ state: 'any', limit: Number.MAX_SAFE_INTEGER });
  // A request has the turn under every name that its gateway knows: the name that has most says how many there are.
  const most = (count: (turns: readonly TakenKey[]) => number): number =>
    Math.max(...names.map((name) => count(all.filter((one) => one.key === name))));
  const standing: Turns = {
    kind: 'turns',
    taken: most((turns) => turns.length),
    concurrency,
    waiting: most((turns) => Math.max(0, ...turns.map((turn) => turn.waiting))),
  };
  return { standing, unknown: most((turns) => turns.filter(({ state }) => state === 'unknown').length) };
}

function byTurns(policy: QueuePolicy, { standing, unknown }: Awaited<ReturnType<typeof turnsOf>>): Stood {
  const { taken, waiting } = standing;
  if (taken < policy.concurrency && waiting === 0) return { becomes: { kind: 'led' }, standing };
  if (unknown >= policy.concurrency) return { becomes: refused('outcome-unknown', 409), standing };
  if (waiting >= policy.maxQueue) return { becomes: refused('queue-full', statusOf('queue-full')), standing };
  return { becomes: { kind: 'queued', waitMs: policy.waitMs }, standing };
}

/** By the rule's `onStoreDown`. */
function withoutStore({ onStoreDown }: KeyedPolicy): Becomes {
  switch (onStoreDown) {
    case 'local':
      return { kind: 'led' };
    case 'pass':
      return { kind: 'bypassed', reason: 'store-unavailable' };
    case 'reject':
      return refused('store-unavailable', statusOf('store-unavailable'));
  }
}

function refused(code: ProblemCode, status: number, detail: string | null = null): Becomes {
  return { kind: 'refused', code, status, detail };
}
