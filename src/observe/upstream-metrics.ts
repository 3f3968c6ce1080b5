/**
 * The metrics of the upstreams: what became of attempts, and how their addresses stand.
 *
 * Invariant: of an upstream or an address that there is no more nothing is shown.
 */

import { Counter, Gauge, type Registry } from 'prom-client';
import type { UpstreamEvent, UpstreamState } from '../core/upstream-event.js';

/** An upstream as it is shown. */
type Shown = { readonly name: string; readonly state: UpstreamState };

export class UpstreamMetrics {
  readonly #registry: Registry;
  readonly #retries: Counter<'upstream' | 'cause'>;
  readonly #ejections: Counter<'upstream' | 'address'>;
  readonly #opened: Counter<'upstream'>;
  #shown: () => readonly Shown[] = () => [];

  constructor(registry: Registry) {
    this.#registry = registry;
    const registers = [registry];
    this.#retries = new Counter({
      name: 'oneflight_upstream_retries_total',
      help: 'Further attempts of requests that were certainly not executed, or are safe, by why the one before failed.',
      labelNames: ['upstream', 'cause'],
      registers,
    });
    this.#ejections = new Counter({
      name: 'oneflight_upstream_ejections_total',
      help: 'Times that an address was left out.',
      labelNames: ['upstream', 'address'],
      registers,
    });
    this.#opened = new Counter({
      name: 'oneflight_upstream_breaker_opened_total',
      help: 'Times that the circuit breaker opened.',
      labelNames: ['upstream'],
      registers,
    });
  }

  happened(upstream: string, event: UpstreamEvent): void {
    // Of one that is gone, what its last requests do would bring its counters back.
    if (!this.#isShown(upstream, 'address' in event ? event.address : null)) return;
    if (event.kind === 'retried') this.#retries.inc({ upstream, cause: event.cause });
    if (event.kind === 'ejected') this.#ejections.inc({ upstream, address: event.address });
    if (event.kind === 'opened') this.#opened.inc({ upstream });
  }

  /** Has the state of the upstreams that there are then read whenever the metrics are. */
  show(upstreams: () => readonly Shown[]): void {
    this.#shown = upstreams;
    this.#gauge(
      'usable',
      'Whether an address gets requests: 1, or 0 while it is down or left out.',
      ['address'],
      'min',
      (gauge) => {
        for (const { name, state } of upstreams()) {
          for (const address of state.addresses) {
            gauge.set({ upstream: name, address: address.name }, Number(address.isUsable));
          }
        }
      },
    );
    const pending = 'Requests that an address has in progress now.';
    this.#gauge('pending_requests', pending, ['address'], 'sum', (gauge) => {
      for (const { name, state } of upstreams()) {
        for (const address of state.addresses) gauge.set({ upstream: name, address: address.name }, address.pending);
      }
    });
    this.#gauge('waiting_requests', 'Requests that wait for a connection now.', [], 'sum', (gauge) => {
      for (const { name, state } of upstreams()) gauge.set({ upstream: name }, state.waiting);
    });
    this.#gauge('breaker_open', 'Whether the circuit breaker is open: 1, or 0.', [], 'max', (gauge) => {
      for (const { name, state } of upstreams()) gauge.set({ upstream: name }, Number(state.isOpen));
    });
  }

  #isShown(upstream: string, address: string | null): boolean {
    const { state } = this.#shown().find(({ name }) => name === upstream) ?? {};
    return state !== undefined && (address === null || state.addresses.some(({ name }) => name === address));
  }

  /** Lets go of what was counted for upstreams and addresses that are not shown any more. */
  async forgetGone(): Promise<void> {
    for (const counter of [this.#retries, this.#ejections, this.#opened] as Counter<string>[]) {
      for (const { labels } of (await counter.get()).values) {
        const { upstream, address = null } = labels as { readonly upstream: string; readonly address?: string };
        if (!this.#isShown(upstream, address)) counter.remove(labels);
      }
    }
  }

  /** `overWorkers`: what the values of several workers become together. */
  #gauge(
    name: string,
    help: string,
    more: string[],
    overWorkers: 'sum' | 'min' | 'max',
    read: (gauge: Gauge<string>) => void,
  ): void {
    new Gauge({
      name: `oneflight_upstream_${name}`,
      help,
      labelNames: ['upstream', ...more],
      aggregator: overWorkers,
      registers: [this.#registry],
      collect() {
        // Of those that are gone nothing is shown.
        this.reset();
        read(this);
      },
    });
  }
}
