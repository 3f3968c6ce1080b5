/**
 * Spans of the requests that are sampled: the request's own, the claim, the wait, and the upstream call.
 *
 * Invariants: names and attributes are OpenTelemetry's for HTTP, where there is one, and none holds a value of a request,
 * its path and query among them: what is told is the rule, and the key by its digest; an upstream is told of the span of its
 * own call; who follows is linked to who leads.
 */

import type { Sampler } from '../config/config.js';
import { fieldLines } from '../core/field-lines.js';
import { labelOf, roleOf } from '../core/outcome.js';
import {
  newSpanId,
  newTraceId,
  type ParentContext,
  parentOf,
  type SpanContext,
  traceparentOf,
} from '../core/trace-context.js';
import type { CallTrace, RequestTrace, TracedCall, TracedEnd, TracedRequest } from '../exchange/trace.js';
import type { Attributes, Span } from './otlp.js';

/** Takes spans that are over. */
export type SpanSink = { add(span: Span): void };

/** What they are called in attributes; every other is `_OTHER`, so that a client cannot make names. */
const METHODS: ReadonlySet<string> = new Set([
  ...['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'CONNECT', 'QUERY'],
]);
/** A list of vendors' own words, of which we add none; what is longer may be cut or dropped (section 3.3.1.5). */
const MOST_STATE_CHARACTERS = 512;

export class Tracing {
  readonly #sampler: Sampler;
  readonly #sink: SpanSink;

  constructor(sampler: Sampler, sink: SpanSink) {
    this.#sampler = sampler;
    this.#sink = sink;
  }

  /** Begins the trace of a request, or goes on with its client's; null: it is not sampled. */
  begin(request: TracedRequest): RequestTrace | null {
    const parent = parentOf(fieldLines(request.fields, 'traceparent'));
    const traceId = parent?.traceId ?? newTraceId();
    return this.#samples(parent, traceId) ? new RequestSpans(request, traceId, parent, this.#sink) : null;
  }

  #samples(parent: ParentContext | null, traceId: string): boolean {
    if (parent !== null && this.#sampler.parent === 'followed') return parent.isSampled;
    return partOf(traceId) < this.#sampler.ratio;
  }
}

/** A number from 0 to 1 that is the same wherever the trace is seen: its last 52 bits, which are random. */
function partOf(traceId: string): number {
  return Number.parseInt(traceId.slice(-13), 16) / 2 ** 52;
}

/** Since when the clock of `performance.now` counts, by the wall clock (ms); looked at again, as that one may be set. */
function clockOrigin(): number {
  const byWall = Date.now() - performance.now();
  return Math.abs(byWall - performance.timeOrigin) < CLOCK_TOLERANCE_MS ? performance.timeOrigin : byWall;
}

/** `Date.now` is in whole milliseconds; a smaller difference is no reason to be less exact. */
const CLOCK_TOLERANCE_MS = 2;

class RequestSpans implements RequestTrace {
  readonly context: SpanContext;
  readonly #request: TracedRequest;
  readonly #parent: ParentContext | null;
  readonly #sink: SpanSink;
  /** What makes a time of the day of a monotonic time, the same for all spans of the request. */
  readonly #originMs = clockOrigin();
  readonly #startedAtMs = performance.now();
  readonly #traceState: string;
  readonly #links: SpanContext[] = [];
  #key: string | null = null;

  constructor(request: TracedRequest, traceId: string, parent: ParentContext | null, sink: SpanSink) {
    this.context = { traceId, spanId: newSpanId() };
    this.#request = request;
    this.#parent = parent;
    this.#sink = sink;
    // It means nothing beside a `traceparent` that cannot be read (section 3.3.1).
    const state = parent === null ? '' : fieldLines(request.fields, 'tracestate').join(',');
    this.#traceState = state.length <= MOST_STATE_CHARACTERS ? state : '';
  }

  keyed(digest: string): void {
    this.#key = digest;
  }

  linkTo(other: SpanContext | null): void {
    if (other === null || other.spanId === this.context.spanId) return;
    if (!this.#links.some(({ spanId }) => spanId === other.spanId)) this.#links.push(other);
  }

  claiming(): (answer: string) => void {
    const startedAtMs = performance.now();
    return (answer) => this.#part('claim', startedAtMs, performance.now(), ['oneflight.claim.answer', answer]);
  }

  calling(call: TracedCall): CallTrace {
    return new CallSpan(call, this.context, this.#parent === null ? 'begun-here' : 'gone-on-with', {
      traceState: this.#traceState,
      originMs: this.#originMs,
      sink: this.#sink,
    });
  }

  over(end: TracedEnd): void {
    const { outcome, status, waitedMs } = end;
    const { rule, waitingSinceMs } = this.#request;
    const endedAtMs = performance.now();
    const role = roleOf(outcome);
    const hasWaited = waitedMs !== null || role === 'follower' || role === 'queued';
    if (hasWaited && waitingSinceMs !== null) {
      this.#part('wait', waitingSinceMs, waitedMs === null ? endedAtMs : waitingSinceMs + waitedMs, []);
    }
    const failure = failureOf(outcome, status);
    const path = rule?.match.path ?? null;
    const name = nameOf(this.#request.method);
    this.#sink.add({
      traceId: this.context.traceId,
      spanId: this.context.spanId,
      parentSpanId: this.#parent?.spanId ?? '',
      parent: this.#parent === null ? 'none' : 'remote',
      traceState: this.#traceState,
      name: path === null ? name : `${name} ${path}`,
      kind: 'server',
      startedAtMs: this.#originMs + this.#startedAtMs,
      endedAtMs: this.#originMs + endedAtMs,
      attributes: this.#attributes(end, path, failure),
      links: this.#links,
      status: failure === null ? 'unset' : 'error',
    });
  }

  #attributes(end: TracedEnd, path: string | null, failure: string | null): Attributes {
    const { req, peer, method } = this.#request;
    const attributes: (string | number)[] = [
      'http.request.method',
      methodOf(method),
      'url.scheme',
      peer.scheme,
      'network.protocol.version',
      req.httpVersion === '2.0' ? '2' : req.httpVersion,
      'oneflight.route',
      end.route,
      'oneflight.policy',
      end.policy,
      'oneflight.outcome',
      labelOf(end.outcome),
      'oneflight.role',
      roleOf(end.outcome),
      'oneflight.request_id',
      end.requestId,
    ];
    if (path !== null) attributes.push('http.route', path);
    if (end.status > 0) attributes.push('http.response.status_code', end.status);
    if (failure !== null) attributes.push('error.type', failure);
    if (this.#key !== null) attributes.push('oneflight.key', this.#key);
    return attributes;
  }

  #part(name: string, startedAtMs: number, endedAtMs: number, attributes: Attributes): void {
    this.#sink.add({
      traceId: this.context.traceId,
      spanId: newSpanId(),
      parentSpanId: this.context.spanId,
      parent: 'own',
      traceState: this.#traceState,
      name,
      kind: 'internal',
      startedAtMs: this.#originMs + startedAtMs,
      endedAtMs: this.#originMs + endedAtMs,
      attributes,
      links: NO_LINKS,
      status: 'unset',
    });
  }
}

