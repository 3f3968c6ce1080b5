/**
 * The parent's end of a worker's channel: asks the store what the worker asks, and gives up for it what it had when the
 * channel ends.
 *
 * Invariants: questions reach the store in the order in which they were asked; a wait or a reading ends with its answer,
 * with the worker's word, or with the channel; what the worker had said before it was gone is done first.
 */

import type { Duplex } from 'node:stream';
import type { FlightRef, Lease, Settlement } from '../core/claim.js';
import { Registry } from '../core/roster.js';
import { Channel } from './channel.js';
import { decodeSettlement, encodeSettlement } from './codec.js';
import { Holdings } from './holdings.js';
import type { LeaseHolder, Leases } from './leases.js';
import { toMachineMs } from './machine-clock.js';
import type { MemoryStore } from './memory.js';
import {
  type Asked,
  type Half,
  type PlainFlight,
  type PlainLease,
  type PlainSettleAs,
  type Question,
  type Revoked,
  type Told,
  WINDOW_BYTES,
} from './questions.js';
import type { Entered, NoTurn, Turn } from './queue.js';
import type { Piece } from './relay.js';
import type { Looked, SettleAs } from './store.js';

/** The value goes into the head; the bytes beside it. */
type Answer = { readonly value: unknown; readonly bytes?: Buffer };

/** Something that the worker may end, or of which it takes what was sent. */
type Open = { readonly end: AbortController; readonly taken: (bytes: number) => void };

/** For a store in memory, to which polls say nothing new. */
const WITHOUT_POLL_MS = 3_600_000;

export class StoreServer implements LeaseHolder {
  readonly #store: MemoryStore;
  /** What the worker is called as the leader of its flights. */
  readonly #worker: string;
  readonly #channel: Channel;
  readonly #holdings = new Holdings();
  /** Waits and readings, by the id of their question. */
  readonly #open = new Registry<Open>();
  /**
   * Resolves when the channel has ended and nothing in the store is this worker's any more, with the number of flights and
   * turns that it had not ended.
   */
  readonly closed: Promise<number>;

