/**
 * A counter that every request increments. prom-client makes a text of the labels each time; this one keeps its own numbers
 * and hands them over when the metrics are read.
 */

import { Counter, type Registry } from 'prom-client';

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

  count(first: string, second = ''): void {
    let bySecond = this.#counts.get(first);
    if (bySecond === undefined) {
      bySecond = new Map();
      this.#counts.set(first, bySecond);
    }
    bySecond.set(second, (bySecond.get(second) ?? 0) + 1);
  }
}
