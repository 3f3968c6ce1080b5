/**
 * Loaded into a gateway (`NODE_OPTIONS=--import=…`): on SIGUSR2 it collects all garbage and writes to its log what is left.
 * Nothing of the gateway is touched by it.
 */

import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

process.on('SIGUSR2', () => {
  collect();
  // What finalizers have let go of is collected the second time.
  setImmediate(() => {
    collect();
    const { heapUsed, external, rss } = process.memoryUsage();
    const handles: Record<string, number> = {};
    for (const kind of process.getActiveResourcesInfo()) handles[kind] = (handles[kind] ?? 0) + 1;
    process.stdout.write(`${JSON.stringify({ msg: 'collected', heapUsed, external, rss, handles })}\n`);
  });
});
