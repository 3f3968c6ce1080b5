/**
 * Takes the header of the PROXY protocol off a connection, before anything else is read of it.
 *
 * Invariant: what comes behind the header is left in the connection, untouched; a connection without a sound header in
 * time is closed, and nothing of it goes any further.
 */

import type { Socket } from 'node:net';
import { type ProxySource, readProxyHeader } from './proxy-protocol.js';

/** Null to `then`: the connection is closed. */
export function takeProxyHeader(socket: Socket, timeoutMs: number, then: (source: ProxySource | null) => void): void {
  let bytes: Buffer = Buffer.alloc(0);
  const finish = (source: ProxySource | null): void => {
    clearTimeout(timer);
    socket.off('readable', onReadable).off('end', onGone).off('close', onGone);
    if (source === null) socket.destroy();
    then(source);
  };
  const onGone = (): void => finish(null);
  const onReadable = (): void => {
    for (let piece: Buffer | null = socket.read(); piece !== null; piece = socket.read()) {
      bytes = bytes.length === 0 ? piece : Buffer.concat([bytes, piece]);
      const header = readProxyHeader(bytes);
      if (header.kind === 'more') continue;
      if (header.kind === 'malformed') return finish(null);
      if (bytes.length > header.length) socket.unshift(bytes.subarray(header.length));
      return finish(header.source);
    }
  };
  const timer = setTimeout(onGone, timeoutMs);
  socket.on('readable', onReadable).once('end', onGone).once('close', onGone);
}
