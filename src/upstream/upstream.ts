/**
 * One upstream: its addresses, which of them the next request goes to, and what it is and its responses are edited to.
 *
 * Invariants: an address that is down or ejected gets no request while there is another one; when all that is left is
 * ejected, they are tried all the same, and when all are down nothing is sent; what the exchange layer hands over and
 * hears is the client's own, edits are made here, and on the way back before anybody judges the response.
 */

import type { UpstreamConfig } from '../config/config.js';
import { withoutPrefix } from '../core/path-prefix.js';
import type { UpstreamEvent, UpstreamState } from '../core/upstream-event.js';
import { editedFields, withoutNames } from '../http/edits.js';
import { clientFields } from '../http/fields.js';
import { type Identity, PRODUCT } from '../http/via.js';
import { Address, MAX_FIELD_BYTES } from './address.js';
import { Admission, type Waiting } from './admission.js';
import { type Attempted, Attempts } from './attempts.js';
import { Breaker } from './breaker.js';
import type { Exchange, ForwardSink, UpgradeExchange, UpgradeSink, UpstreamRequest } from './exchange.js';
import type { FailureCause } from './failure.js';
import type { Failed } from './failure-row.js';
import { HealthChecks } from './health-checks.js';
import { probe } from './probe.js';

export type { Exchange, ForwardSink, UpgradeExchange, UpgradeSink, UpstreamRequest } from './exchange.js';
export { MAX_FIELD_BYTES };

/** What was seen of an address or of the upstream: that an answer has begun, that it was not broken off, or a failure. */
export type Verdict =
  | { readonly kind: 'answered'; readonly status: number }
  | { readonly kind: 'ended' }
  | { readonly kind: 'failed'; readonly cause: FailureCause; readonly how: Failed };

export class Upstream implements Attempted {
  readonly name: string;
  readonly #identity: Identity;
  readonly #config: UpstreamConfig;
  readonly #addresses: readonly Address[];
  readonly #admission: Admission | null;
  readonly #breaker: Breaker | null;
  readonly #checks: HealthChecks | null;
  readonly #onEvent: (event: UpstreamEvent) => void;
  /** Place in the list at which the next round begins. */
  #next = 0;
  /** How many have to do with it: requests, the flights that they lead, loops of questions. */
  #holders = 0;
  /** Told when it has ended; null: it is in use. */
  #onOver: (() => void) | null = null;
  #isOver = false;

  constructor(
    config: UpstreamConfig,
    onEvent: (event: UpstreamEvent) => void = () => {},
    identity: Identity = { pseudonym: PRODUCT },
  ) {
    this.name = config.name;
    this.#identity = identity;
    this.#config = config;
    this.#onEvent = onEvent;
    this.#addresses = config.addresses.map((address) => new Address(address, config));
    this.#admission = config.connections === null ? null : new Admission(config.connections);
    this.#breaker = config.breaker === null ? null : new Breaker(config.breaker);
    this.#checks = config.health === null ? null : new HealthChecks(config.health, this.#addresses, onEvent);
  }

  /** What the gateway calls itself there. */
  get pseudonym(): string {
    return this.#identity.pseudonym;
  }

  /** Longest time from handing a request over to its response fields, milliseconds. */
  get answerDeadlineMs(): number {
    const { connectTimeoutMs, headersTimeoutMs, connections } = this.#config;
    return (connections?.waitMs ?? 0) + (this.retries + 1) * connectTimeoutMs + headersTimeoutMs;
  }

  /** Longest silence between two pieces of content, milliseconds. */
  get bodyTimeoutMs(): number {
    return this.#config.bodyTimeoutMs;
  }

  get retries(): number {
    return this.#config.retries;
  }

  /** Origin of its only address; null: it has several, of which each attempt picks one. */
  get onlyServer(): URL | null {
    return this.#config.addresses.length === 1 ? (this.#config.addresses[0]?.url ?? null) : null;
  }

  get preservesHost(): boolean {
    return this.#config.preserveHost;
  }

