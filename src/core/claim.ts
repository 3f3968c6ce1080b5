/**
 * The words between the gateway and a store: what a claim can answer and how a flight can end.
 *
 * Invariants: expected answers are values, only an outage is thrown (`StoreUnavailable`); a flight's id is a random
 * token that its leader made before asking, so that a claim whose reply was lost can be asked again; a settlement
 * belongs to exactly one flight.
 */

import { createHash, type KeyObject, randomFillSync } from 'node:crypto';
import type { SharedResponse } from './sharing.js';

/**
 * What the contents of a key are sealed with where others can read the store: it follows from the request and the secret,
 * and cannot be had from the key's digest. A `KeyObject`, so that no log shows it by accident. null: nothing is sealed.
 */
export type KeyMaterial = KeyObject | null;

/** The leader's time-bound right to a key. Renewal, completion and release compare key, flight and fence. */
export type Lease = {
  /** Digest of the request's key: the only form of it that leaves the process. */
  readonly key: string;
  /** Random id of the flight. */
  readonly flight: string;
  /** Grows with every leader of a key; an upstream can compare it. */
  readonly fence: number;
  readonly leaseMs: number;
  readonly material: KeyMaterial;
};

/** A flight of somebody else, as a follower sees it. */
export type FlightRef = {
  readonly key: string;
  readonly flight: string;
  /** Time until the lease passes unless it is renewed, by the store's clock. */
  readonly leaseLeftMs: number;
  /** Time since the flight began, by the store's clock. */
  readonly ageMs: number;
  /** How many leaders of this burst had failed before this one (`onLeaderFailure: elect`). */
  readonly election: number;
  readonly material: KeyMaterial;
};

/**
 * What a flight's response is expected to be: `unshareable` while the key is marked, because an earlier response of it was
 * for one client alone not long ago.
 */
export type Expects = 'shareable' | 'unshareable';

/**
 * The store's answer to "who has this key?". A claim whose fingerprint is not that of the key's flight is a `mismatch`
 * before anything else is looked at, in flight and ended alike.
 */
export type ClaimResult =
  | { readonly kind: 'leader'; readonly lease: Lease; readonly expects: Expects }
  | { readonly kind: 'follower'; readonly flight: FlightRef; readonly expects: Expects }
  | {
      readonly kind: 'stored';
      readonly flight: string;
      readonly ended: Ended;
      /** Time since the flight was completed, by the store's clock. */
      readonly ageMs: number;
      /** Time for which it is still kept. */
      readonly ttlMs: number;
    }
  | { readonly kind: 'mismatch' }
  /** Somebody was elected after the flight that the asker followed, and that leader's flight is over as well. */
  | { readonly kind: 'late' }
  /** A flight of which nobody knows what became holds the key, until it is settled or `ttlMs` is over. */
  | {
      readonly kind: 'unknown';
      /** The name under which it has the key, and what goes with it. */
      readonly key: string;
      readonly material: KeyMaterial;
      readonly flight: string;
      readonly ttlMs: number;
    };

/** What a key can be kept with: the response, or the mere fact that there was one. */
export type Ended =
  | { readonly kind: 'response'; readonly response: SharedResponse }
  /** Executed and answered; the response was too large to be kept. */
  | { readonly kind: 'not-kept' };

/**
 * How a flight ended, as its followers learn it.
 * - `response`: the upstream answered, whole, and the answer may be shared.
 * - `not-kept`: the upstream answered, whole; the answer is gone.
 * - `failed`: nothing was executed, for certain.
 * - `withdrawn`: whoever asked has left before anything was sent; the key is there for whoever still wants it.
 * - `unknown`: it may have been executed; nobody can say.
 * - `unshareable`: the upstream answered, and its answer is for the leader's client alone.
 */
export type Settlement =
  | Ended
  | { readonly kind: 'failed'; readonly election: number }
  | { readonly kind: 'withdrawn'; readonly election: number }
  | { readonly kind: 'unknown'; readonly election: number }
  | { readonly kind: 'unshareable'; readonly reason: string };

/** A key that is taken, as operators see it. Times by the store's clock. */
export type TakenKey = {
  readonly key: string;
  readonly flight: string;
  readonly route: string;
  readonly state: 'in-flight' | 'unknown' | 'kept';
  readonly fence: number;
  /** The process that leads it, or led it (unknown); null: what is kept has none, and of an earlier version it is not known. */
  readonly leader: string | null;
  /** Since the flight began (in flight, unknown) or was completed (kept). */
  readonly ageMs: number;
  /** Until the lease passes (in flight), the key is free again (unknown), or the response is no longer kept. */
  readonly leftMs: number;
  /** Processes that wait for it; of a queue, requests that wait for a turn. */
  readonly waiting: number;
};

/** What became of what a key was kept with. `taken`: a flight or an unknown outcome has the key, and nothing was changed. */
export type Purged = 'purged' | 'absent' | 'taken';

/** What renewal, completion and release answer: the lease was still held, or it was lost and nothing was written. */
export type Held = 'held' | 'lost';

const ID_BYTES = 16;
/** Random bytes are drawn by the pool: one call of the generator serves 256 flights. */
const pool = Buffer.alloc(256 * ID_BYTES);
let drawn = pool.length;

/** A new flight's id: 128 random bits in base64url, 22 characters. */
export function newFlightId(): string {
  if (drawn === pool.length) {
    randomFillSync(pool);
    drawn = 0;
  }
  const id = pool.toString('base64url', drawn, drawn + ID_BYTES);
  drawn += ID_BYTES;
  return id;
}

/**
 * An idempotency key for the upstream, the same for every attempt of one key: derived one way from the digest, so that
 * it does not give away what the store's keys are called.
 */
export function derivedKey(key: string): string {
  return createHash('sha256').update(`oneflight idempotency key ${key}`).digest('base64url');
}
