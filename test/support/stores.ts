/** Scenarios that hold for every store. */

import type { Test } from 'tap';
import { startRedis } from './redis.js';

/** Runs them with a Redis of their own, in as many processes, and then in one process in memory. */
export function inEachStore(
  t: Test,
  processes: number,
  scenarios: (t: Test, store: string, processes: number) => Promise<void>,
): void {
  t.test(`${processes} processes with Redis`, async (t) => {
    const redis = await startRedis();
    t.teardown(() => redis.stop());
    await scenarios(t, `{ kind: redis, url: "${redis.url}", commandTimeout: 2s }`, processes);
  });

  t.test('one process in memory', async (t) => {
    await scenarios(t, '{ kind: memory }', 1);
  });
}
