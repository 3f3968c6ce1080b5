/**
 * The way of one gateway to its store, whatever that is: a proxy before each of its servers, which break together.
 *
 * Invariants: no other gateway, and no server, passes them; where servers name each other, the proxies stand at an address
 * of the gateway's own (tcp-proxy.ts), so that it never learns another way.
 */

import { delay, Gate } from '../support/gate.js';
import type { RedisServer } from '../support/redis.js';
import { LostReply, TcpProxy } from '../support/tcp-proxy.js';

type Scope = { teardown(end: () => void | Promise<void>): void };

/** Until a packet that comes late has been taken. */
const TAKEN_MS = 50;

/** The address at which a gateway has its servers. */
export function addressOf(gateway: number): string {
  return `127.0.0.${gateway + 2}`;
}

export class StoreWay {
  readonly #proxies: readonly TcpProxy[];

  private constructor(proxies: readonly TcpProxy[]) {
    this.#proxies = proxies;
  }

  /** To the ports of these servers, under the same numbers. */
  static async open(scope: Scope, gateway: number, servers: readonly Pick<RedisServer, 'port'>[]): Promise<StoreWay> {
    const ports = [...new Set(servers.map(({ port }) => port))];
    return new StoreWay(await Promise.all(ports.map((port) => TcpProxy.startAt(scope, addressOf(gateway), port))));
  }

  /** The next reply to a request with this text is lost, with its connection. Waits for it as long as that at most. */
  async loseReplyTo(text: string, forMs: number): Promise<void> {
    const losing = new LostReply(text);
    for (const proxy of this.#proxies) proxy.losing = losing;
    await Promise.race([losing.lost, delay(forMs)]);
    losing.giveUp();
  }

  /** Nothing passes, and the connections are gone afterwards: none ever goes on behind bytes that it has lost. */
  async blackHole(forMs: number): Promise<void> {
    for (const proxy of this.#proxies) proxy.blackHole = true;
    await delay(forMs);
    for (const proxy of this.#proxies) {
      proxy.cut();
      proxy.blackHole = false;
    }
  }

  /** What is asked arrives late. */
  async slow(forMs: number): Promise<void> {
    const gate = new Gate();
    for (const proxy of this.#proxies) {
      proxy.heldUntil = Promise.all([proxy.heldUntil, gate.opened]).then(() => {});
    }
    await delay(forMs);
    gate.open();
  }

  /** What is asked arrives when its connection has been given up. */
  async late(forMs: number): Promise<void> {
    const letGo = this.#proxies.map((proxy) => proxy.holdRequests());
    await delay(forMs);
    for (const go of letGo) go();
    await delay(TAKEN_MS);
    for (const proxy of this.#proxies) proxy.cut();
  }
}
