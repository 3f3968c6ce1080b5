/**
 * What a worker asks of the store in its parent, and what it is told: the heads of the frames (channel.ts).
 *
 * Invariants: what a key's contents would be sealed with never leaves the worker, as nothing is sealed in the memory of one
 * machine; what has content goes as bytes (codec.ts), beside the head.
 */

import type { FlightRef, Lease } from '../core/claim.js';
import type { PlaceRequest } from './queue.js';
import type { ClaimRequest, SettleAs, TakenOptions } from './store.js';

/** Whether a lease is that of a claim or of a turn. */
export type Half = 'claims' | 'queue';
export type PlainLease = Omit<Lease, 'material'>;
export type PlainFlight = Omit<FlightRef, 'material'>;
export type PlainClaim = Omit<ClaimRequest, 'material' | 'others'>;
/** Of a response only that there is one: it is in the bytes. */
export type PlainSettleAs =
  | Exclude<SettleAs, { kind: 'response' }>
  | { readonly kind: 'response'; readonly keepMs: number };

/** Each is answered once. */
export type Question =
  | { readonly kind: 'claim'; readonly request: PlainClaim }
  | { readonly kind: 'look'; readonly request: PlainClaim }
  | { readonly kind: 'renew'; readonly of: Half; readonly lease: PlainLease }
  /** Bytes: the settlement. */
  | { readonly kind: 'complete'; readonly of: Half; readonly lease: PlainLease; readonly keepMs: number }
  | { readonly kind: 'release'; readonly of: Half; readonly lease: PlainLease; readonly unlessAwaited: boolean }
  /** `left`: nobody waits for it any more. */
  | { readonly kind: 'settled'; readonly flight: PlainFlight; readonly left: boolean }
  | { readonly kind: 'enter'; readonly request: PlaceRequest }
  | { readonly kind: 'turn'; readonly request: PlaceRequest; readonly left: boolean }
  /** Bytes: the piece. */
  | { readonly kind: 'relay'; readonly lease: PlainLease; readonly index: number }
  /** Bytes: the piece, unless the index is null. */
  | {
      readonly kind: 'relay-on';
      readonly lease: PlainLease;
      readonly index: number | null;
      readonly dropBefore: number;
    }
  /** Bytes: the response as a settlement. */
  | { readonly kind: 'settle'; readonly key: string; readonly as: PlainSettleAs; readonly flight: string | null }
  | { readonly kind: 'settle-unknown'; readonly key: string; readonly flight: string; readonly as: PlainSettleAs }
  | { readonly kind: 'standing'; readonly key: string; readonly flight: string }
  | { readonly kind: 'taken'; readonly options: TakenOptions }
  | { readonly kind: 'purge'; readonly key: string }
  | { readonly kind: 'purge-route'; readonly route: string }
  | { readonly kind: 'ping' };

/** What is not answered, or not once. */
export type Note =
  /** Pieces of a response are wanted, by the events of a reading. */
  | { readonly kind: 'relayed'; readonly flight: PlainFlight }
  /** So many bytes of those that were sent have been taken. */
  | { readonly kind: 'read'; readonly bytes: number }
  /** A wait or a reading is over. */
  | { readonly kind: 'left' };

/** From a worker. `id`: what the answers and events carry, and the notes about it. */
export type Asked = { readonly id: string } & (Question | Note);

/** From the parent. */
export type Told = { readonly id: string } & (
  | { readonly kind: 'answer'; readonly value: unknown }
  /** The store is not to be had. */
  | { readonly kind: 'unavailable'; readonly reason: string }
  /** Of a reading. Bytes: the piece. */
  | { readonly kind: 'piece'; readonly index: number }
  | { readonly kind: 'alive' }
  | { readonly kind: 'lost' }
);

/** From the parent, unasked: an operator's word has ended a flight, or a turn, that the worker has. */
export type Revoked = { readonly kind: 'revoked'; readonly flight: string };

/** How much of a reading may be under way and not yet taken. */
export const WINDOW_BYTES = 512 * 1_024;
