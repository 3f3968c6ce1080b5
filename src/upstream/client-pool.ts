/**
 * undici's connections to one address. undici's own pool looks through all of them, and at the clock for each, whenever a
 * request is sent; here the one that became free last is at hand.
 *
 * Invariants: a client has one request at a time; one whose connection is older than allowed is handed nothing, and closed;
 * one that could not connect is not used again; what is free is found without a search, whatever their number.
 */

import { Client, type Dispatcher } from 'undici';

type Member = {
  readonly client: Client;
  isFree: boolean;
  /** When it last connected, monotonic; null: it has not. */
  connectedAtMs: number | null;
};

export class ClientPool {
  readonly #origin: string;
  readonly #options: Client.Options;
  readonly #maxAgeMs: number;
  readonly #all = new Set<Member>();
  /** Who may be free; the last one is used first. */
  readonly #free: Member[] = [];
  #destroyed = false;

  constructor(origin: string, options: Client.Options, maxAgeMs: number) {
    this.#origin = origin;
    this.#options = options;
    this.#maxAgeMs = maxAgeMs;
  }

  dispatch(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): void {
    const member = this.#take() ?? this.#add();
    const { client } = member;
    // Not busy, or refused before it came to that: `drain` would not tell.
    if (client.dispatch(options, handler) || client.stats.size === 0) this.#putBack(member);
  }

  async destroy(): Promise<void> {
    this.#destroyed = true;
    await Promise.all([...this.#all].map(({ client }) => client.destroy()));
  }

  #take(): Member | null {
    for (let member = this.#free.pop(); member !== undefined; member = this.#free.pop()) {
      member.isFree = false;
      // What became of it since it was put back: one that is busy comes back by itself.
      if (!this.#all.has(member) || member.client.stats.size > 0) continue;
      if (member.connectedAtMs === null || performance.now() - member.connectedAtMs <= this.#maxAgeMs) return member;
      this.#all.delete(member);
      void member.client.close();
    }
    return null;
  }

  #add(): Member {
    const client = new Client(this.#origin, this.#options);
    const member: Member = { client, isFree: false, connectedAtMs: null };
    client.on('connect', () => {
      member.connectedAtMs = performance.now();
    });
    client.on('drain', () => this.#putBack(member));
    client.on('connectionError', () => this.#all.delete(member));
    this.#all.add(member);
    // What is sent after the end is refused by a client that has ended.
    if (this.#destroyed) void client.destroy();
    return member;
  }

  #putBack(member: Member): void {
    if (member.isFree || !this.#all.has(member)) return;
    member.isFree = true;
    this.#free.push(member);
  }
}
