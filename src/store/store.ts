/**
 * The port between the gateway and whatever remembers who has a key.
 *
 * Guarantees that every adapter gives, proved by test/store/contract.ts:
 * - One leader a key: of any number of claims on a free key, in any number of processes, exactly one answers `leader`.
 * - Nor do two processes lead under two names of one key, if each has the other's name among its `others`.
 * - A claim repeated with the same flight id answers `leader` again with the same fence: a lost reply never locks its
 *   own owner out.
 * - Compare, then act, atomically: `renew`, `complete` and `release` compare key, flight and fence; a lease that was
 *   lost writes nothing and answers `lost`.
 * - A lease ends by itself `leaseMs` after the claim or the last renewal, by the store's clock; the key is free then, or,
 *   with `holdMs`, its outcome is unknown for that long. Either way the old leader can write no more.
 * - A fingerprint is compared before anything else, in flight, ended and unknown alike.
 * - No lost wake-up: whoever was told `follower` learns that flight's settlement by a push as long as the flight's
 *   leader settles it, and by the safety poll if the push was lost. A flight that vanished without a settlement
 *   (lease passed, store emptied) is `unknown` to its followers.
 * - A flight is awaited as long as somebody who joined it has neither left nor been told, in any process: a claim with
 *   `join` counts from its answer on, and until the signal of its wait has ended that. A process in which the last one
 *   has left is withdrawn soon after; best effort, an outage may keep it registered until the flight ends. Whoever joins
 *   later, or is joining at that moment, is registered and loses no wake-up.
 * - A follower gets the settlement of the flight it joined, never that of an earlier one.
 * - A kept response answers claims for `keepMs` from completion, by the store's clock. Bytes come back equal.
 * - Fences grow: a later leader of a key has a larger fence than every earlier one.
 * - With a secret nobody reads a response out of a store that other programs can read who does not know the request too.
 *   One that was changed, or moved to another key or flight, answers nobody.
 * - A mark (`unshareable` with `keepMs`) stands beside its key: it holds nobody up, and every claim that answers `leader` or
 *   `follower` tells of it in the same step, until its time is over by the store's clock, or a response was completed.
 *   A claim that answers `follower` of a marked key joins nothing: no wait is owed, and it does not make the flight awaited.
 * - `look` answers as a claim of that request would, under each of its names, and takes nothing, joins nothing and renews
 *   nothing: a claim that comes later finds what it would have found.
 * - `purge` removes only what answers later claims, compared in the same step; a flight and an unknown outcome stay. Those
 *   variants of the key (`Vary`) that are not taken go with it, each in a step of its own.
 * - Who leads is told by a push when `settle` ends its flight, from whatever process; should the push be lost, by its renewal.
 * - `settleUnknown` acts only while the key is held by the unknown outcome of that very flight, compared in the same step.
 */

import type { ClaimResult, FlightRef, KeyMaterial, Purged, Settlement, TakenKey } from '../core/claim.js';
import type { SharedResponse } from '../core/sharing.js';
import type { Leases, WaitOptions } from './leases.js';
import type { Queue } from './queue.js';
import type { Relay } from './relay.js';

/** What a key is called by a secret that is in rotation, and what goes with that name. */
export type OtherName = Pick<ClaimRequest, 'key' | 'material' | 'fingerprint'>;

export type ClaimRequest = {
  readonly key: string;
  /** The asker's own random flight id, made with `newFlightId`; a new one after `StoreUnavailable`. */
  readonly flight: string;
  readonly leaseMs: number;
  /** Stored with the flight: how many leaders of this burst failed before. */
  readonly election: number;
  /** Flight after whose failure the asker stands for election; empty: none. Only one leader follows a failed flight. */
  readonly after: string;
  /** What the request must equal to be a duplicate; empty: its key says enough. Compared before anything else. */
  readonly fingerprint: string;
  /**
   * How long an unknown outcome holds the key, ms: of this flight, should its lease pass without a settlement. 0: the
   * key is free then.
   */
  readonly holdMs: number;
  /** Name of the rule, for operators. */
  readonly route: string;
  /** What the key's contents are sealed with, where the store is one that others can read. It is not given to the store itself. */
  readonly material: KeyMaterial;
  /**
   * Names that other processes may have for the key: it is free only if it is free under each of them. What is found under
   * one of them is answered by that name.
   */
  readonly others: readonly OtherName[];
  /** Whether the asker will wait for the flight if it is somebody else's: it is then registered for the wake-up. */
  readonly join: boolean;
};

