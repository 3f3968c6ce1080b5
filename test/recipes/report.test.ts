/** docs/recipes/report.md: one call makes a report for all of a tenant, and for those who come half a minute later. */

import t from 'tap';
import { type Answered, burst } from '../support/client.js';
import { COLLAPSED, HIT, LED, tally } from '../support/expect.js';
import { eventually, Gate } from '../support/gate.js';
import type { Gateway } from '../support/gateway.js';
import { answers, gated, inTurn, ordinalAnswer, resetsAfterReading } from '../support/upstream.js';
import { startRecipe } from './recipe.js';

t.setTimeout(60_000);

const REPORT = '/reports/sales';
const JANUARY = `${REPORT}?from=2026-01-01&to=2026-01-31`;

const fieldsOf = (tenant: string, user: number): string[] => ['X-Tenant', tenant, 'Authorization', `Bearer ${user}`];
const open = (gateway: Gateway, tenant: string, user: number, path = JANUARY): Promise<Answered> =>
  gateway.request({ path, headers: fieldsOf(tenant, user) });

t.test('fifty people of a tenant have one report; another tenant and another month have their own', async (t) => {
  const { upstream, first } = await startRecipe(t, 'report.md');
  const held = upstream.holds(REPORT);
  const people = burst(50, (user) => open(first, 'a', user));
  await held.arrived(1);
  await first.caughtUp();
  const others = [open(first, 'b', 1), open(first, 'a', 1, JANUARY.replace('01-31', '01-15'))];
  await held.arrived(3);
  held.release();
  t.same(tally(await people), { [LED]: 1, [COLLAPSED]: 49 });
  t.same(tally(await Promise.all(others)), { [LED]: 2 });
  const late = await open(first, 'a', 51);
  t.match(late.cacheStatus, HIT);
  t.match(late.header('age'), /^\d+$/);
  t.equal(upstream.count(REPORT), 3);

  t.equal((await fetch(`${first.adminUrl}/routes/reports/kept`, { method: 'DELETE' })).status, 200);
  t.equal((await open(first, 'a', 52)).cacheStatus, LED, 'removed, it is made anew');
  t.equal(upstream.count(REPORT), 4);
});

t.test('one of those who wait takes over when the connection to the API breaks', async (t) => {
  const { upstream, first } = await startRecipe(t, 'report.md');
  const gate = new Gate();
  upstream.on(REPORT, inTurn(gated(gate, resetsAfterReading), answers(ordinalAnswer)));
  const leader = open(first, 'a', 0);
  await upstream.arrived(1, REPORT);
  const others = burst(9, (user) => open(first, 'a', user + 1));
  await first.caughtUp();
  gate.open();
  t.equal((await leader).status, 504);
  t.ok((await others).every(({ status }) => status === 200));
  t.equal(upstream.count(REPORT), 2);
});

t.test('an error is kept for nobody', async (t) => {
  const { upstream, first } = await startRecipe(t, 'report.md');
  upstream.on(REPORT, inTurn(answers({ status: 500 }), answers(ordinalAnswer)));
  t.equal((await open(first, 'a', 1)).status, 500);
  t.equal((await open(first, 'a', 2)).status, 200);
  t.equal(upstream.count(REPORT), 2);
});

t.test('a report that nobody waits for any more is not made to its end', async (t) => {
  const { upstream, first } = await startRecipe(t, 'report.md');
  const held = upstream.holds(REPORT);
  const people = [1, 2].map((user) => first.send({ path: JANUARY, headers: fieldsOf('a', user) }));
  const call = await held.arrived(1);
  await first.caughtUp();
  for (const { leave, answer } of people) {
    leave();
    await answer.catch(() => {});
  }
  await eventually('the end of the call', () => call.aborted);
  t.equal(upstream.count(REPORT), 1);
});

t.test('what the API says is for one person goes to that one', async (t) => {
  for (const field of [
    ['Set-Cookie', 'seen=1'],
    ['Cache-Control', 'private'],
  ] as const) {
    const { upstream, first } = await startRecipe(t, 'report.md');
    const held = upstream.holds(REPORT, (call) => ({ ...ordinalAnswer(call), fields: field }));
    const leader = open(first, 'a', 0);
    await held.arrived(1);
    const others = burst(4, (user) => open(first, 'a', user + 1));
    await first.caughtUp();
    held.release();
    const all = [await leader, ...(await others)];
    t.equal(new Set(all.map(({ text }) => text)).size, 5, field[0]);
    t.equal(upstream.count(REPORT), 5);
  }
});
