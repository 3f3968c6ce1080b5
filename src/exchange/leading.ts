/**
 * The leader's exchange: one upstream call, its record, its lease, and the settlement that ends the flight.
 *
 * Invariants:
 * - nothing is sent unless the lease is held at that moment, by this process's monotonic clock, and an upload ends when
 *   the lease is known to be lost;
 * - the flight is settled exactly once, and nobody can join it any more when the first client, in any process, sees the
 *   end of an answer: whoever repeats after its answer meets neither its own claim nor an old response;
 * - the leader's client leaving does not end the call, unless the method is safe and nobody waits for it in any process;
 * - an exchange that gives no sign of life for longer than the upstream's own deadlines is ended, whoever holds it up: a
 *   key is not kept by a stalled upload or by a client that does not read;
 * - a lease that was lost is not settled: what it protected belongs to somebody else now.
 */

import { derivedKey, type FlightRef, type Held, type Lease, type Settlement } from '../core/claim.js';
import type { MemoryBudget } from '../core/memory-budget.js';
import { isSafe, type KeyedPolicy } from '../core/rule.js';
import type { UnshareableReason } from '../core/sharing.js';
import { clientFields, contentLengthOf, hasNoContent } from '../http/fields.js';
import type { Leases } from '../store/leases.js';
import type { UpstreamFailure } from '../upstream/failure.js';
import type { Exchange, ForwardSink, Upstream } from '../upstream/upstream.js';
import type { Caller } from './caller.js';
import { LeaseKeeper } from './lease-keeper.js';
import type { ExchangeObserver } from './observer.js';
import { upstreamRequest } from './passing.js';
import { Recorder } from './recorder.js';
import type { Recording } from './recording.js';
import { Settler } from './settler.js';
import { forward } from './traced-call.js';
import { upstreamProblem } from './upstream-problem.js';

/** Time beyond the upstream's own deadlines, which its client looks after first, until a silent exchange is ended. */
const OVERDUE_MARGIN_MS = 2_000;
/** The end of the turns in which a flight that has its response can still be joined: one for all whose response came in this turn. */
let lastCallOfTurn: Promise<void> | null = null;

/** The flight, as its leader's exchange needs it. */
export interface LedFlight {
  /** Whether anybody in this process waits for the settlement. */
  isAwaited(): boolean;
  readonly election: number;
  /** Nobody joins any more: the lease is lost or given up. */
  close(): void;
  /** The settlement, for the followers in this process. */
  conclude(settlement: Settlement): void;
  /** The response will take a while: who waits in this process may read it as it comes. */
  stream(recording: Recording): void;
  /** The flight has ended, and nobody knows how. */
  unknown(): void;
}

export type LeadingOptions = {
  readonly caller: Caller;
  readonly policy: KeyedPolicy;
  readonly lease: Lease;
  readonly store: Leases;
  readonly upstream: Upstream;
  readonly flight: LedFlight;
  readonly observer: ExchangeObserver;
  readonly budget: MemoryBudget;
  /** Monotonic time (ms) from before the claim was asked for. */
  readonly claimedAtMs: number;
  /** The exchange is over. `latencyMs`: time for the whole answer, null when there was none. */
  readonly onEnded: (latencyMs: number | null) => void;
};

export class Leading implements ForwardSink {
  readonly #options: LeadingOptions;
  readonly #keeper: LeaseKeeper;
  readonly #settler: Settler;
  readonly #startedAtMs = performance.now();
  #exchange: Exchange | null = null;
  readonly #recorder: Recorder;
  /** Announced length of the content; null: the end of the message tells. */
  #expectedBytes: number | null = null;
  #receivedBytes = 0;
  /** Without a record: the piece that completes the content, kept back until the flight is settled. */
  #lastChunk: Buffer | null = null;
  #progressAtMs = performance.now();
  /** Monotonic time (ms) of the last attempt. */
  #sentAtMs = 0;
  #stage: 'asking' | 'answering' | 'paused' = 'asking';
  /** The client's content is on its way, and not all of it has been sent. */
  #uploading = false;
  /** The head of an answer that goes out whole, when it is settled. */
  #head: { readonly status: number; readonly reason: string; readonly fields: string[] } | null = null;
  /** The key was given up while the response goes on. */
  #released = false;
  #settling: Promise<void> | null = null;
  #abandoning: Promise<void> | null = null;
  /** The exchange is over: whatever its upstream still says comes too late. */
  #over = false;