  get state(): UpstreamState {
    const nowMs = performance.now();
    return {
      addresses: this.#addresses.map(({ name, standing, pending }) => {
        return { name, isUsable: !standing.isDown && !standing.isEjected(nowMs), pending };
      }),
      waiting: this.#admission?.waiting ?? 0,
      isOpen: this.#breaker?.isClosed === false,
    };
  }

  /** The target of a client's request as the upstream is to see it. */
  targetOf(target: string): string {
    return this.#config.stripPrefix === null ? target : withoutPrefix(target, this.#config.stripPrefix);
  }

  /** Sends a request. Every way it can end is told to the sink. */
  forward(request: UpstreamRequest, sink: ForwardSink, kind: Waiting['kind']): Exchange {
    return new Attempts(this, this.#edited(request), sink, null, kind).start();
  }

  /** Sends a request whose fields offer to switch protocols. */
  upgrade(request: UpstreamRequest, sink: UpgradeSink): UpgradeExchange {
    return new Attempts(this, this.#edited(request), sink, sink, 'open').start();
  }

  /** Resolves to `ok` when one address at least can be connected to, by the checks where there are any; else to what is wrong. */
  async probe(timeoutMs: number): Promise<string> {
    const left = this.#addresses.filter(({ standing }) => !standing.isDown);
    if (left.length === 0) return 'every address is down';
    if (this.#checks !== null) return 'ok';
    const looks = await Promise.all(this.#config.addresses.map((address) => probe(address, timeoutMs)));
    return looks.find((look) => look === 'ok') ?? (looks[0] as string);
  }

  /** Begins the health checks. */
  open(): void {
    this.#checks?.start();
  }

  /** Somebody has to do with it, and lets go of it once: until then its retirement does not end it. */
  hold(): void {
    this.#holders += 1;
  }

  letGo(): void {
    this.#holders -= 1;
    this.#endIfDone();
  }

  /** Whether it has ended by its retirement. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /**
   * It is not in use any more: it is checked no longer, and ends when nobody holds it. `onOver` is told that then.
   */
  retire(onOver: () => void): void {
    this.#onOver = onOver;
    this.#checks?.stop();
    this.#endIfDone();
  }

  #endIfDone(): void {
    if (this.#holders > 0 || this.#onOver === null || this.#isOver) return;
    this.#isOver = true;
    this.#onOver();
    // What is left are connections that nobody uses. Not now: the last of them may just be telling of its end.
    setImmediate(() => this.destroy().catch(() => {}));
  }

  /** Cuts every running exchange. */
  async destroy(): Promise<void> {
    this.#checks?.stop();
    await Promise.all(this.#addresses.map((address) => address.destroy()));
  }

  #edited(request: UpstreamRequest): UpstreamRequest {
    const { request: edits } = this.#config.edits;
    if (edits === null) return request;
    const { trailers } = request;
    // Whoever merges trailers into the fields must find in them what was edited.
    const left = trailers === null ? null : () => withoutNames(trailers(), edits.removed);
    return { ...request, fields: editedFields(request.fields, edits), trailers: left };
  }

  edited(fields: string[]): string[] {
    const { response } = this.#config.edits;
    // What the upstream's `Connection` names is its own, not what is added here.
    return response === null ? fields : editedFields(clientFields(fields), response);
  }

  editedHandshake(fields: string[]): string[] {
    const { response } = this.#config.edits;
    return response === null ? fields : editedFields(fields, response);
  }

  editedBeside(fields: string[]): string[] {
    const { response } = this.#config.edits;
    return response === null ? fields : withoutNames(fields, response.removed);
  }

  enter(request: Waiting): 'placed' | 'waits' | 'full' {
    return this.#admission?.enter(request) ?? 'placed';
  }

  giveUp(request: Waiting): void {
    this.#admission?.giveUp(request);
  }

  leave(kind: Waiting['kind']): void {
    this.#admission?.leave(kind);
  }

  passes(): 'yes' | 'trial' | 'no' {
    return this.#breaker?.ask(performance.now()) ?? 'yes';
  }

  trialEnded(): void {
    this.#breaker?.trialEnded();
  }

  pick(tried: ReadonlySet<Address>): Address | null {
    if (this.#addresses.length === 1) {
      const only = this.#addresses[0] as Address;
      return only.standing.isDown || tried.has(only) ? null : only;
    }
    const nowMs = performance.now();
    return this.#best(tried, ({ standing }) => !standing.isEjected(nowMs)) ?? this.#best(tried, () => true);
  }

  /** In turn; of equals in what they have to do where that decides. */
  #best(tried: ReadonlySet<Address>, isWanted: (address: Address) => boolean): Address | null {
    const { length } = this.#addresses;
    let best: Address | null = null;
    let bestAt = 0;
    for (let i = 0; i < length; i++) {
      const at = (this.#next + i) % length;
      const address = this.#addresses[at] as Address;
      if (tried.has(address) || address.standing.isDown || !isWanted(address)) continue;
      if (best !== null && address.pending >= best.pending) continue;
      best = address;
      bestAt = at;
      if (this.#config.balance === 'round-robin') break;
    }
    if (best !== null) this.#next = (bestAt + 1) % length;
    return best;
  }

  retried(address: Address, cause: FailureCause): void {
    this.#onEvent({ kind: 'retried', address: address.name, cause });
  }

  judged({ name, standing }: Address, verdict: Verdict): void {
    if (verdict.kind === 'ended') return standing.ended();
    const failure = this.#failureOf(verdict);
    if (failure === null) {
      if (standing.answered()) this.#onEvent({ kind: 'restored', address: name });
      return;
    }
    const forMs = standing.failed(performance.now(), failure.how);
    if (forMs !== null) this.#onEvent({ kind: 'ejected', address: name, forMs, cause: failure.cause });
  }

  concluded(verdict: Verdict, isTrial: boolean): void {
    const breaker = this.#breaker;
    if (breaker === null) return;
    if (verdict.kind === 'ended') return breaker.ended();
    const failure = this.#failureOf(verdict);
    if (failure === null) {
      if (breaker.answered(isTrial)) this.#onEvent({ kind: 'closed' });
      return;
    }
    if (breaker.failed(performance.now(), isTrial, failure.how))
      this.#onEvent({ kind: 'opened', cause: failure.cause });
  }

  /** What counts as a failure, statuses among it where the configuration says so; null: it is none. */
  #failureOf(verdict: Exclude<Verdict, { kind: 'ended' }>): { readonly cause: string; readonly how: Failed } | null {
    if (verdict.kind === 'failed') return verdict;
    return this.#isFailure(verdict.status) ? { cause: String(verdict.status), how: 'unanswered' } : null;
  }

  #isFailure(status: number): boolean {
    return this.#config.failureStatuses.some(({ from, to }) => status >= from && status <= to);
  }
}
