/**
 * Forwarding without a flight: rules without a policy, unmatched requests, and requests that go unprotected.
 *
 * Invariants: nothing is recorded; back-pressure runs both ways; the client's leaving ends the upstream call, and an
 * upstream cut reaches the client as a cut.
 */

import { Transform } from 'node:stream';
import type { BypassReason, Outcome } from '../core/outcome.js';
import { announcedTrailers, clientFields, requestTrailers, upstreamFields, withoutField } from '../http/fields.js';
import type { UpstreamFailure } from '../upstream/failure.js';
import type { Exchange, ForwardSink, Upstream, UpstreamRequest } from '../upstream/upstream.js';
import type { Caller } from './caller.js';
import type { ExchangeObserver } from './observer.js';
import { upstreamProblem } from './upstream-problem.js';

/** Told of content that is not here yet: each piece as it goes to the upstream, and that there is no more. */
export type UploadListener = { readonly onPiece: () => void; readonly onDone: () => void };

/** The upstream's view of a client's request. `added` are field lines that replace the client's of the same names. */
export function upstreamRequest(
  caller: Caller,
  upstream: Upstream,
  uploading?: UploadListener,
  added: readonly string[] = [],
): UpstreamRequest {
  const { httpVersion, rawHeaders } = caller.req;
  let fields = upstreamFields(caller.fields, httpVersion, caller.requestId, upstream.host);
  for (let i = 0; i < added.length; i += 2) fields = withoutField(fields, (added[i] as string).toLowerCase());
  fields.push(...added);
  const trailers = trailersOf(caller, added);
  if (trailers !== null) fields.push(...announcedTrailers(rawHeaders));
  return {
    method: caller.method,
    target: caller.target,
    fields,
    content: caller.content ?? (caller.announcesContent ? upload(caller, uploading) : null),
    trailers,
  };
}

/** Whether there are trailers is known at the end of chunked content: of one that was read, now. `added` stay as they are. */
function trailersOf({ req, content }: Caller, added: readonly string[]): UpstreamRequest['trailers'] {
  if (req.headers['transfer-encoding'] === undefined) return null;
  const read = () => {
    let trailers = requestTrailers(req.rawTrailers);
    for (let i = 0; i < added.length; i += 2) trailers = withoutField(trailers, (added[i] as string).toLowerCase());
    return trailers;
  };
  return content === null || read().length > 0 ? read : null;
}

/**
 * The client's content as a stream of its own: undici destroys the stream it was given when the upstream fails, and
 * destroying the request itself would take the client's connection down before it has its answer. Nobody but undici may
 * listen to this stream, or it would flow before its reader is there.
 */
function upload(caller: Caller, uploading: UploadListener | undefined): Transform {
  const { req } = caller;
  let bytes = 0;
  const stream = new Transform({
    transform: (chunk, _encoding, next) => {
      bytes += chunk.length;
      // What has gone out by now is never completed, and so never taken for the whole.
      if (bytes > caller.maxContentBytes) return caller.contentUnreadable({}, 'content-too-large');
      uploading?.onPiece();
      next(null, chunk);
    },
    flush: (done) => {
      uploading?.onDone();
      done();
    },
  });
  req.once('error', (error) => stream.destroy(error));
  req.once('aborted', () => stream.destroy(new Error('the client left during its upload')));
  caller.whenContentBroken(() => stream.destroy(new Error('the content cannot be read to its end')));
  req.pipe(stream);
  return stream;
}

/** Forwards a request as it is. `outcome` is what the request ends as when the upstream answers. */
export function pass(caller: Caller, upstream: Upstream, outcome: Outcome, observer: ExchangeObserver): void {
  new Passing(caller, outcome, observer).start(upstream);
}

/** Forwards a request of a rule with a policy without its protection, and says so. */
export function bypass(caller: Caller, upstream: Upstream, reason: BypassReason, observer: ExchangeObserver): void {
  if (caller.gone) return;
  // Counted now: whatever becomes of it, it was sent unprotected. And it is nobody's follower any more.
  observer.unprotected(caller.route, reason);
  caller.role = 'none';
  pass(caller, upstream, { kind: 'bypassed', reason }, observer);
}

export class Passing implements ForwardSink {
  protected readonly caller: Caller;
  protected readonly observer: ExchangeObserver;
  protected exchange: Exchange | null = null;
  readonly #outcome: Outcome;

  constructor(caller: Caller, outcome: Outcome, observer: ExchangeObserver) {
    this.caller = caller;
    this.#outcome = outcome;
    this.observer = observer;
  }

  start(upstream: Upstream): void {
    const { caller } = this;
    if (caller.gone) return;
    caller.whenLeft(() => this.exchange?.abort());
    this.exchange = upstream.forward(upstreamRequest(caller, upstream), this, 'open');
  }

  onSend(): boolean {
    this.observer.sent(this.caller.route);
    return true;
  }

  onInterim(status: number, fields: string[]): void {
    this.caller.interim(status, clientFields(fields));
  }

  onFields(status: number, reason: string, fields: string[]): void {
    this.caller.begin(status, reason, clientFields(fields), this.#outcome);
  }

  onContent(chunk: Buffer): boolean {
    if (this.caller.write(chunk)) return true;
    this.caller.whenDrained(() => this.exchange?.resume());
    return false;
  }

  onEnd(trailers: string[]): void {
    this.caller.end(null, trailers);
  }

  onFailure(failure: UpstreamFailure): void {
    if (this.caller.begun) return this.caller.cut();
    const { code, proxyError } = upstreamProblem(failure, false);
    this.caller.refuse(code, { proxyError });
  }
}
