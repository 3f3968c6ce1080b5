/**
 * How a process comes to hear its pushes: it subscribes to its channel after each connect.
 *
 * Invariants: a refusal is told once and does not end the connection; it is asked again ever later. Until then nobody is
 * told that pushes arrive, so that polls do for them.
 */

import type { AuditWarning } from './redis-audit.js';
import { isReply, type RedisLink, type StoreLog } from './redis-link.js';

export type HearingOptions = {
  readonly link: RedisLink;
  readonly channel: string;
  /** What an ACL user needs, as its rule has it without the `&`. */
  readonly channels: string;
  readonly timeoutMs: number;
  readonly log: StoreLog;
  /** Pushes arrive from now on. */
  readonly onListening: () => void;
};

/** From a quarter of a second, doubled up to 8 s, the upper half of it at random. */
const FIRST_MS = 250;
const DOUBLED_MOST = 5;

const MESSAGE = 'the store refuses the gateway its channels: polls do for wake-ups, which takes followers longer';

export class RedisHearing {
  readonly #options: HearingOptions;
  /** What the server said; null: it has not refused, or does so no longer. */
  #refusal: string | null = null;
  #refusals = 0;
  #timer: NodeJS.Timeout | null = null;
  #closed = false;

  constructor(options: HearingOptions) {
    this.#options = options;
  }

  /** For an audit; null: there is nothing to warn of. */
  get warning(): AuditWarning | null {
    if (this.#refusal === null) return null;
    return { message: MESSAGE, fields: { channels: this.#options.channels, error: this.#refusal } };
  }

  /** To be called after each connect. */
  async subscribe(): Promise<void> {
    this.#cancel();
    const { link, channel, timeoutMs } = this.#options;
    const answer = await link.ask((client) => client.subscribe(channel), timeoutMs);
    if (this.#closed) return;
    if (answer.kind === 'answered') this.#heard();
    else if (answer.kind === 'refused' && isReply(answer.cause)) this.#refused(answer.cause.message);
    else link.drop();
  }

  close(): void {
    this.#closed = true;
    this.#cancel();
  }

  #heard(): void {
    if (this.#refusal !== null) this.#options.log('info', 'store pushes are heard', { connection: 'pushes' });
    this.#refusal = null;
    this.#refusals = 0;
    this.#options.onListening();
  }

  #refused(error: string): void {
    if (this.#refusal !== error) {
      this.#refusal = error;
      this.#options.log('warn', MESSAGE, { connection: 'pushes', channels: this.#options.channels, error });
    }
    const most = FIRST_MS * 2 ** Math.min(this.#refusals, DOUBLED_MOST);
    this.#refusals += 1;
    this.#cancel();
    this.#timer = setTimeout(
      () => {
        this.#timer = null;
        // A right can be given to a connection that is there. What else is wrong (no password yet) takes a new one.
        if (error.startsWith('NOPERM')) void this.subscribe();
        else this.#options.link.drop();
      },
      most / 2 + (Math.random() * most) / 2,
    ).unref();
  }

  #cancel(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
  }
}
