/**
 * What would have become of a request whose rule only observes. Its words are those of outcomes (outcome.ts), so that what was
 * foretold can be compared with what is counted once the rule protects.
 */

import type { BypassReason, ProblemCode } from './outcome.js';

/**
 * Why it cannot be said: too many are observed at a time, there is no room for a copy of its content, the content was not
 * sent to its end, it offers to switch protocols, the gateway stops, or something in it failed.
 */
export type UnobservedReason = 'crowded' | 'no-room' | 'content' | 'upgrade' | 'stopped' | 'failed';

export type Fate =
  | { readonly kind: 'led' }
  /** Forwarded after a wait for its turn. */
  | { readonly kind: 'queued' }
  | { readonly kind: 'collapsed' }
  | { readonly kind: 'hit' }
  | { readonly kind: 'bypassed'; readonly reason: BypassReason }
  | { readonly kind: 'refused'; readonly code: ProblemCode }
  | { readonly kind: 'unobserved'; readonly reason: UnobservedReason };

/** The metrics label of a fate: its kind, or the problem's code. */
export function fateLabel(fate: Fate): string {
  return fate.kind === 'refused' ? fate.code : fate.kind;
}

/** Refusals that have to do with the request alone, or with the store. */
const NOT_FOR_ITS_KEY: ReadonlySet<ProblemCode> = new Set([
  'key-missing',
  'key-malformed',
  'content-too-large',
  'store-unavailable',
]);

/** Whether there would have been no upstream call, because of what has the request's key. */
export function savesCall(fate: Fate): boolean {
  if (fate.kind === 'refused') return !NOT_FOR_ITS_KEY.has(fate.code);
  return fate.kind === 'collapsed' || fate.kind === 'hit';
}
