/**
 * Forwarding of a request whose rule only observes.
 *
 * Invariant: nothing here differs from forwarding without a policy but that somebody is told of it: the bytes, their pace
 * and the end are the same, whatever becomes of whoever listens.
 */

import type { UpstreamFailure } from '../upstream/failure.js';
import type { Caller } from './caller.js';
import type { CallPlace } from './calls.js';
import type { ExchangeObserver } from './observer.js';
import { Passing } from './passing.js';
import type { UploadListener } from './uploading.js';

/** How the call of an observed request ended. */
export type CallEnd =
  | { readonly kind: 'answered' }
  | { readonly kind: 'failed'; readonly failure: UpstreamFailure }
  /** With its client, or with the gateway. */
  | { readonly kind: 'left' };

/** Who looks on. It never throws. */
export interface OnLooker {
  /** Null: its content is not wanted. */
  readonly uploading: UploadListener | null;
  onSent(): void;
  onHead(status: number, fields: readonly string[]): void;
  onBytes(bytes: number): void;
  /** Called once. */
  onOver(end: CallEnd): void;
}

export class ObservedPassing extends Passing {
  readonly #onLooker: OnLooker;

  constructor(caller: Caller, observer: ExchangeObserver, place: CallPlace, onLooker: OnLooker) {
    super(caller, { kind: 'observed' }, observer, place);
    this.#onLooker = onLooker;
  }

  protected override uploading(): UploadListener | undefined {
    return this.#onLooker.uploading ?? undefined;
  }

  protected override onLeft(): void {
    super.onLeft();
    this.#onLooker.onOver({ kind: 'left' });
  }

  override onSend(): boolean {
    this.#onLooker.onSent();
    return super.onSend();
  }

  override onFields(status: number, reason: string, fields: string[]): void {
    this.#onLooker.onHead(status, fields);
    super.onFields(status, reason, fields);
  }

  override onContent(chunk: Buffer): boolean {
    this.#onLooker.onBytes(chunk.length);
    return super.onContent(chunk);
  }

  /** Told before the client sees the end: its next request may be the one that asks what became of this one. */
  override onEnd(trailers: string[]): void {
    this.#onLooker.onOver({ kind: 'answered' });
    super.onEnd(trailers);
  }

  override onFailure(failure: UpstreamFailure): void {
    this.#onLooker.onOver({ kind: 'failed', failure });
    super.onFailure(failure);
  }
}
