/**
 * `npm run test:faults`: COUNT schedules (100) from SEED, or from the first argument, or from a random one; or the one in
 * SCHEDULE, COUNT times (1). Ends with 1 when a rule was violated; the first schedule that failed is made shorter for up
 * to SHRINK_S seconds (120), and it says how either is run again.
 */

import type { Schedule } from './schedule.js';
import {
  againText,
  runSchedules,
  scheduleFrom,
  schedulesFrom,
  shortened,
  shortenedText,
  summaryOf,
  timelinesOf,
  type Verdict,
} from './trial.js';

const { SEED = process.argv[2], SCHEDULE, SHRINK_S = '120' } = process.env;
const { COUNT = SCHEDULE === undefined ? '100' : '1' } = process.env;
const base = SEED === undefined ? Math.floor(Math.random() * 1_000_000_000) : Number(SEED);
const count = Number(COUNT);
if (!Number.isSafeInteger(base) || !Number.isSafeInteger(count) || count < 1 || Number.isNaN(Number(SHRINK_S))) {
  console.error('usage: [SEED=<whole number> | SCHEDULE=<as it was printed>] [COUNT=<number>] npm run test:faults');
  process.exit(2);
}

// A schedule that kills the server's connections may kill one of ours while it says hello: nobody waits for that answer.
process.on('unhandledRejection', (reason) => {
  if (!(reason instanceof Error) || reason.message !== 'Connection is closed.') throw reason;
  console.error(reason);
});

function schedules(): Schedule[] {
  if (SCHEDULE === undefined) return schedulesFrom(base, count);
  try {
    const one = scheduleFrom(SCHEDULE);
    return Array.from({ length: count }, () => one);
  } catch (error) {
    console.error(`SCHEDULE is not what was printed: ${(error as Error).message}`);
    process.exit(2);
  }
}

function show(verdict: Verdict): void {
  for (const violation of verdict.violations) console.log(`  ${violation}`);
  for (const line of timelinesOf(verdict)) console.log(`    ${line}`);
}

const beganMs = performance.now();
const violated: Verdict[] = [];
console.log(SCHEDULE === undefined ? `seed ${base}, ${count} schedules` : `one schedule, ${count} times`);
await runSchedules(schedules(), {
  tell: (verdict) => {
    console.log(summaryOf(verdict));
    if (verdict.violations.length === 0) return undefined;
    violated.push(verdict);
    show(verdict);
    if (SCHEDULE === undefined) console.log(`  again: ${againText(verdict.schedule.seed)}`);
    return undefined;
  },
});
console.log(
  `${count} schedules in ${Math.round((performance.now() - beganMs) / 1_000)} s, ${violated.length} violated`,
);
const [first] = violated;
if (first !== undefined) {
  console.log(`violated: ${violated.map(({ schedule }) => schedule.seed).join(', ')}`);
  console.log(`making schedule ${first.schedule.seed} shorter, for ${SHRINK_S} s at most`);
  const shorter = await shortened(first, Number(SHRINK_S) * 1_000);
  console.log(summaryOf(shorter));
  show(shorter);
  console.log(`  again: ${shortenedText(shorter.schedule)}`);
}
process.exit(violated.length > 0 ? 1 : 0);
