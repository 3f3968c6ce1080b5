/**
 * The way from a key to the server that has it. One server, or one at a time behind sentinels, has all of them; in a
 * cluster (redis-cluster.ts) each primary has those of its slots.
 */

import type { HostPort, RedisAccess } from '../config/config.js';
import type { ScriptedRedis } from './redis-client.js';
import { type Answer, type LinkOptions, RedisLink, type StoreLog } from './redis-link.js';

/** A question to a server; it may be asked twice (redis-link.ts), and of another server then. */
export type Run<T> = (client: ScriptedRedis) => Promise<T>;

/** Asks over the connections for small commands about a key; `extraMs` is for what is larger than one. */
export type AskSmall = <T>(key: string, run: Run<T>, extraMs?: number) => Promise<Answer<T>>;

/** A primary, asked for itself and not for a key. */
export type RedisNode = { ask<T>(run: Run<T>, budgetMs: number): Promise<Answer<T>> };

export interface RedisRoute {
  /** Whether the connection is up that a question about the key would go over. */
  ready(key: string): boolean;
  /** Asks whoever has the key, within the budget in all. */
  ask<T>(key: string, run: Run<T>, budgetMs: number): Promise<Answer<T>>;
  /**
   * Every primary, as the servers say it now: for what concerns all keys. Throws `StoreUnavailable` when that cannot be
   * learned.
   */
  primaries(): Promise<readonly RedisNode[]>;
  /** Resolves when that has worked or failed for the first time. Attempts go on until `close`. */
  open(): Promise<void>;
  close(): void;
}

export type RouteOptions = {
  readonly role: string;
  readonly access: RedisAccess;
  readonly commandTimeoutMs: number;
  readonly log: StoreLog;
  /** Runs after each connect to a server, the first included. */
  readonly onReady: () => void;
};

/** All keys over one connection. */
export class SingleRoute implements RedisRoute {
  readonly #link: RedisLink;

  constructor({ role, onReady, ...options }: RouteOptions) {
    this.#link = new RedisLink(role, { ...options, next: () => onlyPlaceOf(options.access) }, onReady, () => {});
  }

  ready(): boolean {
    return this.#link.ready;
  }

  ask<T>(_key: string, run: Run<T>, budgetMs: number): Promise<Answer<T>> {
    return this.#link.ask(run, budgetMs);
  }

  async primaries(): Promise<readonly RedisNode[]> {
    return [this.#link];
  }

  open(): Promise<void> {
    return this.#link.open();
  }

  close(): void {
    this.#link.close();
  }
}

/** The one server; null where the sentinels know it, or where there are several. */
export function onlyPlaceOf({ servers }: RedisAccess): HostPort | null {
  return servers.kind === 'single' ? servers.at : null;
}

/** Connection on which pushes arrive. In a cluster every node has all messages, so that it may be anyone's. */
export function pushLink(
  options: Omit<LinkOptions, 'next'>,
  nodes: () => readonly HostPort[],
  onReady: () => void,
  onDown: () => void,
): RedisLink {
  const { servers } = options.access;
  let turn = 0;
  const next = (): HostPort | null => {
    if (servers.kind !== 'cluster') return onlyPlaceOf(options.access);
    const known = nodes();
    const all = known.length > 0 ? known : servers.hosts;
    turn += 1;
    return all[turn % all.length] ?? null;
  };
  // Not all processes at the same one.
  if (servers.kind === 'cluster') turn = Math.floor(Math.random() * servers.hosts.length);
  return new RedisLink('pushes', { ...options, next }, onReady, onDown);
}
