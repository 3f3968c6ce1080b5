/**
 * Requests that Node's server gives up as upgrades: it stops reading the connection as HTTP and leaves all else to us.
 *
 * Invariant: a request whose offer cannot be passed on loses nothing but the offer: it is put back in front of the
 * connection without its `Upgrade` lines, and read again, with its content, as the ordinary request that it is.
 */

import { type IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { withoutField } from '../http/fields.js';
import { offerOf } from '../http/upgrade.js';
import { endConnection } from './farewell.js';

/**
 * What the request offers and may be offered on; null: it is an ordinary request. HTTP/1.0 has no upgrades, and content has
 * to be read to its end before anybody switches (RFC 9110 section 7.8), for which the offer is let go of.
 */
export function offerOfRequest({ httpVersion, headers, rawHeaders }: IncomingMessage): string | null {
  const hasContent = headers['transfer-encoding'] !== undefined || (headers['content-length'] ?? '0') !== '0';
  return httpVersion === '1.0' || hasContent ? null : offerOf(rawHeaders);
}

/** The request as bytes, without its offer. */
export function ordinaryBytes({ method, url, httpVersion, rawHeaders }: IncomingMessage): Buffer {
  const fields = withoutField(rawHeaders, 'upgrade');
  let head = `${method} ${url} HTTP/${httpVersion}\r\n`;
  for (let i = 0; i + 1 < fields.length; i += 2) head += `${fields[i]}: ${fields[i + 1]}\r\n`;
  return Buffer.from(`${head}\r\n`, 'latin1');
}

/**
 * The response of a request that the server has given up. It ends the connection: what the client sent behind its
 * request was meant for another protocol, and must not be read as a request.
 */
export function lastResponse(req: IncomingMessage, socket: Socket): ServerResponse {
  const res = new ServerResponse(req);
  res.shouldKeepAlive = false;
  res.assignSocket(socket);
  const onDrain = () => res.emit('drain');
  socket.on('drain', onDrain);
  res.once('finish', () => {
    socket.off('drain', onDrain);
    res.detachSocket(socket);
    res.emit('close');
    endConnection(socket);
  });
  return res;
}
