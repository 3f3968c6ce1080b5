/**
 * One request to an upstream, over as many addresses as it takes.
 *
 * Invariants: another attempt is made only when nothing was written, or when a safe method met a connection that its
 * upstream had closed meanwhile; the sink is asked before each; what may have been executed in one attempt is not told to
 * be certainly unexecuted because of the next; an address is judged by attempts, the upstream as a whole by the end of the
 * request; a place among the upstream's connections, and the count of what an address has to do, are given back once,
 * whichever way it ends.
 */

import type { Socket } from 'node:net';
import { isSafe } from '../core/rule.js';
import { withAuthority } from '../core/target.js';
import { withHost } from '../http/fields.js';
import type { Address } from './address.js';
import type { Waiting } from './admission.js';
import type { Exchange, ForwardSink, UpgradeExchange, UpgradeSink, UpstreamRequest } from './exchange.js';
import type { FailureCause, UpstreamFailure } from './failure.js';
import type { Verdict } from './upstream.js';

/** What an attempt needs of its upstream. */
export interface Attempted {
  readonly retries: number;
  /** Whether requests keep the client's `Host`. */
  readonly preservesHost: boolean;
  /** Asks for a place; null: there are as many as are wanted. */
  enter(request: Waiting): 'placed' | 'waits' | 'full';
  giveUp(request: Waiting): void;
  leave(kind: Waiting['kind']): void;
  /** Whether requests are let through at all. */
  passes(): 'yes' | 'trial' | 'no';
  /** An address for the next attempt, none of those that were tried; null: there is none. */
  pick(tried: ReadonlySet<Address>): Address | null;
  /** What an attempt has shown of its address. */
  judged(address: Address, verdict: Verdict): void;
  /** What the request has shown of the upstream. */
  concluded(verdict: Verdict, isTrial: boolean): void;
  trialEnded(): void;
  retried(address: Address, cause: FailureCause): void;
  /** The upstream's own words for the response's fields. */
  edited(fields: string[]): string[];
  /** The same for a 101. */
  editedHandshake(fields: string[]): string[];
  /** The same for interim responses and trailers: nothing is added there. */
  editedBeside(fields: string[]): string[];
}

/** Failures that say nothing about the address: the gateway's own, and those of the client's content. */
const NOT_ITS_OWN: ReadonlySet<FailureCause> = new Set([
  'unavailable',
  'limit',
  'given-up',
  'unsendable',
  'client-content',
  'content-lost',
]);

const NONE: ReadonlySet<Address> = new Set();

export class Attempts implements UpgradeSink, UpgradeExchange, Waiting {
  readonly kind: Waiting['kind'];
  readonly #upstream: Attempted;
  readonly #request: UpstreamRequest;
  readonly #sink: ForwardSink;
  /** The sink itself, where the request offers to switch protocols. */
  readonly #upgrade: UpgradeSink | null;
  #state: 'waiting' | 'running' | 'over' = 'waiting';
  #address: Address | null = null;
  #exchange: Exchange | null = null;
  #count = 0;
  #tried: Set<Address> | null = null;
  #wasSent = false;
  /** An attempt before this one was written. */
  #wasSentBefore = false;
  /** The response has begun, and not broken off. */
  #isAnswered = false;
  #isTrial = false;
  #hasPlace = false;
  #halfClosed = false;

  constructor(
    upstream: Attempted,
    request: UpstreamRequest,
    sink: ForwardSink,
    upgrade: UpgradeSink | null,
    kind: Waiting['kind'],
  ) {
    this.#upstream = upstream;
    this.#request = request;
    this.#sink = sink;
    this.#upgrade = upgrade;
    this.kind = kind;
  }

  start(): this {
    const entered = this.#upstream.enter(this);
    if (entered === 'full') this.#end({ kind: 'not-sent', cause: 'limit' });
    if (entered === 'placed') this.admitted();
    return this;
  }

  get sent(): boolean {
    return this.#wasSent;
  }

