/** `GET /events`: what the live page shows, as server-sent events. */

import type { FastifyInstance, FastifyReply } from 'fastify';
import type { PageFeed } from './page-feed.js';

/** Seconds after which a viewer for whom there is no room may ask again. */
const RETRY_AFTER_S = 10;

/** Adds `GET /events`. */
export function addEvents(fastify: FastifyInstance, feed: Pick<PageFeed, 'isFull' | 'add'>): void {
  // An answer to HEAD would be a viewer that sees nothing.
  fastify.get('/events', { exposeHeadRoute: false }, (request, reply): FastifyReply | undefined => {
    // The page fetches them. A window that a page of others has opened would take a viewer's place.
    if (request.headers['sec-fetch-mode'] === 'navigate') {
      return reply.code(403).send({ error: 'events are for the live page, which is at /' });
    }
    if (feed.isFull) {
      return reply
        .code(503)
        .header('retry-after', RETRY_AFTER_S)
        .send({ error: 'there is no room for another viewer' });
    }
    reply.hijack();
    const fields = {
      ...reply.getHeaders(),
      'content-type': 'text/event-stream; charset=utf-8',
      // A proxy before the listener is not to wait for more.
      'x-accel-buffering': 'no',
    };
    reply.raw.writeHead(200, fields as Record<string, string>);
    // The fields go out before the first snapshot is made.
    reply.raw.write(Buffer.from(': oneflight\n\n'));
    feed.add(reply.raw);
    return undefined;
  });
}
