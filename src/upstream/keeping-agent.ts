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

/**
 * An agent that keeps connections until they have been kept for so long. Whoever is given one of them says so (`taken`).
 * `maxAgeMs`: 0 keeps none.
 */
export function keepingAgent(protocol: string, maxAgeMs: number, secure: https.AgentOptions): http.Agent {
  const idle = { keepAlive: maxAgeMs > 0, timeout: IDLE_MS };
  const agent = protocol === 'https:' ? new https.Agent({ ...idle, ...secure }) : new http.Agent(idle);
  if (maxAgeMs === 0) return agent;
  agent.on('free', (socket: Duplex) => socket.on('data', endUnasked));
  closeWhenOld(agent, maxAgeMs);
  return agent;
}

function closeWhenOld(agent: http.Agent, maxAgeMs: number): void {
  const since = new WeakMap<Duplex, number>();
  // By its types it answers nothing; in truth whether the connection is kept.
  const keep = agent.keepSocketAlive.bind(agent) as (socket: Duplex) => unknown;
  agent.keepSocketAlive = (socket) => {
    const nowMs = performance.now();
    const sinceMs = since.get(socket) ?? nowMs;
    since.set(socket, sinceMs);
    return nowMs - sinceMs < maxAgeMs && keep(socket);
  };
}

/** The connection has a request again: what comes is its response. */
export function taken(socket: Duplex): void {
  socket.off('data', endUnasked);
}

function endUnasked(this: Duplex): void {
  this.destroy();
}
