/**
 * One exchange over Node's own HTTP client, for what undici cannot do: requests with trailers, `OPTIONS *`, and upgrades
 * whose connection becomes the client's.
 *
 * Invariants: nothing is written before the connection is there and the sink has said yes, and nothing twice: Node's agent
 * repeats no request; a sink hears exactly one of `onEnd`, `onFailure` and `onSwitched`, and none after `abort`; the
 * deadlines are those of every exchange, and none is left when the protocol was switched.
 */

import http, { type ClientRequest, type IncomingMessage } from 'node:http';
import https from 'node:https';
import type { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import type { AddressConfig, UpstreamConfig } from '../config/config.js';
import { fieldLines } from '../core/field-lines.js';
import { hasNoContent, withoutField } from '../http/fields.js';
import { framingFault, hasNoLength, passableTrailers } from '../http/framing.js';
import { isOffered } from '../http/upgrade.js';
import type { ForwardSink, SendableRequest, UpgradeExchange, UpgradeSink } from './exchange.js';
import { connectCause, exchangeCause, type FailureCause, type UpstreamFailure } from './failure.js';
import { taken } from './keeping-agent.js';

/** Methods that are sent without `Content-Length` when they have no content (RFC 9110 section 8.6). */
const WITHOUT_CONTENT: ReadonlySet<string> = new Set(['GET', 'HEAD', 'DELETE', 'OPTIONS', 'TRACE']);

export type NodeExchangeOptions = {
  readonly place: AddressConfig;
  readonly config: UpstreamConfig;
  readonly agent: http.Agent;
  readonly maxFieldBytes: number;
};

export class NodeExchange implements UpgradeExchange {
  readonly #request: SendableRequest;
  readonly #sink: ForwardSink;
  readonly #upgrade: UpgradeSink | null;
  readonly #options: NodeExchangeOptions;
  #call: ClientRequest | null = null;
  #socket: Socket | null = null;
  /** What had been read from the socket before. */
  #readBefore = 0;
  #response: IncomingMessage | null = null;
  #state: 'connecting' | 'sent' | 'answering' | 'over' = 'connecting';
  #wasSent = false;
  #paused = false;
  /** The client's content is on its way, and not all of it has been sent. */
  #uploading = false;
  #halfClosed = false;
  #timer: NodeJS.Timeout | undefined;

  /** `upgrade`: the sink itself, where the request offers to switch protocols; null: a 101 makes no sense. */
  constructor(request: SendableRequest, sink: ForwardSink, upgrade: UpgradeSink | null, options: NodeExchangeOptions) {
    this.#request = request;
    this.#sink = sink;
    this.#upgrade = upgrade;
    this.#options = options;
  }

  get sent(): boolean {
    return this.#wasSent;
  }

  start(): this {
    const { content } = this.#request;
    if (content !== null && !Buffer.isBuffer(content)) content.once('error', () => this.#onContentLost());
    try {
      this.#call = this.#open();
      this.#after(this.#options.config.connectTimeoutMs, () => this.#fail('not-sent', 'connect-timeout'));
    } catch {
      // Node refuses what cannot stand in a request.
      this.#fail('not-sent', 'unsendable');
    }
    return this;
  }

  abort(): void {
    this.#over();
    this.#stop();
  }

  resume(): void {
    this.#paused = false;
    this.#timer?.refresh();
    this.#response?.resume();
  }

  endSending(): void {
    this.#halfClosed = true;
    if (this.#state === 'sent') this.#socket?.end();
  }

  #open(): ClientRequest {
    const { place, agent, maxFieldBytes } = this.#options;
    const { url, socketPath } = place;
    const { method, target, content, trailers } = this.#request;
    const fields = [...this.#request.fields];
    if (trailers !== null) fields.push('Transfer-Encoding', 'chunked');
    if (fieldLines(fields, 'host').length === 0) fields.push('Host', url.host);
    if (content === null && !WITHOUT_CONTENT.has(method) && fieldLines(fields, 'content-length').length === 0) {
      fields.push('Content-Length', '0');
    }
    const options: https.RequestOptions & { allowHalfOpen: boolean } = {
      host: url.hostname.replace(/^\[|\]$/g, ''),
      port: url.port === '' ? undefined : url.port,
      agent,
      method,
      path: target,
      headers: fields as unknown as http.OutgoingHttpHeaders,
      maxHeaderSize: maxFieldBytes,
      ...(socketPath === null ? {} : { socketPath }),
      // The end of one direction is the end of the other as well, but for a connection that becomes the client's.
      allowHalfOpen: this.#upgrade !== null,
    };
    const call = (url.protocol === 'https:' ? https : http).request(options);
    // The size of the fields is the bound. Node would drop those beyond a number in silence.
    call.maxHeadersCount = 0;
    call.once('socket', (socket) => this.#safely(() => this.#onSocket(socket)));
    call.on('information', ({ statusCode, rawHeaders }) => {
      this.#safely(() => this.#onInterim(statusCode, rawHeaders));
    });
    call.once('response', (response) => this.#safely(() => this.#onResponse(response)));
    // Without this listener Node ends the exchange at a 101 and says nothing.
    call.once('upgrade', (response, socket, first) => {
      this.#safely(() => this.#onUpgrade(response, socket as Socket, first));
    });
    call.on('error', (error) => this.#onError(error));
    call.once('close', () => this.#onClose());
    return call;
  }

  /** What cannot be passed on ends this exchange. Thrown into Node's client, as undici may be, it would end the process. */
  #safely(step: () => void): void {
    try {
      step();
    } catch (error) {
      this.#onError(error as Error);
    }
  }

  #onSocket(socket: Socket): void {
    taken(socket);
    this.#socket = socket;
    const { secureConnecting = false } = socket as { secureConnecting?: boolean };
    if (!socket.connecting && !secureConnecting) return this.#send();
    socket.once(secureConnecting ? 'secureConnect' : 'connect', () => this.#safely(() => this.#send()));
  }

  #send(): void {
    const call = this.#call;
    if (this.#state !== 'connecting' || call === null) return;
    if (!this.#sink.onSend()) return this.#fail('not-sent', 'given-up');
    this.#state = 'sent';
    this.#wasSent = true;
    this.#readBefore = this.#socket?.bytesRead ?? 0;
    this.#after(this.#options.config.headersTimeoutMs, () => this.#onSilence('unanswered'));
    const { content } = this.#request;
    if (content === null) call.end();
    else if (Buffer.isBuffer(content)) this.#finish(call, content);
    else this.#upload(call, content);
    if (this.#halfClosed) call.once('finish', () => this.#socket?.end());
  }

  #upload(call: ClientRequest, content: Readable): void {
    this.#uploading = true;
    content.on('data', (chunk: Buffer) => {
      this.#timer?.refresh();
      if (!call.write(chunk)) content.pause();
    });
    call.on('drain', () => content.resume());
    content.once('end', () => {
      this.#uploading = false;
      this.#safely(() => this.#finish(call, null));
    });
  }

  #finish(call: ClientRequest, content: Buffer | null): void {
    if (content !== null && content.length > 0) call.write(content);
    const trailers = this.#request.trailers?.() ?? [];
    const pairs: [string, string][] = [];
    for (let i = 0; i + 1 < trailers.length; i += 2) pairs.push([trailers[i] as string, trailers[i + 1] as string]);
    if (pairs.length > 0) call.addTrailers(pairs);
    call.end();
  }

  #onContentLost(): void {
    if (this.#state === 'connecting') this.#fail('not-sent', 'client-content');
    else this.#fail(this.#state === 'answering' ? 'cut' : 'unanswered', 'content-lost');
  }

  #onInterim(status: number, fields: string[]): void {
    if (this.#state !== 'sent') return;
    this.#timer?.refresh();
    // Whoever asked for a 100 has had it from the gateway; an unasked one says nothing (RFC 9110 section 15.2.1).
    if (status !== 100) this.#sink.onInterim(status, withoutField(fields, 'content-length'));
  }

  #onResponse(response: IncomingMessage): void {
    const status = response.statusCode as number;
    // A 101 that names no protocol arrives here.
    if (status === 101) return this.#fail('unanswered', 'malformed');
    if (this.#state !== 'sent') return;
    const { rawHeaders } = response;
    const fields = hasNoLength(status) ? withoutField(rawHeaders, 'content-length') : rawHeaders;
    // Nobody may guess what this response is.
    if (status < 100 || framingFault(fields, '1.1') !== null) return this.#fail('unanswered', 'malformed');
    this.#response = response;
    this.#state = 'answering';
    response.on('error', (error) => this.#onError(error));
    this.#after(this.#options.config.bodyTimeoutMs, () => this.#onSilence('cut'));
    this.#sink.onFields(status, response.statusMessage ?? '', fields);
    response.on('data', (chunk: Buffer) => this.#onContent(response, chunk));
    response.once('end', () => this.#onEnd(response));
    if (hasNoContent(this.#request.method, status)) this.#end([]);
  }

  #onContent(response: IncomingMessage, chunk: Buffer): void {
    if (this.#state !== 'answering') return;
    this.#timer?.refresh();
    if (this.#sink.onContent(chunk)) return;
    this.#paused = true;
    response.pause();
  }

  #onEnd(response: IncomingMessage): void {
    // A reset has been told of as an error by now, also where the end of the connection is the end of the message.
    if (!response.complete) return this.#fail('cut', 'reset');
    this.#end(passableTrailers(response.rawTrailers));
  }

  #onUpgrade(response: IncomingMessage, socket: Socket, first: Buffer): void {
    // Node has let go of the socket: a reset of it is nobody's yet.
    socket.on('error', () => {});
    this.#socket = socket;
    const isAsked = this.#upgrade !== null && isOffered(this.#request.fields, response.rawHeaders);
    if (this.#state !== 'sent' || !isAsked) {
      socket.destroy();
      return this.#fail('unanswered', 'malformed');
    }
    this.#over();
    if (first.length > 0) socket.unshift(first);
    this.#upgrade?.onSwitched(response.statusMessage ?? '', response.rawHeaders, socket);
  }

  #onError(error: Error): void {
    if (this.#state === 'connecting') this.#fail('not-sent', connectCause(error));
    else if (this.#state === 'sent') this.#fail('unanswered', this.#unansweredCause(exchangeCause(error, false)));
    else this.#fail('cut', exchangeCause(error, true));
  }

  #unansweredCause(cause: FailureCause): FailureCause {
    const isStale = cause === 'reset' && this.#call?.reusedSocket && this.#socket?.bytesRead === this.#readBefore;
    return isStale ? 'stale' : cause;
  }

  /** The connection ended, and nothing else said so. */
  #onClose(): void {
    if (this.#state === 'connecting') this.#fail('not-sent', 'unreachable');
    else if (this.#state === 'sent') this.#fail('unanswered', this.#unansweredCause('reset'));
    else this.#fail('cut', 'reset');
  }

  /** The deadline for the next sign of life has passed; it is the upstream's only while it is the upstream that is awaited. */
  #onSilence(kind: 'unanswered' | 'cut'): void {
    const clientIsSlow = kind === 'cut' ? this.#paused : this.#uploading && !(this.#call?.writableNeedDrain ?? false);
    if (clientIsSlow) this.#timer?.refresh();
    else this.#fail(kind, kind === 'cut' ? 'body-timeout' : 'headers-timeout');
  }

  #after(ms: number, then: () => void): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(then, ms);
  }

  #end(trailers: string[]): void {
    if (this.#state === 'over') return;
    const isWhole = !this.#uploading;
    this.#over();
    this.#sink.onEnd(trailers);
    // A response that came before the request's end has no use for the rest, nor has the connection.
    if (isWhole) this.#response?.resume();
    else this.#stop();
  }

  #fail(kind: UpstreamFailure['kind'], cause: UpstreamFailure['cause']): void {
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
    this.#call?.destroy();
    const { content } = this.#request;
    if (content !== null && !Buffer.isBuffer(content)) content.destroy();
  }
}
