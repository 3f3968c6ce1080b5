/**
 * The flights of this process, by key: whoever arrives with a key that has a flight here joins it, without a question
 * to the store; whoever finds none opens one and asks.
 *
 * Invariants: at most one flight per key is open for joining; a process asks the store once per flight and waits for a
 * foreign leader once per flight, whatever the number of requests; a follower that leaves ends only itself; a flight is
 * closed for joining before anybody, in any process, is given its response.
 */

import type { ClaimResult, Expects, FlightRef, Lease, Settlement } from '../core/claim.js';
import { type Decision, decide, endingOf, type Refusal, waitOf, waits } from '../core/policy.js';
import { Registry } from '../core/roster.js';
import { type Vary, varyMatches } from '../core/sharing.js';
import { spanOfFlight, tracedFlightId } from '../core/trace-context.js';
import { type Store, StoreUnavailable } from '../store/store.js';
import { Answering, claimPolicyOf, refuseRepeat } from './answering.js';
import type { Caller } from './caller.js';
import { Flight, type FlightListener, type FlightState } from './flight.js';
import { Following, type StreamOptions } from './following.js';
import { eachOf, inSlices } from './in-slices.js';
import { variantOf } from './judging.js';
import type { KeyHealth } from './key-health.js';
import type { Leaders } from './leaders.js';
import type { ExchangeObserver } from './observer.js';
import { refuseOverloaded } from './overload.js';
import type { Reconciler } from './reconciler.js';
import type { Recording } from './recording.js';
import { RelayingReader } from './relaying.js';
import type { RequestTrace } from './trace.js';

/** What becomes of whoever does not wait for the response of a marked key. */
const AS_EXPECTED = { kind: 'unshareable', reason: 'expected' } as const satisfies Settlement;
/** Time beyond the deadlines of a leader until its silence is taken for our own deafness. */
const SILENCE_MARGIN_MS = 3_000;
/** The same beyond the flight, for a leader that gives a sign of life every second: longer than an outage that it bears. */
const SILENCE_BEYOND_MS = 12_000;
/** Only policies with a wait follow; this stands for the interval of one that does not. */
const WITHOUT_POLL_MS = 500;

type Led = { readonly lease: Lease; readonly expects: Expects };

export type FlightsOptions = {
  readonly store: Store;
  /** The in-process store that `onStoreDown: local` falls back to. */
  readonly local: Store;
  readonly leaders: Leaders;
  readonly observer: ExchangeObserver;
  readonly reconciler: Pick<Reconciler, 'unknown'>;
  readonly health: KeyHealth;
  readonly newFlightId: () => string;
};

