/**
 * Active health checks: every address of an upstream is asked, again and again.
 *
 * Invariants: one question at a time for each address; the next one begins `every` after the one before has ended, a
 * little earlier or later, so that many gateways do not ask in step; stopping ends what runs.
 */

import type { HealthRule } from '../config/config.js';
import type { UpstreamEvent } from '../core/upstream-event.js';
import type { Address } from './address.js';
import type { Exchange, ForwardSink } from './exchange.js';
import type { UpstreamFailure } from './failure.js';

/** Share of `every` by which the time to the next question varies. */
const JITTER = 0.2;

export class HealthChecks {
  readonly #rule: HealthRule;
  readonly #addresses: readonly Address[];
  readonly #onEvent: (event: UpstreamEvent) => void;
  readonly #timers = new Map<Address, NodeJS.Timeout>();
  readonly #running = new Set<HealthCheck>();
  #stopped = false;

  constructor(rule: HealthRule, addresses: readonly Address[], onEvent: (event: UpstreamEvent) => void) {
    this.#rule = rule;
    this.#addresses = addresses;
    this.#onEvent = onEvent;
  }

  start(): void {
    for (const address of this.#addresses) this.#check(address);
  }

  stop(): void {
    this.#stopped = true;
    for (const timer of this.#timers.values()) clearTimeout(timer);
    for (const check of this.#running) check.stop();
  }

  #check(address: Address): void {
    const check = new HealthCheck(this.#rule, (result) => {
      this.#running.delete(check);
      if (this.#stopped) return;
      this.#told(address, result);
      const everyMs = this.#rule.everyMs * (1 - JITTER / 2 + JITTER * Math.random());
      this.#timers.set(
        address,
        setTimeout(() => this.#check(address), everyMs),
      );
    });
    this.#running.add(check);
    check.ask(address);
  }

  #told(address: Address, { passed, cause }: CheckResult): void {
    const needed = passed ? this.#rule.healthy : this.#rule.unhealthy;
    if (address.standing.checked(passed, needed)) {
      this.#onEvent({ kind: passed ? 'up' : 'down', address: address.name, cause });
    }
  }
}

type CheckResult = { readonly passed: boolean; readonly cause: string };

/** One question; its answer is the status of the response. */
class HealthCheck implements ForwardSink {
  readonly #rule: HealthRule;
  readonly #onResult: (result: CheckResult) => void;
  #exchange: Exchange | null = null;
  #timer: NodeJS.Timeout | undefined;
  #isOver = false;

  constructor(rule: HealthRule, onResult: (result: CheckResult) => void) {
    this.#rule = rule;
    this.#onResult = onResult;
  }

  ask(address: Address): void {
    this.#timer = setTimeout(() => this.#over({ passed: false, cause: 'timeout' }), this.#rule.timeoutMs);
    const { path, fields } = this.#rule;
    const all = ['User-Agent', 'oneflight-health', ...fields];
    const request = { method: 'GET', target: path, fields: all, content: null, trailers: null };
    // Over a connection of its own: what is asked is whether the address takes new ones as well.
    this.#exchange = address.forward(request, this, 'fresh');
    if (this.#isOver) this.#exchange.abort();
  }

  stop(): void {
    this.#over({ passed: false, cause: 'stopped' });
  }

  onSend(): boolean {
    return !this.#isOver;
  }

  onInterim(): void {}

  onFields(status: number): void {
    const passed = this.#rule.statuses.some(({ from, to }) => status >= from && status <= to);
    this.#over({ passed, cause: String(status) });
  }

  onContent(): boolean {
    return true;
  }

  onEnd(): void {}

  onFailure({ cause }: UpstreamFailure): void {
    this.#over({ passed: false, cause });
  }

  #over(result: CheckResult): void {
    if (this.#isOver) return;
    this.#isOver = true;
    clearTimeout(this.#timer);
    // Nobody reads the content; its connection is not kept.
    this.#exchange?.abort();
    this.#onResult(result);
  }
}
