/** What is refused because there is too much of it: one answer, and one place where it is counted. */

import type { OverloadReason } from '../core/outcome.js';
import type { Caller } from './caller.js';
import type { ExchangeObserver } from './observer.js';

const DETAILS: Readonly<Record<OverloadReason, string>> = {
  'event-loop': 'The gateway is late with what it has to do.',
  requests: 'The gateway has as many requests under way as it may.',
  route: 'The upstream has as many requests of this route as it may.',
};

/** Whether a request that has just arrived is one too many; asked once each. */
export type AskOverload = () => (OverloadReason & ('event-loop' | 'requests')) | null;

/** Refuses it with 503 `overloaded`. */
export function refuseOverloaded(caller: Caller, reason: OverloadReason, observer: ExchangeObserver): void {
  if (caller.gone || caller.begun) return;
  observer.overloaded(caller.route, reason);
  caller.refuse('overloaded', { detail: DETAILS[reason] });
}
