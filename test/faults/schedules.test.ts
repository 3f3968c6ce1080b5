/** A few random schedules, others at every run; `npm run test:faults` plays a hundred. */

import t from 'tap';
import {
  againText,
  runSchedules,
  schedulesFrom,
  shortened,
  shortenedText,
  summaryOf,
  timelinesOf,
  type Verdict,
} from './trial.js';

t.setTimeout(170_000);

const COUNT = 4;
const SHRINK_MS = 50_000;

t.test('random schedules keep every promise', async (t) => {
  const seed = Math.floor(Math.random() * 1_000_000_000);
  t.comment(`seed ${seed}`);
  const violated: Verdict[] = [];
  await runSchedules(schedulesFrom(seed, COUNT), {
    tell: (verdict) => {
      t.comment(summaryOf(verdict));
      for (const line of timelinesOf(verdict)) t.comment(line);
      t.same(verdict.violations, [], `schedule ${verdict.schedule.seed} (again: ${againText(verdict.schedule.seed)})`);
      if (verdict.violations.length > 0) violated.push(verdict);
      return undefined;
    },
  });
  const [first] = violated;
  if (first === undefined) return;
  const shorter = await shortened(first, SHRINK_MS);
  for (const line of [...shorter.violations, ...timelinesOf(shorter)]) t.comment(line);
  t.comment(`shorter, again: ${shortenedText(shorter.schedule)}`);
});
