/** What the exchange tells becomes metrics and log lines. */

import type { Logger } from 'pino';
import { fateLabel, savesCall } from '../core/observed.js';
import type { UpstreamEvent } from '../core/upstream-event.js';
import type { ExchangeObserver, ObservedReport } from '../exchange/observer.js';
import type { AccessLog } from './access-log.js';
import type { Metrics } from './metrics.js';

/** The observer that the composition root gives to the exchange. */
export function watchExchange(metrics: Metrics, log: Logger, access: AccessLog): ExchangeObserver {
  return {
    sent: (route, purpose) => metrics.sent(route, purpose),
    answered: (route, afterMs, trace) => metrics.answered(route, afterMs, trace),
    verified: (report) => {
      metrics.verified.count(report);
      const { result, ...about } = report;
      if (result === 'different')
        log.warn(about, 'verify: the upstream answers a duplicate otherwise, its key may be too coarse');
    },
    unprotected: (route, reason) => metrics.unprotected(route, reason),
    overloaded: (route, reason) => metrics.overloaded(route, reason),
    unshareable: (route, reason) => metrics.unshareable(route, reason),
    flights: (route, change) => metrics.flights(route, change),
    queued: (route, change) => metrics.queued(route, change),
    upgrades: (route, change) => metrics.upgrades(route, change),
    keyFound: (route, finding) => metrics.keyHealth.found(route, finding),
    leaseLost: (route, key) => {
      metrics.leaseLost(route);
      log.warn({ route, key }, 'lease lost: another leader may have run beside this one');
    },
    unsettled: (route, key) => {
      metrics.unsettled(route);
      log.warn({ route, key }, 'settlement not stored within the lease');
    },
    asked: ({ route, key, flight, verdict, answer, count }) => {
      metrics.asked(route, verdict);
      // Once a flight: an API that refuses the question, or its credentials, does so every time.
      if (verdict !== 'no-answer' || count > 1) return;
      log.warn({ route, key, flight, answer }, 'the API has not said what became of a request');
    },
    reconciled: (report) => {
      if (report.result === 'unanswered') return log.warn(report, 'settling by reconcile: the store did not answer');
      metrics.reconciled(report.route, report.as);
      log.warn(report, 'settled by reconcile');
    },
    observed: (report) => {
      metrics.observed.count(report);
      logObserved(report, log);
    },
    failed: (error) => log.error({ err: error }, 'internal error'),
    over: (report) => {
      metrics.over(report);
      report.trace?.over(report);
      access.over(report);
    },
  };
}

/** What a rule would have left as it is, is of little use in a log. */
function logObserved({ fate, waitedMs, callMs, ...report }: ObservedReport, log: Logger): void {
  const level = fate.kind === 'led' ? 'debug' : 'info';
  if (!log.isLevelEnabled(level)) return;
  log[level](
    {
      ...report,
      would: fateLabel(fate),
      ...('reason' in fate ? { reason: fate.reason } : {}),
      ...(waitedMs === null ? {} : { waitMs: Math.round(waitedMs) }),
      ...(savesCall(fate) && callMs !== null ? { savedMs: Math.round(callMs) } : {}),
    },
    'observed',
  );
}

/** What becomes of the events of one upstream. */
export function watchUpstream(upstream: string, metrics: Metrics, log: Logger): (event: UpstreamEvent) => void {
  return (event) => {
    metrics.upstreams.happened(upstream, event);
    // One line for each request that is sent again would fill the log when an address is gone.
    if (event.kind === 'retried') return log.debug({ upstream, ...event }, 'upstream: another attempt');
    log.warn({ upstream, ...event }, UPSTREAM_MESSAGES[event.kind]);
  };
}

const UPSTREAM_MESSAGES: Readonly<Record<Exclude<UpstreamEvent['kind'], 'retried'>, string>> = {
  ejected: 'upstream: an address is left out, requests fail there',
  restored: 'upstream: an address that was left out answers again',
  down: 'upstream: health checks have found an address down',
  up: 'upstream: health checks have found an address up again',
  opened: 'upstream: the circuit breaker has opened',
  closed: 'upstream: the circuit breaker has closed',
};
