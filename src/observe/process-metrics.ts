/** What Node and the system tell of a process: prom-client's own metrics, but for those that break the naming rules. */

import { collectDefaultMetrics, type Registry } from 'prom-client';

/** Gauges that are called as only counters may be. The same numbers are there by type, under the name without `_total`. */
const MISNAMED = ['nodejs_active_resources_total', 'nodejs_active_handles_total', 'nodejs_active_requests_total'];

export function collectProcessMetrics(register: Registry): void {
  collectDefaultMetrics({ register });
  for (const name of MISNAMED) register.removeSingleMetric(name);
}
