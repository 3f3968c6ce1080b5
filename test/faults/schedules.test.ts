/** A few random schedules, others at every run; `npm run test:faults` plays a hundred. */

import t from 'tap';
import { againText, runSchedules, schedulesFrom, summaryOf, timelinesOf, type Verdict } from './trial.js';

t.setTimeout(170_000);

const COUNT = 4;

t.test('random schedules keep every promise', async (t) => {
  const seed = Math.floor(Math.random() * 1_000_000_000);
  t.comment(`seed ${seed}`);
  const tell = (verdict: Verdict): undefined => {
    t.comment(summaryOf(verdict));
    for (const line of timelinesOf(verdict)) t.comment(line);
    t.same(verdict.violations, [], `schedule ${verdict.schedule.seed} (again: ${againText(verdict.schedule.seed)})`);
  };
  await runSchedules(schedulesFrom(seed, COUNT), { tell });
});
