/**
 * Two connections joined into one, once both sides have switched protocols: the gateway reads nothing of it.
 *
 * Invariants: what comes on one goes out on the other, byte for byte and no faster than it is taken; the end of one
 * direction ends that direction alone; a connection that ends in any other way takes the other with it, by a reset, so
 * that nobody takes a cut for an end. There is no deadline: what silence means is the new protocol's own business.
 */

import { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';

/** After this much silence the system asks whether the other side is still there at all. */
const ALIVE_PROBE_MS = 60_000;

export function joinConnections(one: Socket, other: Socket): void {
  for (const socket of [one, other]) {
    socket.setTimeout(0);
    socket.setKeepAlive(true, ALIVE_PROBE_MS);
    socket.on('error', () => {});
  }
  carry(one, other);
  carry(other, one);
}

function carry(from: Socket, to: Socket): void {
  from.once('close', (hadError) => {
    if (hadError || !from.readableEnded || !from.writableFinished) reset(to);
  });
  // It may have closed before this.
  if (from.destroyed) reset(to);
  else from.pipe(to);
}

/** Ends a connection so that its other side cannot take it for an end in order. */
export function reset(socket: Socket): void {
  const tcp = socket instanceof TLSSocket ? tcpOf(socket) : socket;
  if (tcp !== null && !tcp.destroyed) tcp.resetAndDestroy();
  socket.destroy();
}

/** The connection under a TLS socket that was made on one; null for one that made its own. Node has no public name for it. */
export function tcpOf(socket: TLSSocket): Socket | null {
  const { _parent: parent } = socket as { readonly _parent?: unknown };
  return parent instanceof Socket ? parent : null;
}
