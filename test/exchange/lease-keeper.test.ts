/** How long a lease counts as held, and its flight can be joined: when the store does not answer, and when it says that it is over. */

import t from 'tap';
import { LeaseKeeper } from '../../src/exchange/lease-keeper.js';
import type { Leases } from '../../src/store/leases.js';
import { StoreUnavailable } from '../../src/store/store.js';
import { eventually } from '../support/gate.js';

const LEASE = { key: 'k', flight: 'f', fence: 1, leaseMs: 300, material: null };

function keeperIn(inOutage: 'lost' | 'unconfirmed') {
  const seen = { tries: 0, unsure: 0, lost: 0, watched: 0 };
  const store = {
    renew: async () => {
      seen.tries += 1;
      throw new StoreUnavailable('away');
    },
    watch: () => {
      seen.watched += 1;
    },
    unwatch: () => {
      seen.watched = 0;
    },
  } as unknown as Leases;
  const keeper = new LeaseKeeper(LEASE, store, {
    claimedAtMs: performance.now(),
    until: () => Number.POSITIVE_INFINITY,
    inOutage,
    onRenewed: () => {},
    onUnsure: () => {
      seen.unsure += 1;
    },
    onLost: () => {
      seen.lost += 1;
    },
    onOverdue: () => {},
  });
  return { keeper, seen };
}

t.test('where a flight goes on without the store it can be joined at every moment of the outage', async (t) => {
  const { keeper, seen } = keeperIn('unconfirmed');
  await eventually('the first try failed', () => seen.tries === 1);
  const gaps: number[] = [];
  await eventually('the outage is known', () => {
    // Looked at as often as the loop turns, also between the end of the lease and the next try.
    if (!keeper.joinable) gaps.push(performance.now());
    return seen.unsure === 1;
  });
  t.same(gaps, []);
  t.equal(keeper.joinable, true);
  t.equal(keeper.held, false);
  keeper.stop();
});

t.test('where it does not, it is lost with its lease, and nobody joins', async (t) => {
  const { keeper, seen } = keeperIn('lost');
  await eventually('it is lost', () => seen.lost === 1);
  t.equal(keeper.joinable, false);
  t.equal(keeper.lost, true);
});

t.test('told that it is over, the lease is lost at once and for good, without a question', async (t) => {
  for (const inOutage of ['lost', 'unconfirmed'] as const) {
    const { keeper, seen } = keeperIn(inOutage);
    t.equal(seen.watched, 1);
    keeper.revoked();
    t.match(keeper, { held: false, joinable: false, lost: true });
    keeper.revoked();
    t.same(seen, { tries: 0, unsure: 1, lost: 1, watched: 0 });
    keeper.stop();
    t.equal(keeper.lost, true);
  }
});

t.test('told so in an outage in which its flight goes on: nobody joins that any more', async (t) => {
  const { keeper, seen } = keeperIn('unconfirmed');
  await eventually('the outage is known', () => seen.unsure === 1);
  keeper.revoked();
  t.match(keeper, { joinable: false, lost: true });
  t.match(seen, { unsure: 1, lost: 1, watched: 0 });
});

t.test('given back, nobody is told any more', async (t) => {
  const { keeper, seen } = keeperIn('lost');
  keeper.stop();
  t.equal(seen.watched, 0);
  keeper.revoked();
  t.match({ lost: keeper.lost, told: seen.lost }, { lost: false, told: 0 });
});
