/**
 * The connections to Redis, and how a command is asked over one.
 *
 * Invariants: every command ends within its budget, whatever the server or the network does; nothing is queued while the
 * connection is down and nothing is resent behind our back, so that "was it executed?" has one of three answers:
 * answered, refused (certainly not executed), uncertain; a command is repeated at most once, on a dropped connection,
 * which is why every script can be asked twice.
 */

import { performance } from 'node:perf_hooks';
import type { Redis } from 'ioredis';
import type { HostPort } from '../config/config.js';
import type { Held } from '../core/claim.js';
import { type ClientOptions, newClient, type Scripted, type ScriptedRedis } from './redis-client.js';
import { StoreUnavailable } from './store.js';

export type StoreLog = (
  level: 'info' | 'warn' | 'error',
  message: string,
  fields: { readonly [name: string]: unknown },
) => void;

export type LinkOptions = ClientOptions & { readonly log: StoreLog };

/** What became of a command. */
export type Answer<T> =
  /** `repeated`: the first try was lost, and may have been executed as well. */
  | { readonly kind: 'answered'; readonly value: T; readonly repeated: boolean }
  | { readonly kind: 'refused'; readonly cause: unknown }
  | { readonly kind: 'uncertain'; readonly cause: unknown };

/** Until a client that gave up is told to go on. */
const REVIVE_MS = 100;

class TimedOut extends Error {
  override readonly name = 'TimedOut';
}

/** Settles like the promise, or rejects with `TimedOut`. A later rejection of the promise is taken care of. */
function within<T>(promise: Promise<T>, ms: number): Promise<T> {
  return new Promise((resolve, reject) => {
    // After a stall of this process its timers are due before its sockets are read, where the answer may be waiting: a
    // pause of our own is no outage of the store. An immediate comes after one look at the sockets.
    const timer = setTimeout(
      () => setImmediate(() => reject(new TimedOut(`no answer within ${Math.round(ms)} ms`))),
      ms,
    );
    promise.then(
      (value) => {
        clearTimeout(timer);
        resolve(value);
      },
      (error) => {
        clearTimeout(timer);
        reject(error);
      },
    );
  });
}

/** The answer's value; `StoreUnavailable` when there is none. */
export function answered<T>(answer: Answer<T>): T {
  if (answer.kind === 'answered') return answer.value;
  const { cause } = answer;
  throw new StoreUnavailable(`store unavailable: ${cause instanceof Error ? cause.message : cause}`, { cause });
}

/** What a script says that compares a lease. "Lost" on a repeated question may be the work of the first try: then nobody can say. */
export function heldOrLost(answer: Answer<unknown>): Held {
  if (answered(answer) === 1) return 'held';
  if (answer.kind === 'answered' && answer.repeated) throw new StoreUnavailable('the answer of the store was lost');
  return 'lost';
}

/** `host:port`, with brackets around an IPv6 address. */
export function addressText({ host, port }: HostPort): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}

/** Whether the server said so. */
export function isReply(error: unknown): error is Error {
  return error instanceof Error && error.name === 'ReplyError';
}

/** A right that a script lacks shows when it gets there, behind what it has written. Redis 7 says it in other words than 6.2. */
const HALF_WAY = /ACL failure in script|user executing the script/;

/** A server that answered with an error did not execute the script: ours write only what cannot fail half-way, but for rights. */
function isRefusal(error: unknown): boolean {
  return isReply(error) && !HALF_WAY.test(error.message);
}

/** One connection that is kept up until it is closed. */
export class RedisLink {
  readonly client: Redis & Scripted;
  readonly #log: StoreLog;
  readonly #role: string;
  /** One line in the log for an outage, not one for each attempt. */
  #told = false;
  /** Dropped commands that wait for the next connection. */
  readonly #whenReady = new Set<() => void>();
  /** Those that wait in vain once the link is closed. */
  readonly #whenClosed = new Set<() => void>();
  #closed = false;
  #reviving: NodeJS.Timeout | null = null;
  /** Holds back what is written until this turn of the event loop is over. */
  #gathering: Redis['stream'] | null = null;

