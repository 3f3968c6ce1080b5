/**
 * `npm run test:faults`: COUNT schedules (100) from SEED, or from the first argument, or from a random one. Ends with 1
 * when a rule was violated, and says how to run that schedule again.
 */

import { againText, runSchedules, schedulesFrom, summaryOf, timelinesOf, type Verdict } from './trial.js';

const { SEED = process.argv[2], COUNT = '100' } = process.env;
const base = SEED === undefined ? Math.floor(Math.random() * 1_000_000_000) : Number(SEED);
const count = Number(COUNT);
if (!Number.isSafeInteger(base) || !Number.isSafeInteger(count) || count < 1) {
  console.error('usage: [SEED=<whole number>] [COUNT=<number of schedules>] npm run test:faults');
  process.exit(2);
}

// A schedule that kills the server's connections may kill one of ours while it says hello: nobody waits for that answer.
process.on('unhandledRejection', (reason) => {
  if (!(reason instanceof Error) || reason.message !== 'Connection is closed.') throw reason;
  console.error(reason);
});

const beganMs = performance.now();
const violated: number[] = [];
console.log(`seed ${base}, ${count} schedules`);
const tell = (verdict: Verdict): undefined => {
  console.log(summaryOf(verdict));
  if (verdict.violations.length === 0) return;
  violated.push(verdict.schedule.seed);
  for (const violation of verdict.violations) console.log(`  ${violation}`);
  for (const line of timelinesOf(verdict)) console.log(`    ${line}`);
  console.log(`  again: ${againText(verdict.schedule.seed)}`);
};
await runSchedules(schedulesFrom(base, count), { tell });
console.log(
  `${count} schedules in ${Math.round((performance.now() - beganMs) / 1_000)} s, ${violated.length} violated`,
);
if (violated.length > 0) console.log(`seed ${base}; violated: ${violated.join(', ')}`);
process.exit(violated.length > 0 ? 1 : 0);
