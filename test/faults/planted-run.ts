/**
 * `npm run test:planted`: plants each fault in a copy of the built program and shows what the harness says of it, by the
 * schedule that is aimed at it and by random ones (COUNT, 6; from SEED, 1). Ends with 1 when the aimed one does not find
 * it, or finds something in the product. Whether a random one brings it about is chance, and only told.
 */

import { PLANTED, plant } from './planted.js';
import { tryPlanted, tryProduct } from './planted-trial.js';
import { runSchedules, schedulesFrom, summaryOf, timelinesOf } from './trial.js';

const { SEED = '1', COUNT = '6' } = process.env;

process.on('unhandledRejection', (reason) => {
  if (!(reason instanceof Error) || reason.message !== 'Connection is closed.') throw reason;
});

let right = true;
await tryPlanted(PLANTED, ({ bug, found, tries }) => {
  right &&= found.length > 0;
  console.log(`${found.length > 0 ? 'ok' : 'NOT OK'}  ${bug.name}`);
  console.log(`        ${found[0] ?? 'nothing found'} (played ${tries} times)`);
});
for (const verdict of await tryProduct(PLANTED)) {
  const { violations } = verdict;
  right &&= violations.length === 0;
  console.log(`${violations.length === 0 ? 'ok' : 'NOT OK'}  the product: ${summaryOf(verdict)}`);
  for (const line of [...violations, ...timelinesOf(verdict)]) console.log(`        ${line}`);
}
for (const bug of COUNT === '0' ? [] : PLANTED) {
  const program = plant(bug);
  const finders: string[] = [];
  await runSchedules(schedulesFrom(Number(SEED), Number(COUNT)), {
    program: program.path,
    tell: ({ schedule, violations }) => {
      const [first] = violations;
      if (first === undefined) return undefined;
      finders.push(`seed ${schedule.seed}: ${first}`);
      return 'enough';
    },
  });
  program.remove();
  console.log(`at random  ${bug.name}\n        ${finders[0] ?? `by none of ${COUNT} schedules`}`);
}
process.exit(right ? 0 : 1);