export class Flights {
  readonly #options: FlightsOptions;
  readonly #open = new Registry<Flight>();
  /** Flights of other processes that are followed here, by the id of their leader's flight. */
  readonly #followed = new Registry<Flight>();
  readonly #answering: Answering;
  readonly #listener: FlightListener = {
    onExpired: (caller, flight) => this.#onExpired(caller, flight),
    onEmpty: (flight) => this.#onEmpty(flight),
  };

  constructor(options: FlightsOptions) {
    this.#options = options;
    this.#answering = new Answering(options);
  }

  /** Whether somebody here has the key, or asks who has. */
  has(key: string): boolean {
    return this.#open.has(key);
  }

  /** Takes a request whose key is known: it leads, follows, is answered or refused. */
  arrive(caller: Caller, key: string, election = 0, after = ''): void {
    const there = this.#open.get(key);
    if (there !== undefined && this.#join(there, caller)) return;
    const { fingerprint, trace } = caller;
    const id = this.#options.newFlightId();
    const policy = claimPolicyOf(caller);
    const flight = new Flight(
      key,
      trace === null ? id : tracedFlightId(id, trace.context),
      caller.names,
      fingerprint,
      caller.route,
      policy,
      election,
      after,
      this.#listener,
    );
    flight.likeness = caller.likeness;
    // While another request of this key is being claimed, one that differs from it asks for itself.
    if (!this.#open.has(key)) this.#open.set(key, flight);
    flight.add(caller);
    this.#claim(flight, trace).catch((error) => {
      this.#options.observer.failed(error);
      this.#close(flight);
      for (const seeker of flight.takeAll()) seeker.refuse('internal-error');
    });
  }

  /** False when the flight cannot be joined any more. */
  #join(flight: Flight, caller: Caller): boolean {
    const { state } = flight;
    const same = flight.fingerprint === caller.fingerprint;
    // Rules of one scope, or of two generations, may differ in whether a duplicate waits.
    const mayWait = waits(claimPolicyOf(caller));
    if (state.kind === 'claiming' && (!same || mayWait !== waits(flight.policy))) return false;
    const closed =
      (state.kind === 'leading' && !state.leading.joinable) ||
      (state.kind === 'following' && state.following.isOutOfDate);
    if (closed) {
      this.#close(flight);
      return false;
    }
    this.#options.health.duplicate(caller, flight.likeness);
    if (state.kind !== 'claiming') this.#met(flight, state.kind === 'leading' ? 'here' : 'elsewhere');
    // What differs is told so before it is told that something is under way.
    if (!same) {
      caller.refuse('key-reused');
      return true;
    }
    if (mayWait && waits(flight.policy)) this.#admit(flight, caller);
    else if (state.kind === 'following') this.#answering.refuseDuplicate(caller, state.following.ref);
    else if (state.kind === 'leading') this.#answering.refuseDuplicate(caller, state.leading.ref);
    // A claim whose policy does not wait: who is alike has it answered together with it.
    else flight.add(caller);
    return true;
  }

  #met(flight: Flight, leader: 'here' | 'elsewhere'): void {
    if (flight.met === 'by-nobody') this.#options.health.flightMet(flight.route, leader);
    flight.met = 'by-duplicates';
  }

  /** Takes in who waits for the flight's end, or reads its response as it comes. */
  #admit(flight: Flight, caller: Caller): void {
    if (flight.state.kind !== 'claiming') caller.follows(flight.leaderSpan);
    if (isCrowded(flight)) caller.refuse('overloaded');
    else if (flight.recording?.isWhole) this.#read(flight, flight.recording, caller);
    else if (flight.expects === 'unshareable') this.#end(flight, caller, AS_EXPECTED);
    else flight.add(caller);
  }

  #streamLed(flight: Flight, recording: Recording, store: Store, lease: Lease): void {
    const { policy } = flight;
    if (policy.kind === 'coalesce' && policy.stream === 'to-all-processes') {
      const reader = new RelayingReader({ relay: store, lease, recording, stallMs: policy.stallMs });
      this.#options.leaders.goesOn(reader.done);
      recording.attach(reader, 'relay');
    }
    this.#stream(flight, recording);
  }

  /** Who waits here reads the response as it comes; a variant of it is another flight's. */
  #stream(flight: Flight, recording: Recording): void {
    flight.recording = recording;
    // Who has not had its turn when the flight ends, or its record is no longer whole, is told with the others.
    inSlices(
      () => (recording.isWhole ? flight.takeFirst() : null),
      (follower) => this.#read(flight, recording, follower),
    );
  }

  #read(flight: Flight, recording: Recording, caller: Caller): void {
    const { status, reason, fields, vary } = recording.head;
    if (!varyMatches(vary, caller.fields)) {
      return this.#arriveAsVariant(caller, flight.key, vary);
    }
    caller.whenLeft(() => recording.detach(caller));
    caller.begin(status, reason, fields, { kind: 'collapsed' });
    recording.attach(caller);
    if (this.#answering.isToBeVerified(caller)) flight.verified.push(caller);
  }

  /** `trace`: of whoever opened the flight. */
  async #claim(flight: Flight, trace: RequestTrace | null): Promise<void> {
    const { key, policy, election, fingerprint, names } = flight;
    const request = {
      key,
      flight: flight.id,
      fingerprint,
      material: names.material,
      others: names.others,
      route: flight.route,
      leaseMs: policy.leaseMs,
      holdMs: policy.unknownForMs,
      election,
      after: flight.after,
      join: waits(policy),
    };
    const claimedAtMs = performance.now();
    const answered = trace?.claiming();
    let { store } = this.#options;
    let claim: ClaimResult;
    try {
      claim = await store.claim(request);
      answered?.(claim.kind);
    } catch (error) {
      answered?.('unavailable');
      if (!(error instanceof StoreUnavailable)) throw error;
      if (policy.onStoreDown !== 'local') return this.#storeDown(flight);
      store = this.#options.local;
      claim = await store.claim(request);
    }
    if (claim.kind === 'stored' || claim.kind === 'unknown') flight.leaderSpan = spanOfFlight(claim.flight);
    if (claim.kind === 'unknown') this.#unknown(flight.first(), store, claim);
    this.#carryOut(flight, store, decide(policy, claim), claimedAtMs);
  }

  #carryOut(flight: Flight, store: Store, decision: Decision, claimedAtMs: number): void {
    switch (decision.kind) {
      case 'forward':
        return this.#lead(flight, store, decision, claimedAtMs);
      case 'wait':
        this.#follow(flight, store, decision.flight).catch(this.#options.observer.failed);
        return;
      case 'apart':
        flight.markFollowers();
        return this.#conclude(flight, AS_EXPECTED);
      case 'reject':
        this.#close(flight);
        for (const seeker of flight.takeAll()) this.#answering.refuseDuplicate(seeker, decision.flight);
        return;
      case 'refuse':
        this.#close(flight);
        for (const seeker of flight.takeAll()) {
          seeker.trace?.linkTo(flight.leaderSpan);
          this.#refuseRepeat(flight, seeker, decision.code);
        }
        return;
      case 'replay':
        this.#close(flight);
        for (const seeker of flight.takeAll()) this.#replay(flight, seeker, decision);
    }
  }

  #lead(flight: Flight, store: Store, { lease, expects }: Led, claimedAtMs: number): void {
    const caller = flight.takeFirst();
    if (caller === null) {
      // Everybody here left while the store was asked. Nothing was sent: the key is for those who wait elsewhere.
      this.#close(flight);
      this.#withdraw(store, lease, flight.election).catch(() => {});
      return;
    }
    const leading = this.#options.leaders.add({
      caller,
      policy: claimPolicyOf(caller),
      lease,
      claimedAtMs,
      store,
      flight: {
        isAwaited: () => flight.awaited,
        election: flight.election,
        close: () => this.#close(flight),
        conclude: (settlement) => this.#conclude(flight, settlement),
        stream: (recording) => this.#streamLed(flight, recording, store, lease),
        unknown: () => this.#unknown(caller, store, lease),
      },
    });
    if (leading === null) return this.#noCall(flight, caller, store, lease);
    flight.state = { kind: 'leading', leading };
    flight.leaderFlight = lease.flight;
    // The id tells of whoever opened the flight; that one may have left while the store was asked.
    const opener = spanOfFlight(lease.flight);
    caller.trace?.linkTo(opener);
    flight.leaderSpan = caller.trace?.context ?? opener;
    flight.expects = expects;
    flight.likeness = caller.likeness;
    this.#options.health.led(caller, claimPolicyOf(caller), flight.key);
    if (flight.awaited) this.#met(flight, 'here');
    if (waits(flight.policy)) flight.markFollowers();
    else for (const seeker of flight.takeAll()) this.#answering.refuseDuplicate(seeker, leading.ref);
    leading.start();
    if (expects === 'unshareable') this.#tell(flight, AS_EXPECTED);
  }

  /** The rule has as many upstream calls as it may: nobody here leads, and who waits elsewhere may. */
  #noCall(flight: Flight, caller: Caller, store: Store, lease: Lease): void {
    this.#close(flight);
    this.#withdraw(store, lease, flight.election).catch(() => {});
    for (const seeker of [caller, ...flight.takeAll()]) refuseOverloaded(seeker, 'route', this.#options.observer);
  }

  async #withdraw(store: Store, lease: Lease, election: number): Promise<void> {
    try {
      await store.complete(lease, { kind: 'withdrawn', election }, 0);
    } catch {
      // Whoever waits is told later and less kindly; but the key is not kept for nobody.
      await store.release(lease, { unlessAwaited: false });
    }
  }

  /** Waits, once for all followers in this process, for the end of another process's flight. */
  async #follow(flight: Flight, store: Store, ref: FlightRef): Promise<void> {
    const followed = this.#followed.get(ref.flight);
    if (followed !== undefined) return this.#followTogether(flight, followed, store, ref);
    const { policy } = flight;
    const following = new Following(ref, {
      store,
      pollMs: waitOf(policy)?.pollMs ?? WITHOUT_POLL_MS,
      stream: this.#streamOf(flight),
    });
    flight.leaderFlight = ref.flight;
    flight.leaderSpan = spanOfFlight(ref.flight);
    flight.state = { kind: 'following', following };
    flight.markFollowers();
    this.#met(flight, 'elsewhere');
    this.#followed.set(ref.flight, flight);
    // Everybody may have left while the store was asked.
    if (!flight.awaited) this.#leave(flight, following);
    const settlement = await following.settled();
    this.#forget(flight);
    this.#conclude(flight, settlement);
  }

  /** The store was asked again about a flight that is followed here: whoever asked joins those who follow it. */
  #followTogether(flight: Flight, followed: Flight, store: Store, ref: FlightRef): void {
    if (followed.state.kind === 'following') followed.state.following.isKnown(ref);
    this.#close(flight);
    if (!this.#open.has(flight.key)) this.#open.set(flight.key, followed);
    for (const seeker of flight.takeAll()) this.#admit(followed, seeker);
    // The store expects a wait of every claim that joined.
    store.settled(ref, { pollMs: WITHOUT_POLL_MS, signal: AbortSignal.abort() }).catch(() => {});
  }

  #streamOf(flight: Flight): StreamOptions | null {
    const { policy } = flight;
    const first = flight.first();
    if (policy.kind !== 'coalesce' || policy.stream !== 'to-all-processes' || first === null) return null;
    return {
      policy,
      budget: this.#options.leaders.budget,
      silenceMs: first.upstream.bodyTimeoutMs + policy.leaseMs + SILENCE_MARGIN_MS,
      silenceBeyondMs: SILENCE_BEYOND_MS,
      onRecording: (recording) => this.#stream(flight, recording),
      onReaderGone: () => this.#onEmpty(flight),
    };
  }

  /** Nobody here waits for the flight, or reads its response, any more. */
  #leave(flight: Flight, following: Following): void {
    this.#close(flight);
    this.#forget(flight);
    following.leave();
  }

  #forget(flight: Flight): void {
    if (this.#followed.get(flight.leaderFlight) === flight) this.#followed.delete(flight.leaderFlight);
  }

  /** The flight has ended: it is closed, and everybody who waits here learns how. */
  #conclude(flight: Flight, settlement: Settlement): void {
    this.#close(flight);
    for (const caller of flight.verified.splice(0)) {
      if (settlement.kind === 'response') this.#answering.verify(caller, settlement.response, 'collapsed');
    }
    this.#tell(flight, settlement);
  }

  #tell(flight: Flight, settlement: Settlement): void {
    inSlices(eachOf(flight.takeAll()), (follower) => {
      try {
        this.#end(flight, follower, settlement);
      } catch (error) {
        // Whatever is wrong with one of them, the others are told.
        this.#options.observer.failed(error);
        follower.refuse('internal-error');
      }
    });
  }

  #end(flight: Flight, caller: Caller, settlement: Settlement): void {
    const policy = claimPolicyOf(caller);
    // Nobody can wait for the flight of a policy that refuses duplicates; a kept promise is cheaper than a cast.
    if (!waits(policy)) return caller.refuse('internal-error');
    const ending = endingOf(policy, caller.method, settlement);
    switch (ending.kind) {
      case 'answer':
        if (!varyMatches(ending.response.vary, caller.fields)) {
          return this.#arriveAsVariant(caller, flight.key, ending.response.vary);
        }
        return this.#answering.giveCollapsed(caller, flight.key, ending.response);
      case 'elect':
        return this.arrive(caller, flight.key, ending.election, flight.leaderFlight);
      case 'ask-again':
        return this.arrive(caller, flight.key, ending.election);
      case 'forward':
        return this.#answering.bypass(caller, 'not-shareable');
      case 'refuse':
        return ending.code === 'outcome-unknown' ? refuseRepeat(caller, ending.code) : caller.refuse(ending.code);
    }
  }

  #refuseRepeat(flight: Flight, caller: Caller, code: Refusal): void {
    const { health } = this.#options;
    if (code === 'key-reused') health.duplicateOfKept(caller, claimPolicyOf(caller), flight.key, 'mismatch');
    else if (code === 'response-not-kept') health.duplicateOfKept(caller, claimPolicyOf(caller), flight.key, 'kept');
    refuseRepeat(caller, code);
  }

  #replay(flight: Flight, caller: Caller, decision: Decision & { kind: 'replay' }): void {
    const { vary } = decision.response;
    this.#options.health.duplicateOfKept(caller, claimPolicyOf(caller), flight.key, 'kept');
    if (varyMatches(vary, caller.fields)) {
      caller.trace?.linkTo(flight.leaderSpan);
      this.#answering.giveKept(caller, flight.key, decision);
    } else this.#arriveAsVariant(caller, flight.key, vary);
  }

  #arriveAsVariant(caller: Caller, key: string, vary: Vary): void {
    const { key: variant, ...names } = variantOf({ key, ...caller.names }, vary, caller.fields);
    caller.names = names;
    this.arrive(caller, variant);
  }

  /** The API itself may know; of a process that is gone, somebody's repeat is what brings the question up. */
  #unknown(caller: Caller | null, store: Store, unknown: Pick<Lease, 'key' | 'flight' | 'material'>): void {
    const { key, flight, material } = unknown;
    if (caller === null) return;
    this.#options.reconciler.unknown(caller, claimPolicyOf(caller), { store, key, flight, material });
  }

  #storeDown(flight: Flight): void {
    this.#close(flight);
    for (const seeker of flight.takeAll()) {
      if (flight.policy.onStoreDown === 'pass') this.#answering.bypass(seeker, 'store-unavailable');
      else seeker.refuse('store-unavailable');
    }
  }

  /** Out of patience: a repeat of a replayed request is told what it would have been told at once without a wait. */
  #onExpired(caller: Caller, { policy, state }: Flight): void {
    if (policy.kind !== 'replay' || state.kind === 'claiming') return caller.refuse('wait-timeout');
    if (state.kind === 'leading') return this.#answering.refuseDuplicate(caller, state.leading.ref);
    this.#answering.refuseDuplicate(caller, state.following.ref);
  }

  #onEmpty(flight: Flight): void {
    const { state } = flight;
    if (state.kind === 'leading') state.leading.onFollowerLeft();
    // Who reads the response as it comes waits for its end as well.
    const isEmpty = !flight.awaited && (flight.recording?.readerCount() ?? 0) === 0;
    if (state.kind === 'following' && isEmpty) this.#leave(flight, state.following);
  }

  /** Nobody joins this flight any more. */
  #close(flight: Flight): void {
    if (this.#open.get(flight.key) === flight) this.#open.delete(flight.key);
  }
}

/** Of a leader's record one reader is the leader's own client. */
function followersReading(recording: Recording | null, state: FlightState): number {
  const readers = recording?.readerCount() ?? 0;
  return state.kind === 'leading' ? Math.max(0, readers - 1) : readers;
}

/** Whether as many wait for the flight, or read its response, as its rule allows. */
function isCrowded({ policy, recording, state, waitingCount }: Flight): boolean {
  return policy.kind === 'coalesce' && waitingCount + followersReading(recording, state) >= policy.maxFollowers;
}
