/** One connection of a client that speaks HTTP/1, as the listener sees it. */

import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { Roster } from '../core/roster.js';
import type { Caller } from '../exchange/caller.js';
import { reset, tcpOf } from '../exchange/tunnel.js';
import type { Peer } from '../http/fields.js';
import { endConnection } from './farewell.js';
import type { Dealing } from './slow-clients.js';

/**
 * Requests, and bytes of them, that are read beyond those in progress and wait. It is read on, as nothing else tells of a client that
 * leaves; who sends more is left with the answers to what was taken, and has to send the rest again (RFC 9112 section 9.3.2).
 */
const MOST_WAITING = 1_000;
const MOST_WAITING_BYTES = 1_048_576;

export class Connection implements Dealing {
  /** Its requests that are not over: pipelined ones learn of its end from here (see `Caller.connectionEnded`). */
  readonly callers = new Roster<Caller>();
  /** Who is at its other end. */
  readonly peer: Peer;
  /** A refusal is its last answer: nothing that follows is read. */
  refused = false;
  /** Its requests are handled when it is their turn to be answered, not when they come. */
  inTurn = false;
  /** Requests that came beyond what may be in progress, in order. */
  readonly #waiting: (() => void)[] = [];
  /** Requests that wait for the turn of their answer. */
  #turns = 0;
  /** What the connection had brought when the first of those that wait came. */
  #waitingFromByte = 0;
  #admitting = false;
  #overrun = false;
  readonly #socket: Socket;
  readonly #tcp: Socket;
  readonly #mostInProgress: number;

  /**
   * `mostInProgress`: requests that are handled at a time. Answers leave in order, so that more of them only pile up behind
   * the first, while each has an upstream call: without a bound one connection could have all that the upstream can take.
   */
  constructor(socket: Socket, peer: Peer, mostInProgress: number) {
    this.#mostInProgress = mostInProgress;
    this.#socket = socket;
    this.#tcp = (socket instanceof TLSSocket ? tcpOf(socket) : null) ?? socket;
    this.peer = peer;
  }

  /** Handles a request now, or when it is its turn or enough of those before it are over; not at all beyond the bounds. */
  admit(res: ServerResponse, handle: () => void): void {
    if (this.#overrun) return void res.req.resume();
    const waiting = this.#waiting.length + this.#turns;
    if (waiting === 0) this.#waitingFromByte = this.#socket.bytesRead;
    else if (waiting >= MOST_WAITING || this.#socket.bytesRead - this.#waitingFromByte > MOST_WAITING_BYTES) {
      this.#overrun = true;
      return void res.req.resume();
    }
    if (this.#waiting.length > 0 || this.callers.size >= this.#mostInProgress)
      this.#waiting.push(() => this.#enter(res, handle));
    else this.#enter(res, handle);
  }

  /** A request is over: others may follow. */
  admitNext(): void {
    if (this.#admitting) return;
    this.#admitting = true;
    while (this.callers.size < this.#mostInProgress) {
      const next = this.#waiting.shift();
      if (next === undefined) break;
      next();
    }
    this.#admitting = false;
    // Whoever has more under way than is taken learns by the end of the connection which requests were not.
    if (this.#overrun && this.callers.size === 0 && this.#waiting.length + this.#turns === 0)
      endConnection(this.#socket);
  }

  /** Requests that wait are nobody's any more. */
  ended(): void {
    this.#waiting.length = 0;
  }

  #enter(res: ServerResponse, handle: () => void): void {
    if (!this.inTurn || res.socket !== null) return handle();
    this.#turns += 1;
    res.once('socket', () => {
      this.#turns -= 1;
      handle();
    });
  }

  /** In either direction: who sends an upload and reads its answer at the same time may pause the one for the other. */
  get moved(): number {
    return this.#socket.bytesRead + this.taken;
  }

  get owes(): boolean {
    return this.#uploading() !== null;
  }

  get taken(): number {
    return this.#socket.bytesWritten - this.#socket.writableLength - queuedBytes(this.#tcp);
  }

  get isAwaited(): boolean {
    // What is spoken after an upgrade has its own idea of patience.
    for (const caller of this.callers) if (caller.switched) return false;
    return this.callers.size > 0 && (this.#socket.writableLength > 0 || queuedBytes(this.#tcp) > 0);
  }

  contentLate(): void {
    const caller = this.#uploading();
    if (caller === null) return;
    this.refused = true;
    caller.contentUnreadable({ status: 408, detail: 'The content stopped coming.' });
  }

  stalled(): void {
    for (const caller of this.callers) caller.cut();
    reset(this.#socket);
  }

  /** The request whose content is being read, and has not come to its end. */
  #uploading(): Caller | null {
    for (const caller of this.callers) {
      const { req } = caller;
      // What is not read, as the upstream takes no more or nobody has asked for it yet, is not the client's to hurry with.
      if (!caller.switched && !req.complete && req.readableFlowing === true && caller.announcesContent) return caller;
    }
    return null;
  }
}

/** What the system has not taken of what was written last. Node has no public name for it. */
export function queuedBytes(tcp: Socket): number {
  const { _handle: handle } = tcp as { readonly _handle?: { readonly writeQueueSize?: number } | null };
  return handle?.writeQueueSize ?? 0;
}
