/** What every measurement is given. */

import type { Peer } from './peers.js';
import type { BenchUpstream } from './upstream.js';

export type BenchOptions = {
  /** Fewer processes, shorter rounds: for a look while something is changed, not for results. */
  readonly quick: boolean;
  readonly upstream: BenchUpstream;
  readonly peers: readonly Peer[];
  /** Progress, for whoever waits. */
  readonly tell: (line: string) => void;
};
