/**
 * Connections of test clients, in clear or over TLS, as the URL says.
 *
 * Invariant: over TLS they are what they are in clear: a half of them can be ended alone, and a reset is one.
 */

import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { fileURLToPath } from 'node:url';

/** A file of the fixed certificates: `ca`, `one` and `two` (servers for localhost), `client`, and `broken`. */
export function tlsFile(name: string): string {
  return fileURLToPath(new URL(`../../../test/support/tls/${name}`, import.meta.url));
}

export const TEST_CA = readFileSync(tlsFile('ca.pem'));

/** What a TLS client of the tests needs to know. */
export const TRUSTING = { ca: TEST_CA, servername: 'localhost' } as const;

/** `listen.tls` with one of the servers' pairs. */
export function tlsYaml(name: 'one' | 'two' = 'one'): string {
  return `{ cert: "${tlsFile(`${name}.pem`)}", key: "${tlsFile(`${name}.key`)}" }`;
}

/** Connects to where the URL says; what is written meanwhile is sent then. */
export function dial(url: string, { allowHalfOpen = false } = {}): Socket {
  const { hostname, port, protocol } = new URL(url);
  const tcp = connect({ host: hostname, port: Number(port), noDelay: true, allowHalfOpen });
  return protocol === 'https:' ? secured(tcp) : tcp;
}

/** TLS on a connection. */
export function secured(tcp: Socket, options: { readonly ALPNProtocols?: string[] } = {}): TLSSocket {
  const socket = connectTls({ ...TRUSTING, ...options, socket: tcp });
  tcp.on('error', () => {});
  socket.resetAndDestroy = () => {
    tcp.resetAndDestroy();
    return socket.destroy();
  };
  return socket;
}
