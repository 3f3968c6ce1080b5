/** A client on a raw socket, which costs this process as little as can be. Times are `performance.now()`, milliseconds. */

import { connect, type Socket } from 'node:net';

/** How many connections are opened at a time. */
const AT_ONCE = 500;
const LOOK_MS = 5;

export class BareClient {
  readonly socket: Socket;
  bytes = 0;
  /** null before the first byte. */
  firstAtMs: number | null = null;
  lastAtMs = 0;

  constructor(url: string) {
    const { hostname, port } = new URL(url);
    this.socket = connect({ host: hostname, port: Number(port), noDelay: true });
    this.socket.on('error', () => {});
    this.socket.on('data', (piece) => {
      this.lastAtMs = performance.now();
      this.firstAtMs ??= this.lastAtMs;
      this.bytes += piece.length;
    });
  }

  connected(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.socket.once('connect', resolve);
      this.socket.once('error', reject);
    });
  }

  /** Sends a request; what is counted begins anew. */
  get(path: string): void {
    this.bytes = 0;
    this.firstAtMs = null;
    this.socket.write(`GET ${path} HTTP/1.1\r\nHost: bench\r\n\r\n`);
  }

  /** Reads at most so many bytes a second, in pieces ten times a second. */
  slowDown(bytesPerSecond: number): void {
    this.socket.pause();
    const piece = Math.ceil(bytesPerSecond / 10);
    const timer = setInterval(() => {
      const read = this.socket.read(piece) as Buffer | null;
      if (read !== null) this.bytes += read.length;
    }, 100);
    this.socket.removeAllListeners('data');
    this.socket.once('close', () => clearInterval(timer));
  }
}

export async function connectedClients(url: string, count: number): Promise<BareClient[]> {
  const clients: BareClient[] = [];
  while (clients.length < count) {
    const some = Array.from({ length: Math.min(AT_ONCE, count - clients.length) }, () => new BareClient(url));
    await Promise.all(some.map((client) => client.connected()));
    clients.push(...some);
  }
  return clients;
}

/** Resolves when each has that many bytes. Rejects when a connection ends before, or after the time. */
export async function allHave(clients: readonly BareClient[], bytes: number, withinMs: number): Promise<void> {
  const deadline = performance.now() + withinMs;
  for (const client of clients) {
    while (client.bytes < bytes) {
      if (client.socket.destroyed) throw new Error('a connection has ended before its answer was whole');
      if (performance.now() > deadline) throw new Error('an answer did not come');
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
  }
}

export function endAll(clients: readonly BareClient[]): void {
  for (const client of clients) client.socket.destroy();
}
