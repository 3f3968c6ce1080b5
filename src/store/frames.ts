/**
 * Settlements as a shared store holds them: with a secret, responses are sealed (sealing.ts).
 *
 * Invariants: nothing but responses and their pieces is sealed, since nothing else comes from the upstream or its clients; with a secret a response
 * that is not sealed is unreadable, or whoever can write to the store could answer in the upstream's name; a settlement of
 * one flight is sealed once, so that it is the same bytes when it is asked for again.
 */

import type { Settlement } from '../core/claim.js';
import { decodeSettlement, encodeSettlement, UnreadableFrame } from './codec.js';
import type { Piece } from './relay.js';
import { isSealed, type SealedPlace, Sealing } from './sealing.js';

export class Frames {
  readonly #sealing: Sealing | null;
  readonly #sealed = new WeakMap<Settlement, { readonly flight: string; readonly frame: Buffer }>();

  /** Without a secret nothing is sealed. */
  constructor(secrets: readonly string[]) {
    this.#sealing = secrets.length === 0 ? null : new Sealing(secrets);
  }

  encode(settlement: Settlement, place: SealedPlace): Buffer {
    const sealing = settlement.kind === 'response' ? this.#sealing : null;
    if (sealing === null) return encodeSettlement(settlement);
    const made = this.#sealed.get(settlement);
    if (made?.flight === place.flight) return made.frame;
    const frame = sealing.seal(encodeSettlement(settlement), place);
    this.#sealed.set(settlement, { flight: place.flight, frame });
    return frame;
  }

  /** A piece of a response under way. It opens at its index only. */
  encodePiece({ index, bytes }: Piece, { key, flight, material }: SealedPlace): Buffer {
    return this.#sealing?.seal(bytes, { key, flight: `${flight} ${index}`, material }) ?? bytes;
  }

  /** Throws `UnreadableFrame`. */
  decodePiece({ index, bytes }: Piece, { key, flight, material }: SealedPlace): Buffer {
    return this.#sealing?.open(bytes, { key, flight: `${flight} ${index}`, material }) ?? bytes;
  }

  /** Throws `UnreadableFrame`. */
  decode(frame: Buffer, place: SealedPlace): Settlement {
    const sealing = this.#sealing;
    if (sealing === null) return decodeSettlement(frame);
    const sealed = isSealed(frame);
    const settlement = decodeSettlement(sealed ? sealing.open(frame, place) : frame);
    if (!sealed && settlement.kind === 'response') throw new UnreadableFrame('a response that is not sealed');
    return settlement;
  }
}
