/** Who gets requests, by what was seen of it: ejection, checks, the circuit breaker and the places, without a network. */

import t from 'tap';
import { Admission, type Waiting } from '../../src/upstream/admission.js';
import { Breaker } from '../../src/upstream/breaker.js';
import { Standing } from '../../src/upstream/standing.js';

t.test('an address is ejected after failures in a row, for twice as long each time, until it answers', async (t) => {
  const standing = new Standing({ failures: 3, forMs: 100 });
  t.same([standing.failed(0), standing.failed(0)], [null, null]);
  t.equal(standing.answered(), false);
  t.same([standing.failed(0), standing.failed(0)], [null, null], 'counted anew after an answer');
  t.equal(standing.failed(0), 100);
  t.same([standing.isEjected(99), standing.isEjected(100)], [true, false]);
  t.equal(standing.failed(50), null, 'what was under way does not make it longer');
  const lengths = [];
  for (let nowMs = 100; lengths.length < 5; nowMs += lengths.at(-1)!) lengths.push(standing.failed(nowMs)!);
  t.same(lengths, [200, 400, 800, 800, 800]);
  t.equal(standing.answered(), true);
  t.equal(standing.isEjected(0), false);
  t.equal(standing.failed(0), null);
  t.same([standing.failed(0), standing.failed(0)], [null, 100], 'as long as the first, after an answer');
  const never = new Standing(null);
  for (let i = 0; i < 100; i++) t.equal(never.failed(0), null);
});

t.test('checks change nothing before so many in a row say the same', async (t) => {
  const standing = new Standing(null);
  const check = (passed: boolean) => standing.checked(passed, passed ? 2 : 3);
  t.same([false, false, true, false, false].map(check), [false, false, false, false, false]);
  t.equal(standing.isDown, false);
  t.equal(check(false), true);
  t.equal(standing.isDown, true);
  t.same([true, false, true].map(check), [false, false, false]);
  t.equal(check(true), true);
  t.equal(standing.isDown, false);
});

t.test('a breaker opens after failures in a row, and one trial decides', async (t) => {
  const breaker = new Breaker({ failures: 2, forMs: 100 });
  t.equal(breaker.failed(0, false), false);
  breaker.answered(false);
  t.equal(breaker.failed(0, false), false);
  t.equal(breaker.failed(0, false), true);
  t.equal(breaker.failed(0, false), false, 'what was under way opens nothing anew');
  t.equal(breaker.answered(false), false, 'nor does its answer close it');
  t.equal(breaker.ask(99), 'no');
  t.same([breaker.ask(100), breaker.ask(100)], ['trial', 'no']);
  t.equal(breaker.failed(100, false), false, 'the trial decides');
  t.equal(breaker.failed(100, true), true);
  t.equal(breaker.ask(199), 'no');
  t.equal(breaker.ask(200), 'trial');
  breaker.trialEnded();
  t.equal(breaker.ask(200), 'trial', 'a trial that said nothing leaves the next');
  t.equal(breaker.answered(true), true);
  t.same([breaker.ask(200), breaker.ask(200)], ['yes', 'yes']);
  t.equal(breaker.isClosed, true);
});

class One implements Waiting {
  readonly seen: string[] = [];
  constructor(readonly kind: Waiting['kind']) {}
  admitted(): void {
    this.seen.push('admitted');
  }
  overdue(): void {
    this.seen.push('overdue');
  }
}

t.test('places: what nobody waits for has one only while half of them are free, and never waits', (t) => {
  const admission = new Admission({ max: 4, queue: 4, waitMs: 60_000 });
  const enter = (kind: Waiting['kind']) => admission.enter(new One(kind));
  t.same([enter('open'), enter('spare'), enter('spare')], ['placed', 'placed', 'full']);
  t.same([enter('keyed'), enter('keyed'), enter('keyed')], ['placed', 'placed', 'waits']);
  admission.leave('spare');
  t.equal(enter('spare'), 'full', 'who waits was there before');
  t.equal(new Admission({ max: 1, queue: 4, waitMs: 1 }).enter(new One('spare')), 'full');
  t.end();
});

t.test('places: a quarter is for calls with a key, which come first; each kind in order', async (t) => {
  const admission = new Admission({ max: 4, queue: 4, waitMs: 60_000 });
  const all = (['open', 'open', 'open', 'open', 'keyed', 'open', 'keyed'] as const).map((kind) => new One(kind));
  t.same(
    all.map((one) => admission.enter(one)),
    ['placed', 'placed', 'placed', 'waits', 'placed', 'waits', 'waits'],
  );
  t.equal(admission.waiting, 3);
  const admitted = () => all.map(({ seen }) => seen.length);
  admission.leave('open');
  t.same(admitted(), [0, 0, 0, 0, 0, 0, 1]);
  admission.leave('keyed');
  t.same(admitted(), [0, 0, 0, 1, 0, 0, 1]);
  admission.giveUp(all[5]!);
  admission.leave('keyed');
  t.same(admitted(), [0, 0, 0, 1, 0, 0, 1]);
  t.equal(admission.waiting, 0);
});

t.test('places: one alone serves both kinds, the queue has an end, and waiting too', async (t) => {
  const admission = new Admission({ max: 1, queue: 1, waitMs: 10 });
  const [first, second, third] = [new One('open'), new One('open'), new One('keyed')];
  t.same(
    [first, second, third].map((one) => admission.enter(one)),
    ['placed', 'waits', 'full'],
  );
  await new Promise((resolve) => setTimeout(resolve, 50));
  t.same(second.seen, ['overdue']);
  t.equal(admission.enter(third), 'waits');
  admission.leave('open');
  t.same(third.seen, ['admitted']);
  admission.leave('keyed');
  t.equal(admission.enter(new One('open')), 'placed');
});
