/** The harness is worth something: it finds faults that are planted, and not a word of them in the product. */

import t from 'tap';
import { PLANTED, plant } from './planted.js';
import { tryPlanted, tryProduct } from './planted-trial.js';
import { summaryOf, timelinesOf } from './trial.js';

t.setTimeout(175_000);

t.test('each planted fault is found', async (t) => {
  t.equal(PLANTED.length, 11);
  await tryPlanted(PLANTED, ({ bug, found, tries }) => {
    t.comment(`${bug.name}: ${found[0] ?? 'nothing'} (${tries})`);
    t.not(found.length, 0, `found: ${bug.name}`);
  });
});

t.test('the product passes the same schedules', async (t) => {
  for (const verdict of await tryProduct(PLANTED)) {
    for (const line of timelinesOf(verdict)) t.comment(line);
    t.same(verdict.violations, [], summaryOf(verdict));
  }
});

t.test('a fault whose text is not there, or is there twice, is not planted', async (t) => {
  const [bug] = PLANTED;
  const at = (from: string) => () => plant({ ...bug!, patches: [{ file: 'store/lua/claim.lua', from, to: '' }] });
  t.throws(at('no such line'), /cannot be planted: store\/lua\/claim.lua has 0 times/);
  t.throws(at('redis.call'), /cannot be planted/);
});