  constructor(options: LeadingOptions) {
    this.#options = options;
    const { caller, policy, lease, store, observer, budget } = options;
    this.#settler = new Settler({ policy, lease, store, route: caller.route, observer });
    this.#recorder = new Recorder({
      caller,
      policy,
      budget,
      onRoom: () => this.#resume(),
      onReaderGone: () => this.#abandonIfAlone(),
    });
    this.#keeper = new LeaseKeeper(lease, store, {
      claimedAtMs: options.claimedAtMs,
      until: () => this.#deadlineMs(),
      inOutage: policy.onStoreDown === 'local' ? 'unconfirmed' : 'lost',
      onRenewed: () => this.#abandonIfAlone(),
      onUnsure: () => this.#settler.tellLoss(),
      onLost: () => this.#onLost(),
      onOverdue: () => this.#onOverdue(),
    });
  }

  /** Whether a duplicate in this process may join. */
  get joinable(): boolean {
    return this.#keeper.joinable;
  }

  /** This flight as its duplicates see it. */
  get ref(): FlightRef {
    const { lease, flight } = this.#options;
    const nowMs = performance.now();
    return {
      key: lease.key,
      flight: lease.flight,
      leaseLeftMs: Math.max(0, this.#keeper.heldUntilMs - nowMs),
      ageMs: nowMs - this.#startedAtMs,
      election: flight.election,
      material: lease.material,
    };
  }

  start(): void {
    const { caller, upstream, observer } = this.#options;
    observer.flights(caller.route, 1);
    caller.role = 'leader';
    caller.whenLeft(() => this.#onCallerLeft());
    // An upload that moves is progress; the upstream's deadline for its answer begins with the upload's end.
    this.#uploading = caller.content === null && caller.announcesContent;
    const uploading = { onPiece: () => this.#progress(), onDone: () => this.#uploaded() };
    const request = upstreamRequest(caller, upstream, uploading, this.#added());
    this.#exchange = forward(caller, upstream, request, this, 'keyed');
  }

  /** What the rule tells the upstream about the flight. */
  #added(): readonly string[] {
    const { policy, lease } = this.#options;
    const { fence, idempotencyKey } = policy.forward;
    const added: string[] = [];
    if (fence !== null) added.push(fence, String(lease.fence));
    if (idempotencyKey !== null) added.push(idempotencyKey, derivedKey(lease.key));
    return added;
  }

  #uploaded(): void {
    this.#uploading = false;
  }

  /** Somebody else may have the key now: nothing more is sent of a request that the upstream does not have whole. */
  #onLost(): void {
    this.#options.flight.close();
    if (!this.#uploading || this.#over) return;
    const sent = this.#exchange?.sent ?? false;
    this.#exchange?.abort();
    this.onFailure({ kind: sent ? 'unanswered' : 'not-sent', cause: sent ? 'reset' : 'given-up' });
  }

  /** To be called when a follower left: if that was the last one, a safe call may be worth ending. */
  onFollowerLeft(): void {
    this.#abandonIfAlone();
  }

  /** Ends the flight now, because the process stops: what was never sent is free, what was sent is unknown. */
  async stop(): Promise<void> {
    if (this.#over) return;
    const sent = this.#exchange?.sent ?? false;
    this.#exchange?.abort();
    await this.#fail({ kind: sent ? 'unanswered' : 'not-sent', cause: sent ? 'reset' : 'given-up' });
  }

  onSend(): boolean {
    if (!this.#keeper.held) return false;
    this.#progress();
    this.#sentAtMs = this.#progressAtMs;
    this.#options.observer.sent(this.#options.caller.route, 'client');
    return true;
  }

  onInterim(status: number, fields: string[]): void {
    this.#progress();
    this.#options.caller.interim(status, clientFields(fields));
  }

  onFields(status: number, reason: string, fields: string[]): void {
    const { caller, policy, observer } = this.#options;
    this.#stage = 'answering';
    this.#progress();
    observer.answered(caller.route, this.#progressAtMs - this.#sentAtMs, caller.trace);
    const passed = clientFields(fields);
    this.#expectedBytes = hasNoContent(caller.method, status) ? 0 : contentLengthOf(passed);
    const unshareable = this.#recorder.begin(status, reason, passed, this.#expectedBytes);
    if (unshareable !== null) this.#giveUpKey(unshareable);
    const { recording } = this.#recorder;
    if (this.#recorder.holdsBack) {
      this.#head = { status, reason, fields: passed };
      return;
    }
    // Without the lease it will be given to those who wait here, and stored for nobody.
    const stored = recording !== null && this.#keeper.held ? 'yes' : 'no';
    caller.begin(status, reason, passed, caller.led(stored));
    if (this.#expectedBytes === 0) caller.hold();
    recording?.attach(caller);
    // What is here in the same turn goes to everybody in one piece, when it is settled.
    if (policy.kind === 'coalesce') setImmediate(() => this.#offerStream());
  }

  onContent(chunk: Buffer): boolean {
    const { caller } = this.#options;
    const { recording } = this.#recorder;
    this.#progress();
    this.#receivedBytes += chunk.length;
    const completes = this.#expectedBytes !== null && this.#receivedBytes >= this.#expectedBytes;
    if (recording !== null) return this.#recordContent(recording, chunk, completes);
    if (completes) {
      this.#lastChunk = chunk;
      caller.hold();
      return true;
    }
    if (caller.write(chunk) || caller.gone) return true;
    this.#stage = 'paused';
    caller.whenDrained(() => this.#resume());
    return false;
  }

  #recordContent(recording: Recording, chunk: Buffer, completes: boolean): boolean {
    if (recording.add(chunk, completes) === 'outgrown') this.#onOutgrown(recording);
    if (!recording.full) return true;
    this.#stage = 'paused';
    return false;
  }

  /** From here on the response is for those who read it already. */
  #onOutgrown(recording: Recording): void {
    const { caller } = this.#options;
    const unshareable = this.#recorder.outgrown();
    if (unshareable !== null) this.#giveUpKey(unshareable);
    if (this.#head === null) return;
    const { status, reason, fields } = this.#head;
    this.#head = null;
    caller.begin(status, reason, fields, caller.led('no'));
    recording.attach(caller);
  }

  #offerStream(): void {
    const { recording } = this.#recorder;
    if (!this.#over && this.#settling === null && recording?.isWhole) this.#options.flight.stream(recording);
  }

  onEnd(trailers: string[]): void {
    void this.#finish(trailers).catch(this.#options.observer.failed);
  }

  onFailure(failure: UpstreamFailure): void {
    void this.#fail(failure).catch(this.#options.observer.failed);
  }

  /** Nobody else gets this response: the key is free from now on, and what follows is for the leader's client alone. */
  #giveUpKey(reason: UnshareableReason): void {
    this.#released = true;
    const { observer, caller, policy } = this.#options;
    observer.unshareable(caller.route, reason);
    // That there was no room just now says nothing about the next response.
    const markMs = policy.kind === 'coalesce' && reason !== 'memory-short' ? policy.unshareableForMs : 0;
    this.#settle({ kind: 'unshareable', reason }, markMs)
      .then(() => this.#abandonIfAlone())
      .catch(observer.failed);
  }

  async #finish(trailers: string[]): Promise<void> {
    const { caller, flight } = this.#options;
    const { recording } = this.#recorder;
    // An abandonment that the store has already been asked for comes first: after it there is nothing to settle.
    await this.#abandoning;
    if (this.#over) return;
    const latencyMs = performance.now() - this.#startedAtMs;
    const forOthers = this.#recorder.trailersForOthers(trailers);
    const recorded = recording?.response(forOthers) ?? null;
    const settlement = this.#recorder.settlement(recorded, flight.election);
    await this.#settle(settlement, this.#recorder.keepMs);
    if (settlement.kind === 'unknown') flight.unknown();
    if (this.#head !== null && recorded !== null) {
      const { status, reason, fields } = this.#head;
      caller.begin(status, reason, fields, caller.led(this.#settler.told ? 'yes' : 'failed'));
      caller.hold();
      recording?.attach(caller);
    }
    if (recording === null) caller.end(this.#lastChunk, trailers);
    else recording.conclude(forOthers, caller, trailers);
    this.#end(latencyMs);
  }

  async #fail(failure: UpstreamFailure): Promise<void> {
    const { caller, flight, policy } = this.#options;
    if (caller.begun) caller.cut();
    this.#recorder.fail();
    await this.#abandoning;
    if (this.#over) return;
    const kind = failure.kind === 'not-sent' ? 'failed' : 'unknown';
    await this.#settle({ kind, election: flight.election }, kind === 'unknown' ? policy.unknownForMs : 0);
    if (kind === 'unknown') flight.unknown();
    const { code, proxyError } = upstreamProblem(failure, true);
    caller.refuse(code, { proxyError });
    this.#end(null);
  }

  /** Ends the flight, once: the store first, then the followers in this process. */
  #settle(settlement: Settlement, keepMs: number): Promise<void> {
    this.#settling ??= this.#settleOnce(settlement, keepMs);
    return this.#settling;
  }

  async #settleOnce(settlement: Settlement, keepMs: number): Promise<void> {
    const { flight } = this.#options;
    await this.#abandoning;
    if (this.#over) return;
    const heldUntilMs = this.#keeper.heldUntilMs;
    this.#keeper.stop();
    // What was sent before the first answer goes out and is still to be read belongs to this flight (a burst is accepted
    // over several turns); what comes after belongs to the next one. Followers elsewhere have their answer before this
    // process hears that it was published, so it is now that nobody may join any more.
    if (settlement.kind === 'response') await lastCall();
    flight.close();
    if (!this.#keeper.lost) await this.#settler.settle(settlement, keepMs, heldUntilMs);
    flight.conclude(settlement);
  }

  #onCallerLeft(): void {
    const { recording } = this.#recorder;
    if (recording === null) this.#resume();
    else recording.detach(this.#options.caller);
    this.#abandonIfAlone();
  }

  /** Whether anybody in this process still gets, or waits for, the response. */
  #isAwaited(): boolean {
    return this.#options.flight.isAwaited() || (this.#recorder.recording?.readerCount() ?? 0) > 0;
  }

  /** A safe call ends when nobody waits for it in any process. Any other goes on: it may matter that it was made. */
  #abandonIfAlone(): void {
    const { caller, flight } = this.#options;
    if (this.#over || this.#abandoning !== null) return;
    if (this.#settling !== null) return this.#leaveReleased();
    if (!isSafe(caller.method) || !caller.gone || this.#isAwaited()) return;
    // Nobody joins while the store is asked: whoever comes now asks it as well, and is heard of there.
    flight.close();
    this.#abandoning = this.#abandon();
  }

  /** The key was given up; what goes on is for those who read already, and they have left. */
  #leaveReleased(): void {
    const { caller } = this.#options;
    const { recording } = this.#recorder;
    if (!this.#released || !caller.gone || !isSafe(caller.method) || this.#isAwaited() || recording?.isRead) return;
    this.#exchange?.abort();
    this.#recorder.fail();
    this.#end(null);
  }

  async #abandon(): Promise<void> {
    const { store, lease } = this.#options;
    let answer: Held | 'awaited' = 'lost';
    try {
      if (!this.#keeper.lost) answer = await store.release(lease, { unlessAwaited: true });
      if (answer === 'lost') this.#settler.tellLoss();
    } catch {
      // The store is away: the lease will end by itself, a third of it after the last renewal at the latest.
    }
    // Somebody elsewhere waits, or has asked the store meanwhile: the call goes on, and is looked at again later.
    if (answer === 'awaited') {
      this.#abandoning = null;
      return;
    }
    this.#keeper.stop();
    this.#exchange?.abort();
    this.#recorder.fail();
    this.#end(null);
  }

  #end(latencyMs: number | null): void {
    if (this.#over) return;
    this.#over = true;
    this.#options.observer.flights(this.#options.caller.route, -1);
    this.#options.onEnded(latencyMs);
  }

  #resume(): void {
    if (this.#stage !== 'paused') return;
    this.#stage = 'answering';
    this.#progress();
    this.#exchange?.resume();
  }

  #progress(): void {
    this.#progressAtMs = performance.now();
  }

  /** The deadline for the next sign of life: of the upstream, or of the client that it is kept waiting for. */
  #deadlineMs(): number {
    const { upstream } = this.#options;
    const allowedMs = this.#stage === 'asking' ? upstream.answerDeadlineMs : upstream.bodyTimeoutMs;
    return this.#progressAtMs + allowedMs + OVERDUE_MARGIN_MS;
  }

  #onOverdue(): void {
    const sent = this.#exchange?.sent ?? false;
    this.#exchange?.abort();
    if (this.#stage !== 'asking') this.onFailure({ kind: 'cut', cause: 'body-timeout' });
    else
      this.onFailure({ kind: sent ? 'unanswered' : 'not-sent', cause: sent ? 'headers-timeout' : 'connect-timeout' });
  }
}

/** Resolves after two more turns of the event loop. */
function lastCall(): Promise<void> {
  lastCallOfTurn ??= new Promise((resolve) => {
    setImmediate(() => {
      lastCallOfTurn = null;
      setImmediate(resolve);
    });
  });
  return lastCallOfTurn;
}
