/**
 * One exchange over HTTP/2 (RFC 9113): a stream of a connection that others use as well.
 *
 * Invariants: those of every transport: nothing is sent before the sink has said yes, and nothing twice; a sink hears exactly
 * one of `onEnd` and `onFailure`, and none after `abort`; the deadlines are those of every exchange. Names of fields become
 * lower case, as the protocol has them.
 */

import { type ClientHttp2Session, type ClientHttp2Stream, constants, type OutgoingHttpHeaders } from 'node:http2';
import type { UpstreamConfig } from '../config/config.js';
import { pathSpan } from '../core/target.js';
import { hasNoContent, withoutField } from '../http/fields.js';
import { framingFault, hasNoLength, passableTrailers } from '../http/framing.js';
import type { Exchange, ForwardSink, SendableRequest } from './exchange.js';
import { connectCause, exchangeCause, type FailureCause, type UpstreamFailure } from './failure.js';
import type { Http2Sessions } from './http2-sessions.js';

const { NGHTTP2_CANCEL, NGHTTP2_FLAG_END_STREAM, NGHTTP2_REFUSED_STREAM } = constants;

export class Http2Exchange implements Exchange {
  readonly #request: SendableRequest;
  readonly #sink: ForwardSink;
  readonly #sessions: Http2Sessions;
  readonly #config: UpstreamConfig;
  #state: 'connecting' | 'sent' | 'answering' | 'over' = 'connecting';
  #wasSent = false;
  #isReused = false;
  /** An interim response has come. */
  #hasInterim = false;
  #session: ClientHttp2Session | null = null;
  #stream: ClientHttp2Stream | null = null;
  #giveUp: (() => void) | null = null;
  #trailers: string[] = [];
  /** The upstream has ended the response itself. */
  #isWhole = false;
  /** The end of a response that came while nobody took it. */
  #rest: Buffer | null = null;
  #paused = false;
  /** The client's content is on its way, and not all of it has been sent. */
  #uploading = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(request: SendableRequest, sink: ForwardSink, sessions: Http2Sessions, config: UpstreamConfig) {
    this.#request = request;
    this.#sink = sink;
    this.#sessions = sessions;
    this.#config = config;
  }

  get sent(): boolean {
    return this.#wasSent;
  }

  /** `fresh`: over a connection of its own. */
  start(fresh: boolean): this {
    const { content } = this.#request;
    if (content !== null && !Buffer.isBuffer(content)) content.once('error', () => this.#onContentLost());
    const giveUp = this.#sessions.take((error, session, isReused) => {
      this.#giveUp = null;
      if (session === null) this.#fail('not-sent', connectCause(error as Error));
      else this.#onSession(session, isReused);
    }, fresh);
    if (this.#session === null && this.#state === 'connecting') this.#giveUp = giveUp;
    return this;
  }

  abort(): void {
    if (this.#state === 'over') return;
    this.#over();
    this.#stop();
  }

  resume(): void {
    this.#paused = false;
    this.#timer?.refresh();
    const rest = this.#rest;
    this.#rest = null;
    if (rest === null) this.#stream?.resume();
    else if (this.#state === 'answering') this.#safely(() => this.#onRest(rest));
  }

  #onSession(session: ClientHttp2Session, isReused: boolean): void {
    this.#session = session;
    this.#isReused = isReused;
    if (this.#state !== 'connecting') return this.#sessions.leave(session);
    if (!this.#sink.onSend()) {
      this.#sessions.leave(session);
      return this.#fail('not-sent', 'given-up');
    }
    this.#state = 'sent';
    this.#wasSent = true;
    try {
      this.#send(session);
    } catch (error) {
      this.#sessions.leave(session);
      // Node refuses what cannot stand in a request, and connections that have ended meanwhile, before anything is written.
      const { code = '' } = error as NodeJS.ErrnoException;
      this.#wasSent = false;
      this.#fail('not-sent', /SESSION|STREAM/.test(code) ? 'unreachable' : 'unsendable');
    }
  }

  #send(session: ClientHttp2Session): void {
    const { content, trailers } = this.#request;
    const stream = session.request(this.#fields(), {
      endStream: content === null && trailers === null,
      waitForTrailers: trailers !== null,
    });
    this.#stream = stream;
    this.#watchEnd(stream);
    stream.once('close', () => this.#onClose(session, stream));
    this.#after(this.#config.headersTimeoutMs, () => this.#onSilence('unanswered'));
    stream.on('headers', (fields, _flags, raw: string[] = []) => {
      this.#safely(() => this.#onInterim(Number(fields[':status']), raw));
    });
    stream.once('response', (fields, flags, raw: string[] = []) => {
      this.#safely(() => this.#onResponse(Number(fields[':status']), raw, (flags & NGHTTP2_FLAG_END_STREAM) !== 0));
    });
    stream.once('trailers', (_fields, _flags, raw: string[] = []) => {
      this.#trailers = raw;
    });
    stream.on('error', (error) => this.#onError(error));
    stream.once('wantTrailers', () => {
      this.#safely(() => stream.sendTrailers(fieldObject(trailers?.() ?? [])));
    });
    if (content === null) stream.end();
    else if (Buffer.isBuffer(content)) stream.end(content);
    else this.#upload(stream, content);
  }

  /**
   * Node ends the reading of a stream that was reset without an error as well, and drops what was not read of a response
   * when the connection ends behind it.
   */
  #watchEnd(stream: ClientHttp2Stream): void {
    const push = stream.push.bind(stream);
    stream.push = (chunk, encoding) => {
      if (chunk !== null || stream.closed) return push(chunk, encoding);
      this.#isWhole = true;
      push(null);
      if (this.#paused) {
        stream.removeAllListeners('data');
        this.#rest = stream.read();
      }
      return false;
    };
  }

  /** What cannot be passed on ends this exchange. Thrown into Node's client it would end the process. */
  #safely(step: () => void): void {
    try {
      step();
    } catch (error) {
      this.#onError(error as Error);
    }
  }

  #upload(stream: ClientHttp2Stream, content: NonNullable<Exclude<SendableRequest['content'], Buffer>>): void {
    this.#uploading = true;
    content.on('data', (chunk: Buffer) => {
      this.#timer?.refresh();
      if (!stream.write(chunk)) content.pause();
    });
    stream.on('drain', () => content.resume());
    content.once('end', () => {
      this.#uploading = false;
      this.#timer?.refresh();
      stream.end();
    });
  }

  #fields(): OutgoingHttpHeaders {
    const { method, target, fields } = this.#request;
    const { start } = pathSpan(target);
    const { host, 'http2-settings': _, ...others } = fieldObject(fields);
    const path = target.slice(start);
    return {
      ':method': method,
      ':scheme': this.#sessions.url.protocol.slice(0, -1),
      ':authority': String(host ?? this.#sessions.url.host),
      ':path': path.startsWith('/') || path === '*' ? path : `/${path}`,
      ...others,
    };
  }

  #onContentLost(): void {
    if (this.#state === 'connecting') this.#fail('not-sent', 'client-content');
    else this.#fail(this.#state === 'answering' ? 'cut' : 'unanswered', 'content-lost');
  }

  #onInterim(status: number, raw: string[]): void {
    if (this.#state !== 'sent') return;
    this.#hasInterim = true;
    this.#timer?.refresh();
    // Whoever asked for a 100 has had it from the gateway; an unasked one says nothing (RFC 9110 section 15.2.1).
    if (status !== 100) this.#sink.onInterim(status, withoutField(ordinary(raw), 'content-length'));
  }

  #onResponse(status: number, raw: string[], isAll: boolean): void {
    const stream = this.#stream;
    if (this.#state !== 'sent' || stream === null) return;
    const sent = ordinary(raw);
    const fields = hasNoLength(status) ? withoutField(sent, 'content-length') : sent;
    if (!(status >= 200) || framingFault(fields, '1.1') !== null) return this.#fail('unanswered', 'malformed');
    this.#state = 'answering';
    this.#after(this.#config.bodyTimeoutMs, () => this.#onSilence('cut'));
    this.#sink.onFields(status, '', fields);
    if (hasNoContent(this.#request.method, status)) {
      this.#end([]);
      // Nothing may follow, so nobody waits for its end.
      if (!isAll) stream.close(NGHTTP2_CANCEL);
      return;
    }
    stream.on('data', (chunk: Buffer) => this.#safely(() => this.#onContent(stream, chunk)));
    stream.once('end', () => this.#safely(() => this.#onEnd()));
  }

  #onContent(stream: ClientHttp2Stream, chunk: Buffer): void {
    if (this.#state !== 'answering') return;
    this.#timer?.refresh();
    if (this.#sink.onContent(chunk)) return;
    this.#paused = true;
    stream.pause();
  }

  #onEnd(): void {
    if (!this.#isWhole) this.#fail('cut', 'reset');
    else if (this.#rest === null) this.#end(passableTrailers(this.#trailers));
  }

  #onRest(rest: Buffer): void {
    this.#sink.onContent(rest);
    if (this.#state === 'answering') this.#end(passableTrailers(this.#trailers));
  }

  #onError(error: Error): void {
    if (this.#state === 'sent') this.#fail('unanswered', this.#unansweredCause(exchangeCause(error, false)));
    else if (this.#state === 'answering' && this.#rest === null) this.#fail('cut', exchangeCause(error, true));
  }

  #onClose(session: ClientHttp2Session, stream: ClientHttp2Stream): void {
    this.#sessions.leave(session);
    if (this.#state === 'sent') this.#fail('unanswered', this.#unansweredCause('reset'));
    else if (this.#state === 'answering' && !stream.readableEnded) this.#fail('cut', 'reset');
  }

  /** A server that closes a connection refuses the streams that it will not look at (RFC 9113 section 8.7). */
  #unansweredCause(cause: FailureCause): FailureCause {
    const isRefused = this.#stream?.rstCode === NGHTTP2_REFUSED_STREAM;
    const isStale = this.#isReused && !this.#hasInterim && this.#session?.destroyed === true;
    return cause === 'reset' && (isRefused || isStale) ? 'stale' : cause;
  }

  /** The deadline for the next sign of life has passed; it is the upstream's only while it is the upstream that is awaited. */
  #onSilence(kind: 'unanswered' | 'cut'): void {
    const clientIsSlow = kind === 'cut' ? this.#paused : this.#uploading && !(this.#stream?.writableNeedDrain ?? false);
    if (clientIsSlow) {
      this.#timer?.refresh();
      return;
    }
    if (this.#session !== null) this.#sessions.doubt(this.#session);
    this.#fail(kind, kind === 'cut' ? 'body-timeout' : 'headers-timeout');
  }

  #after(ms: number, then: () => void): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(then, ms);
  }

  #end(trailers: string[]): void {
    if (this.#state === 'over') return;
    this.#over();
    this.#sink.onEnd(trailers);
    // A response that came before the request's end has no use for the rest; nor would the stream end that waits to send it.
    if (this.#uploading || this.#stream?.writableFinished === false) this.#stop();
    else this.#stream?.resume();
  }

  #fail(kind: UpstreamFailure['kind'], cause: FailureCause): void {
    if (this.#state === 'over') return;
    this.#over();
    this.#stop();
    this.#sink.onFailure({ kind, cause });
  }

  #over(): void {
    this.#state = 'over';
    clearTimeout(this.#timer);
  }

  #stop(): void {
    this.#giveUp?.();
    this.#giveUp = null;
    this.#stream?.close(NGHTTP2_CANCEL);
    const { content } = this.#request;
    if (content !== null && !Buffer.isBuffer(content)) content.destroy();
  }
}

/** Lists of which Node's client wants one line, which means the same (RFC 9110 section 5.3). */
const IN_ONE_LINE: ReadonlySet<string> = new Set(['content-encoding', 'content-language', 'if-match', 'if-none-match']);

/** Field lines as Node's client takes them: the values of a name together, in their order. */
function fieldObject(fields: readonly string[]): Record<string, string | string[]> {
  const out: Record<string, string | string[]> = Object.create(null);
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const name = (fields[i] as string).toLowerCase();
    const value = fields[i + 1] as string;
    const before = out[name];
    if (before === undefined) out[name] = value;
    else out[name] = IN_ONE_LINE.has(name) ? `${before}, ${value}` : [before, value].flat();
  }
  return out;
}

/** The lines without the pseudo-fields. */
function ordinary(raw: readonly string[]): string[] {
  return raw.flatMap((name, i) => (i % 2 === 0 && !name.startsWith(':') ? [name, raw[i + 1] as string] : []));
}
