/** What both halves of the port have in common: leases, and waiting for somebody else. */

import type { Held, Lease, Settlement } from '../core/claim.js';

/** Who has a lease. */
export interface LeaseHolder {
  /** An operator's word has ended the flight: its lease is lost. */
  revoked(lease: Lease): void;
}

/** What a leader does with its lease. Each compares the lease, then acts, atomically. */
export interface Leases {
  /** Extends the lease to `lease.leaseMs` from now. */
  renew(lease: Lease): Promise<Held>;
  /**
   * Ends the flight and tells its followers in every process. With `keepMs` above 0 a `response`, a `not-kept` or an
   * `unknown` answers claims for that long; otherwise the key is free at once. In a queue nothing but an `unknown` is kept.
   * An `unshareable` with `keepMs` above 0 frees the key and marks it for that long; a `response` takes the mark away.
   */
  complete(lease: Lease, settlement: Settlement, keepMs: number): Promise<Held>;
  /**
   * Frees the key of a flight of which nothing is to be shared. Followers in other processes, should there be any,
   * learn `failed`. With `unlessAwaited`, a flight that is awaited, as said above, is left alone and `awaited` is the
   * answer; asked again after everybody has left, it is freed.
   */
  release(lease: Lease, options: { readonly unlessAwaited: boolean }): Promise<Held | 'awaited'>;
  /**
   * Has the holder told, once, when `settle` ends the flight, from any process; at once if that was before. Best effort: a
   * word that is lost is found by the next renewal.
   */
  watch(lease: Lease, holder: LeaseHolder): void;
  /** The lease is nobody's to be told about any more: given back, or lost. Owed for each that is watched. */
  unwatch(lease: Lease): void;
}

export type WaitOptions = {
  /** Interval of the safety re-read. */
  readonly pollMs: number;
  /** Ends the wait: the promise then rejects with the signal's reason. */
  readonly signal: AbortSignal;
};
