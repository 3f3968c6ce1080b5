/**
 * The clients of the soak: each lane sends one request after the other, as fast as it is answered, and notes how it ended.
 *
 * Invariant: a client leaves only when its whole request was handed to the system, so that the gateway sees every request
 * that is counted here.
 */

import { Agent, type IncomingMessage, request } from 'node:http';
import type { Random } from '../support/random.js';
import { SOAK_ROUTES, type SoakRoute } from './routes.js';

/** How often a client of a stormy route leaves. */
const LEAVES = 0.15;
const MOST_PATIENCE_MS = 25;
/** Keys of `Idempotency-Key` are new after a while, and some repeats differ. */
const KEY_AGE_MS = 700;
const DIFFERS = 0.05;
const LONG_UPLOAD = 0.03;

/** How the requests of a route ended, as their clients saw it. */
export class Tally {
  sent = 0;
  /** Left before the answer was whole: the gateway may have thought it was. */
  left = 0;
  /** By the label that the gateway's metric must have. */
  readonly ended = new Map<string, number>();

  count(label: string): void {
    this.ended.set(label, (this.ended.get(label) ?? 0) + 1);
  }
}

export class Lanes {
  readonly tallies = new Map<string, Tally>(SOAK_ROUTES.map(({ name }) => [name, new Tally()]));
  /** Answers that no request can have got. */
  readonly oddities: string[] = [];
  readonly #agent = new Agent({ keepAlive: true, scheduling: 'fifo', maxFreeSockets: 1_000 });
  readonly #random: Random;
  readonly #origins: readonly URL[];

  constructor(random: Random, urls: readonly string[]) {
    this.#random = random;
    this.#origins = urls.map((url) => new URL(url));
  }

  get sent(): number {
    return [...this.tallies.values()].reduce((sum, { sent }) => sum + sent, 0);
  }

  /** So many lanes for a time; resolves when the last of them is answered. */
  async run(lanes: number, forMs: number): Promise<void> {
    const untilMs = performance.now() + forMs;
    const lane = async () => {
      while (performance.now() < untilMs) await this.#one(this.#random.pick(SOAK_ROUTES));
    };
    await Promise.all(Array.from({ length: lanes }, lane));
  }

  close(): void {
    this.#agent.destroy();
  }

  async #one(route: SoakRoute): Promise<void> {
    const random = this.#random;
    const tally = this.tallies.get(route.name)!;
    const key = random.whole(1, route.keys);
    const path = `/${route.name}/${route.keyIn === 'path' ? key : 'a'}`;
    const headers: Record<string, string> = { 'Content-Type': 'application/json' };
    let content = JSON.stringify({ key });
    if (route.keyIn === 'idempotency-key') {
      const since = Math.floor(performance.now() / KEY_AGE_MS);
      headers['Idempotency-Key'] = `${route.name}-${since}-${key}`;
      content = JSON.stringify({ key, since, differs: random.chance(DIFFERS) });
    } else if (route.method === 'POST' && random.chance(LONG_UPLOAD)) {
      content = JSON.stringify({ key, more: 'x'.repeat(100_000) });
    }
    const patienceMs = route.mood === 'stormy' && random.chance(LEAVES) ? random.whole(0, MOST_PATIENCE_MS) : null;
    const { hostname: host, port } = random.pick(this.#origins);
    const asked = { agent: this.#agent, host, port, method: route.method, path, headers };
    tally.sent += 1;
    const label = await this.#ask(asked, route.method === 'GET' ? '' : content, patienceMs);
    if (label === null) tally.left += 1;
    else tally.count(label);
  }

  /** The label of how it ended; null: it left. */
  #ask(asked: { readonly path: string }, content: string, patienceMs: number | null): Promise<string | null> {
    return new Promise((resolve) => {
      let timer: NodeJS.Timeout | undefined;
      let left = false;
      const end = (label: string) => {
        clearTimeout(timer);
        resolve(left ? null : label);
      };
      const req = request(asked, (res) => {
        const pieces: Buffer[] = [];
        res.on('data', (piece: Buffer) => pieces.push(piece));
        res.on('error', () => {});
        res.once('close', () => end(res.complete ? this.#labelOf(asked.path, res, Buffer.concat(pieces)) : 'cut'));
      });
      req.on('error', () => end('cut'));
      if (patienceMs !== null) {
        req.once('finish', () => {
          timer = setTimeout(() => {
            left = true;
            req.destroy();
          }, patienceMs);
        });
      }
      req.end(content);
    });
  }

  #labelOf(path: string, { statusCode, headers }: IncomingMessage, content: Buffer): string {
    if (headers['content-type'] === 'application/problem+json') {
      return /urn:oneflight:problem:([\w-]+)/.exec(content.toString())?.[1] ?? 'unnamed problem';
    }
    if (!content.subarray(0, path.length + 1).equals(Buffer.from(`${path}\n`))) {
      this.oddities.push(`${path}: ${statusCode} ${content.toString().slice(0, 80)}`);
    }
    const said = String(headers['cache-status'] ?? '');
    if (said === '') return 'passed';
    if (said.includes('; hit')) return 'hit';
    if (said.includes('detail=observe')) return 'observed';
    if (said.includes('fwd=bypass')) return 'bypassed';
    return said.includes('collapsed') ? 'collapsed' : 'led';
  }
}
