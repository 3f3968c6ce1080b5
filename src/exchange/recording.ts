/**
 * The record of one response while it passes: what followers and later duplicates will be given.
 *
 * Invariants: never longer than its limit, so the memory of a flight is bounded; it becomes a response only with the
 * upstream's end of message, never before.
 */

import type { SharedResponse, Vary } from '../core/sharing.js';

export class Recording {
  readonly #status: number;
  readonly #reason: string;
  readonly #fields: readonly string[];
  readonly #vary: Vary;
  readonly #limitBytes: number;
  #chunks: Buffer[] = [];
  #bytes = 0;

  constructor(status: number, reason: string, fields: readonly string[], vary: Vary, limitBytes: number) {
    this.#status = status;
    this.#reason = reason;
    this.#fields = fields;
    this.#vary = vary;
    this.#limitBytes = limitBytes;
  }

  /** False when the response has outgrown the limit: the record is worthless from then on and lets its bytes go. */
  add(chunk: Buffer): boolean {
    this.#bytes += chunk.length;
    if (this.#bytes > this.#limitBytes) {
      this.#chunks = [];
      return false;
    }
    this.#chunks.push(chunk);
    return true;
  }

  /** The whole response; to be called at the upstream's end of message. */
  finish(trailers: readonly string[]): SharedResponse {
    const content = this.#chunks.length === 1 ? (this.#chunks[0] as Buffer) : Buffer.concat(this.#chunks, this.#bytes);
    return {
      status: this.#status,
      reason: this.#reason,
      fields: this.#fields,
      content,
      trailers,
      vary: this.#vary,
    };
  }
}
