/** A short soak: everything adds up, and nothing is left. `npm run soak` is the long one. */

import t from 'tap';
import { Tally } from './lanes.js';
import { SOAK_ROUTES } from './routes.js';
import { outcomesText, slopeOf, soak } from './soak.js';
import { sumFaults } from './sums.js';

t.setTimeout(170_000);

t.test('half a minute at the highest rate: sums, gauges, store, heap and handles', async (t) => {
  const report = await soak(t, {
    rounds: 8,
    roundMs: 4_000,
    lanes: 48,
    seed: Math.floor(Math.random() * 1_000_000),
    warmUpRounds: 3,
    storeEmptyWithinMs: 0,
    // Code is still being compiled; what is leaked by some thousand requests is more.
    mostGrowthBytes: 8 * 1_048_576,
    say: (line) => t.comment(line),
  });
  t.same(report.faults, []);
  t.ok(report.requests > 1_000, `${report.requests} requests, ${report.calls} calls`);
  for (const outcome of [
    'passed',
    'observed',
    'led',
    'collapsed',
    'hit',
    'in-flight',
    'key-reused',
    'left',
    'cut',
    'outcome-unknown',
  ])
    t.ok((report.outcomes[outcome] ?? 0) > 0, `${outcome} is among ${outcomesText(report.outcomes)}`);
});

t.test('what does not add up is found', async (t) => {
  const route = SOAK_ROUTES.find(({ name }) => name === 'calm-kept')!;
  const clients = new Tally();
  clients.sent = 3;
  for (const label of ['led', 'collapsed', 'hit']) clients.count(label);
  const fine = { route, clients, outcomes: { led: 1, collapsed: 1, hit: 1 }, calls: 1, foretold: 0, arrived: 1 };
  t.same(sumFaults(fine), []);
  t.equal(sumFaults({ ...fine, calls: 2 }).length, 1, 'a call that was counted twice');
  t.equal(sumFaults({ ...fine, calls: 2, arrived: 2 }).length, 1, 'a follower that had a call of its own');
  t.equal(sumFaults({ ...fine, foretold: 1 }).length, 1, 'something that was told of a rule that does not observe');
  t.ok(sumFaults({ ...fine, outcomes: { led: 1, collapsed: 2 } }).length > 0, 'a wrong outcome');
  t.ok(sumFaults({ ...fine, outcomes: { led: 1, collapsed: 1 } }).length > 0, 'a request that was not counted');
  const stormy = { ...route, mood: 'stormy' } as const;
  clients.sent = 4;
  clients.left = 1;
  t.same(sumFaults({ ...fine, route: stormy, outcomes: { led: 2, collapsed: 1, hit: 1 }, calls: 2, arrived: 2 }), []);
  t.ok(sumFaults({ ...fine, route: stormy }).length > 0, 'who left is counted as well');
});

t.test('the slope of a line', async (t) => {
  t.equal(slopeOf([1, 3, 5, 7]), 2);
  t.equal(slopeOf([5, 5, 5]), 0);
  t.equal(slopeOf([5]), 0);
});
