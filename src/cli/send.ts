/**
 * One HTTP/1.1 request on a connection of its own, as a separate client would send it.
 *
 * Invariants: field lines and content go out as they are given, byte for byte (strings are latin1); nothing is retried;
 * no two calls share a connection, so that a keep-alive pool never puts one behind the other.
 */

import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { isLoopback } from '../config/forms.js';
import { fieldLines } from '../core/field-lines.js';

export type Outgoing = {
  readonly method: string;
  /** Path and query as they stand in the request line. */
  readonly target: string;
  /** Field lines, flat: name, value, name, value … Without the ones that frame the content: they are computed. */
  readonly fields: readonly string[];
  readonly content: Buffer;
};

export type Answer = {
  readonly status: number;
  /** Field lines, flat. */
  readonly fields: readonly string[];
  readonly content: Buffer;
  /** From the first byte sent to the last byte received. */
  readonly tookMs: number;
};

/** The answer to `request` from the server at `origin`; rejects when there is none, or none in time. */
export function send(origin: URL, request: Outgoing, timeoutMs: number): Promise<Answer> {
  const started = performance.now();
  const open = origin.protocol === 'https:' ? httpsRequest : httpRequest;
  const hostname = origin.hostname.replace(/^\[|\]$/g, '');
  const options = {
    protocol: origin.protocol,
    hostname,
    port: origin.port,
    method: request.method,
    path: request.target,
    headers: framed(origin, request),
    agent: false,
    // A certificate names the public host: on this machine nobody else answers in its place.
    rejectUnauthorized: !isLoopback(hostname),
    signal: AbortSignal.timeout(timeoutMs),
  };
  return new Promise((resolve, reject) => {
    const outgoing = open(options, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('error', reject);
      response.on('end', () => {
        resolve({
          status: response.statusCode ?? 0,
          fields: response.rawHeaders,
          content: Buffer.concat(chunks),
          tookMs: performance.now() - started,
        });
      });
    });
    outgoing.on('error', reject);
    outgoing.end(request.content);
  });
}

function framed(origin: URL, { method, fields, content }: Outgoing): string[] {
  const lines = [...fields, 'Connection', 'close'];
  if (fieldLines(fields, 'host').length === 0) lines.unshift('Host', origin.host);
  // A method that usually has content says so even when there is none (RFC 9110, section 8.6).
  if (content.length > 0 || ['POST', 'PUT', 'PATCH'].includes(method)) {
    lines.push('Content-Length', String(content.length));
  }
  return lines;
}
