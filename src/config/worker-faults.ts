/** Limits that several workers cannot share. */

import type { ConfigDraft } from './check.js';
import type { Fault, FieldPath } from './fault.js';
import { faultAt } from './locate.js';
import type { Located } from './source.js';

/** Each worker needs at least one of what a limit counts. Where workers are counted by cores, there are fewer of them instead. */
export function workerFaults({ workers, limits, upstreams, routes }: ConfigDraft, root: Located): Fault[] {
  if (typeof workers !== 'number') return [];
  const shared: readonly (readonly [FieldPath, number | undefined])[] = [
    [['limits', 'maxConnections'], limits?.maxConnections],
    [['limits', 'maxRequests'], limits?.maxRequests],
    ...Object.entries(upstreams ?? {}).map(
      ([name, upstream]) => [['upstreams', name, 'connections', 'max'], upstream?.connections?.max] as const,
    ),
    ...(routes ?? []).map((route, index) => [['routes', index, 'maxRequests'], route?.maxRequests] as const),
  ];
  return shared.flatMap(([path, limit]) =>
    limit === undefined || limit >= workers
      ? []
      : [faultAt(root, path, `at least one for each of the ${workers} workers, who share it`)],
  );
}
