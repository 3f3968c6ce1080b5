/** Which part of the requests is refused while the event loop is late, without a clock. */

import t from 'tap';
import { Shedding } from '../../src/core/shedding.js';

const LIMIT_MS = 1_000;
const EVERY_MS = 250;

function looks(shedding: Shedding, count: number, delayMs: number): void {
  for (let look = 0; look < count; look += 1) shedding.looked(delayMs, EVERY_MS + delayMs);
}

/** How many of so many requests are refused, the next look being late already by a time. */
function refused(shedding: Shedding, of: number, delayMs = 0): number {
  let count = 0;
  for (let request = 0; request < of; request += 1) if (shedding.refusesNext(delayMs)) count += 1;
  return count;
}

t.test('a pause refuses nobody, however long, nor do many with a look on time in between', async (t) => {
  const shedding = new Shedding(LIMIT_MS);
  t.equal(refused(shedding, 100, 60_000), 0, 'while it lasts');
  looks(shedding, 1, 60_000);
  t.equal(refused(shedding, 100), 0, 'a process that was stopped for a minute');
  for (let again = 0; again < 50; again += 1) {
    looks(shedding, 1, 0);
    looks(shedding, 1, 5_000);
  }
  t.equal(refused(shedding, 100), 0);
});

t.test('short looks that are late for less than a second refuse nobody', async (t) => {
  const shedding = new Shedding(20);
  for (let look = 0; look < 47; look += 1) shedding.looked(21, 26);
  t.equal(shedding.share, 0);
  for (let look = 0; look < 2; look += 1) shedding.looked(21, 26);
  t.ok(shedding.share > 0, 'after a second they do');
});

t.test('while it lasts more and more are refused, evenly, up to all', async (t) => {
  const shedding = new Shedding(LIMIT_MS);
  looks(shedding, 2, 1_100);
  t.match(String(refused(shedding, 400)), /^1(09|10|11)$/, 'a good quarter');
  looks(shedding, 1, 1_100);
  t.match(String(refused(shedding, 400)), /^2(19|20|21)$/);
  looks(shedding, 1, 0);
  t.ok(shedding.share < 0.3, 'less as soon as it is on time');
  looks(shedding, 1, 2_000);
  t.ok(shedding.share > 0.5, 'late again: it need not last for a second');
  const row = Array.from({ length: 40 }, () => shedding.refusesNext(0));
  t.notMatch(row.map(Number).join(''), /000|111111/, 'evenly');
  looks(shedding, 10, 1_100);
  t.equal(refused(shedding, 100), 100);
});

t.test('what is very late is refused sooner, and nobody waits for the end of a long turn', async (t) => {
  const shedding = new Shedding(LIMIT_MS);
  looks(shedding, 1, 10_000);
  t.equal(refused(shedding, 100, 900), 0, 'the next turn is not late yet');
  t.equal(refused(shedding, 100, 2_000), 50, 'and now it is');
  t.equal(refused(shedding, 100, 4_000), 100);
  t.equal(shedding.share, 0, 'it has still to be seen how it ends');
  looks(shedding, 1, 10_000);
  t.equal(shedding.share, 1);
});

t.test('on time again nothing is refused after two seconds', async (t) => {
  const shedding = new Shedding(LIMIT_MS);
  looks(shedding, 2, 10_000);
  looks(shedding, 1, 0);
  t.equal(shedding.share, 0.5, 'half of it after a quarter of a second');
  looks(shedding, 8, 0);
  t.equal(refused(shedding, 100), 0);
  looks(shedding, 1, 5_000);
  t.equal(refused(shedding, 100), 0, 'and it begins anew');
});

t.test('without a limit nothing is late', async (t) => {
  const shedding = new Shedding(Number.POSITIVE_INFINITY);
  looks(shedding, 100, 60_000);
  t.equal(refused(shedding, 100, 60_000), 0);
});
