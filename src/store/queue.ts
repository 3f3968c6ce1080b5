/**
 * The part of the port by which requests of one key take turns: at most `concurrency` at a time, in the order in which
 * the store was asked, over all processes.
 *
 * Guarantees that every adapter gives, proved by test/store/queue-contract.ts:
 * - Of one key at most `concurrency` requests have the turn, for as long as their leases are held. A turn whose outcome
 *   is unknown and held (`holdMs`) counts as one.
 * - First in, first out: who entered earlier has the turn earlier, unless it left or its process died.
 * - A question repeated with the same flight id has the same place, or the same turn with the same fence.
 * - A place stands for `leaseMs` after the last sign of life of its process, which is given without being asked for; a
 *   place or a turn that nobody claims any more costs the others at most that long.
 * - A turn that is given back goes to the next in the same step, which learns it by one push; the safety poll finds what
 *   a lost push would have said.
 * - Whoever leaves gives up its place at once, best effort, or its turn, should it have come meanwhile.
 * - While unknown outcomes have every turn, nobody waits: entering and waiting both end with `unknown`.
 * - Fences grow: a later turn of a key has a larger fence than every earlier one.
 */

import type { Lease } from '../core/claim.js';
import type { Leases, WaitOptions } from './leases.js';

export type PlaceRequest = {
  readonly key: string;
  /** Names that other processes may have for the key: the turn is had when it is had under each of them. */
  readonly otherKeys: readonly string[];
  /** The asker's own random flight id, made with `newFlightId`; a new one after `StoreUnavailable`. */
  readonly flight: string;
  readonly leaseMs: number;
  /** How long an unknown outcome holds the turn, ms: also should the lease pass without a settlement. 0: not at all. */
  readonly holdMs: number;
  /** Name of the rule, for operators. */
  readonly route: string;
  /** How many may have the turn at a time. What was asked with last counts for all of a key. */
  readonly concurrency: number;
  /** How many may wait; with as many the asker is turned away. */
  readonly maxQueue: number;
};

/** The right to be forwarded now. */
export type Turn = {
  readonly kind: 'turn';
  readonly lease: Lease;
  /** Monotonic time of this process (ms) from which the lease may be counted: before the store was asked for it. */
  readonly claimedAtMs: number;
};

/** Why there is no turn. */
export type NoTurn =
  | {
      readonly kind: 'full';
      /** Of the turn that began first among those who have it: time until its lease passes, and since it began. */
      readonly leaseLeftMs: number;
      readonly ageMs: number;
    }
  | { readonly kind: 'unknown'; readonly ttlMs: number };

export type Entered = Turn | NoTurn | { readonly kind: 'queued'; readonly place: PlaceRequest };

export interface Queue extends Leases {
  /** Asks for the turn; who has to wait for it has a place from then on. */
  enter(request: PlaceRequest): Promise<Entered>;
  /**
   * Waits for the turn of a place, as `enter` answered it. Survives outages of the store; a place that the store lost is
   * taken again, behind the others. Owed once for each place: the signal ends it, gives up the place, and makes the
   * promise reject with its reason.
   */
  turn(place: PlaceRequest, options: WaitOptions): Promise<Turn | NoTurn>;
}