/** What has a key; `free`: nobody, so that a claim would lead. */
export type Looked = ClaimResult | { readonly kind: 'free' };

/** A word from outside on what has a key: an operator's, or that of the API when it was asked. */
export type SettleAs =
  | { readonly kind: 'free' }
  | { readonly kind: 'response'; readonly response: SharedResponse; readonly keepMs: number }
  /** Executed and answered; the answer cannot be kept. */
  | { readonly kind: 'not-kept'; readonly keepMs: number };

/** What has become of a flight, as far as its key tells. */
export type FlightStanding =
  /** Its lease is still held, or not yet known to have passed. */
  | { readonly kind: 'in-flight' }
  /** Its outcome is unknown and holds the key for that much longer. */
  | { readonly kind: 'unknown'; readonly leftMs: number }
  /** Settled, expired, or another flight has the key. */
  | { readonly kind: 'over' };

export type TakenOptions = { readonly state: TakenKey['state'] | 'any'; readonly limit: number };

export interface Store extends Leases, Relay {
  /** Asks, atomically, who has the key. */
  claim(request: ClaimRequest): Promise<ClaimResult>;
  /** What a claim would be told, without claiming: for operators who ask what would become of a request. */
  look(request: ClaimRequest): Promise<Looked>;
  /**
   * Waits for the end of a flight that a claim with `join` answered as `follower` of a key without a mark. Survives outages of the store;
   * ends by settlement or by the signal only. Owed once for each such claim: until then the flight is awaited. Who does
   * not want to wait any more calls it with a signal that is aborted already.
   */
  settled(flight: FlightRef, options: WaitOptions): Promise<Settlement>;
  /** The keys for which requests take turns, each forwarded on its own. No key is both claimed and queued for. */
  readonly queue: Queue;
  /**
   * Ends what has the key, by an operator's word: frees it, or keeps how it ended for `keepMs`. With `flight` that
   * flight, in whatever state it is: a leader that is still at work has lost its lease by it, followers learn the
   * settlement (`failed` when freed). With null only an outcome that is unknown; of a queue, every turn whose outcome is.
   * `other`: something else has the key, and nothing changed. Nothing can be kept of a queue (`absent`).
   */
  settle(key: string, as: SettleAs, flight: string | null): Promise<'settled' | 'absent' | 'other'>;
  /**
   * As `settle`, but only if the key is held by the unknown outcome of that flight, of a claim: of an answer that comes
   * late, nothing else may be touched. `absent`: it is not, and nothing changed.
   */
  settleUnknown(key: string, flight: string, as: SettleAs, material: KeyMaterial): Promise<'settled' | 'absent'>;
  /** Whether a claimed flight's outcome is still to be found out. */
  standing(key: string, flight: string): Promise<FlightStanding>;
  /**
   * The keys that are taken now, at most `limit` of them, in no order; of a queue each turn. For operators: it may walk
   * the whole store.
   */
  taken(options: TakenOptions): Promise<TakenKey[]>;
  /**
   * Removes what the key and its variants are kept with, and their marks, unless the key itself is taken. It walks through
   * the whole store, a bounded number of keys at a time; what is completed meanwhile may stay.
   */
  purge(key: string): Promise<Purged>;
  /**
   * Removes all that is kept by a rule of that name, a bounded number of keys at a time, and answers how many they were.
   * What is completed meanwhile may stay.
   */
  purgeRoute(route: string): Promise<number>;
  /** Resolves when the store answers, rejects with `StoreUnavailable` when it does not. */
  ping(): Promise<void>;
  /** Starts the adapter. A store that cannot be reached yet is not an error: it is `StoreUnavailable` until it can. */
  open(): Promise<void>;
  /** Ends connections and timers. Waits end with a rejection. */
  close(): Promise<void>;
}

/** The store cannot answer now. The only thing a store throws; what to do then is the rule's `onStoreDown`. */
export class StoreUnavailable extends Error {
  override readonly name = 'StoreUnavailable';
  constructor(message: string, options?: { cause: unknown }) {
    super(message, options);
  }
}
