/**
 * What one configuration means to requests. Each request takes the generation of the moment in which it arrives and keeps
 * it to its end, with its flight, its turn and its questions to the API, whatever is reloaded meanwhile.
 */

import type { RuleTable } from '../core/match.js';
import type { Upstream } from '../upstream/upstream.js';

export interface Generation {
  readonly rules: RuleTable;
  /** Upstream of requests that no rule matches; null: they get 404. */
  readonly unmatched: Upstream | null;
  /** Throws when there is none of that name, which a configuration that was checked does not ask for. */
  upstreamOf(name: string): Upstream;
  /**
   * What stands at an origin where a rule asks about outcomes, under the deadlines of the rule's upstream. It is held for
   * whoever asked, who has to let go of it.
   */
  askedAt(upstream: string, origin: string): Upstream;
}
