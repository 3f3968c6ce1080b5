/** @fastify/http-proxy as its manual shows it, without a log. */

import proxy from '@fastify/http-proxy';
import { fastify } from 'fastify';

const [upstream = '', port = ''] = process.argv.slice(2);
const app = fastify({ logger: false, keepAliveTimeout: 65_000 });
await app.register(proxy, { upstream });
await app.listen({ host: '127.0.0.1', port: Number(port), backlog: 8_192 });
