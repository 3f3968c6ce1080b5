/** The generator: a seed is a schedule, and schedules are what the checker needs them to be. */

import t from 'tap';
import { ROUTES } from './routes.js';
import { scheduleOf } from './schedule.js';

const schedules = Array.from({ length: 200 }, (_, seed) => scheduleOf(seed));

t.test('the same seed gives the same schedule, another seed another one', async (t) => {
  t.same(scheduleOf(7), scheduleOf(7));
  t.not(JSON.stringify(scheduleOf(7)), JSON.stringify(scheduleOf(8)));
});

t.test('some hundreds of requests of every route, with a step for every call', async (t) => {
  for (const { seed, requests, steps, processes } of schedules) {
    t.ok(requests.length > 200 && requests.length < 1_200, `${seed}: ${requests.length} requests`);
    t.same(new Set(requests.map(({ route }) => route)).size, ROUTES.length);
    t.ok(requests.every(({ path, gateway }) => steps[path]!.length > 0 && gateway < processes));
  }
});

t.test('every kind of schedule, of fault and of step comes up', async (t) => {
  const kinds = new Set(schedules.map(({ kind }) => kind));
  t.same([...kinds].sort(), ['calm', 'faults', 'forgets']);
  const faults = new Set(schedules.flatMap((schedule) => schedule.faults.map(({ kind }) => kind)));
  t.equal(faults.size, 16);
  t.same([...new Set(schedules.map(({ store }) => store))].sort(), ['cluster', 'sentinel', 'single']);
  const steps = new Set(
    schedules.flatMap((schedule) => Object.values(schedule.steps).flatMap((all) => all.map(({ kind }) => kind))),
  );
  t.equal(steps.size, 7);
});

t.test(
  'only a schedule that forgets empties the store, or has it drop something; a gateway is killed or stopped once',
  async (t) => {
    for (const { kind, faults } of schedules) {
      t.equal(
        faults.some((fault) => fault.kind === 'flush' || fault.kind === 'evict'),
        kind === 'forgets',
      );
      const broken = faults.flatMap((fault) => (fault.kind === 'kill' || fault.kind === 'stop' ? [fault.gateway] : []));
      t.equal(new Set(broken).size, broken.length);
      t.ok(faults.filter(({ kind }) => kind === 'fail-over').length <= 1);
      if (kind === 'calm') t.same(faults, []);
    }
  },
);
