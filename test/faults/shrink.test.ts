/** Schedules are made shorter without playing them: what fails is a function of what is in them. */

import t from 'tap';
import type { Schedule } from './schedule.js';
import { scheduleOf } from './schedule.js';
import { faultOf, shrink } from './shrink.js';
import { scheduleFrom, shortenedText } from './trial.js';

const FAULT =
  '/lock/1: the fence did not grow: 1 of call r3 (A, 10–40 ms, answered 200), 1 of call r4 (B, 50–60 ms, cut)';
const untilMs = Number.POSITIVE_INFINITY;

/** A schedule with faults, and a request that together with one of them is enough to fail. */
function failing(): { schedule: Schedule; fails: (schedule: Schedule) => boolean } {
  const schedule = Array.from({ length: 50 }, (_, seed) => scheduleOf(seed)).find(({ faults }) => faults.length > 2)!;
  const needed = schedule.requests[100]!;
  const [, fault] = schedule.faults;
  const fails = ({ requests, faults }: Schedule) =>
    requests.some(
      ({ path, gateway, body }) => path === needed.path && gateway === needed.gateway && body === needed.body,
    ) && faults.some(({ kind }) => kind === fault!.kind);
  return { schedule, fails };
}

t.test('what is not needed is left out, and it fails still', async (t) => {
  const { schedule, fails } = failing();
  let played = 0;
  const failures = async (candidate: Schedule) => {
    played += 1;
    return new Set(fails(candidate) ? [faultOf(FAULT)] : []);
  };
  const shortest = await shrink(schedule, [FAULT.replace('/lock/1', schedule.requests[100]!.path), FAULT], {
    failures,
    untilMs,
  });
  t.ok(fails(shortest));
  t.equal(shortest.requests.length, 1);
  t.equal(shortest.faults.length, 1);
  t.equal(Object.keys(shortest.steps).length, 1);
  t.equal(Math.min(shortest.requests[0]!.atMs, shortest.faults[0]!.atMs), 0);
  t.ok(played < 60, `${played} were played`);
});

t.test('one that fails in another way is not taken, nor one that passes, nor any when time is over', async (t) => {
  const { schedule } = failing();
  const other = async () => new Set(['another fault']);
  t.same(await shrink(schedule, [FAULT], { failures: other, untilMs }), schedule);
  t.same(await shrink(schedule, [FAULT], { failures: async () => new Set<string>(), untilMs }), schedule);
  const never = () => t.fail('played') as never;
  t.same(await shrink(schedule, [FAULT], { failures: never, untilMs: performance.now() }), schedule);
});

t.test('two violations are alike whatever their keys, times and requests', async (t) => {
  const other = '/lock/0: the fence did not grow: 7 of call r10 (B, 1–2 ms, reset), 7 of call after4 (A, 3–9 ms, cut)';
  t.equal(faultOf(FAULT), faultOf(other));
  t.not(faultOf(FAULT), faultOf(FAULT.replace('/lock/', '/fresh/')));
  t.not(faultOf(FAULT), faultOf(FAULT.replace('did not grow', 'shrank')));
});

t.test('what is printed is the schedule', async (t) => {
  const { schedule } = failing();
  const json = /^SCHEDULE='([^']*)' npm run test:faults$/.exec(shortenedText(schedule))?.[1];
  t.same(scheduleFrom(json!), schedule);
});
