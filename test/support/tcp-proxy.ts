/** A loopback TCP proxy that makes a connection slow, deaf or broken at the moment a test chooses. */

import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { delay } from './gate.js';

type Link = { readonly near: Socket; readonly far: Socket; deaf: boolean };

export class TcpProxy {
  /** Where new connections lead. */
  target: { readonly host: string; readonly port: number };
  /** Added before every piece, both ways. */
  delayMs = 0;
  /** What comes from clients waits for it, like bytes that are slow on their way. */
  heldUntil: Promise<void> = Promise.resolve();
  readonly #server: Server;
  readonly #links = new Set<Link>();
  #port = 0;
  #blackHole = false;
  #dropReplyTo: { readonly words: string; readonly dropped: () => void } | null = null;

  private constructor(target: { host: string; port: number }) {
    this.target = target;
    this.#server = createServer({ noDelay: true }, (near) => this.#link(near));
  }

  /** Starts a proxy that ends with the test. */
  static async start(
    t: { teardown(end: () => Promise<void>): void },
    target: { host: string; port: number },
  ): Promise<TcpProxy> {
    const proxy = new TcpProxy(target);
    await proxy.listen();
    t.teardown(() => proxy.refuse());
    return proxy;
  }

  get port(): number {
    return this.#port;
  }

  get connections(): number {
    return this.#links.size;
  }

  /** Opens the port, the same one as before. */
  async listen(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#server.listen({ host: '127.0.0.1', port: this.#port }, resolve);
    });
    this.#port = (this.#server.address() as AddressInfo).port;
  }

  /** Closes the port and every connection: what follows is refused. */
  async refuse(): Promise<void> {
    if (!this.#server.listening) return;
    const closed = new Promise((resolve) => {
      this.#server.close(resolve);
    });
    this.cut();
    await closed;
  }

  /** Ends every connection with RST. */
  cut(): void {
    for (const { near, far } of this.#links) {
      near.resetAndDestroy();
      far.destroy();
    }
  }

  /** Accepts and swallows: no byte passes, no connection ends. */
  blackHole(on: boolean): void {
    this.#blackHole = on;
  }

  /**
   * The next request that holds these words reaches its server, but the reply does not come back: the connection ends
   * instead. Resolves when that has happened.
   */
  dropReplyTo(words: string): Promise<void> {
    return new Promise((resolve) => {
      this.#dropReplyTo = { words, dropped: resolve };
    });
  }

  #link(near: Socket): void {
    const far = connect({ ...this.target, noDelay: true });
    const link: Link = { near, far, deaf: false };
    this.#links.add(link);
    const end = () => {
      this.#links.delete(link);
      near.destroy();
      far.destroy();
    };
    for (const socket of [near, far]) {
      socket.on('error', end);
      socket.on('close', end);
    }
    near.on('data', (piece) => void this.#request(link, piece));
    far.on('data', (piece) => void this.#reply(link, piece));
  }

  async #request(link: Link, piece: Buffer): Promise<void> {
    if (this.#blackHole) return;
    if (this.#dropReplyTo !== null && piece.includes(this.#dropReplyTo.words)) {
      link.deaf = true;
      const { dropped } = this.#dropReplyTo;
      this.#dropReplyTo = null;
      link.far.once('data', () => {
        link.near.resetAndDestroy();
        dropped();
      });
    }
    if (this.delayMs > 0) await delay(this.delayMs);
    await this.heldUntil;
    link.far.write(piece);
  }

  async #reply(link: Link, piece: Buffer): Promise<void> {
    if (this.#blackHole || link.deaf) return;
    if (this.delayMs > 0) await delay(this.delayMs);
    link.near.write(piece);
  }
}
