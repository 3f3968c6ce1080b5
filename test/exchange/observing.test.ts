/** Requests whose rule only observes, with a store that does what it should not. */

import t from 'tap';
import { fateLabel } from '../../src/core/observed.js';
import { ContentCopy } from '../../src/exchange/content-copy.js';
import { ReadAheadBudget } from '../../src/exchange/read-ahead.js';
import { StoreUnavailable } from '../../src/store/store.js';
import { burst, request } from '../support/client.js';
import { eventually, Gate } from '../support/gate.js';
import { type InProcess, startInProcess, storeWith } from '../support/in-process.js';
import { coalescePolicy, queuePolicy, rejectPolicy, ruleOf } from '../support/rules.js';
import { answersAfter, startUpstream } from '../support/upstream.js';

const mode = 'observes';

async function labelsOf({ observed }: InProcess, count: number): Promise<string[]> {
  await eventually(`${count} are observed`, () => observed.length >= count);
  return observed.map(({ fate }) => fateLabel(fate));
}

t.test('a store that never answers holds up no request, and no stop', async (t) => {
  const upstream = await startUpstream(t);
  const store = storeWith(() => ({ claim: () => new Promise(() => {}) }));
  const rules = [ruleOf('r', '/r', rejectPolicy({ mode }))];
  const gateway = await startInProcess(t, { upstreamUrl: upstream.url, rules, store });
  for (let turn = 0; turn < 3; turn += 1) t.equal((await request(gateway.url, { path: '/r' })).status, 200);
  t.equal(upstream.count(), 3);
  t.strictSame(gateway.observed, [], 'nothing is known of them');
});

t.test('a store that is away: what the rule would have done then', async (t) => {
  const upstream = await startUpstream(t);
  const away = async () => {
    throw new StoreUnavailable('away');
  };
  const store = storeWith(({ queue }) => ({
    claim: away,
    queue: Object.assign(Object.create(queue), { enter: away }),
  }));
  const rules = [
    ruleOf('refuses', '/refuses', rejectPolicy({ mode })),
    ruleOf('passes', '/passes', rejectPolicy({ mode, onStoreDown: 'pass' })),
    ruleOf('goes-on', '/goes-on', coalescePolicy({ mode, keep: { kind: 'fixed', keepMs: 60_000 } })),
    ruleOf('queues', '/queues', queuePolicy({ mode })),
  ];
  const gateway = await startInProcess(t, { upstreamUrl: upstream.url, rules, store });
  for (const path of ['/refuses', '/passes', '/goes-on', '/goes-on', '/queues']) {
    t.equal((await request(gateway.url, { path })).status, 200);
  }
  t.strictSame(await labelsOf(gateway, 5), ['store-unavailable', 'bypassed', 'led', 'hit', 'store-unavailable']);
});

t.test(
  'a request that comes after the end of another is not its duplicate, however late the store answers',
  async (t) => {
    const upstream = await startUpstream(t);
    const answer = new Gate();
    let claims = 0;
    const store = storeWith((real) => ({
      claim: async (claim) => {
        claims += 1;
        const isFirst = claims === 1;
        const result = await real.claim(claim);
        if (isFirst) await answer.opened;
        return result;
      },
    }));
    const rules = [ruleOf('r', '/r', rejectPolicy({ mode }))];
    const gateway = await startInProcess(t, { upstreamUrl: upstream.url, rules, store });
    await request(gateway.url, { path: '/r' });
    await request(gateway.url, { path: '/r' });
    answer.open();
    t.strictSame(await labelsOf(gateway, 2), ['led', 'led']);
  },
);

t.test('the lease is renewed as long as the call lasts; one that is lost alarms nobody', async (t) => {
  const upstream = await startUpstream(t);
  let renewals = 0;
  const store = storeWith((real) => ({
    renew: async (lease) => {
      renewals += 1;
      return renewals > 6 ? 'lost' : real.renew(lease);
    },
  }));
  const rules = [ruleOf('r', '/r', rejectPolicy({ mode, leaseMs: 300 }))];
  const gateway = await startInProcess(t, { upstreamUrl: upstream.url, rules, store });
  const held = upstream.holds('/r');
  const first = request(gateway.url, { path: '/r' });
  await eventually('the lease was renewed beyond its first length', () => renewals >= 5);
  const second = request(gateway.url, { path: '/r' });
  await held.arrived(2);
  await eventually('the lease is lost', () => renewals > 6);
  held.release();
  t.strictSame([(await first).status, (await second).status], [200, 200]);
  t.strictSame((await labelsOf(gateway, 2)).sort(), ['in-flight', 'led']);
  t.equal(gateway.lost(), 0);
});

t.test('in a queue each has its turn for as long as its call took, not for as long as it takes', async (t) => {
  const upstream = await startUpstream(t);
  const store = storeWith(() => ({}));
  const rules = [ruleOf('q', '/q', queuePolicy({ mode, waitMs: 1_000 }))];
  const gateway = await startInProcess(t, { upstreamUrl: upstream.url, rules, store });
  upstream.on('/q', answersAfter(700));
  await burst(3, () => request(gateway.url, { path: '/q' }));
  // The third would have had its turn after twice as long.
  t.strictSame((await labelsOf(gateway, 3)).sort(), ['led', 'queued', 'wait-timeout']);
});

t.test('an observation that fails is told, and its request is answered', async (t) => {
  const upstream = await startUpstream(t);
  const store = storeWith(() => ({
    claim: async () => {
      throw new Error('a fault in the store');
    },
  }));
  const rules = [ruleOf('r', '/r', rejectPolicy({ mode }))];
  const failures: unknown[] = [];
  const gateway = await startInProcess(t, {
    upstreamUrl: upstream.url,
    rules,
    store,
    onFailure: (error) => failures.push(error),
  });
  t.equal((await request(gateway.url, { path: '/r' })).status, 200);
  t.strictSame(await labelsOf(gateway, 1), ['unobserved']);
  t.equal(failures.length, 1);
});

t.test('a copy of content', async (t) => {
  const budget = new ReadAheadBudget(10);
  const copyOf = (limitBytes: number, announcedBytes: number, ...pieces: string[]) => {
    const copy = new ContentCopy(limitBytes, announcedBytes, budget);
    for (const piece of pieces) copy.add(Buffer.from(piece));
    return copy;
  };
  const ended = copyOf(8, 0, 'ab', 'cd');
  ended.end();
  t.same(await ended.done, { kind: 'whole' });
  t.notOk(budget.take(7), 'what is whole has its room until it is taken');
  t.same(ended.take(), Buffer.from('abcd'));
  t.same(await copyOf(8, 9).done, { kind: 'too-large' }, 'as announced');
  t.same(await copyOf(8, 0, '12345', '6789').done, { kind: 'too-large' });
  const open = copyOf(8, 0, '123456');
  t.same(await copyOf(8, 0, '12345').done, { kind: 'no-room' }, 'all copies have one bound');
  open.drop();
  t.same(await open.done, { kind: 'broken' });
  const again = copyOf(8, 0, '12345678');
  again.end();
  t.equal((await again.done).kind, 'whole', 'what was dropped, and what was taken, is given back');
  again.add(Buffer.from('9'));
  again.drop();
  t.equal(again.take().length, 0, 'nothing of it is kept');
  t.ok(budget.take(10));
});
