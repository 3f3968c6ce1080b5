/**
 * The store as a worker sees it: in the memory of its parent, asked over the worker's channel.
 *
 * Invariants: what a wait or a reading is told comes by a push, so that nothing is polled; a wait that is left ends here at
 * once, and the parent is told; a channel that is gone does not come back, every question is `StoreUnavailable` then, and
 * whoever waits is told so.
 */

import { performance } from 'node:perf_hooks';
import type { Duplex } from 'node:stream';
import type { ClaimResult, FlightRef, Held, Lease, Purged, Settlement, TakenKey } from '../core/claim.js';
import { Registry } from '../core/roster.js';
import { Channel } from './channel.js';
import { decodeSettlement, encodeSettlement } from './codec.js';
import type { LeaseHolder, Leases, WaitOptions } from './leases.js';
import { fromMachineMs } from './machine-clock.js';
import { ParentReading } from './parent-reading.js';
import type { Half, Note, PlainFlight, PlainLease, PlainSettleAs, Question, Revoked, Told } from './questions.js';
import type { Entered, NoTurn, PlaceRequest, Queue, Turn } from './queue.js';
import type { Piece, PieceReader, Reading, StillRead } from './relay.js';
import { Revocations } from './revocations.js';
import {
  type ClaimRequest,
  type FlightStanding,
  type Looked,
  type SettleAs,
  type Store,
  StoreUnavailable,
  type TakenOptions,
} from './store.js';

type Answer = { readonly value: unknown; readonly bytes: Buffer };

/** Somebody to whom something of a question is told. */
type Listening = {
  readonly onTold: (told: Told, bytes: Buffer) => void;
  readonly onGone: (reason: StoreUnavailable) => void;
};

const NOTHING = Buffer.alloc(0);

export class ParentStore implements Store {
  readonly queue: Queue;
  readonly #channel: Channel;
  readonly #listening = new Registry<Listening>();
  readonly #revocations = new Revocations();
  #lastId = 0;
  #gone: StoreUnavailable | null = null;
  #closing = false;

