/** Which part of the requests is refused while the event loop is late, without a clock. */

import t from 'tap';
import { Shedding } from '../../src/core/shedding.js';

const LIMIT_MS = 200;
const EVERY_MS = 50;

function looks(shedding: Shedding, count: number, delayMs: number): void {
  for (let look = 0; look < count; look += 1) shedding.looked(delayMs, EVERY_MS + delayMs);
}

function refused(shedding: Shedding, of: number): number {
  let count = 0;
  for (let request = 0; request < of; request += 1) if (shedding.refusesNext()) count += 1;
  return count;
}

t.test('a pause refuses nobody, however long, nor do two of them', async (t) => {
  const shedding = new Shedding(LIMIT_MS);
  looks(shedding, 1, 60_000);
  t.equal(refused(shedding, 100), 0, 'a process that was stopped for a minute');
  looks(shedding, 1, 0);
  looks(shedding, 2, 5_000);
  t.equal(refused(shedding, 100), 0, 'two collections in a row');
  looks(shedding, 1, 0);
  for (let again = 0; again < 50; again += 1) {
    looks(shedding, 2, 500);
    looks(shedding, 1, 0);
  }
  t.equal(refused(shedding, 100), 0, 'late again and again, and on time in between');
});

t.test('short looks that are late for less than a second refuse nobody', async (t) => {
  const shedding = new Shedding(20);
  for (let look = 0; look < 30; look += 1) shedding.looked(21, 31);
  t.equal(shedding.share, 0);
  for (let look = 0; look < 4; look += 1) shedding.looked(21, 31);
  t.ok(shedding.share > 0, 'after a second they do');
});

t.test('while it lasts more and more are refused, evenly, up to all; then fewer and none', async (t) => {
  const shedding = new Shedding(LIMIT_MS);
  looks(shedding, 4, 1_000);
  t.equal(shedding.share, 0.5);
  t.equal(refused(shedding, 100), 50);
  const row = Array.from({ length: 6 }, () => shedding.refusesNext());
  t.same(row.slice(0, 2), row.slice(2, 4), 'evenly');
  looks(shedding, 10, 1_000);
  t.equal(refused(shedding, 100), 100);
  looks(shedding, 1, 0);
  t.equal(refused(shedding, 100), 50, 'half of that as soon as it is on time');
  looks(shedding, 1, 500);
  t.equal(shedding.share, 0.75, 'late again: there is no need to wait another second');
  looks(shedding, 5, 0);
  t.equal(refused(shedding, 100), 0);
  looks(shedding, 2, 1_000);
  t.equal(refused(shedding, 100), 0, 'and it begins anew');
});

t.test('without a limit nothing is late', async (t) => {
  const shedding = new Shedding(Number.POSITIVE_INFINITY);
  looks(shedding, 100, 60_000);
  t.equal(refused(shedding, 100), 0);
});
