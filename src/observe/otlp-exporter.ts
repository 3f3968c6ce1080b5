/**
 * Brings spans to a collector, OTLP over HTTP, in batches.
 *
 * Invariants: nothing waits for it, but its own end for a bounded time; what it holds is bounded, and what there is no
 * room for, or what the collector does not take, is dropped and counted; one batch is under way at a time, so that a
 * collector that comes back is not met by all that was kept from it.
 */

import { Agent, request } from 'undici';
import type { Attributes, Span } from './otlp.js';
import { encodeSpans } from './otlp.js';

export type ExporterOptions = {
  readonly url: URL;
  /** Flat field lines of each request. */
  readonly fields: readonly string[];
  /** What the spans are of: this process. */
  readonly resource: Attributes;
  readonly version: string;
  readonly onCounted: (result: 'exported' | 'dropped', spans: number) => void;
  /** `failing` once until the collector takes something again. */
  readonly onState: (state: 'failing' | 'working', reason: string) => void;
  /** Times of its own. Default: those below. */
  readonly times?: Partial<typeof TIMES>;
};

const BATCH_SPANS = 256;
/** Of those that wait; a batch that is under way is not among them. Some 2 MB. */
const MOST_SPANS = 2_048;
const MOST_ANSWER_BYTES = 65_536;

const TIMES = {
  /** How long spans wait for others. */
  gatherMs: 1_000,
  /** Longest time for a connection, for the answer to a request to begin, and between its pieces. */
  requestMs: 10_000,
  /** Before the second attempt; doubled with each. */
  backoffMs: 1_000,
  mostBackoffMs: 30_000,
  /** Longest time for what is left at the end. */
  flushMs: 3_000,
};
const ATTEMPTS = 5;

/** What the protocol calls retryable. */
const RETRYABLE: ReadonlySet<number> = new Set([429, 502, 503, 504]);

type Posted =
  | { readonly kind: 'taken'; readonly rejected: number }
  | { readonly kind: 'refused'; readonly reason: string }
  /** It may be asked again; `afterMs`: when it says so. */
  | { readonly kind: 'later'; readonly reason: string; readonly afterMs: number | null };

export class OtlpExporter {
  readonly #options: ExporterOptions;
  readonly #times: typeof TIMES;
  readonly #agent: Agent;
  readonly #fields: readonly string[];
  #queue: Span[] = [];
  #timer: NodeJS.Timeout | null = null;
  #sending: Promise<void> | null = null;
  #state: 'failing' | 'working' = 'working';
  /** Aborted by the stop: no attempt follows another from then on. */
  readonly #stopping = new AbortController();
  /** Aborted when the time for what is left is over. */
  readonly #over = new AbortController();

