/** docs/recipes/webhooks.md: an event that is delivered twice is handled once, unless its handler has failed. */

import t from 'tap';
import { COLLAPSED, HIT, LED } from '../support/expect.js';
import type { Gateway } from '../support/gateway.js';
import { answers, inTurn, resetsAfterReading } from '../support/upstream.js';
import { startRecipe } from './recipe.js';

t.setTimeout(60_000);

const PAYMENTS = '/webhooks/payments';
const REPOSITORY = '/webhooks/repository';
let attempt = 0;

/** A delivery as senders repeat it: the event's id stays, signature and content do not. */
function deliver(gateway: Gateway, id: string) {
  attempt += 1;
  return gateway.post(PAYMENTS, { id, pending_webhooks: attempt }, ['X-Signature', `t=${attempt},v1=${attempt}`]);
}

t.test('an event that comes twice', async (t) => {
  const { upstream, gateways, first, last } = await startRecipe(t, 'webhooks.md');

  await t.test('at once, and again later: the handler runs once, whatever else differs', async (t) => {
    const held = upstream.holds(PAYMENTS, ({ ordinal }) => ({ content: `handled ${ordinal}` }));
    const leader = deliver(first, 'evt_1').answer;
    await held.arrived(1);
    const follower = deliver(last, 'evt_1').answer;
    await Promise.all(gateways.map((gateway) => gateway.caughtUp()));
    held.release();
    t.equal((await leader).cacheStatus, LED);
    t.equal((await follower).cacheStatus, COLLAPSED);
    const late = await deliver(last, 'evt_1').answer;
    t.match(late.cacheStatus, HIT);
    t.equal(late.text, 'handled 1');
    t.equal(upstream.count(PAYMENTS), 1);
    t.equal((await deliver(first, 'evt_2').answer).text, 'handled 2', 'another event');
  });

  await t.test('after its sender gave up waiting: the handler went on, and the repeat has its answer', async (t) => {
    const before = upstream.count(PAYMENTS);
    const held = upstream.holds(PAYMENTS, { content: 'handled at last' });
    const impatient = deliver(first, 'evt_3');
    await held.arrived(before + 1);
    impatient.leave();
    await impatient.answer.catch(() => {});
    const repeat = deliver(last, 'evt_3').answer;
    await Promise.all(gateways.map((gateway) => gateway.caughtUp()));
    held.release();
    t.equal((await repeat).text, 'handled at last');
    t.equal(upstream.count(PAYMENTS), before + 1);
  });

  await t.test('after the handler has failed, or its answer was lost: it runs again', async (t) => {
    const done = upstream.count(PAYMENTS);
    const fails = answers({ status: 500, content: 'failed' });
    const behaviours = Array.from({ length: done }, () => fails);
    upstream.on(PAYMENTS, inTurn(...behaviours, fails, resetsAfterReading, answers({ content: 'handled' })));
    t.equal((await deliver(first, 'evt_4').answer).status, 500);
    t.equal((await deliver(last, 'evt_4').answer).status, 504);
    t.equal((await deliver(first, 'evt_4').answer).text, 'handled');
    t.match((await deliver(last, 'evt_4').answer).cacheStatus, HIT);
    t.equal(upstream.count(PAYMENTS), done + 3);
  });

  await t.test('by a field; and nothing else is open', async (t) => {
    const send = (id: string, content: string) => first.post(REPOSITORY, { content }, ['X-GitHub-Delivery', id]).answer;
    t.equal((await send('d-1', 'a')).cacheStatus, LED);
    t.match((await send('d-1', 'b')).cacheStatus, HIT);
    t.equal((await send('d-2', 'a')).cacheStatus, LED);
    t.equal(upstream.count(REPOSITORY), 2);
    t.equal((await first.request({ path: '/other' })).status, 404);
  });
});

t.test('what is kept can be removed, so that an event sent again by hand is handled again', async (t) => {
  const { upstream, first } = await startRecipe(t, 'webhooks.md');
  await deliver(first, 'evt_5').answer;
  const { flights } = (await first.admin('/flights?state=kept')).json() as {
    flights: { key: string; route: string }[];
  };
  const { key } = flights.find(({ route }) => route === 'payment-events')!;
  t.equal((await fetch(`${first.adminUrl}/flights/${key}`, { method: 'DELETE' })).status, 200);
  t.equal((await deliver(first, 'evt_5').answer).cacheStatus, LED);
  t.equal(upstream.count(PAYMENTS), 2);
});
