/**
 * Connections beyond `limits.maxConnections`: told so in HTTP and closed, without a parser and without a caller.
 *
 * Invariant: who does not take the answer soon, or is one of very many, goes without it.
 */

import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { problemMessage } from '../http/problem.js';

/** Time to take the answer and leave. */
const FAREWELL_MS = 1_000;
const MOST = 256;

const REFUSAL = responseBytes(503);
let leaving = 0;

/** Answers 503 `overloaded`, and ends the connection. */
export function refuseConnection(socket: Socket): void {
  if (leaving >= MOST) return void socket.destroy();
  leaving += 1;
  socket.once('close', () => {
    leaving -= 1;
  });
  socket.on('error', () => {});
  // Closing with a request unread would reset the connection, and the answer with it.
  socket.resume().end(REFUSAL);
  socket.setTimeout(FAREWELL_MS, () => socket.destroy());
}

function responseBytes(status: number): Buffer {
  const { fields, content } = problemMessage('overloaded', {
    status,
    detail: 'The gateway has no room for this connection.',
  });
  let head = `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nConnection: close\r\n`;
  for (let i = 0; i + 1 < fields.length; i += 2) head += `${fields[i]}: ${fields[i + 1]}\r\n`;
  return Buffer.concat([Buffer.from(`${head}\r\n`, 'latin1'), content]);
}
