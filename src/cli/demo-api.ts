/**
 * The API of the demo: slow, and as strict as real ones are.
 *
 * Invariants: a refresh token is good once, and the second use of one revokes its session (RFC 9700, section 4.14.2:
 * whoever holds a used token may be a thief), so that everybody in it is logged out; every call is counted on arrival,
 * before any of its work.
 */

import { randomBytes } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

export type ApiCounts = {
  readonly refreshCalls: number;
  readonly proceedCalls: number;
  readonly sessionsLost: number;
};

export type DemoApi = {
  readonly url: string;
  /** Logs a user in: the first refresh token of a new session. */
  newSession(): string;
  counts(): ApiCounts;
  close(): Promise<void>;
};

type Session = { revoked: boolean };
type Grant = { readonly session: Session; used: boolean };
type Reply = { readonly status: number; readonly content: object };

const PROCEED = /^\/sessions\/[^/]+\/steps\/[^/]+\/proceed$/;

/** Starts the API; every call of it that does work takes `latencyMs`. Port 0 picks a free one. */
export async function startDemoApi(options: { host: string; port: number; latencyMs: number }): Promise<DemoApi> {
  const grants = new Map<string, Grant>();
  const count = { refreshCalls: 0, proceedCalls: 0, sessionsLost: 0 };

  function grant(session: Session): string {
    const refreshToken = `rt-${randomBytes(9).toString('base64url')}`;
    grants.set(refreshToken, { session, used: false });
    return refreshToken;
  }

  async function refresh(refreshToken: unknown): Promise<Reply> {
    count.refreshCalls += 1;
    const found = typeof refreshToken === 'string' ? grants.get(refreshToken) : undefined;
    if (found === undefined) {
      await sleep(options.latencyMs);
      return refused('unknown refresh token');
    }
    const { session } = found;
    if (found.used && !session.revoked) {
      session.revoked = true;
      count.sessionsLost += 1;
    }
    found.used = true;
    await sleep(options.latencyMs);
    if (session.revoked) return refused('refresh token used twice: the session is revoked, log in again');
    return {
      status: 200,
      content: { accessToken: `at-${randomBytes(9).toString('base64url')}`, refreshToken: grant(session) },
    };
  }

  async function answer(request: IncomingMessage): Promise<Reply> {
    const content = await contentOf(request);
    const path = (request.url ?? '/').split('?')[0] ?? '/';
    if (request.method === 'GET' && path === '/counts') return { status: 200, content: count };
    if (request.method !== 'POST') return { status: 404, content: { error: 'not found' } };
    if (path === '/auth/sessions') return { status: 201, content: { refreshToken: grant({ revoked: false }) } };
    if (path === '/auth/sessions/refresh') return refresh(memberOf(content, 'refreshToken'));
    if (!PROCEED.test(path)) return { status: 404, content: { error: 'not found' } };
    count.proceedCalls += 1;
    const run = count.proceedCalls;
    await sleep(options.latencyMs);
    return { status: 200, content: { cascade: 'done', run } };
  }

  const server = createServer((request, response) => {
    answer(request).then(
      (reply) => write(response, reply),
      () => response.destroy(),
    );
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(options.port, options.host, resolve);
  });
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://${options.host === '0.0.0.0' ? '127.0.0.1' : options.host}:${port}`,
    newSession: () => grant({ revoked: false }),
    counts: () => ({ ...count }),
    close: () => {
      server.closeAllConnections();
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
}

function refused(error: string): Reply {
  return { status: 401, content: { error } };
}

function write(response: ServerResponse, reply: Reply): void {
  response.writeHead(reply.status, { 'Content-Type': 'application/json' });
  response.end(`${JSON.stringify(reply.content)}\n`);
}

async function contentOf(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString('utf8');
}

function memberOf(content: string, name: string): unknown {
  try {
    const parsed: unknown = JSON.parse(content);
    return parsed !== null && typeof parsed === 'object' ? new Map(Object.entries(parsed)).get(name) : undefined;
  } catch {
    return undefined;
  }
}
