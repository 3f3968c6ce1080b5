/**
 * The client's content on its way to the upstream.
 *
 * Invariants: it is a stream of its own, because a transport destroys the one it was given when the upstream fails, and
 * destroying the request itself would take the client's connection down before it has its answer; nothing is taken from
 * the request before the stream is read, so that an attempt which never sent anything leaves it whole for the next.
 */

import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import { ContentLost } from '../upstream/failure.js';
import type { Caller } from './caller.js';

/** Told of content that is not here yet: each piece as it goes to the upstream, and that there is no more. */
export type UploadListener = { readonly onPiece: () => void; readonly onDone: () => void };

/** Makes the stream of an attempt; the one before is over. Nobody but the transport may listen to it. */
export function upload(caller: Caller, listener: UploadListener | undefined): () => Readable {
  const { req } = caller;
  let current: Upload | null = null;
  let broken: Error | null = null;
  const breakOff = (why: string) => {
    broken ??= new ContentLost(why);
    current?.destroy(broken);
  };
  req.once('error', ({ message }) => breakOff(message));
  req.once('aborted', () => breakOff('the client left during its upload'));
  caller.whenContentBroken(() => breakOff('the content cannot be read to its end'));
  return () => {
    current = new Upload(req, listener);
    if (broken !== null) current.destroy(broken);
    return current;
  };
}

class Upload extends Readable {
  readonly #req: IncomingMessage;
  readonly #listener: UploadListener | undefined;
  #begun = false;

  constructor(req: IncomingMessage, listener: UploadListener | undefined) {
    super();
    this.#req = req;
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
    this.#listener?.onPiece();
    if (!this.push(chunk)) this.#req.pause();
  };

  readonly #onEnd = (): void => {
    this.#listener?.onDone();
    this.push(null);
  };
}
