/**
 * The leases of one process that an operator's word may end, and who has each of them to be told.
 *
 * Invariants: a holder is told once, and not when it has said that it has the lease no longer; the word may come before
 * the answer that gave the lease was read (another connection, another turn of the loop), so that it is remembered for
 * longer than an answer takes.
 */

import { performance } from 'node:perf_hooks';
import type { Lease } from '../core/claim.js';
import { Registry } from '../core/roster.js';
import type { LeaseHolder } from './leases.js';

const REMEMBER_MS = 5_000;
const REMEMBER_MOST = 1_024;

type Watched = { readonly lease: Lease; readonly holder: LeaseHolder };

export class Revocations {
  /** By the flight. */
  readonly #watched = new Registry<Watched>();
  /** Flights that nobody here had when the word came, and when that was (monotonic, ms); the oldest first. */
  readonly #early = new Map<string, number>();
  readonly #onRevoked: (lease: Lease) => void;

  /** `onRevoked`: told after the holder, for what the store itself has of the flight. */
  constructor(onRevoked: (lease: Lease) => void = () => {}) {
    this.#onRevoked = onRevoked;
  }

  watch(lease: Lease, holder: LeaseHolder): void {
    this.#watched.set(lease.flight, { lease, holder });
    if (this.#early.has(lease.flight)) this.tell(lease.flight);
  }

  unwatch({ flight }: Lease): void {
    this.#watched.delete(flight);
  }

  /** The flight has been ended, by somebody else than its leader. */
  tell(flight: string): void {
    const watched = this.#watched.get(flight);
    if (watched === undefined) return this.#remember(flight);
    this.#early.delete(flight);
    this.#watched.delete(flight);
    const { lease, holder } = watched;
    holder.revoked(lease);
    this.#onRevoked(lease);
  }

  #remember(flight: string): void {
    const now = performance.now();
    for (const [old, at] of this.#early) {
      if (this.#early.size < REMEMBER_MOST && now - at < REMEMBER_MS) break;
      this.#early.delete(old);
    }
    this.#early.set(flight, now);
  }
}
