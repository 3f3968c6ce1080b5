/**
 * One question to the API: a GET, and its whole answer.
 *
 * Invariants: an answer is whole or it is none; no more of its content is held than asked for; it ends by itself, by the
 * upstream's deadlines and by one over all, so that an answer that drips does not hold its place for ever.
 */

import type { ReconcileAnswer } from '../core/reconcile.js';
import { clientFields, contentLengthOf, sharedFields } from '../http/fields.js';
import { viaValue } from '../http/via.js';
import type { FailureCause, UpstreamFailure } from '../upstream/failure.js';
import type { Exchange, ForwardSink, Upstream } from '../upstream/upstream.js';

export type Asked =
  | { readonly kind: 'answered'; readonly answer: ReconcileAnswer }
  | { readonly kind: 'failed'; readonly cause: FailureCause | 'overdue' | 'stopped' };

export type QuestionOptions = {
  readonly upstream: Upstream;
  /** Path and query. */
  readonly target: string;
  /** Flat field lines. */
  readonly fields: readonly string[];
  readonly limitBytes: number;
};

/** Asks once. `signal` gives it up. */
export function ask(options: QuestionOptions, signal: AbortSignal): Promise<Asked> {
  return new Promise((resolve) => new Question(options, signal, resolve));
}

class Question implements ForwardSink {
  readonly #limitBytes: number;
  readonly #exchange: Exchange;
  readonly #timer: NodeJS.Timeout;
  readonly #signal: AbortSignal;
  readonly #onStop = () => this.#giveUp({ kind: 'failed', cause: 'stopped' });
  readonly #resolve: (asked: Asked) => void;
  #head: Omit<ReconcileAnswer, 'content' | 'trailers'> | null = null;
  #chunks: Buffer[] = [];
  #bytes = 0;

  constructor(
    { upstream, target, fields, limitBytes }: QuestionOptions,
    signal: AbortSignal,
    resolve: (asked: Asked) => void,
  ) {
    this.#limitBytes = limitBytes;
    this.#signal = signal;
    this.#resolve = resolve;
    const overdueMs = upstream.answerDeadlineMs + upstream.bodyTimeoutMs;
    this.#timer = setTimeout(() => this.#giveUp({ kind: 'failed', cause: 'overdue' }), overdueMs).unref();
    signal.addEventListener('abort', this.#onStop, { once: true });
    const request = {
      method: 'GET',
      target,
      fields: questionFields(fields, upstream.pseudonym),
      content: null,
      trailers: null,
    };
    this.#exchange = upstream.forward(request, this, 'keyed');
  }

  onSend(): boolean {
    return true;
  }

  onInterim(): void {}

  onFields(status: number, reason: string, fields: string[]): void {
    // Nobody's request is the one that was asked with: what tells of it is for nobody.
    const passed = sharedFields(clientFields(fields));
    this.#head = { status, reason, fields: passed };
    if ((contentLengthOf(passed) ?? 0) > this.#limitBytes) this.#tooLarge();
  }

  onContent(chunk: Buffer): boolean {
    this.#bytes += chunk.length;
    if (this.#bytes > this.#limitBytes) this.#tooLarge();
    else this.#chunks.push(chunk);
    return true;
  }

  onEnd(trailers: string[]): void {
    this.#answered(Buffer.concat(this.#chunks, this.#bytes), trailers);
  }

  onFailure({ cause }: UpstreamFailure): void {
    this.#over({ kind: 'failed', cause });
  }

  /** What it says is clear from its status; what it holds is more than is kept or judged. */
  #tooLarge(): void {
    this.#chunks = [];
    this.#exchange.abort();
    this.#answered(null, []);
  }

  #answered(content: Buffer | null, trailers: string[]): void {
    if (this.#head !== null) this.#over({ kind: 'answered', answer: { ...this.#head, content, trailers } });
  }

  #giveUp(asked: Asked): void {
    this.#exchange.abort();
    this.#over(asked);
  }

  #over(asked: Asked): void {
    clearTimeout(this.#timer);
    this.#signal.removeEventListener('abort', this.#onStop);
    this.#resolve(asked);
  }
}

/** The answer must be fresh and plain: a cached 404 would free the key of something that was done since. */
function questionFields(fields: readonly string[], pseudonym: string): string[] {
  const names = new Set(fields.filter((_, index) => index % 2 === 0).map((name) => name.toLowerCase()));
  // Nobody's `Host` is kept: it is that of the address.
  const out = [...fields];
  if (!names.has('accept')) out.push('Accept', '*/*');
  if (!names.has('cache-control')) out.push('Cache-Control', 'no-cache');
  out.push('Via', viaValue('1.1', pseudonym));
  return out;
}
