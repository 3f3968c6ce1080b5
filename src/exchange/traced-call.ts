/**
 * An upstream call of a request that is traced: it stands between who calls and the upstream, and tells the trace what both
 * hear. Requests without a trace go past it.
 */

import type { Socket } from 'node:net';
import { editedFields } from '../http/edits.js';
import type { UpstreamFailure } from '../upstream/failure.js';
import type {
  Exchange,
  ForwardSink,
  UpgradeExchange,
  UpgradeSink,
  Upstream,
  UpstreamRequest,
} from '../upstream/upstream.js';
import type { Caller } from './caller.js';
import type { CallTrace } from './trace.js';

/** Sends a request of a client upstream. */
export function forward(
  caller: Caller,
  upstream: Upstream,
  request: UpstreamRequest,
  sink: ForwardSink,
  kind: Parameters<Upstream['forward']>[2],
): Exchange {
  const call = callOf(caller, upstream);
  if (call === null) return upstream.forward(request, sink, kind);
  const traced = new TracedExchange(call, sink, null);
  traced.exchange = upstream.forward(told(request, call), traced, kind);
  return traced;
}

/** The same for a request whose fields offer to switch protocols. */
export function upgrade(
  caller: Caller,
  upstream: Upstream,
  request: UpstreamRequest,
  sink: UpgradeSink,
): UpgradeExchange {
  const call = callOf(caller, upstream);
  if (call === null) return upstream.upgrade(request, sink);
  const traced = new TracedExchange(call, sink, sink);
  traced.exchange = upstream.upgrade(told(request, call), traced);
  return traced;
}

function callOf({ trace, method }: Caller, upstream: Upstream): CallTrace | null {
  return trace === null ? null : trace.calling({ method, upstream: upstream.name, server: upstream.onlyServer });
}

function told(request: UpstreamRequest, { fields, replaced }: CallTrace): UpstreamRequest {
  return { ...request, fields: editedFields(request.fields, { removed: replaced, added: fields }) };
}

class TracedExchange implements UpgradeSink, UpgradeExchange {
  /** Null until it has begun; it may be over by then. */
  exchange: Exchange | null = null;
  readonly #call: CallTrace;
  readonly #sink: ForwardSink;
  readonly #upgrade: UpgradeSink | null;

  constructor(call: CallTrace, sink: ForwardSink, upgradeSink: UpgradeSink | null) {
    this.#call = call;
    this.#sink = sink;
    this.#upgrade = upgradeSink;
  }

  get sent(): boolean {
    return this.exchange?.sent ?? false;
  }

  abort(): void {
    this.exchange?.abort();
    this.#call.over('aborted');
  }

  resume(): void {
    this.exchange?.resume();
  }

  endSending(): void {
    (this.exchange as UpgradeExchange | null)?.endSending();
  }

  onSend(): boolean {
    const goesOn = this.#sink.onSend();
    if (goesOn) this.#call.sent();
    return goesOn;
  }

  onInterim(status: number, fields: string[]): void {
    this.#sink.onInterim(status, fields);
  }

  onFields(status: number, reason: string, fields: string[]): void {
    this.#call.answered(status);
    this.#sink.onFields(status, reason, fields);
  }

  onContent(chunk: Buffer): boolean {
    return this.#sink.onContent(chunk);
  }

  onEnd(trailers: string[]): void {
    this.#call.over(null);
    this.#sink.onEnd(trailers);
  }

  /** What follows on the connection is no HTTP. */
  onSwitched(reason: string, fields: string[], socket: Socket): void {
    this.#call.answered(101);
    this.#call.over(null);
    this.#upgrade?.onSwitched(reason, fields, socket);
  }

  onFailure(failure: UpstreamFailure): void {
    this.#call.over(failure.cause);
    this.#sink.onFailure(failure);
  }
}