const NO_LINKS: readonly SpanContext[] = [];

/** What the spans of one request have in common. */
type OfRequest = { readonly traceState: string; readonly originMs: number; readonly sink: SpanSink };

const TRACEPARENT_ONLY: ReadonlySet<string> = new Set(['traceparent']);
const BOTH: ReadonlySet<string> = new Set(['traceparent', 'tracestate']);

class CallSpan implements CallTrace {
  readonly fields: readonly string[];
  readonly replaced: ReadonlySet<string>;
  readonly #call: TracedCall;
  readonly #parent: SpanContext;
  readonly #spanId = newSpanId();
  readonly #ofRequest: OfRequest;
  readonly #startedAtMs = performance.now();
  #attempts = 0;
  #status = 0;
  #stage: 'open' | 'over' = 'open';

  /** `trace`: of one that is begun here a `tracestate` that came is no part. */
  constructor(call: TracedCall, parent: SpanContext, trace: 'begun-here' | 'gone-on-with', ofRequest: OfRequest) {
    this.#call = call;
    this.#parent = parent;
    this.#ofRequest = ofRequest;
    this.fields = ['traceparent', traceparentOf({ traceId: parent.traceId, spanId: this.#spanId })];
    this.replaced = trace === 'begun-here' ? BOTH : TRACEPARENT_ONLY;
  }

  sent(): void {
    this.#attempts += 1;
  }

  answered(status: number): void {
    this.#status = status;
  }

  over(failure: string | null): void {
    if (this.#stage === 'over') return;
    this.#stage = 'over';
    const { traceState, originMs, sink } = this.#ofRequest;
    const error = failure ?? (this.#status >= 400 ? String(this.#status) : null);
    sink.add({
      traceId: this.#parent.traceId,
      spanId: this.#spanId,
      parentSpanId: this.#parent.spanId,
      parent: 'own',
      traceState,
      name: nameOf(this.#call.method),
      kind: 'client',
      startedAtMs: originMs + this.#startedAtMs,
      endedAtMs: originMs + performance.now(),
      attributes: this.#attributes(error),
      links: NO_LINKS,
      status: error === null ? 'unset' : 'error',
    });
  }

  #attributes(error: string | null): Attributes {
    const { method, upstream, server } = this.#call;
    const attributes: (string | number)[] = ['http.request.method', methodOf(method), 'oneflight.upstream', upstream];
    if (server !== null) attributes.push('server.address', server.hostname, 'server.port', portOf(server));
    if (this.#status > 0) attributes.push('http.response.status_code', this.#status);
    if (this.#attempts > 1) attributes.push('http.request.resend_count', this.#attempts - 1);
    if (error !== null) attributes.push('error.type', error);
    return attributes;
  }
}

function portOf({ port, protocol }: URL): number {
  if (port !== '') return Number(port);
  return protocol === 'https:' ? 443 : 80;
}

function methodOf(method: string): string {
  return METHODS.has(method) ? method : '_OTHER';
}

/** How a method begins the name of a span. */
function nameOf(method: string): string {
  return METHODS.has(method) ? method : 'HTTP';
}

/** What a server's span has as its error: not what the client was told of itself (4xx), and not that it left. */
function failureOf(outcome: TracedEnd['outcome'], status: number): string | null {
  if (outcome.kind === 'cut') return 'cut';
  if (outcome.kind === 'left' || status < 500) return null;
  return outcome.kind === 'refused' ? outcome.code : String(status);
}
