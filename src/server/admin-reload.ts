/** `POST /reload`: the files of the configuration are read again, and the answer comes when what they say is in use, or refused. */

import type { FastifyInstance, FastifyReply } from 'fastify';
import { formatError } from '../config/fault.js';
import type { ReloadResult } from '../config/reloading.js';

/** Adds `POST /reload`. */
export function addReload(fastify: FastifyInstance, reload: () => Promise<ReloadResult>): void {
  fastify.register(async (scope) => {
    // There is nothing to be said with it: content of whatever type (`curl -d ''` sends a form) is passed over.
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser('*', (_request, content, done) => {
      content.resume();
      done(null);
    });
    scope.post('/reload', async (_request, reply) => answer(reply, await reload()));
  });
}

function answer(reply: FastifyReply, result: ReloadResult): FastifyReply {
  switch (result.kind) {
    case 'reloaded':
      return reply.send({ reloaded: true, changed: result.changed, needsRestart: result.needsRestart });
    case 'unchanged':
      return reply.send({ reloaded: false, changed: [], needsRestart: result.needsRestart });
    case 'refused': {
      const errors = result.errors.map((error) => ({ ...error, message: formatError(error) }));
      return reply
        .code(422)
        .type(PROBLEM)
        .send(problem(422, 'bad-config', 'The configuration is bad', { errors }));
    }
    case 'stopping':
      return reply
        .code(503)
        .type(PROBLEM)
        .send(problem(503, 'draining', 'The gateway is stopping'));
  }
}

const PROBLEM = 'application/problem+json';

/** For operators: without the fields that tell clients of an API what to do next. */
function problem(status: number, code: string, title: string, more: object = {}): Buffer {
  return Buffer.from(JSON.stringify({ type: `urn:oneflight:problem:${code}`, title, status, ...more }));
}
