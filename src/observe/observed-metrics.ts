/**
 * The metrics by which a rule is introduced: what would have become of requests if it did not only observe, and what it would
 * have saved; and whether the upstream agrees with the responses that are shared.
 */

import { Counter, type Registry } from 'prom-client';
import { fateLabel, savesCall } from '../core/observed.js';
import type { ObservedReport, VerifiedReport } from '../exchange/observer.js';
import { Tally } from './tally.js';
import { Timings } from './timings.js';

const WAIT_BUCKETS_S = [0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

export class ObservedMetrics {
  readonly #requests: Tally;
  readonly #calls: Tally;
  readonly #seconds: Counter<'route'>;
  readonly #waits: Timings;

  constructor(registry: Registry) {
    this.#requests = new Tally(
      registry,
      'observed_requests_total',
      'Requests of routes that only observe, by what their outcome would have been.',
      ['route', 'outcome'],
    );
    this.#calls = new Tally(
      registry,
      'observed_saved_calls_total',
      'Upstream calls that would not have been made, of routes that only observe.',
      ['route'],
    );
    this.#seconds = new Counter({
      name: 'oneflight_observed_saved_seconds_total',
      help: 'Time that those upstream calls took.',
      labelNames: ['route'],
      registers: [registry],
    });
    this.#waits = new Timings(
      registry,
      'observed_wait_seconds',
      'Time that a request would have waited for its answer or its turn, of routes that only observe.',
      'route',
      WAIT_BUCKETS_S,
    );
  }

  count({ route, fate, waitedMs, callMs }: ObservedReport): void {
    this.#requests.count(route, fateLabel(fate));
    if (waitedMs !== null) this.#waits.observe(route, waitedMs);
    // Where nothing was sent there was nothing to save.
    if (callMs === null || !savesCall(fate)) return;
    this.#calls.count(route);
    this.#seconds.inc({ route }, callMs / 1000);
  }
}

export class VerifiedMetrics {
  readonly #calls: Tally;
  readonly #responses: Tally;

  constructor(registry: Registry) {
    this.#calls = new Tally(
      registry,
      'verify_calls_total',
      'Upstream calls by which shared responses were compared (verify), beside those of clients.',
      ['route'],
    );
    this.#responses = new Tally(
      registry,
      'verified_responses_total',
      "Shared responses that were compared with the upstream's own answer (verify), by result.",
      ['route', 'result'],
    );
  }

  sent(route: string): void {
    this.#calls.count(route);
  }

  count({ route, result }: VerifiedReport): void {
    this.#responses.count(route, result);
  }
}
