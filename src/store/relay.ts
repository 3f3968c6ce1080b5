/**
 * The part of the port by which a response travels to followers in other processes while it comes.
 *
 * What is relayed makes them faster and nothing else: how the flight ended, and the whole of its response, they learn by
 * its settlement. So every adapter may lose pieces, as long as those that arrive are of the flight that was asked for, in
 * order, without a gap before them, and each once; proved by test/store/redis-relay.test.ts.
 */

import type { FlightRef, Held, Lease } from '../core/claim.js';
import type { WaitOptions } from './leases.js';

/** A piece of a response under way; the first one is its head, encoded. */
export type Piece = { readonly index: number; readonly bytes: Buffer };

export interface Relay {
  /** Sends a piece to the processes that wait for the flight, and keeps it for those that come later. */
  relay(lease: Lease, piece: Piece): Promise<Held>;
  /** Tells of the pieces of somebody else's flight as they come, from the first on, until the signal. */
  relayed(flight: FlightRef, onPiece: (piece: Piece) => void, options: WaitOptions): void;
}
