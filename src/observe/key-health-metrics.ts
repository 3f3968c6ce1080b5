/**
 * Key health as metrics, and as one record for each rule. Labels are names of the configuration and words of the gateway;
 * what requests held is in neither.
 */

import { Counter, type Registry } from 'prom-client';
import type { KeyFinding } from '../exchange/observer.js';
import type { Figures } from './metrics.js';
import { Tally } from './tally.js';

const MET = 'flights_with_duplicates_total';
const COARSE = 'keys_too_coarse_total';
const FINE = 'keys_too_fine_total';
const FORGOTTEN = 'key_health_forgotten_total';
const ALL = [MET, COARSE, FINE, FORGOTTEN];

export class KeyHealthMetrics {
  readonly #registry: Registry;
  readonly #met: Tally;
  readonly #coarse: Counter<'route' | 'differs_in' | 'compared'>;
  readonly #fine: Counter<'route' | 'part' | 'compared'>;
  readonly #forgotten: Tally;

  constructor(registry: Registry) {
    this.#registry = registry;
    this.#met = new Tally(registry, MET, 'Flights that had at least one duplicate, by where their leader was.', [
      'route',
      'leader',
    ]);
    this.#coarse = new Counter({
      name: `oneflight_${COARSE}`,
      help: 'Duplicates that were other requests than the one whose key they had, by the first thing that differed.',
      labelNames: ['route', 'differs_in', 'compared'],
      registers: [registry],
    });
    this.#fine = new Counter({
      name: `oneflight_${FINE}`,
      help: 'Requests that had come within the lease under another key, by the first part of the key that differed.',
      labelNames: ['route', 'part', 'compared'],
      registers: [registry],
    });
    const help =
      'Requests that were forgotten for want of room while equal ones could still have come within the lease.';
    this.#forgotten = new Tally(registry, FORGOTTEN, help, ['route']);
  }

  /** These alone: to read all metrics begins the measuring of some of them anew. */
  async figures(): Promise<Figures> {
    const metrics = ALL.map((name) => this.#registry.getSingleMetric(`oneflight_${name}`));
    return Promise.all(metrics.flatMap((metric) => (metric === undefined ? [] : [metric.get()])));
  }

  found(route: string, finding: KeyFinding): void {
    switch (finding.kind) {
      case 'flight-met':
        return this.#met.count(route, finding.leader);
      case 'too-coarse':
        return this.#coarse.inc({ route, differs_in: finding.differsIn, compared: finding.compared });
      case 'too-fine':
        return this.#fine.inc({ route, part: finding.part, compared: finding.compared });
      case 'forgotten':
        return this.#forgotten.count(route);
    }
  }
}

/** What was found of one rule since the gateway began; a rule of which nothing was found has none. */
export type RouteKeyHealth = {
  readonly route: string;
  readonly flightsWithDuplicates: { here: number; elsewhere: number };
  readonly tooCoarse: { readonly differsIn: string; readonly compared: string; readonly count: number }[];
  readonly tooFine: { readonly part: string; readonly compared: string; readonly count: number }[];
  forgotten: number;
};

/** Reads it out of the figures of a process, or of the sum of several. */
export function keyHealthOf(figures: Figures): readonly RouteKeyHealth[] {
  const routes = new Map<string, RouteKeyHealth>();
  const of = (route: string): RouteKeyHealth => {
    const known = routes.get(route);
    if (known !== undefined) return known;
    const flightsWithDuplicates = { here: 0, elsewhere: 0 };
    const fresh: RouteKeyHealth = { route, flightsWithDuplicates, tooCoarse: [], tooFine: [], forgotten: 0 };
    routes.set(route, fresh);
    return fresh;
  };
  const each = (name: string, take: (labels: Labels, count: number, health: RouteKeyHealth) => void): void => {
    const figure = figures.find((one) => one.name === `oneflight_${name}`);
    for (const { labels, value } of (figure?.values ?? []) as readonly Counted[]) {
      const { route } = labels;
      if (value > 0) take(labels, value, of(route ?? ''));
    }
  };
  each(MET, ({ leader }, count, { flightsWithDuplicates }) => {
    flightsWithDuplicates[leader === 'here' ? 'here' : 'elsewhere'] += count;
  });
  each(COARSE, ({ differs_in: differsIn = '', compared = '' }, count, { tooCoarse }) => {
    tooCoarse.push({ differsIn, compared, count });
  });
  each(FINE, ({ part = '', compared = '' }, count, { tooFine }) => {
    tooFine.push({ part, compared, count });
  });
  each(FORGOTTEN, (_labels, count, health) => {
    health.forgotten += count;
  });
  return [...routes.values()];
}

type Labels = Readonly<Partial<Record<string, string>>>;
type Counted = { readonly labels: Labels; readonly value: number };
