/**
 * What stands in front of HTTP on a listener: the port, the PROXY protocol and TLS, in this
 * order, where they are configured. What comes out of it is a
 * connection on which HTTP is spoken.
 *
 * Invariants: HTTP never sees a connection before its handshake is over; a handshake that fails, or takes too long, ends
 * its connection and nothing else; no connection is left when the front has been closed for good.
 */

import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { createServer as createTlsServer, type SecureContextOptions, type Server as TlsServer } from 'node:tls';
import { tcpOf } from '../exchange/tunnel.js';
import type { Peer } from '../http/fields.js';
import type { Peers } from './peers.js';
import { takeProxyHeader } from './proxied.js';
import type { ProxySource } from './proxy-protocol.js';
import { refuseConnection } from './refusing.js';

/** Why a connection was closed before HTTP was spoken on it. */
export type RefusedConnection = 'limit' | 'handshake' | 'proxy-protocol';

export type FrontOptions = {
  readonly host: string;
  readonly port: number;
  /** What TLS is spoken with now; null: HTTP comes in clear. */
  readonly tls: SecureContextOptions | null;
  /** Longest time for a handshake. */
  readonly handshakeTimeoutMs: number;
  /** Most connections at a time. */
  readonly maxConnections: number;
  /** Closes a connection that nobody uses now; false when there is none. */
  readonly makeRoom: () => boolean;
  readonly peers: Peers;
  /** Whether each connection begins with a header that says who it is from. */
  readonly proxyProtocol: boolean;
  /** Longest time for that header. */
  readonly headerTimeoutMs: number;
  readonly onRefused: (reason: RefusedConnection) => void;
  /** Takes a connection on which HTTP/2 was agreed on; null: it is not offered. */
  readonly onHttp2: ((socket: Socket, peer: Peer) => void) | null;
  /** Takes any other connection: the socket itself, or the TLS socket on it. */
  readonly onHttp: (socket: Socket, peer: Peer) => void;
};

export class Front {
  readonly #options: FrontOptions;
  readonly #server: Server;
  readonly #tls: TlsServer | null;
  /** The connections as the port knows them. */
  readonly #sockets = new Set<Socket>();
  /** Who is at the other end of those on which TLS is spoken. */
  readonly #peersOverTls = new WeakMap<Socket, Peer>();

  constructor(options: FrontOptions) {
    this.#options = options;
    this.#tls = options.tls === null ? null : this.#tlsServer(options.tls);
    // A client that ends its direction may still have an answer to come.
    this.#server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => this.#accept(socket));
  }

  /** Binds, and answers the URL it is bound to. Rejects when it cannot. */
  async listen(): Promise<string> {
    const { host, port } = this.#options;
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(port, host, () => {
        this.#server.off('error', reject);
        resolve();
      });
    });
    return listenerUrl(this.#server.address() as AddressInfo, this.#tls === null ? 'http' : 'https');
  }

  /** New connections are made with this; those that are there go on. */
  secureWith(tls: SecureContextOptions): void {
    this.#tls?.setSecureContext(tls);
  }

  /** Accepts no more; what is there goes on. */
  stop(): void {
    this.#server.close();
  }

  /** Ends every connection. */
  destroy(): void {
    this.stop();
    for (const socket of this.#sockets) socket.destroy();
  }

  /** Connections that are open now. */
  get count(): number {
    return this.#sockets.size;
  }

  #accept(socket: Socket): void {
    if (this.#sockets.size >= this.#options.maxConnections && !this.#options.makeRoom()) return this.#refuse(socket);
    this.#sockets.add(socket);
    socket.once('close', () => this.#sockets.delete(socket));
    // Under TLS nobody else listens, and an error without a listener would end the process.
    socket.on('error', () => {});
    if (!this.#options.proxyProtocol) return this.#enter(socket, this.#peerAt(socket));
    const { peers, headerTimeoutMs } = this.#options;
    // Only a proxy may say who somebody else is; where none is named, whoever can connect is one.
    if (!peers.none && !peers.trusts(socket.remoteAddress ?? '')) return this.#refuseHeader(socket);
    takeProxyHeader(socket, headerTimeoutMs, (source) => {
      if (source === null) this.#refuseHeader(socket);
      else this.#enter(socket, this.#peerBehind(socket, source));
    });
  }

  #enter(socket: Socket, peer: Peer): void {
    if (this.#tls === null) return this.#options.onHttp(socket, peer);
    this.#peersOverTls.set(socket, peer);
    // Who ends its direction within the handshake has left.
    socket.allowHalfOpen = false;
    this.#tls.emit('connection', socket);
  }

  #peerAt(socket: Socket): Peer {
    return this.#options.peers.of(socket.remoteAddress, this.#scheme);
  }

  #peerBehind(socket: Socket, source: ProxySource): Peer {
    if (source.kind === 'address') return this.#options.peers.of(source.address, this.#scheme);
    // Who is not named is not believed, although the proxy itself would be.
    const proxy = this.#peerAt(socket);
    return source.kind === 'local' ? proxy : { ...proxy, trusted: false };
  }

  get #scheme(): Peer['scheme'] {
    return this.#tls === null ? 'http' : 'https';
  }

  #refuseHeader(socket: Socket): void {
    this.#options.onRefused('proxy-protocol');
    socket.destroy();
  }

  /** In clear it is told why. Over TLS that would cost a handshake, which is what there is no room for. */
  #refuse(socket: Socket): void {
    this.#options.onRefused('limit');
    if (this.#tls === null) refuseConnection(socket);
    else socket.destroy();
  }

  #tlsServer(tls: SecureContextOptions): TlsServer {
    const { handshakeTimeoutMs, onHttp, onHttp2 } = this.#options;
    const ALPNProtocols = onHttp2 === null ? ['http/1.1'] : ['h2', 'http/1.1'];
    const server = createTlsServer({ ...tls, ALPNProtocols, handshakeTimeout: handshakeTimeoutMs });
    server.on('secureConnection', (socket) => {
      const tcp = tcpOf(socket);
      const peer = tcp === null ? undefined : this.#peersOverTls.get(tcp);
      // Better nobody than somebody else.
      if (peer === undefined) return void socket.destroy();
      if (socket.alpnProtocol === 'h2') return onHttp2?.(socket, peer);
      socket.allowHalfOpen = true;
      onHttp(socket, peer);
    });
    // There is nobody to be told: whoever does not speak TLS, or not this one, has no use for an answer in it.
    server.on('tlsClientError', (_error, socket) => {
      this.#options.onRefused('handshake');
      socket.destroy();
    });
    return server;
  }
}

/** `http://host:port` of a bound address. */
export function listenerUrl({ address, port, family }: AddressInfo, scheme: 'http' | 'https' = 'http'): string {
  return `${scheme}://${family === 'IPv6' ? `[${address}]` : address}:${port}`;
}
