/** docs/recipes/confirm.md: one step of an order at a time, whichever it is and whoever asks. */

import t from 'tap';
import { isProblem } from '../support/expect.js';
import type { Gateway } from '../support/gateway.js';
import { resetsAfterReading } from '../support/upstream.js';
import { startRecipe } from './recipe.js';

t.setTimeout(60_000);

const CONFIRM = '/orders/o-1/confirm';
const CANCEL = '/orders/o-1/cancel';

const click = (gateway: Gateway, path: string, caller = 'customer') =>
  gateway.request({ method: 'POST', path, headers: ['Authorization', `Bearer ${caller}`] });

t.test('while a cascade runs, every other step of that order is refused at once', async (t) => {
  const { upstream, first } = await startRecipe(t, 'confirm.md');
  const held = upstream.holds(CONFIRM);
  const running = click(first, CONFIRM);
  await held.arrived(1);
  for (const [path, caller] of [
    [CONFIRM, 'customer'],
    [CONFIRM, 'clerk'],
    [CANCEL, 'customer'],
  ] as const) {
    const refused = await click(first, path, caller);
    t.equal(refused.status, 429, `${path} by the ${caller}`);
    isProblem(t, refused, 'in-flight');
  }
  t.equal((await click(first, '/orders/o-2/confirm')).status, 200, 'another order');
  held.release();
  t.equal((await running).status, 200);
  t.equal(upstream.count(CONFIRM), 1);
  t.equal(upstream.count(CANCEL), 0);

  t.equal((await click(first, CONFIRM)).status, 200, 'it is a lock, not a memory');
  t.equal(upstream.count(CONFIRM), 2);
});

t.test('a lost answer holds the order until somebody has looked', async (t) => {
  const { upstream, first } = await startRecipe(t, 'confirm.md');
  upstream.on(CONFIRM, resetsAfterReading);
  const lost = await click(first, CONFIRM);
  t.equal(lost.status, 504);
  isProblem(t, lost, 'outcome-unknown');
  for (const path of [CONFIRM, CANCEL]) {
    const held = await click(first, path);
    t.equal(held.status, 409);
    isProblem(t, held, 'outcome-unknown');
  }
  t.equal(upstream.count(CONFIRM), 1);
  t.equal(upstream.count(CANCEL), 0);

  const { flights } = (await first.admin('/flights?state=unknown')).json() as { flights: { key: string }[] };
  const settled = await fetch(`${first.adminUrl}/flights/${flights[0]!.key}/settle`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: '{"as":"free"}',
  });
  t.equal(settled.status, 200);
  t.equal((await click(first, CANCEL)).status, 200);
  t.equal(upstream.count(CANCEL), 1);
});

t.test('an API that cannot be reached has done nothing: the next click runs', async (t) => {
  const { upstream, first } = await startRecipe(t, 'confirm.md');
  await upstream.refuse();
  t.equal((await click(first, CONFIRM)).status, 502);
  await upstream.listen();
  t.equal((await click(first, CONFIRM)).status, 200);
  t.equal(upstream.count(CONFIRM), 1);
});
