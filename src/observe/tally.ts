/**
 * Metrics that every request changes. prom-client makes a text of the labels each time; these keep their own numbers and hand
 * them over when the metrics are read.
 */

import { Counter, Gauge, type Registry } from 'prom-client';

/** A counter. */
export class Tally {
  /** First label → the second, or nothing → count since the metrics were read last. */
  readonly #counts = new Map<string, Map<string, number>>();

  constructor(
    registry: Registry,
    name: string,
    help: string,
    labelNames: readonly [string] | readonly [string, string],
  ) {
    const counts = this.#counts;
    const [first, second] = labelNames;
    new Counter({
      name: `oneflight_${name}`,
      help,
      labelNames,
      registers: [registry],
      collect() {
        for (const [one, byOther] of counts) {
          for (const [other, count] of byOther) {
            this.inc(second === undefined ? { [first]: one } : { [first]: one, [second]: other }, count);
          }
        }
        counts.clear();
      },
    });
  }

  /** Shows 0 until something is counted. */
  expect(first: string, second = ''): void {
    this.#add(first, second, 0);
  }

  count(first: string, second = ''): void {
    this.#add(first, second, 1);
  }

  #add(first: string, second: string, count: 0 | 1): void {
    let bySecond = this.#counts.get(first);
    if (bySecond === undefined) {
      bySecond = new Map();
      this.#counts.set(first, bySecond);
    }
    bySecond.set(second, (bySecond.get(second) ?? 0) + count);
  }
}

/** The same for what goes up and down. */
export class Level {
  readonly #levels = new Map<string, number>();

  constructor(registry: Registry, name: string, help: string, label: string) {
    const levels = this.#levels;
    new Gauge({
      name: `oneflight_${name}`,
      help,
      labelNames: [label],
      registers: [registry],
      collect() {
        for (const [one, level] of levels) this.set({ [label]: one }, level);
      },
    });
  }

  change(label: string, by: number): void {
    this.#levels.set(label, (this.#levels.get(label) ?? 0) + by);
  }
}
