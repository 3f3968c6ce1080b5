/**
 * The files of the live page. They are the same for everybody and show nothing by themselves, so that who has no token yet
 * can be asked for it by the page; read when they are asked for, so that the start of the gateway does not wait for them.
 *
 * Invariant: the page runs what is in these files and nothing else, and speaks with this listener alone.
 */

import { readFile } from 'node:fs/promises';
import type { FastifyInstance } from 'fastify';

const FOLDER = new URL('./page/', import.meta.url);
const FILES = [
  { path: '/', file: 'index.html', type: 'text/html; charset=utf-8' },
  { path: '/page.js', file: 'page.js', type: 'text/javascript; charset=utf-8' },
  { path: '/page.css', file: 'page.css', type: 'text/css; charset=utf-8' },
  { path: '/page.svg', file: 'page.svg', type: 'image/svg+xml' },
] as const;

export const PAGE_PATHS: ReadonlySet<string | undefined> = new Set(FILES.map(({ path }) => path));

const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');

/** Adds `GET /` and what it is made of. */
export function addPage(fastify: FastifyInstance): void {
  for (const { path, file, type } of FILES) {
    fastify.get(path, async (_request, reply) => {
      const content = await readFile(new URL(file, FOLDER)).catch(() => null);
      // Another version may have been installed over this one. Where it was is nobody's business.
      if (content === null) return reply.code(404).send({ error: 'the files of the live page are gone' });
      return reply
        .headers({
          'content-type': type,
          'content-security-policy': CONTENT_SECURITY_POLICY,
          'referrer-policy': 'no-referrer',
        })
        .send(content);
    });
  }
}
