/**
 * One exchange over undici: its callbacks in, the sink's words out.
 *
 * Invariants: field lines arrive raw: spelling, order and repetition are kept; "sent" begins when undici has a connected
 * socket and is about to write to it; a sink hears exactly one of `onEnd` and `onFailure`, and none after `abort`.
 */

import { subscribe } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';
import { utf8ByteText } from '../core/byte-text.js';
import { hasNoContent, withoutField } from '../http/fields.js';
import { framingFault, hasNoLength, passableTrailers } from '../http/framing.js';
import type { Exchange, ForwardSink } from './exchange.js';
import { connectCause, exchangeCause, type FailureCause, type UpstreamFailure } from './failure.js';
import { readingPaused, readingResumed } from './paused-end.js';
import { expectResponse } from './unasked-continue.js';

/** The exchange whose request undici is about to write: it says so, and then, in the same turn, to which socket. */
let writing: UndiciExchange | null = null;
subscribe('undici:client:sendHeaders', (message) => {
  writing?.onSocket((message as { readonly socket: Socket }).socket);
  writing = null;
});

/** undici has read the phrase as UTF-8: its bytes again, where it was that. Of anything else only the fact is left. */
function phraseOf(reason: string): string {
  return reason.includes('\ufffd') ? reason : utf8ByteText(reason);
}

/** Sockets that have carried a request: the next one may find that the upstream has closed them meanwhile. */
const used = new WeakSet<Socket>();

export class UndiciExchange implements Exchange {
  readonly #method: string;
  readonly #sink: ForwardSink;
  #state: 'connecting' | 'sent' | 'answering' | 'over' = 'connecting';
  #wasSent = false;
  #aborted = false;
  #abort: ((reason?: Error) => void) | null = null;
  #resume: (() => void) | null = null;
  #socket: Socket | null = null;
  #isReused = false;
  /** What had been read from the socket before. */
  #readBefore = 0;

  constructor(method: string, sink: ForwardSink) {
    this.#method = method;
    this.#sink = sink;
  }

  get sent(): boolean {
    return this.#wasSent;
  }

  abort(): void {
    if (this.#state === 'over') return;
    this.#state = 'over';
    this.#aborted = true;
    this.#abort?.(new Error('given up by the gateway'));
  }

  resume(): void {
    if (this.#socket !== null) readingResumed(this.#socket);
    this.#resume?.();
  }

  onConnect(abort: (reason?: Error) => void): void {
    if (this.#aborted) return abort(new Error('given up before it was sent'));
    if (!this.#sink.onSend()) {
      this.#fail('not-sent', 'given-up');
      return abort(new Error('given up before it was sent'));
    }
    this.#abort = abort;
    this.#state = 'sent';
    this.#wasSent = true;
    writing = this;
  }

  onSocket(socket: Socket): void {
    this.#socket = socket;
    this.#isReused = used.has(socket);
    this.#readBefore = socket.bytesRead;
    used.add(socket);
    expectResponse(socket);
  }

  onHeaders(status: number, rawFields: Buffer[], resume: () => void, reason: string): boolean {
    const sent = rawFields.map((line) => line.toString('latin1'));
    const fields = hasNoLength(status) ? withoutField(sent, 'content-length') : sent;
    this.#resume = resume;
    // A status below 100 is none. undici does not tell the version; the parser reads codings of either alike.
    if (status < 100 || framingFault(fields, '1.1') !== null) return this.#refuseAnswer();
    if (status < 200) {
      if (status !== 101) this.#sink.onInterim(status, fields);
      return true;
    }
    this.#state = 'answering';
    this.#sink.onFields(status, phraseOf(reason), fields);
    // A 304 may state the length of the content it does not have; undici would wait for it and fail.
    if (hasNoContent(this.#method, status)) this.#end([]);
    return true;
  }

  onData(chunk: Buffer): boolean {
    // Reading on, the parser begins with a piece of nothing where the end of the connection is the end of the message.
    if (this.#state !== 'answering' || chunk.length === 0 || this.#sink.onContent(chunk)) return true;
    if (this.#socket !== null) readingPaused(this.#socket);
    return false;
  }

  onComplete(rawTrailers: Buffer[] | null): void {
    // Where the end of the connection is the end of the message, undici takes a reset for one.
    if (this.#socket?.errored) return this.#fail('cut', 'reset');
    const trailers = (rawTrailers ?? []).map((line) => line.toString('latin1'));
    const passable = passableTrailers(trailers);
    // The parser takes such a field for one of the head, and reads no further response on that connection.
    if (passable.length < trailers.length) this.#socket?.destroy();
    this.#end(passable);
  }

  onError(error: Error): void {
    if (this.#state === 'connecting') this.#fail('not-sent', connectCause(error));
    else if (this.#state === 'sent') this.#fail('unanswered', this.#unansweredCause(error));
    else this.#fail('cut', exchangeCause(error, true));
  }

  #unansweredCause(error: Error): FailureCause {
    const cause = exchangeCause(error, false);
    const isStale = cause === 'reset' && this.#isReused && this.#socket?.bytesRead === this.#readBefore;
    return isStale ? 'stale' : cause;
  }

  /** Ends the exchange: nobody may guess what this response is. */
  #refuseAnswer(): boolean {
    this.#fail('unanswered', 'malformed');
    this.#abort?.(new Error('the response cannot be read in one way only'));
    return true;
  }

  #end(trailers: string[]): void {
    if (this.#state === 'over') return;
    this.#state = 'over';
    this.#sink.onEnd(trailers);
  }

  #fail(kind: UpstreamFailure['kind'], cause: FailureCause): void {
    if (this.#state === 'over') return;
    this.#state = 'over';
    this.#sink.onFailure({ kind, cause });
  }
}
