/**
 * The part of the port by which a response travels to followers in other processes while it comes.
 *
 * What is relayed makes them faster: how the flight ended, and the whole of its response, they learn by its settlement. So
 * every adapter may lose pieces, as long as those that arrive are of the flight that was asked for, in order, without a
 * gap before them, and each once; proved by redis-relay.test.ts and parent-store.test.ts in test/store. Only a response
 * that turns out too large for others has no other way: for those who read it already its pieces go on beyond the flight,
 * and none of them is let go before they have it, or were told that it is lost.
 */

import type { FlightRef, Held, Lease } from '../core/claim.js';
import type { WaitOptions } from './leases.js';

/** A piece of a response under way. */
export type Piece = { readonly index: number; readonly bytes: Buffer };

export type PieceReader = {
  /** Answers whether it can take more; if not, `resume` of the reading says when. */
  readonly onPiece: (piece: Piece) => boolean;
  /** The store says that the flight is up, or that its response goes on beyond it. Not told while the reader is full. */
  readonly onAlive: () => void;
  /** The flight is over, and nothing more comes. */
  readonly onLost: () => void;
};

/** Who reads a response beyond its flight: the index that the slowest process wants next, and how many they are. */
export type StillRead = { readonly wanted: number; readonly processes: number };

export type Reading = {
  /** There is room again. */
  readonly resume: () => void;
};

export interface Relay {
  /** Sends a piece to the processes that wait for the flight, and keeps it for those that come later. */
  relay(lease: Lease, piece: Piece): Promise<Held>;
  /**
   * The same when the flight is over, for the processes that read its pieces already; without a piece it is a sign of
   * life, to be given every second. Who still wants a piece before `dropBefore` has lost the rest. Null: nobody reads.
   */
  relayOn(lease: Lease, piece: Piece | null, dropBefore: number): Promise<StillRead | null>;
  /** Tells of the pieces of somebody else's flight as they come, from the first on, until the signal. */
  relayed(flight: FlightRef, reader: PieceReader, options: WaitOptions): Reading;
}
