/** One bound for all responses in a process: counted once, and asked for before anybody is refused. */

import t from 'tap';
import { MemoryBudget } from '../../src/core/memory-budget.js';

t.test('what is taken is given back, and no more is taken than there is', async (t) => {
  const budget = new MemoryBudget(100);
  t.equal(budget.take(60), true);
  t.equal(budget.take(41), false);
  t.equal(budget.usedBytes, 60);
  t.equal(budget.take(40), true);
  budget.giveBack(60);
  t.equal(budget.usedBytes, 40);
});

t.test('what several hold is counted once, until the last lets go', async (t) => {
  const budget = new MemoryBudget(100);
  const what = {};
  t.equal(budget.hold(what, 80), true);
  t.equal(budget.hold(what, 80), true, 'it is there already');
  t.equal(budget.hold({}, 80), false);
  budget.letGo(what);
  t.equal(budget.usedBytes, 80);
  budget.letGo(what);
  budget.letGo(what);
  t.equal(budget.usedBytes, 0);
});

t.test('with room short others are asked, in their order, for what is missing and no more', async (t) => {
  const budget = new MemoryBudget(100);
  const asked: string[] = [];
  const giver = (name: string, has: number) => {
    budget.takeAnyway(has);
    budget.onShort({
      spareBytes: () => has,
      giveUp: (missingBytes) => {
        const given = Math.min(has, missingBytes);
        asked.push(`${name} ${missingBytes}`);
        budget.giveBack(given);
        has -= given;
      },
    });
  };
  giver('first', 30);
  giver('second', 60);
  t.equal(budget.take(10), true);
  t.same(asked, []);
  t.equal(budget.take(50), true);
  t.same(asked.splice(0), ['first 50', 'second 20']);
  t.equal(budget.take(101), false);
  budget.takeAnyway(10);
  t.equal(budget.take(60), false);
  t.same(asked, [], 'nothing is given up for what cannot be had');
  budget.takeAnyway(10);
  budget.reclaim();
  t.same(asked, ['first 20', 'second 20']);
  t.equal(budget.usedBytes, 100);
});

t.test('what two can do without is given back, whoever of them is asked first', async (t) => {
  const budget = new MemoryBudget(100);
  const what = {};
  budget.hold(what, 80);
  budget.hold(what, 80);
  // The first lets go only of what nobody else holds, as what is kept goes after its readers.
  budget.onShort({ spareBytes: () => 80, giveUp: () => budget.isHeldOnce(what) && budget.letGo(what) });
  let reads = true;
  budget.onShort({
    spareBytes: () => 0,
    giveUp: () => {
      if (reads) budget.letGo(what);
      reads = false;
    },
  });
  t.equal(budget.take(50), true);
  t.equal(budget.usedBytes, 50);
});
