/**
 * What each of several workers may take, so that together they take what the configuration says.
 *
 * Invariants: the shares of a limit add up to it, and each is at least one; one worker has everything.
 */

import type { Config, UpstreamConfig } from './config.js';

/** How many workers there are, on a machine of so many cores. */
export function workerCountOf(config: Config, cores: number): number {
  return config.workers === 'auto' ? Math.min(cores, mostWorkers(config)) : config.workers;
}

/** As many as there is something of every limit for each. */
function mostWorkers({ limits, upstreams, rules }: Config): number {
  const connections = [...upstreams.values()].map((upstream) => upstream.connections?.max ?? Number.POSITIVE_INFINITY);
  const requests = rules.map((rule) => rule.maxRequests);
  return Math.min(limits.maxConnections, limits.maxRequests, ...connections, ...requests);
}

/** The parts of `store.maxMemory`: of the store that workers share, and of each worker for what passes through it. */
export function memoryShares({ store }: Config, count: number): { storeBytes: number; workerBytes: number } {
  const { kind, maxMemoryBytes } = store;
  if (count === 1) return { storeBytes: maxMemoryBytes, workerBytes: maxMemoryBytes };
  // What is kept is in the parent, what is recorded or still to be read in the workers. In Redis nothing is in the parent.
  const storeBytes = kind === 'memory' ? Math.floor(maxMemoryBytes / 2) : 0;
  return { storeBytes, workerBytes: Math.floor((maxMemoryBytes - storeBytes) / count) };
}

/** The configuration of one worker, the first being 0. Its admin listener is the parent's. */
export function workerShare(config: Config, index: number, count: number): Config {
  const part = (limit: number): number =>
    limit === Number.POSITIVE_INFINITY ? limit : Math.floor(limit / count) + (index < limit % count ? 1 : 0);
  const ofUpstream = (upstream: UpstreamConfig): UpstreamConfig => {
    const { connections } = upstream;
    if (connections === null) return upstream;
    return { ...upstream, connections: { ...connections, max: part(connections.max), queue: part(connections.queue) } };
  };
  return {
    ...config,
    admin: { kind: 'off' },
    workers: 1,
    limits: {
      ...config.limits,
      maxConnections: part(config.limits.maxConnections),
      maxRequests: part(config.limits.maxRequests),
    },
    rules: config.rules.map((rule) => ({ ...rule, maxRequests: part(rule.maxRequests) })),
    store: { ...config.store, maxMemoryBytes: memoryShares(config, count).workerBytes },
    upstreams: new Map([...config.upstreams].map(([name, upstream]) => [name, ofUpstream(upstream)])),
  };
}
