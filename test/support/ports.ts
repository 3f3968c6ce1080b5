/**
 * Ports of the servers of tests.
 *
 * Invariant: they lie below those that a system gives to outgoing connections (from 32768 on Linux, from 49152
 * elsewhere). A port that a test closes for a while is therefore not taken by a connection of another test, nor by the
 * very connection that asks whether it is open: one that gets its own target as its source connects to itself.
 */

import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { delay } from './gate.js';

const LOWEST = 10_240;
const HIGHEST = 32_000;
const TRIES = 100;
const AGAIN_MS = 20;

/**
 * Listens on loopback, on the port or, when it is 0, on a free one; gives the port. A port that is taken for a moment is
 * tried again for 2 s; any other failure is thrown.
 */
export async function listenOn(server: Server, port: number, backlog = 511, host = '127.0.0.1'): Promise<number> {
  for (let tries = 1; ; tries += 1) {
    const chosen = port === 0 ? LOWEST + Math.floor(Math.random() * (HIGHEST - LOWEST)) : port;
    server.listen({ host, port: chosen, backlog });
    try {
      await once(server, 'listening');
      return (server.address() as AddressInfo).port;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE' || tries === TRIES) throw error;
      if (port !== 0) await delay(AGAIN_MS);
    }
  }
}

/** Listens on a free port until the test ends, and ends what is connected then. HTTP/2 servers are given as what they stand on. */
export async function listenDuring(t: { teardown(end: () => void): void }, server: Server): Promise<number> {
  const sockets = new Set<Socket>();
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket)).on('error', () => {});
  });
  const port = await listenOn(server, 0);
  t.teardown(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return port;
}

/** A port that was free a moment ago. */
export async function freePort(): Promise<number> {
  const probe = createServer();
  const port = await listenOn(probe, 0);
  probe.close();
  await once(probe, 'close');
  return port;
}
