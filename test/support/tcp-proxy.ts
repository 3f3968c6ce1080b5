/** A loopback TCP proxy that makes connections slow, deaf or broken at the moment a test chooses. */

import { connect, createServer, type Server, type Socket } from 'node:net';
import { delay } from './gate.js';
import { listenOn } from './ports.js';

type Link = {
  readonly near: Socket;
  readonly far: Socket;
  /** What the client has sent since its requests are held; null while they pass. */
  held: Buffer[] | null;
  subscriber: boolean;
  deaf: boolean;
};

export class TcpProxy {
  /** Where new connections lead. */
  targetPort: number;
  /** Added before every piece, both ways. */
  delayMs = 0;
  /** Connections are accepted and stay, but no byte passes, either way. */
  blackHole = false;
  /** What comes from clients waits for it, like bytes that are slow on their way. */
  heldUntil: Promise<void> = Promise.resolve();
  readonly #server: Server;
  readonly #links = new Set<Link>();
  #port = 0;
  #losing: { readonly text: string; readonly lost: () => void } | null = null;

  private constructor(targetPort: number) {
    this.targetPort = targetPort;
    this.#server = createServer({ noDelay: true }, (near) => this.#link(near));
  }

  /** Starts a proxy that ends with the test. */
  static async start(t: { teardown(end: () => Promise<void>): void }, targetPort: number): Promise<TcpProxy> {
    const proxy = new TcpProxy(targetPort);
    await proxy.listen();
    t.teardown(() => proxy.refuse());
    return proxy;
  }

  get port(): number {
    return this.#port;
  }

  /** Opens the port, the same one as before. */
  async listen(): Promise<void> {
    this.#port = await listenOn(this.#server, this.#port);
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

  /**
   * The next request that contains the text reaches its server, but the reply does not come back: the connection ends
   * instead. Resolves when that has happened.
   */
  loseReplyTo(text: string): Promise<void> {
    return new Promise((lost) => {
      this.#losing = { text, lost };
    });
  }

  /**
   * Keeps back what comes over the connections that are open now, even when their clients have gone. The returned
   * function lets the first packet of each go to the server; the rest is lost.
   */
  holdRequests(): () => void {
    const holding = [...this.#links];
    for (const link of holding) link.held = [];
    return () => {
      for (const { far, held } of holding) if (held?.[0] !== undefined) far.write(held[0]);
    };
  }

  /** Nothing comes back any more over the connections that are open now and have subscribed. */
  deafenSubscribers(): void {
    for (const link of this.#links) if (link.subscriber) link.deaf = true;
  }

  #link(near: Socket): void {
    const far = connect({ host: '127.0.0.1', port: this.targetPort, noDelay: true });
    const link: Link = { near, far, held: null, subscriber: false, deaf: false };
    this.#links.add(link);
    // Every error is followed by 'close'.
    for (const socket of [near, far]) socket.on('error', () => {});
    near.on('close', () => link.held === null && far.destroy());
    far.on('close', () => {
      near.destroy();
      this.#links.delete(link);
    });
    near.on('data', (piece) => void this.#request(link, piece));
    far.on('data', (piece) => void this.#reply(link, piece));
  }

  async #request(link: Link, piece: Buffer): Promise<void> {
    if (/subscribe/i.test(piece.toString('latin1'))) link.subscriber = true;
    if (this.blackHole) return;
    if (this.#losing !== null && piece.includes(this.#losing.text)) {
      const { lost } = this.#losing;
      this.#losing = null;
      link.deaf = true;
      link.far.once('data', () => {
        link.near.resetAndDestroy();
        lost();
      });
    }
    if (link.held !== null) {
      link.held.push(piece);
      return;
    }
    if (this.delayMs > 0) await delay(this.delayMs);
    await this.heldUntil;
    link.far.write(piece);
  }

  async #reply(link: Link, piece: Buffer): Promise<void> {
    if (this.blackHole || link.deaf) return;
    if (this.delayMs > 0) await delay(this.delayMs);
    link.near.write(piece);
  }
}
