/**
 * Node's agents, with connections that are kept for a next request.
 *
 * Invariant: a connection on which something comes while nobody has asked is not used again. Node drops what comes and keeps
 * the connection, so that the rest of it would be read as the response of whoever asks next.
 */

import http from 'node:http';
import https from 'node:https';
import type { Duplex } from 'node:stream';

/** How long an idle connection is kept; servers close theirs after 5 s and more. */
const IDLE_MS = 4_000;

/** An agent that keeps connections. Whoever is given one of them says so (`taken`). */
export function keepingAgent(protocol: string): http.Agent {
  const { Agent } = protocol === 'https:' ? https : http;
  const agent = new Agent({ keepAlive: true, timeout: IDLE_MS });
  agent.on('free', (socket: Duplex) => socket.on('data', endUnasked));
  return agent;
}

/** The connection has a request again: what comes is its response. */
export function taken(socket: Duplex): void {
  socket.off('data', endUnasked);
}

function endUnasked(this: Duplex): void {
  this.destroy();
}