  constructor(store: MemoryStore, stream: Duplex, worker: string) {
    this.#store = store;
    this.#worker = worker;
    let onClosed = () => {};
    this.closed = new Promise<void>((resolve) => {
      onClosed = resolve;
    }).then(() => this.#giveUp());
    this.#channel = new Channel(stream, {
      onFrame: (head, bytes) => this.#onFrame(head as Asked, bytes),
      onClosed,
    });
  }

  /** Ends the channel: the worker has no store from then on. */
  close(): void {
    this.#channel.close();
  }

  /** One of the worker's flights or turns is over, and nothing that it holds. */
  revoked(lease: Lease): void {
    this.#holdings.ended(lease);
    // The operator's answer must not be faster: whoever has it may ask the worker again.
    this.#channel.sendNow({ kind: 'revoked', flight: lease.flight } satisfies Revoked);
  }

  #giveUp(): Promise<number> {
    for (const { end } of this.#open.values()) end.abort(new Error('the worker is gone'));
    this.#open.clear();
    return this.#holdings.giveUp(this.#store);
  }

  #onFrame(asked: Asked, bytes: Buffer): void {
    switch (asked.kind) {
      case 'read':
        this.#open.get(asked.id)?.taken(asked.bytes);
        return;
      case 'left':
        this.#open.get(asked.id)?.end.abort(new Error('nobody waits'));
        this.#open.delete(asked.id);
        return;
      case 'relayed':
        return this.#relayed(asked.id, asked.flight);
      default:
        void this.#answer(asked.id, asked, bytes);
    }
  }

  async #answer(id: string, question: Question, asked: Buffer): Promise<void> {
    try {
      const { value, bytes } = await this.#ask(id, question, asked);
      this.#tell({ id, kind: 'answer', value }, bytes);
    } catch (error) {
      this.#tell({ id, kind: 'unavailable', reason: (error as Error).message });
    } finally {
      if (isWait(question)) this.#open.delete(id);
    }
  }

  async #ask(id: string, question: Question, bytes: Buffer): Promise<Answer> {
    const store = this.#store;
    switch (question.kind) {
      case 'claim': {
        const request = { ...question.request, material: null, others: [] };
        const result = await store.claim(request, this.#worker);
        this.#holdings.claimed(request, result);
        if (result.kind === 'leader') store.watch(result.lease, this);
        return plainClaim(result);
      }
      case 'look':
        return plainClaim(await store.look({ ...question.request, material: null, others: [] }));
      case 'renew': {
        const lease = whole(question.lease);
        return { value: this.#unlessLost(question.of, lease, await this.#leases(question.of).renew(lease)) };
      }
      case 'complete': {
        const lease = whole(question.lease);
        const settlement = decodeSettlement(bytes);
        const held = await this.#leases(question.of).complete(lease, settlement, question.keepMs);
        this.#ended(question.of, lease);
        return { value: held };
      }
      case 'release': {
        const lease = whole(question.lease);
        const { unlessAwaited } = question;
        const held = await this.#leases(question.of).release(lease, { unlessAwaited });
        if (held !== 'awaited') this.#ended(question.of, lease);
        return { value: held };
      }
      case 'relay': {
        const lease = whole(question.lease);
        return { value: this.#unlessLost('claims', lease, await store.relay(lease, { index: question.index, bytes })) };
      }
      case 'relay-on': {
        const { index, dropBefore } = question;
        const piece = index === null ? null : { index, bytes };
        return { value: await store.relayOn(whole(question.lease), piece, dropBefore) };
      }
      case 'settled':
        return plainSettlement(await this.#settled(id, question.flight, question.left));
      case 'enter': {
        const result = await store.queue.enter(question.request, this.#worker);
        this.#holdings.queued(question.request, result);
        if (result.kind === 'turn') store.queue.watch(result.lease, this);
        return { value: onMachineClock(result) };
      }
      case 'turn':
        return { value: onMachineClock(await this.#turn(id, question)) };
      case 'settle':
        return { value: await store.settle(question.key, wholeAs(question.as, bytes), question.flight) };
      case 'settle-unknown': {
        const { key, flight, as } = question;
        return { value: await store.settleUnknown(key, flight, wholeAs(as, bytes)) };
      }
      case 'standing':
        return { value: await store.standing(question.key, question.flight) };
      case 'taken':
        return { value: await store.taken(question.options) };
      case 'purge':
        return { value: await store.purge(question.key) };
      case 'purge-route':
        return { value: await store.purgeRoute(question.route) };
      case 'ping':
        return { value: await store.ping() };
    }
  }

  #leases(half: Half): Leases {
    return half === 'claims' ? this.#store : this.#store.queue;
  }

  #unlessLost(half: Half, lease: Lease, held: string): string {
    if (held === 'lost') this.#ended(half, lease);
    return held;
  }

  #ended(half: Half, lease: Lease): void {
    this.#leases(half).unwatch(lease);
    this.#holdings.ended(lease);
  }

  #settled(id: string, plain: PlainFlight, left: boolean): Promise<Settlement> {
    const flight: FlightRef = { ...plain, material: null };
    this.#holdings.waits(flight);
    return this.#store.settled(flight, { pollMs: WITHOUT_POLL_MS, signal: this.#wait(id, left) });
  }

  async #turn(id: string, { request, left }: Extract<Question, { kind: 'turn' }>): Promise<Turn | NoTurn> {
    let result: Turn | NoTurn | null = null;
    try {
      result = await this.#store.queue.turn(request, { pollMs: WITHOUT_POLL_MS, signal: this.#wait(id, left) });
      return result;
    } finally {
      this.#holdings.told(request, result);
      if (result?.kind === 'turn') this.#store.queue.watch(result.lease, this);
    }
  }

  #wait(id: string, left: boolean): AbortSignal {
    const end = new AbortController();
    if (left) end.abort(new Error('nobody waits'));
    else this.#open.set(id, { end, taken: () => {} });
    return end.signal;
  }

  /** Sends pieces as far ahead as the window allows. */
  #relayed(id: string, plain: PlainFlight): void {
    const end = new AbortController();
    let underWayBytes = 0;
    const reading = this.#store.relayed(
      { ...plain, material: null },
      {
        onPiece: ({ index, bytes }: Piece) => {
          underWayBytes += bytes.length;
          this.#tell({ id, kind: 'piece', index }, bytes);
          return underWayBytes < WINDOW_BYTES;
        },
        onAlive: () => this.#tell({ id, kind: 'alive' }),
        onLost: () => {
          this.#open.delete(id);
          this.#tell({ id, kind: 'lost' });
        },
      },
      { pollMs: WITHOUT_POLL_MS, signal: end.signal },
    );
    const taken = (bytes: number): void => {
      underWayBytes -= bytes;
      if (underWayBytes < WINDOW_BYTES) reading.resume();
    };
    this.#open.set(id, { end, taken });
  }

  #tell(told: Told, bytes?: Buffer): void {
    this.#channel.send(told, bytes);
  }
}

function isWait({ kind }: Question): boolean {
  return kind === 'settled' || kind === 'turn';
}

function whole(lease: PlainLease): Lease {
  return { ...lease, material: null };
}

function wholeAs(as: PlainSettleAs, bytes: Buffer): SettleAs {
  if (as.kind !== 'response') return as;
  const settlement = decodeSettlement(bytes);
  if (settlement.kind !== 'response') throw new Error('the bytes are not a response');
  return { kind: 'response', response: settlement.response, keepMs: as.keepMs };
}

function plainClaim(result: Looked): Answer {
  if (result.kind !== 'stored') return { value: result };
  return { value: { ...result, ended: null }, bytes: encodeSettlement(result.ended) };
}

function plainSettlement(settlement: Settlement): Answer {
  return { value: null, bytes: encodeSettlement(settlement) };
}

function onMachineClock<T extends Entered>(result: T): T {
  return result.kind === 'turn' ? { ...result, claimedAtMs: toMachineMs(result.claimedAtMs) } : result;
}
