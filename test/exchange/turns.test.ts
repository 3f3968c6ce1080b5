/** Requests that take turns, at moments that only a store in hand can bring about. */

import t from 'tap';
import type { Queue } from '../../src/store/queue.js';
import { StoreUnavailable } from '../../src/store/store.js';
import { request, send } from '../support/client.js';
import { isProblem } from '../support/expect.js';
import { eventually, Gate } from '../support/gate.js';
import { startInProcess, storeWith } from '../support/in-process.js';
import { queuePolicy, ruleOf } from '../support/rules.js';
import { startUpstream } from '../support/upstream.js';

const RULES = [ruleOf('q', '/q', queuePolicy())];

function queueWith(real: Queue, changes: Partial<Queue>): { queue: Queue } {
  const queue: Queue = {
    enter: (place) => real.enter(place),
    turn: (place, options) => real.turn(place, options),
    renew: (lease) => real.renew(lease),
    complete: (lease, settlement, keepMs) => real.complete(lease, settlement, keepMs),
    release: (lease, options) => real.release(lease, options),
    watch: (lease, holder) => real.watch(lease, holder),
    unwatch: (lease) => real.unwatch(lease),
    ...changes,
  };
  return { queue };
}

t.test('a client that leaves while the store is asked: nothing is sent, and the turn is given back', async (t) => {
  const upstream = await startUpstream(t);
  const [asked, answer] = [new Gate(), new Gate()];
  let released = 0;
  const store = storeWith(({ queue }) =>
    queueWith(queue, {
      enter: async (place) => {
        asked.open();
        await answer.opened;
        return queue.enter(place);
      },
      release: (lease) => {
        released += 1;
        return queue.release(lease);
      },
    }),
  );
  const gateway = await startInProcess(t, { upstreamUrl: upstream.url, rules: RULES, store });
  const leaving = send(gateway.url, { method: 'POST', path: '/q' });
  leaving.answer.catch(() => {});
  await asked.opened;
  leaving.leave();
  await gateway.over(1);
  answer.open();
  await eventually('the turn is given back', () => released === 1);
  t.equal(upstream.count(), 0);
  t.equal((await request(gateway.url, { method: 'POST', path: '/q' })).status, 200);
  t.equal(upstream.count(), 1);
});

t.test('a store that is closed under a wait: the request is refused, nothing is sent', async (t) => {
  const upstream = await startUpstream(t);
  const store = storeWith(({ queue }) =>
    queueWith(queue, {
      enter: async (place) => ({ kind: 'queued', place }),
      turn: async () => {
        throw new StoreUnavailable('closed');
      },
    }),
  );
  const gateway = await startInProcess(t, { upstreamUrl: upstream.url, rules: RULES, store });
  isProblem(t, await request(gateway.url, { method: 'POST', path: '/q' }), 'store-unavailable');
  t.equal(upstream.count(), 0);
});
