/**
 * Forwarding without a flight: rules without a policy, unmatched requests, and requests that go unprotected.
 *
 * Invariants: nothing is recorded; back-pressure runs both ways; the client's leaving ends the upstream call, and an
 * upstream cut reaches the client as a cut.
 */

import type { BypassReason, Outcome } from '../core/outcome.js';
import { comparedName, editedFields, withoutNames } from '../http/edits.js';
import { announcedTrailers, clientFields, requestTrailers, upstreamFields } from '../http/fields.js';
import type { UpstreamFailure } from '../upstream/failure.js';
import type { Exchange, ForwardSink, Upstream, UpstreamRequest } from '../upstream/upstream.js';
import type { Caller } from './caller.js';
import type { CallPlace, Calls } from './calls.js';
import type { ExchangeObserver } from './observer.js';
import { refuseOverloaded } from './overload.js';
import { forward } from './traced-call.js';
import { type UploadListener, upload } from './uploading.js';
import { upstreamProblem } from './upstream-problem.js';

/** The upstream's view of a client's request. `added` are field lines that replace the client's of the same names. */
export function upstreamRequest(
  caller: Caller,
  upstream: Upstream,
  uploading?: UploadListener,
  added: readonly string[] = [],
): UpstreamRequest {
  const { httpVersion, rawHeaders } = caller.req;
  const removed = namesOf([...added, ...fenceOf(caller)]);
  const own = upstreamFields(caller.fields, httpVersion, caller.requestId, upstream.pseudonym);
  const fields = removed.size === 0 ? own : editedFields(own, { removed, added });
  const trailers = trailersOf(caller, removed);
  if (trailers !== null) fields.push(...announcedTrailers(rawHeaders));
  return {
    method: caller.method,
    target: upstream.targetOf(caller.target),
    fields,
    content: caller.content ?? (caller.announcesContent ? upload(caller, uploading) : null),
    trailers,
  };
}

/** A field line of the name that the API knows the gateway's fence by: no client mints one, whoever forwards its request. */
function fenceOf({ rule }: Caller): readonly string[] {
  if (rule === null || rule.policy.kind === 'pass' || rule.policy.mode === 'observes') return [];
  const { fence } = rule.policy.forward;
  return fence === null ? [] : [fence, ''];
}

const NO_NAMES: ReadonlySet<string> = new Set();

function namesOf(fields: readonly string[]): ReadonlySet<string> {
  if (fields.length === 0) return NO_NAMES;
  return new Set(fields.filter((_, index) => index % 2 === 0).map(comparedName));
}

/** Whether there are trailers is known at the end of chunked content: of one that was read, now. */
function trailersOf({ req, content }: Caller, removed: ReadonlySet<string>): UpstreamRequest['trailers'] {
  if (req.headers['transfer-encoding'] === undefined) return null;
  const read = () => withoutNames(requestTrailers(req.rawTrailers), removed);
  return content === null || read().length > 0 ? read : null;
}

/** What forwarding without a flight needs beside the request and its upstream. */
export type PassOptions = { readonly observer: ExchangeObserver; readonly calls: Calls };

/** Forwards a request as it is. `outcome` is what the request ends as when the upstream answers. */
export function pass(caller: Caller, upstream: Upstream, outcome: Outcome, options: PassOptions): void {
  const place = placeFor(caller, options);
  if (place !== null) new Passing(caller, outcome, options.observer, place).start(upstream);
}

/** A place for the call, or null: the request is refused. */
export function placeFor(caller: Caller, { observer, calls }: PassOptions): CallPlace | null {
  const place = calls.enter(caller.rule);
  if (place === null) refuseOverloaded(caller, 'route', observer);
  return place;
}

/** Forwards a request of a rule with a policy without its protection, and says so. */
export function bypass(caller: Caller, upstream: Upstream, reason: BypassReason, options: PassOptions): void {
  if (caller.gone) return;
  const place = placeFor(caller, options);
  if (place === null) return;
  const { observer } = options;
  // Counted now: whatever becomes of it, it was sent unprotected. And it is nobody's follower any more.
  observer.unprotected(caller.route, reason);
  caller.role = 'none';
  new Passing(caller, { kind: 'bypassed', reason }, observer, place).start(upstream);
}

export class Passing implements ForwardSink {
  protected readonly caller: Caller;
  protected readonly observer: ExchangeObserver;
  protected exchange: Exchange | null = null;
  protected readonly place: CallPlace;
  readonly #outcome: Outcome;
  /** Monotonic time (ms) of the last attempt. */
  #sentAtMs = 0;

  constructor(caller: Caller, outcome: Outcome, observer: ExchangeObserver, place: CallPlace) {
    this.caller = caller;
    this.#outcome = outcome;
    this.observer = observer;
    this.place = place;
  }

  start(upstream: Upstream): void {
    const { caller } = this;
    if (caller.gone) return this.place.leave();
    caller.whenLeft(() => this.onLeft());
    this.exchange = forward(caller, upstream, upstreamRequest(caller, upstream, this.uploading()), this, 'open');
  }

  protected onLeft(): void {
    this.place.leave();
    this.exchange?.abort();
  }

  /** Who is told of the client's content as it goes by. */
  protected uploading(): UploadListener | undefined {
    return undefined;
  }

  onSend(): boolean {
    this.observer.sent(this.caller.route, 'client');
    this.#sentAtMs = performance.now();
    return true;
  }

  protected tellAnswered(): void {
    this.observer.answered(this.caller.route, performance.now() - this.#sentAtMs, this.caller.trace);
  }

  onInterim(status: number, fields: string[]): void {
    this.caller.interim(status, clientFields(fields));
  }

  onFields(status: number, reason: string, fields: string[]): void {
    this.tellAnswered();
    this.caller.begin(status, reason, clientFields(fields), this.#outcome);
  }

  onContent(chunk: Buffer): boolean {
    if (this.caller.write(chunk)) return true;
    this.caller.whenDrained(() => this.exchange?.resume());
    return false;
  }

  onEnd(trailers: string[]): void {
    this.place.leave();
    this.caller.end(null, trailers);
  }

  onFailure(failure: UpstreamFailure): void {
    this.place.leave();
    if (this.caller.begun) return this.caller.cut();
    const { code, proxyError } = upstreamProblem(failure, false);
    this.caller.refuse(code, { proxyError });
  }
}
