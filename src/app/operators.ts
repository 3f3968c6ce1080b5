/** What operators see and do of the keys that are taken. */

import type { Logger } from 'pino';
import type { FlightsApi } from '../server/admin-flights.js';
import type { Store } from '../store/store.js';

/** What is known of rules by their names. */
export interface KnownRules {
  /** How long the rule of that name keeps a response, ms; null: it keeps none. */
  keepMsOf(route: string): number | null;
  isRule(name: string): boolean;
}

export function flightsApi(rules: KnownRules, store: Store, log: Logger): FlightsApi {
  return {
    store,
    keepMsOf: (route) => rules.keepMsOf(route),
    isRule: (name) => rules.isRule(name),
    audit: (did, entry) => log.warn(entry, `${did} by an operator`),
  };
}
