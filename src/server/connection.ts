/** One connection of a client that speaks HTTP/1, as the listener sees it. */

import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { Caller } from '../exchange/caller.js';
import { reset, tcpOf } from '../exchange/tunnel.js';
import type { Peer } from '../http/fields.js';
import type { Dealing } from './slow-clients.js';

export class Connection implements Dealing {
  /** Its requests that are not over: pipelined ones learn of its end from here (see `Caller.connectionEnded`). */
  readonly callers = new Set<Caller>();
  /** Who is at its other end. */
  readonly peer: Peer;
  /** A refusal is its last answer: nothing that follows is read. */
  refused = false;
  /** Its requests are handled when it is their turn to be answered, not when they come. */
  inTurn = false;
  readonly #socket: Socket;
  readonly #tcp: Socket;

  constructor(socket: Socket, peer: Peer) {
    this.#socket = socket;
    this.#tcp = (socket instanceof TLSSocket ? tcpOf(socket) : null) ?? socket;
    this.peer = peer;
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
