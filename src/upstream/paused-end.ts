/**
 * The end of a connection whose reader has paused. undici's parser asserts that there is none, and outside of any request:
 * an upstream that closes its connection behind a response for a slow client would end the process.
 *
 * Invariants: that a connection has ended is told only to who has read everything and reads on; nothing reads on while its
 * reader has paused; a reset, of which undici may make such an end too, is an error and nothing else.
 */

import type { Socket } from 'node:net';

const paused = new WeakSet<Socket>();

/** To be called before anybody reads. */
export function endWhenRead(socket: Socket): void {
  const read = socket.read.bind(socket);
  const destroy = socket.destroy.bind(socket);
  socket.read = (size?: number) => {
    // Node reads nothing, but on, when the end has come.
    if (size === 0 && paused.has(socket)) return null;
    // To read all that there is, without saying how much that is, is to read on.
    const length = Math.min(socket.readableLength, socket.readableHighWaterMark);
    return read(size ?? (length > 0 ? length : undefined));
  };
  socket.destroy = (error?: Error) => {
    const isReset = (error as { readonly code?: unknown } | undefined)?.code === 'ECONNRESET';
    return destroy(isReset ? new Error('reset by the upstream', { cause: error }) : error);
  };
}

/** Who reads the connection takes no more for the time being. */
export function readingPaused(socket: Socket): void {
  paused.add(socket);
}

/** To be called before it reads on. */
export function readingResumed(socket: Socket): void {
  paused.delete(socket);
}
