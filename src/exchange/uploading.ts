/**
 * The client's content on its way to the upstream.
 *
 * Invariants: each attempt has a stream of its own, because a transport destroys the one it was given when the upstream
 * fails, and destroying the request itself would take the client's connection down before it has its answer; a little of
 * the content is taken before anybody reads, so that what is whole by then goes out even if its client has left; an
 * attempt that never sent anything leaves all of it for the next.
 */

import { Readable } from 'node:stream';
import { ContentLost } from '../upstream/failure.js';
import type { Caller } from './caller.js';

/** What is held of content that nobody reads yet. */
const AHEAD_BYTES = 65_536;

/** Told of content that is not here yet: each piece as it comes, and that there is no more. */
export type UploadListener = { readonly onPiece: (piece: Buffer) => void; readonly onDone: () => void };

/** Makes the stream of an attempt; the one before is over. Nobody but the transport may listen to it. */
export function upload(caller: Caller, listener: UploadListener | undefined): () => Readable {
  const source = new Source(caller, listener);
  return () => source.open();
}

/** The content as the request brings it, for whoever reads it now. */
class Source {
  readonly #caller: Caller;
  readonly #listener: UploadListener | undefined;
  #ahead: Buffer[] = [];
  #aheadBytes = 0;
  #bytes = 0;
  #isWhole = false;
  #broken: Error | null = null;
  #opened: Upload | null = null;
  /** It is being read: nothing of it is here for another one. */
  #reader: Upload | null = null;

  constructor(caller: Caller, listener: UploadListener | undefined) {
    this.#caller = caller;
    this.#listener = listener;
    const { req } = caller;
    req.on('data', this.#onData).once('end', this.#onEnd);
    req.once('error', ({ message }) => this.#break(message));
    req.once('aborted', () => this.#break('the client left during its upload'));
    caller.whenContentBroken(() => this.#break('the content is not read to its end'));
  }

  open(): Upload {
    const upload = new Upload(this);
    this.#opened = upload;
    if (this.#broken !== null) upload.destroy(this.#broken);
    return upload;
  }

  /** The upload wants to be given content. */
  read(upload: Upload): void {
    if (this.#reader === upload) {
      this.#caller.req.resume();
      return;
    }
    if (upload !== this.#opened) return;
    this.#reader = upload;
    for (const piece of this.#ahead) upload.push(piece);
    this.#ahead = [];
    if (this.#isWhole) upload.push(null);
    else this.#caller.req.resume();
  }

  /** The upload is over, and what it has read is gone. */
  leave(upload: Upload): void {
    if (this.#reader !== upload) return;
    this.#caller.req.off('data', this.#onData).off('end', this.#onEnd).pause();
  }

  readonly #onData = (piece: Buffer): void => {
    const { req, maxContentBytes } = this.#caller;
    this.#bytes += piece.length;
    // What has gone out by now is never completed, and so never taken for the whole.
    if (this.#bytes > maxContentBytes) return this.#caller.contentUnreadable({}, 'content-too-large');
    this.#listener?.onPiece(piece);
    if (this.#reader !== null) {
      if (!this.#reader.push(piece)) req.pause();
      return;
    }
    this.#ahead.push(piece);
    this.#aheadBytes += piece.length;
    if (this.#aheadBytes >= AHEAD_BYTES) req.pause();
  };

  readonly #onEnd = (): void => {
    this.#isWhole = true;
    this.#listener?.onDone();
    this.#reader?.push(null);
  };

  #break(why: string): void {
    if (this.#isWhole) return;
    this.#broken ??= new ContentLost(why);
    this.#caller.req.off('data', this.#onData).off('end', this.#onEnd);
    this.#ahead = [];
    this.#opened?.destroy(this.#broken);
  }
}

class Upload extends Readable {
  readonly #source: Source;

  constructor(source: Source) {
    super();
    this.#source = source;
    // Its transport may have let go of it: an error of it is nobody's then, and ends nothing.
    this.on('error', () => {});
  }

  override _read(): void {
    this.#source.read(this);
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#source.leave(this);
    done(error);
  }
}