  /** `onGone`: the parent has ended the channel, and nothing can be asked any more. */
  constructor(stream: Duplex, onGone: () => void = () => {}) {
    this.#channel = new Channel(stream, {
      onFrame: (head, bytes) => this.#onFrame(head as Told | Revoked, bytes),
      onClosed: () => {
        this.#leave(new StoreUnavailable(this.#closing ? 'the store is closed' : 'the parent process is gone'));
        if (!this.#closing) onGone();
      },
    });
    this.queue = {
      ...this.#leases('queue'),
      enter: (request) => this.#enter(request),
      turn: (place, options) => this.#turn(place, options),
    };
  }

  claim(request: ClaimRequest): Promise<ClaimResult> {
    return this.#askWho('claim', request) as Promise<ClaimResult>;
  }

  look(request: ClaimRequest): Promise<Looked> {
    return this.#askWho('look', request);
  }

  async #askWho(kind: 'claim' | 'look', { material, others: _, ...request }: ClaimRequest): Promise<Looked> {
    const { value, bytes } = await this.#ask({ kind, request });
    const result = value as Looked;
    switch (result.kind) {
      case 'leader':
        return { ...result, lease: { ...result.lease, material } };
      case 'follower':
        return { ...result, flight: { ...result.flight, material } };
      case 'unknown':
        return { ...result, material };
      case 'stored':
        return { ...result, ended: decodeSettlement(bytes) as (ClaimResult & { kind: 'stored' })['ended'] };
      default:
        return result;
    }
  }

  readonly renew = this.#leases('claims').renew;
  readonly complete = this.#leases('claims').complete;
  readonly release = this.#leases('claims').release;

  watch(lease: Lease, holder: LeaseHolder): void {
    this.#revocations.watch(lease, holder);
  }

  unwatch(lease: Lease): void {
    this.#revocations.unwatch(lease);
  }

  async settled(flight: FlightRef, { signal }: WaitOptions): Promise<Settlement> {
    const left = signal.aborted;
    const { bytes } = await this.#wait({ kind: 'settled', flight: plainFlight(flight), left }, signal);
    return decodeSettlement(bytes);
  }

  async relay(lease: Lease, { index, bytes }: Piece): Promise<Held> {
    return (await this.#ask({ kind: 'relay', lease: plain(lease), index }, bytes)).value as Held;
  }

  async relayOn(lease: Lease, piece: Piece | null, dropBefore: number): Promise<StillRead | null> {
    const index = piece?.index ?? null;
    const question = { kind: 'relay-on', lease: plain(lease), index, dropBefore } as const;
    return (await this.#ask(question, piece?.bytes)).value as StillRead | null;
  }

  relayed(flight: FlightRef, reader: PieceReader, { signal }: WaitOptions): Reading {
    if (signal.aborted || this.#gone !== null) return { resume: () => {} };
    const id = this.#newId();
    const reading = new ParentReading(reader, (bytes) => this.#note(id, { kind: 'read', bytes }));
    this.#listening.set(id, reading);
    signal.addEventListener(
      'abort',
      () => {
        reading.end();
        if (this.#listening.delete(id)) this.#note(id, { kind: 'left' });
      },
      { once: true },
    );
    this.#note(id, { kind: 'relayed', flight: plainFlight(flight) });
    return reading;
  }

  async settle(key: string, as: SettleAs, flight: string | null): Promise<'settled' | 'absent' | 'other'> {
    const answer = await this.#ask({ kind: 'settle', key, as: plainAs(as), flight }, bytesOf(as));
    return answer.value as 'settled' | 'absent' | 'other';
  }

  async settleUnknown(key: string, flight: string, as: SettleAs): Promise<'settled' | 'absent'> {
    const answer = await this.#ask({ kind: 'settle-unknown', key, flight, as: plainAs(as) }, bytesOf(as));
    return answer.value as 'settled' | 'absent';
  }

  async standing(key: string, flight: string): Promise<FlightStanding> {
    return (await this.#ask({ kind: 'standing', key, flight })).value as FlightStanding;
  }

  async taken(options: TakenOptions): Promise<TakenKey[]> {
    return (await this.#ask({ kind: 'taken', options })).value as TakenKey[];
  }

  async purge(key: string): Promise<Purged> {
    return (await this.#ask({ kind: 'purge', key })).value as Purged;
  }

  async purgeRoute(route: string): Promise<number> {
    return (await this.#ask({ kind: 'purge-route', route })).value as number;
  }

  async ping(): Promise<void> {
    await this.#ask({ kind: 'ping' });
  }

  /** The channel is there from the start of the process. */
  async open(): Promise<void> {}

  async close(): Promise<void> {
    this.#closing = true;
    this.#channel.close();
  }

  #leases(of: Half): Leases {
    return {
      renew: async (lease) => (await this.#ask({ kind: 'renew', of, lease: plain(lease) })).value as Held,
      complete: async (lease, settlement, keepMs) => {
        const question = { kind: 'complete', of, lease: plain(lease), keepMs } as const;
        return (await this.#ask(question, encodeSettlement(settlement))).value as Held;
      },
      release: async (lease, { unlessAwaited }) => {
        const question = { kind: 'release', of, lease: plain(lease), unlessAwaited } as const;
        return (await this.#ask(question)).value as Held | 'awaited';
      },
      watch: (lease, holder) => this.watch(lease, holder),
      unwatch: (lease) => this.unwatch(lease),
    };
  }

  async #enter(request: PlaceRequest): Promise<Entered> {
    const askedAtMs = performance.now();
    const result = (await this.#ask({ kind: 'enter', request })).value as Entered;
    return result.kind === 'turn' ? { ...result, claimedAtMs: askedAtMs } : result;
  }

  async #turn(request: PlaceRequest, { signal }: WaitOptions): Promise<Turn | NoTurn> {
    const left = signal.aborted;
    const result = (await this.#wait({ kind: 'turn', request, left }, signal)).value as Turn | NoTurn;
    return result.kind === 'turn' ? { ...result, claimedAtMs: fromMachineMs(result.claimedAtMs) } : result;
  }

  #ask(question: Question, bytes: Buffer = NOTHING): Promise<Answer> {
    return this.#send(this.#newId(), question, bytes);
  }

  /** Asks what the signal ends. The parent hears of it even when it was over before it began, and answers all the same. */
  #wait(question: Question, signal: AbortSignal): Promise<Answer> {
    const id = this.#newId();
    const answer = this.#send(id, question, NOTHING);
    return new Promise((resolve, reject) => {
      const onAbort = (): void => {
        this.#note(id, { kind: 'left' });
        answer.then(({ value }) => this.#passOn(value as Turn | NoTurn | null)).catch(() => {});
        reject(signal.reason);
      };
      answer.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort));
      if (signal.aborted) onAbort();
      else signal.addEventListener('abort', onAbort, { once: true });
    });
  }

  /** A turn that was on its way when whoever waited for it left is the next one's. */
  async #passOn(result: Turn | NoTurn | null): Promise<void> {
    if (result?.kind === 'turn') await this.queue.release(result.lease, { unlessAwaited: false });
  }

  #send(id: string, question: Question, bytes: Buffer): Promise<Answer> {
    return new Promise((resolve, reject) => {
      if (this.#gone !== null) return reject(this.#gone);
      const onTold = (told: Told, bytes: Buffer): void => {
        this.#listening.delete(id);
        if (told.kind === 'answer') resolve({ value: told.value, bytes });
        else reject(new StoreUnavailable(told.kind === 'unavailable' ? told.reason : told.kind));
      };
      this.#listening.set(id, { onTold, onGone: reject });
      this.#channel.send({ id, ...question }, bytes);
    });
  }

  #note(id: string, note: Note): void {
    this.#channel.send({ id, ...note });
  }

  #newId(): string {
    this.#lastId += 1;
    return String(this.#lastId);
  }

  #onFrame(told: Told | Revoked, bytes: Buffer): void {
    if (told.kind === 'revoked') this.#revocations.tell(told.flight);
    else this.#listening.get(told.id)?.onTold(told, bytes);
  }

  #leave(reason: StoreUnavailable): void {
    this.#gone = reason;
    const all = [...this.#listening.values()];
    this.#listening.clear();
    for (const { onGone } of all) onGone(reason);
  }
}

function plain({ key, flight, fence, leaseMs }: Lease): PlainLease {
  return { key, flight, fence, leaseMs };
}

function plainFlight({ key, flight, leaseLeftMs, ageMs, election }: FlightRef): PlainFlight {
  return { key, flight, leaseLeftMs, ageMs, election };
}

function plainAs(as: SettleAs): PlainSettleAs {
  return as.kind === 'response' ? { kind: 'response', keepMs: as.keepMs } : as;
}

function bytesOf(as: SettleAs): Buffer {
  return as.kind === 'response' ? encodeSettlement({ kind: 'response', response: as.response }) : NOTHING;
}
