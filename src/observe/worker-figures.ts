/**
 * The metrics of several workers as those of one gateway.
 *
 * Invariants: a counter never goes back: what a worker that has ended had counted stays in the sum, as far as it had told;
 * of a worker that does not answer, the last that it told counts. Levels are of the workers that live.
 */

import { AggregatorRegistry, Counter, Gauge, Registry } from 'prom-client';
import type { Figures } from './metrics.js';
import { openMetricsText, withExemplars } from './open-metrics.js';
import { collectProcessMetrics } from './process-metrics.js';

/** What goes on when the process that had counted it is gone. */
const LASTING: ReadonlySet<unknown> = new Set(['counter', 'histogram', 'summary']);

/** More parts are added up. */
const ENDED_MOST = 16;

export class WorkerFigures {
  /** The parent's own, of which its use of the machine is added to that of the workers. */
  readonly #process = new Registry();
  readonly #own = new Registry();
  readonly #ends = new Counter({
    name: 'oneflight_workers_ended_total',
    help: 'Workers that have ended without having been asked to.',
    registers: [this.#own],
  });
  readonly #reloadSuccess = new Gauge({
    name: 'oneflight_config_reload_success',
    help: 'Whether the configuration was good when it was last read: 1, or 0.',
    registers: [this.#own],
  });
  readonly #reloadedAt = new Gauge({
    name: 'oneflight_config_reload_success_timestamp_seconds',
    help: 'When the configuration was last read and good.',
    registers: [this.#own],
  });
  readonly #latest = new Map<string, Figures>();
  /** What those had counted that have ended, in few parts. */
  readonly #ended: Figures[] = [];
  #adding: 'no' | 'yes' = 'no';

  constructor() {
    collectProcessMetrics(this.#process);
    this.reloaded('good');
    const latest = this.#latest;
    new Gauge({
      name: 'oneflight_workers',
      help: 'Workers that run now.',
      registers: [this.#own],
      collect() {
        this.set(latest.size);
      },
    });
  }

  /** The configuration was read again. */
  reloaded(result: 'good' | 'bad'): void {
    this.#reloadSuccess.set(result === 'good' ? 1 : 0);
    if (result === 'good') this.#reloadedAt.setToCurrentTime();
  }

  /** A worker runs; `id` is its alone for ever. */
  began(id: string): void {
    this.#latest.set(id, []);
  }

  told(id: string, figures: Figures): void {
    // What comes when it is known to have ended is counted already.
    if (this.#latest.has(id)) this.#latest.set(id, figures);
  }

  /** A worker has ended, and everything that it had told is here. */
  over(id: string, how: 'asked' | 'unasked'): void {
    const lasting = (this.#latest.get(id) ?? []).filter(({ type }) => LASTING.has(type));
    this.#latest.delete(id);
    this.#ended.push(lasting);
    if (how === 'unasked') this.#ends.inc();
    if (this.#ended.length > ENDED_MOST && this.#adding === 'no') void this.#addUp();
  }

  get contentType(): string {
    return this.#own.contentType;
  }

  /** All in the text exposition format. */
  async expose(): Promise<string> {
    return `${await (await this.#sum()).metrics()}\n${await this.#own.metrics()}`;
  }

  /** The same as numbers. */
  async figures(): Promise<Figures> {
    const sum = await this.#sum();
    return [...(await sum.getMetricsAsJSON()), ...(await this.#own.getMetricsAsJSON())];
  }

  /** The same in the format that has exemplars. */
  async exposeOpenMetrics(): Promise<string> {
    const sum = (await (await this.#sum()).getMetricsAsJSON()) as Figures;
    return openMetricsText([
      ...withExemplars(sum, [...this.#latest.values()]),
      ...(await this.#own.getMetricsAsJSON()),
    ]);
  }

  async #sum(): Promise<Registry> {
    const own = (await this.#process.getMetricsAsJSON()).filter(({ name }) => name.startsWith('process_'));
    const sum = sumOf([...this.#ended, ...this.#latest.values(), own]);
    // The gateway is as old as its parent.
    const began = this.#process.getSingleMetric('process_start_time_seconds');
    if (began !== undefined) sum.registerMetric(began);
    return sum;
  }

  /** What was counted by all workers, as numbers. */
  async counted(): Promise<Figures> {
    return sumOf([...this.#ended, ...this.#latest.values()]).getMetricsAsJSON();
  }

  /** Nothing is taken out before its sum is in. */
  async #addUp(): Promise<void> {
    this.#adding = 'yes';
    const parts = [...this.#ended];
    this.#ended.splice(0, parts.length, await sumOf(parts).getMetricsAsJSON());
    this.#adding = 'no';
  }
}

function sumOf(all: readonly Figures[]): Registry {
  return AggregatorRegistry.aggregate([...all]);
}
