/**
 * The client's content on its way to the upstream.
 *
 * Invariants: it is a stream of its own, because a transport destroys the one it was given when the upstream fails, and
 * destroying the request itself would take the client's connection down before it has its answer; nothing is taken from
 * the request before the stream is read, so that an attempt which never sent anything leaves it whole for the next.
 */

import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import type { Caller } from './caller.js';

/** Told of content that is not here yet: each piece as it goes to the upstream, and that there is no more. */
export type UploadListener = { readonly onPiece: () => void; readonly onDone: () => void };

/** Makes the stream of an attempt; the one before is over. Nobody but the transport may listen to it. */
export function upload(caller: Caller, listener: UploadListener | undefined): () => Readable {
  const { req } = caller;
  let current: Upload | null = null;
  let broken: Error | null = null;
  const breakOff = (error: Error) => {
    broken ??= error;
    current?.destroy(error);
  };
  req.once('error', breakOff);
  req.once('aborted', () => breakOff(new Error('the client left during its upload')));
  caller.whenContentBroken(() => breakOff(new Error('the content cannot be read to its end')));
  return () => {
    current = new Upload(caller, listener);
    if (broken !== null) current.destroy(broken);
    return current;
  };
}

class Upload extends Readable {
  readonly #caller: Caller;
  readonly #req: IncomingMessage;
  readonly #listener: UploadListener | undefined;
  #begun = false;
  #bytes = 0;

  constructor(caller: Caller, listener: UploadListener | undefined) {
    super();
    this.#caller = caller;
    this.#req = caller.req;
    this.#listener = listener;
  }

  override _read(): void {
    if (!this.#begun) {
      this.#begun = true;
      this.#req.on('data', this.#onData).once('end', this.#onEnd);
    }
    this.#req.resume();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    if (this.#begun) this.#req.off('data', this.#onData).off('end', this.#onEnd).pause();
    done(error);
  }

  readonly #onData = (chunk: Buffer): void => {
    this.#bytes += chunk.length;
    // What has gone out by now is never completed, and so never taken for the whole.
    if (this.#bytes > this.#caller.maxContentBytes) return this.#caller.contentUnreadable({}, 'content-too-large');
    this.#listener?.onPiece();
    if (!this.push(chunk)) this.#req.pause();
  };

  readonly #onEnd = (): void => {
    this.#listener?.onDone();
    this.push(null);
  };
}
