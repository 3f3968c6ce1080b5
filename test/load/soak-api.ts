/**
 * The API of the soak: it counts its calls by route, answers in every size, and on stormy routes fails in every way.
 *
 * Invariant: a connection is ended only in answer to a request on it, never while it is idle, so that every request that
 * was handed to one is counted here.
 */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { listenOn } from '../support/ports.js';
import type { Random } from '../support/random.js';

const MOST_DELAY_MS = 15;
const SIZES = [10, 10, 10, 200, 2_000, 20_000, 100_000] as const;

export class SoakApi {
  readonly #calls = new Map<string, number>();
  readonly #server: Server;
  readonly #random: Random;
  #port = 0;

  private constructor(random: Random) {
    this.#random = random;
    this.#server = createServer({ keepAliveTimeout: 0, requestTimeout: 0 }, (req, res) => this.#onRequest(req, res));
  }

  static async start(t: { teardown(end: () => void): void }, random: Random): Promise<SoakApi> {
    const api = new SoakApi(random);
    api.#port = await listenOn(api.#server, 0);
    t.teardown(() => {
      api.#server.close();
      api.#server.closeAllConnections();
    });
    return api;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  callsOf(route: string): number {
    return this.#calls.get(route) ?? 0;
  }

  #onRequest(req: IncomingMessage, res: ServerResponse): void {
    const path = req.url ?? '';
    const route = path.split('/')[1] ?? '';
    this.#calls.set(route, this.callsOf(route) + 1);
    res.on('error', () => {});
    req.on('error', () => {}).resume();
    req.once('end', () => setTimeout(() => this.#answer(route, path, req, res), this.#random.whole(0, MOST_DELAY_MS)));
  }

  #answer(route: string, path: string, { socket }: IncomingMessage, res: ServerResponse): void {
    const random = this.#random;
    const content = `${path}\n${'x'.repeat(random.pick(SIZES))}`;
    const storm = route.startsWith('storm-') ? random.whole(0, 19) : 99;
    if (storm === 0) return void socket.resetAndDestroy();
    if (storm === 1) return void socket.destroy();
    if (storm === 2) {
      res.writeHead(200, { 'Content-Length': content.length + 100 });
      res.write(content);
      setTimeout(() => socket.destroy(), random.whole(0, 3));
      return;
    }
    if (storm === 3) res.setHeader('Set-Cookie', 'a=b');
    if (storm === 4) res.setHeader('Cache-Control', 'no-store');
    const status = storm > 4 && storm < 8 ? random.pick([500, 404, 503, 429]) : 200;
    if (random.chance(0.7)) {
      res.writeHead(status, { 'Content-Length': content.length }).end(content);
      return;
    }
    // In pieces, of a length that only its end tells.
    res.writeHead(status).write(content.slice(0, 5));
    setTimeout(() => res.end(content.slice(5)), random.whole(0, 3));
  }
}
