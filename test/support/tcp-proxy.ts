/**
 * A loopback TCP proxy that makes connections slow, deaf or broken at the moment a test chooses.
 *
 * Servers that name each other (sentinels, nodes of a cluster) would lead their clients past it. So it can stand at
 * another address of loopback, on its server's own port, and put that address in the place of the servers' in all that
 * they say: who is told of a server is told of the proxy before it. This needs a system whose loopback is all of
 * 127.0.0.0/8, as on Linux.
 */

import { connect, createServer, type Server, type Socket } from 'node:net';
import { delay } from './gate.js';
import { listenOn } from './ports.js';

/** Where the servers of tests are, and what they call themselves. */
const SERVERS = '127.0.0.1';

type Link = {
  readonly near: Socket;
  readonly far: Socket;
  /** What the client has sent since its requests are held; null while they pass. */
  held: Buffer[] | null;
  subscriber: boolean;
  deaf: boolean;
  /** The beginning of an address, perhaps, whose end has not come yet. */
  begun: Buffer;
};

/** A reply that is to be lost, by whichever proxy sees a request with the text first. */
export class LostReply {
  readonly text: string;
  readonly lost: Promise<void>;
  #tell: () => void = () => {};
  #awaited = true;

  constructor(text: string) {
    this.text = text;
    this.lost = new Promise((tell) => {
      this.#tell = tell;
    });
  }

  /** Whether this request's reply is the one; no other is, from then on. */
  takes(request: Buffer): boolean {
    const taken = this.#awaited && request.includes(this.text);
    if (taken) this.#awaited = false;
    return taken;
  }

  /** From now on none is lost. */
  giveUp(): void {
    this.#awaited = false;
  }

  tell(): void {
    this.#tell();
  }
}

export class TcpProxy {
  /** Where new connections lead. */
  targetPort: number;
  /** Added before every piece, both ways. */
  delayMs = 0;
  /** Connections are accepted and stay, but no byte passes, either way. */
  blackHole = false;
  /** From a request with this text on nothing comes back over its connection; empty: everything does. */
  deafTo = '';
  /** What comes from clients waits for it, like bytes that are slow on their way. */
  heldUntil: Promise<void> = Promise.resolve();
  readonly #server: Server;
  readonly #links = new Set<Link>();
  /** The reply that is to be lost next. */
  losing: LostReply | null = null;
  readonly #host: string;
  #port = 0;

  private constructor(targetPort: number, host: string) {
    this.targetPort = targetPort;
    this.#host = host;
    this.#server = createServer({ noDelay: true }, (near) => this.#link(near));
  }

  /** Starts a proxy that ends with the test. */
  static async start(t: { teardown(end: () => Promise<void>): void }, targetPort: number): Promise<TcpProxy> {
    const proxy = new TcpProxy(targetPort, SERVERS);
    await proxy.listen();
    t.teardown(() => proxy.refuse());
    return proxy;
  }

  /** Starts one at another address of loopback, as long as the servers' own, for a server on the same port. */
  static async startAt(
    t: { teardown(end: () => Promise<void>): void },
    host: string,
    targetPort: number,
  ): Promise<TcpProxy> {
    if (host.length !== SERVERS.length) throw new Error(`${host} does not fit in the place of ${SERVERS}`);
    const proxy = new TcpProxy(targetPort, host);
    proxy.#port = targetPort;
    await proxy.listen();
    t.teardown(() => proxy.refuse());
    return proxy;
  }

  get port(): number {
    return this.#port;
  }

  /** Opens the port, the same one as before. */
  async listen(): Promise<void> {
    this.#port = await listenOn(this.#server, this.#port, undefined, this.#host);
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
    this.losing = new LostReply(text);
    return this.losing.lost;
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

  /** How many of the open connections have subscribed, or tried to. */
  get subscribers(): number {
    return [...this.#links].filter(({ subscriber }) => subscriber).length;
  }

  /** Nothing comes back any more over the connections that are open now and have subscribed. */
  deafenSubscribers(): void {
    for (const link of this.#links) if (link.subscriber) link.deaf = true;
  }

  #link(near: Socket): void {
    const far = connect({ host: SERVERS, port: this.targetPort, noDelay: true });
    const link: Link = { near, far, held: null, subscriber: false, deaf: false, begun: Buffer.of() };
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
    if (this.deafTo !== '' && piece.includes(this.deafTo)) link.deaf = true;
    const { losing } = this;
    if (losing?.takes(piece)) {
      link.deaf = true;
      link.far.once('data', () => {
        link.near.resetAndDestroy();
        losing.tell();
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
    const said = this.#host === SERVERS ? piece : this.#renamed(link, piece);
    if (this.delayMs > 0) await delay(this.delayMs);
    link.near.write(said);
  }

  /** With this proxy's address for the servers'. A reply ends in a line's end, so no address's beginning waits in vain. */
  #renamed(link: Link, piece: Buffer): Buffer {
    const said = Buffer.concat([link.begun, piece]);
    for (let at = said.indexOf(SERVERS); at >= 0; at = said.indexOf(SERVERS, at)) said.write(this.#host, at, 'latin1');
    let kept = SERVERS.length - 1;
    while (kept > 0 && said.subarray(-kept).toString('latin1') !== SERVERS.slice(0, kept)) kept -= 1;
    link.begun = said.subarray(said.length - kept);
    return said.subarray(0, said.length - kept);
  }
}
