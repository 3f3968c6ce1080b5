/** Shows that the harness finds planted faults, and finds nothing in the product by the same schedules. */

import { startRedis } from '../support/redis.js';
import { together } from './aimed.js';
import { type PlantedBug, plant } from './planted.js';
import { runSchedules, type Verdict, verdictOf } from './trial.js';

/**
 * Trouble that is measured excuses much, and on a busy machine there is always some: a schedule in which the fault does
 * not show is played again, as long as there is time in all.
 */
const TRIES_MS = 90_000;
const LANES = 2;

export type PlantedVerdict = {
  readonly bug: PlantedBug;
  /** What was found, as far as it is what was to be found; empty: nothing was. */
  readonly found: readonly string[];
  /** How often the schedule was played until then. */
  readonly tries: number;
};

/** Tries each of them; a verdict is told when it is there. */
export async function tryPlanted(bugs: readonly PlantedBug[], tell: (verdict: PlantedVerdict) => void): Promise<void> {
  const left = [...bugs];
  const untilMs = performance.now() + TRIES_MS;
  await Promise.all(
    Array.from({ length: LANES }, async () => {
      for (let next = left.shift(); next !== undefined; next = left.shift()) tell(await tryOne(next, untilMs));
    }),
  );
}

async function tryOne(bug: PlantedBug, untilMs: number): Promise<PlantedVerdict> {
  const server = await startRedis();
  const program = plant(bug);
  try {
    let found: readonly string[] = [];
    let tries = 0;
    while (found.length === 0 && (tries === 0 || performance.now() < untilMs)) {
      const { violations } = await verdictOf(bug.schedule, server, program.path);
      found = violations.filter((violation) => bug.finds.test(violation));
      tries += 1;
    }
    return { bug, found, tries };
  } finally {
    program.remove();
    await server.stop();
  }
}

/** What is found in the product by the schedules of all of them. */
export async function tryProduct(bugs: readonly PlantedBug[]): Promise<Verdict[]> {
  const verdicts: Verdict[] = [];
  await runSchedules(together(bugs.map(({ schedule }) => schedule)), {
    tell: (verdict) => {
      verdicts.push(verdict);
      return undefined;
    },
  });
  return verdicts;
}