  abort(): void {
    if (this.#state === 'over') return;
    if (this.#state === 'waiting') this.#upstream.giveUp(this);
    const exchange = this.#exchange;
    this.#over();
    exchange?.abort();
  }

  resume(): void {
    this.#exchange?.resume();
  }

  endSending(): void {
    this.#halfClosed = true;
    (this.#exchange as UpgradeExchange | null)?.endSending();
  }

  admitted(): void {
    this.#hasPlace = true;
    this.#state = 'running';
    const passes = this.#upstream.passes();
    this.#isTrial = passes === 'trial';
    const address = passes === 'no' ? null : this.#upstream.pick(NONE);
    if (address === null) this.#end({ kind: 'not-sent', cause: 'unavailable' });
    else this.#try(address);
  }

  overdue(): void {
    this.#end({ kind: 'not-sent', cause: 'limit' });
  }

  #try(address: Address, fresh = false): void {
    const count = ++this.#count;
    this.#address = address;
    address.pending++;
    const connections = fresh ? 'fresh' : this.kind === 'keyed' ? 'keyed' : 'open';
    const request = this.#upstream.preservesHost ? this.#request : atHost(this.#request, address.host);
    const exchange =
      this.#upgrade === null ? address.forward(request, this, connections) : address.upgrade(request, this);
    // It may have failed at once, and the next one have begun.
    if (count !== this.#count || this.#state === 'over') return;
    this.#exchange = exchange;
    if (this.#halfClosed) (exchange as UpgradeExchange).endSending();
  }

  onSend(): boolean {
    if (this.#state === 'over' || !this.#sink.onSend()) return false;
    this.#wasSent = true;
    return true;
  }

  onInterim(status: number, fields: string[]): void {
    this.#sink.onInterim(status, this.#upstream.editedBeside(fields));
  }

  onFields(status: number, reason: string, fields: string[]): void {
    this.#answered(status);
    this.#sink.onFields(status, reason, this.#upstream.edited(fields));
  }

  onContent(chunk: Buffer): boolean {
    return this.#sink.onContent(chunk);
  }

  onEnd(trailers: string[]): void {
    this.#over();
    this.#sink.onEnd(trailers.length === 0 ? trailers : this.#upstream.editedBeside(trailers));
  }

  onSwitched(reason: string, fields: string[], socket: Socket): void {
    this.#answered(101);
    // Its connection is in use for as long as it lasts.
    socket.once('close', () => this.#over());
    this.#upgrade?.onSwitched(reason, this.#upstream.editedHandshake(fields), socket);
  }

  onFailure(failure: UpstreamFailure): void {
    const address = this.#address;
    if (address === null || this.#state === 'over') return;
    const { kind, cause } = failure;
    const next = this.#next(address, failure);
    this.#isAnswered = false;
    if (!NOT_ITS_OWN.has(cause)) {
      const verdict: Verdict = { kind: 'failed', cause, how: kind === 'cut' ? 'cut' : 'unanswered' };
      // That it has closed a kept connection says nothing of an address, where the request is sent there again.
      if (next !== address) this.#upstream.judged(address, verdict);
      if (next === null) this.#conclude(verdict);
    }
    if (next === null) {
      return this.#end(kind === 'not-sent' && this.#wasSentBefore ? { kind: 'unanswered', cause } : failure);
    }
    if (kind === 'not-sent') this.#wasSent = this.#wasSentBefore;
    else this.#wasSentBefore = true;
    address.pending--;
    this.#upstream.retried(address, cause);
    this.#try(next, cause === 'stale');
  }

  /** The address of another attempt, where one may be made. */
  #next(address: Address, { kind, cause }: UpstreamFailure): Address | null {
    if (this.#count > this.#upstream.retries) return null;
    if (NOT_ITS_OWN.has(cause)) return null;
    if (cause === 'stale') return this.#mayRepeat() ? address : null;
    if (kind !== 'not-sent') return null;
    this.#tried ??= new Set();
    this.#tried.add(address);
    return this.#upstream.pick(this.#tried);
  }

  /** Nobody knows what became of the first attempt: a second must not matter. Of a stream a part may be gone. */
  #mayRepeat(): boolean {
    const { method, content } = this.#request;
    return isSafe(method) && typeof content !== 'function' && this.#upgrade === null;
  }

  #answered(status: number): void {
    const verdict: Verdict = { kind: 'answered', status };
    if (this.#address !== null) this.#upstream.judged(this.#address, verdict);
    this.#conclude(verdict);
    this.#isAnswered = true;
  }

  #conclude(verdict: Verdict): void {
    this.#upstream.concluded(verdict, this.#isTrial);
    this.#isTrial = false;
  }

  #end(failure: UpstreamFailure): void {
    this.#over();
    this.#sink.onFailure(failure);
  }

  #over(): void {
    if (this.#state === 'over') return;
    this.#state = 'over';
    if (this.#address !== null) {
      this.#address.pending--;
      if (this.#isAnswered) {
        this.#upstream.judged(this.#address, { kind: 'ended' });
        this.#upstream.concluded({ kind: 'ended' }, false);
      }
    }
    if (this.#isTrial) this.#upstream.trialEnded();
    if (this.#hasPlace) this.#upstream.leave(this.kind);
  }
}

/** In a target that names a host it counts, and not the field (RFC 9112 section 3.2.2). */
function atHost(request: UpstreamRequest, host: string): UpstreamRequest {
  return { ...request, target: withAuthority(request.target, host), fields: withHost(request.fields, host) };
}