  constructor(options: ExporterOptions) {
    this.#options = options;
    this.#times = { ...TIMES, ...options.times };
    const { requestMs } = this.#times;
    this.#agent = new Agent({
      connections: 1,
      connect: { timeout: requestMs },
      headersTimeout: requestMs,
      bodyTimeout: requestMs,
      maxResponseSize: MOST_ANSWER_BYTES,
    });
    this.#fields = [...options.fields, 'Content-Type', 'application/json'];
  }

  /** Takes a span that is over. */
  add(span: Span): void {
    if (this.#queue.length >= MOST_SPANS) {
      this.#is('failing', 'it is too slow');
      return this.#options.onCounted('dropped', 1);
    }
    this.#queue.push(span);
    if (this.#sending !== null) return;
    if (this.#queue.length >= BATCH_SPANS) this.#send();
    else this.#timer ??= setTimeout(() => this.#send(), this.#times.gatherMs).unref();
  }

  /** Sends what is left, within a bounded time, and ends its connection. */
  async close(): Promise<void> {
    this.#stopping.abort();
    const timer = setTimeout(() => this.#over.abort(), this.#times.flushMs);
    await this.#sending;
    this.#send();
    await this.#sending;
    clearTimeout(timer);
    await this.#agent.destroy();
  }

  #send(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    this.#sending ??= this.#sendAll().finally(() => {
      this.#sending = null;
      // What came while the last batch was under way.
      if (this.#queue.length > 0) this.#timer ??= setTimeout(() => this.#send(), this.#times.gatherMs).unref();
    });
  }

  async #sendAll(): Promise<void> {
    const { resource, version, onCounted } = this.#options;
    do {
      const batch = this.#queue.slice(0, BATCH_SPANS);
      this.#queue = this.#queue.slice(BATCH_SPANS);
      if (batch.length === 0) return;
      const rejected = await this.#deliver(encodeSpans(batch, resource, version), batch.length);
      if (rejected < batch.length) onCounted('exported', batch.length - rejected);
      if (rejected > 0) onCounted('dropped', rejected);
      // What makes less than a batch waits for others, unless nobody comes any more.
    } while (this.#queue.length >= BATCH_SPANS || this.#stopping.signal.aborted);
  }

  /** Answers how many of the spans nobody has taken. */
  async #deliver(content: string, spans: number): Promise<number> {
    let { backoffMs } = this.#times;
    for (let attempt = 1; ; attempt += 1) {
      const posted = await this.#post(content);
      if (posted.kind === 'taken') {
        this.#is('working', '');
        return Math.min(posted.rejected, spans);
      }
      this.#is('failing', posted.reason);
      const goesOn = posted.kind === 'later' && attempt < ATTEMPTS && !this.#stopping.signal.aborted;
      if (!goesOn) return spans;
      await this.#pause(Math.min(posted.afterMs ?? backoffMs * (0.5 + Math.random() / 2), this.#times.mostBackoffMs));
      backoffMs *= 2;
    }
  }

  #is(state: 'failing' | 'working', reason: string): void {
    if (state === this.#state) return;
    this.#state = state;
    this.#options.onState(state, reason);
  }

  /** Ends sooner with the stop. */
  #pause(ms: number): Promise<void> {
    const { signal } = this.#stopping;
    return new Promise((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        signal.removeEventListener('abort', done);
        resolve();
      };
      const timer = setTimeout(done, ms).unref();
      signal.addEventListener('abort', done);
      if (signal.aborted) done();
    });
  }

  async #post(content: string): Promise<Posted> {
    try {
      const { statusCode, headers, body } = await request(this.#options.url, {
        method: 'POST',
        headers: [...this.#fields],
        body: content,
        dispatcher: this.#agent,
        // The client's own time-outs are between pieces: a collector that drips would hold up all spans.
        signal: AbortSignal.any([this.#over.signal, AbortSignal.timeout(this.#times.requestMs)]),
      });
      const answer = await body.text();
      if (statusCode >= 200 && statusCode < 300) return { kind: 'taken', rejected: rejectedBy(answer) };
      const reason = `it answers ${statusCode}`;
      if (!RETRYABLE.has(statusCode)) return { kind: 'refused', reason };
      return { kind: 'later', reason, afterMs: retryAfterMs(headers['retry-after']) };
    } catch (error) {
      return { kind: 'later', reason: reasonOf(error), afterMs: null };
    }
  }
}

/** How many spans a collector that has taken a request has thrown away (`partialSuccess`). */
function rejectedBy(answer: string): number {
  try {
    const { partialSuccess } = JSON.parse(answer) as { partialSuccess?: { rejectedSpans?: unknown } };
    const rejected = Number(partialSuccess?.rejectedSpans ?? 0);
    return Number.isSafeInteger(rejected) && rejected > 0 ? rejected : 0;
  } catch {
    // It need not be JSON.
    return 0;
  }
}

/** Of its two forms, that in seconds. */
function retryAfterMs(value: string | string[] | undefined): number | null {
  return typeof value === 'string' && /^\d{1,6}$/.test(value) ? Number(value) * 1000 : null;
}

function reasonOf(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  return code ?? message;
}