  /** `onReady` runs after each connect, the first included; `onDown` when a connection is gone. */
  constructor(role: string, options: LinkOptions, onReady: () => void, onDown: () => void) {
    this.#role = role;
    this.#log = options.log;
    this.client = newClient(options);
    this.client.on('error', (error: Error) => this.#tellOutage(error));
    this.client.on('close', onDown);
    // The client gives up for good when a fail-over is told while it asks the sentinels for a place.
    this.client.on('end', () => this.#revive());
    this.client.on('ready', () => {
      this.#told = false;
      this.#log('info', 'store connected', { connection: role, ...this.#place() });
      onReady();
      const waiting = [...this.#whenReady];
      this.#whenReady.clear();
      for (const go of waiting) go();
    });
  }

  get ready(): boolean {
    return this.client.status === 'ready';
  }

  #tellOutage(error: Error): void {
    if (this.#told) return;
    this.#told = true;
    this.#log('warn', 'store connection failed', { connection: this.#role, ...this.#place(), error: error.message });
  }

  /** Where it is, unless the sentinels say so. */
  #place(): { readonly server?: string } {
    const { host, port, sentinels } = this.client.options;
    return host === undefined || port === undefined || sentinels ? {} : { server: addressText({ host, port }) };
  }

  /** Connects; resolves when that has worked or failed for the first time. Attempts go on until `close`. */
  async open(): Promise<void> {
    await this.client.connect().catch(() => {});
  }

  #revive(): void {
    if (this.#closed || this.#reviving !== null) return;
    this.#reviving = setTimeout(() => {
      this.#reviving = null;
      if (!this.#closed && this.client.status === 'end') void this.open();
    }, REVIVE_MS);
  }

  close(): void {
    this.#closed = true;
    if (this.#reviving !== null) clearTimeout(this.#reviving);
    this.client.disconnect();
    for (const giveUp of this.#whenClosed) giveUp();
  }

  /** Drops a connection that looks dead; a new one is made. */
  drop(): void {
    this.client.disconnect(true);
  }

  /** Asks, within the budget in all. */
  async ask<T>(run: (client: ScriptedRedis) => Promise<T>, budgetMs: number): Promise<Answer<T>> {
    if (!this.ready) return { kind: 'refused', cause: new Error('not connected') };
    const deadline = performance.now() + budgetMs;
    this.#gather();
    try {
      return { kind: 'answered', value: await within(run(this.client), budgetMs), repeated: false };
    } catch (cause) {
      if (isRefusal(cause)) return { kind: 'refused', cause };
      // Asked again it would be told the same.
      if (isReply(cause)) return { kind: 'uncertain', cause };
      if (cause instanceof TimedOut || !(await this.#readyBy(deadline))) return { kind: 'uncertain', cause };
    }
    try {
      const value = await within(run(this.client), deadline - performance.now());
      return { kind: 'answered', value, repeated: true };
    } catch (cause) {
      // Of the first try nothing is known, whatever the second one was told.
      return { kind: 'uncertain', cause };
    }
  }

  /** Has all that is asked in this turn of the event loop written at once: a system call for each was a tenth of a flight's CPU. */
  #gather(): void {
    const { stream } = this.client;
    if (this.#gathering === stream) return;
    this.#gathering = stream;
    stream.cork();
    setImmediate(() => {
      stream.uncork();
      this.#gathering = null;
    });
  }

  /** Whether a connection gets ready in time. One that still says it is when a command was dropped is the old one. */
  #readyBy(deadline: number): Promise<boolean> {
    if (this.#closed) return Promise.resolve(false);
    return new Promise((resolve) => {
      const end = (isReady: boolean) => {
        clearTimeout(timer);
        this.#whenReady.delete(onReady);
        this.#whenClosed.delete(giveUp);
        resolve(isReady);
      };
      const onReady = () => end(true);
      const giveUp = () => end(false);
      const timer = setTimeout(() => setImmediate(giveUp), deadline - performance.now());
      this.#whenReady.add(onReady);
      this.#whenClosed.add(giveUp);
    });
  }
}
