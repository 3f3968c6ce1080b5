/**
 * A histogram of times that every flight is observed by several times. prom-client makes an object and a text of the labels
 * each time; this one counts in an array.
 */

import type { Histogram, Registry } from 'prom-client';
import type { Exemplar } from './open-metrics.js';

type Counts = {
  /** How many fell in each bucket, those before it not included; the last one has what is beyond all. */
  readonly inBucket: number[];
  sumS: number;
  /** Of each bucket the last time that was traced; null until there is one. */
  exemplars: (Exemplar | undefined)[] | null;
};

type Value = {
  readonly labels: Readonly<Record<string, string | number>>;
  readonly value: number;
  readonly metricName: string;
  readonly exemplar?: Exemplar;
};

export class Timings {
  readonly #name: string;
  readonly #help: string;
  readonly #label: string;
  readonly #bucketsS: readonly number[];
  readonly #counts = new Map<string, Counts>();

  constructor(registry: Registry, name: string, help: string, label: string, bucketsS: readonly number[]) {
    this.#name = `oneflight_${name}`;
    this.#help = help;
    this.#label = label;
    this.#bucketsS = bucketsS;
    const metric = {
      name: this.#name,
      type: 'histogram',
      get: async () => this.#values(),
      reset: () => this.#counts.clear(),
    };
    // What the registry asks of its metrics is no more than that.
    registry.registerMetric(metric as unknown as Histogram);
  }

  /** `traceId`: of the request whose time it was; null: it was not traced. */
  observe(label: string, ms: number, traceId: string | null = null): void {
    let counts = this.#counts.get(label);
    if (counts === undefined) {
      counts = { inBucket: new Array(this.#bucketsS.length + 1).fill(0), sumS: 0, exemplars: null };
      this.#counts.set(label, counts);
    }
    const seconds = ms / 1000;
    let at = 0;
    while (at < this.#bucketsS.length && seconds > (this.#bucketsS[at] as number)) at += 1;
    counts.inBucket[at] = (counts.inBucket[at] as number) + 1;
    counts.sumS += seconds;
    if (traceId === null) return;
    counts.exemplars ??= [];
    counts.exemplars[at] = { labelSet: { trace_id: traceId }, value: seconds, timestamp: Date.now() / 1000 };
  }

  #values(): unknown {
    const values: Value[] = [];
    const name = this.#name;
    for (const [label, { inBucket, sumS, exemplars }] of this.#counts) {
      const labels = { [this.#label]: label };
      let count = 0;
      for (const [at, inThis] of inBucket.entries()) {
        count += inThis;
        const le = this.#bucketsS[at] ?? '+Inf';
        const exemplar = exemplars?.[at];
        const bucket = { labels: { le, ...labels }, value: count, metricName: `${name}_bucket` };
        values.push(exemplar === undefined ? bucket : { ...bucket, exemplar });
      }
      values.push({ labels, value: sumS, metricName: `${name}_sum` });
      values.push({ labels, value: count, metricName: `${name}_count` });
    }
    return { name, help: this.#help, type: 'histogram', values, aggregator: 'sum' };
  }
}
