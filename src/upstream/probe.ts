/** Whether an address can be connected to: what readiness says of it. Opens and closes a connection, sends nothing. */

import { connect } from 'node:net';
import type { AddressConfig } from '../config/config.js';

/** Resolves to `ok` or to what is wrong. */
export function probe({ url, socketPath }: AddressConfig, timeoutMs: number): Promise<string> {
  const port = Number(url.port === '' ? (url.protocol === 'https:' ? 443 : 80) : url.port);
  const host = url.hostname.replace(/^\[|\]$/g, '');
  return new Promise((resolve) => {
    const socket = connect(socketPath === null ? { host, port } : { path: socketPath });
    const finish = (what: string) => {
      socket.destroy();
      resolve(what);
    };
    socket.setTimeout(timeoutMs, () => finish('timeout'));
    socket.once('connect', () => finish('ok'));
    socket.once('error', (error: NodeJS.ErrnoException) => finish(error.code ?? 'unreachable'));
  });
}
