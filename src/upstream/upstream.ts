/**
 * One upstream: its connections, its deadlines, and the forwarding of one request. What undici cannot do goes over Node's
 * own client (node-exchange.ts).
 *
 * Invariants, whichever client carries a request: nothing that may have been sent is ever sent again; "sent" begins when
 * the request is handed to a connected socket, just before the first byte, which undici announces; a sink hears exactly
 * one of `onEnd`, `onFailure` and, for upgrades, `onSwitched`, and none after `abort`.
 */

import { subscribe } from 'node:diagnostics_channel';
import http from 'node:http';
import https from 'node:https';
import type { Socket } from 'node:net';
import { buildConnector, type Dispatcher, Pool } from 'undici';
import type { UpstreamConfig } from '../config/config.js';
import { utf8ByteText } from '../core/byte-text.js';
import { hasNoContent, withoutField } from '../http/fields.js';
import { framingFault, hasNoLength, passableTrailers } from '../http/framing.js';
import type { Exchange, ForwardSink, UpgradeExchange, UpgradeSink, UpstreamRequest } from './exchange.js';
import { connectCause, exchangeCause, type FailureCause, type UpstreamFailure } from './failure.js';
import { keepingAgent } from './keeping-agent.js';
import { NodeExchange } from './node-exchange.js';
import { endWhenRead, readingPaused, readingResumed } from './paused-end.js';
import { expectResponse, ignoreContinue } from './unasked-continue.js';

export type { Exchange, ForwardSink, UpgradeExchange, UpgradeSink, UpstreamRequest } from './exchange.js';

/** Total size of the fields of one message, both ways. */
export const MAX_FIELD_BYTES = 65_536;

export class Upstream {
  readonly name: string;
  readonly #config: UpstreamConfig;
  /** Calls of rules with a key have connections of their own, so that slow pass-through traffic cannot starve them. */
  readonly #keyed: Pool;
  readonly #open: Pool;
  /** The same for Node's client. A connection of an upgrade is its own: whatever became of it, nothing else follows. */
  readonly #agents: Readonly<Record<'keyed' | 'open' | 'upgrade', http.Agent>>;

  constructor(config: UpstreamConfig) {
    this.name = config.name;
    this.#config = config;
    const options: Pool.Options = {
      pipelining: 1,
      connect: connectorOf(config),
      headersTimeout: config.headersTimeoutMs,
      bodyTimeout: config.bodyTimeoutMs,
      maxHeaderSize: MAX_FIELD_BYTES,
      // The length is the client's to state; a request whose content falls short fails as such, not as a warning.
      strictContentLength: true,
    };
    this.#keyed = new Pool(config.url.origin, options);
    this.#open = new Pool(config.url.origin, options);
    const { Agent } = config.url.protocol === 'https:' ? https : http;
    this.#agents = {
      keyed: keepingAgent(config.url.protocol),
      open: keepingAgent(config.url.protocol),
      upgrade: new Agent({ keepAlive: false }),
    };
  }

  get url(): URL {
    return this.#config.url;
  }

  /** The `Host` to send instead of the client's, or null to keep the client's. */
  get host(): string | null {
    return this.#config.preserveHost ? null : this.#config.url.host;
  }

  /** Longest time from asking for a connection to the response fields, milliseconds. */
  get answerDeadlineMs(): number {
    return this.#config.connectTimeoutMs + this.#config.headersTimeoutMs;
  }

  /** Longest silence between two pieces of content, milliseconds. */
  get bodyTimeoutMs(): number {
    return this.#config.bodyTimeoutMs;
  }

  /** Sends one request, once. Every way it can end is told to the sink. */
  forward(request: UpstreamRequest, sink: ForwardSink, pool: 'keyed' | 'open'): Exchange {
    // undici drops trailers, and takes no target but a path.
    const isForNode = request.trailers !== null || (request.method === 'OPTIONS' && request.target === '*');
    if (isForNode) return this.#overNode(request, sink, null, this.#agents[pool]);
    const running = new RunningExchange(request.method, sink);
    const options: Dispatcher.DispatchOptions = {
      path: request.target,
      method: request.method as Dispatcher.HttpMethod,
      headers: request.fields as string[],
      body: request.content,
      // undici closes the connection after every HEAD unless told otherwise.
      reset: false,
    };
    (pool === 'keyed' ? this.#keyed : this.#open).dispatch(options, running as unknown as Dispatcher.DispatchHandler);
    return running;
  }

  /** Sends a request whose fields offer to switch protocols, once. */
  upgrade(request: UpstreamRequest, sink: UpgradeSink): UpgradeExchange {
    return this.#overNode(request, sink, sink, this.#agents.upgrade);
  }

  #overNode(request: UpstreamRequest, sink: ForwardSink, upgrade: UpgradeSink | null, agent: http.Agent): NodeExchange {
    const options = { config: this.#config, agent, maxFieldBytes: MAX_FIELD_BYTES };
    return new NodeExchange(request, sink, upgrade, options).start();
  }

  /** Cuts every running exchange. */
  async destroy(): Promise<void> {
    for (const agent of Object.values(this.#agents)) agent.destroy();
    await Promise.all([this.#keyed.destroy(), this.#open.destroy()]);
  }
}

function connectorOf({ connectTimeoutMs }: UpstreamConfig): buildConnector.connector {
  const connect = buildConnector({ timeout: connectTimeoutMs });
  return (options, callback) =>
    connect(options, (...[error, socket]) => {
      if (error !== null) return callback(error, null);
      endWhenRead(socket);
      ignoreContinue(socket, MAX_FIELD_BYTES);
      callback(null, socket);
    });
}

/** The exchange whose request undici is about to write: it says so, and then, in the same turn, to which socket. */
let writing: RunningExchange | null = null;
subscribe('undici:client:sendHeaders', (message) => {
  writing?.onSocket((message as { readonly socket: Socket }).socket);
  writing = null;
});

/** undici has read the phrase as UTF-8: its bytes again, where it was that. Of anything else only the fact is left. */
function phraseOf(reason: string): string {
  return reason.includes('\ufffd') ? reason : utf8ByteText(reason);
}

/** undici's callbacks in, the sink's words out. Field lines arrive raw: spelling, order and repetition are kept. */
class RunningExchange implements Exchange {
  readonly #method: string;
  readonly #sink: ForwardSink;
  #state: 'connecting' | 'sent' | 'answering' | 'over' = 'connecting';
  #wasSent = false;
  #aborted = false;
  #abort: ((reason?: Error) => void) | null = null;
  #resume: (() => void) | null = null;
  #socket: Socket | null = null;

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
    else if (this.#state === 'sent') this.#fail('unanswered', exchangeCause(error, false));
    else this.#fail('cut', exchangeCause(error, true));
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
