/**
 * The end of a connection on which nothing more is read as a request.
 *
 * Invariant: whatever its client does, sends on and on or nothing at all, the connection is closed soon.
 */

import type { Duplex } from 'node:stream';

/** Time for a client that was answered to take the answer and leave. */
const FAREWELL_MS = 5_000;

/**
 * Ends a connection behind its last bytes. What still comes is dropped: closing with something unread would reset the
 * connection, and the answer with it; and of a connection that is not read nobody learns that its client has gone.
 */
export function endConnection(socket: Duplex, lastBytes: Buffer | null = null): void {
  if (lastBytes === null) socket.end();
  else socket.end(lastBytes);
  socket.removeAllListeners('readable');
  socket.resume();
  const timer = setTimeout(() => socket.destroy(), FAREWELL_MS);
  socket.once('close', () => clearTimeout(timer));
}
