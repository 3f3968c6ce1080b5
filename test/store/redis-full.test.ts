/** A Redis that is full and does not evict: locks, wake-ups, streams and queues go on, as everywhere else. */

import t from 'tap';
import { RedisStore } from '../../src/store/redis.js';
import { accessTo, startRedis } from '../support/redis.js';
import { type StoreFactory, storeContract } from './contract.js';
import { marksContract } from './marks-contract.js';
import { queueContract } from './queue-contract.js';

t.setTimeout(170_000);

const redis = await startRedis({ settings: ['--maxmemory', '1', '--maxmemory-policy', 'noeviction'] });
t.teardown(() => redis.stop());

const factory: StoreFactory = async (test, count) => {
  const options = { access: accessTo(redis.url), commandTimeoutMs: 2_000 };
  const stores = Array.from({ length: count }, () => new RedisStore(options));
  test.teardown(() => Promise.all(stores.map((store) => store.close())));
  await Promise.all(stores.map((store) => store.open()));
  return stores;
};

t.test('it refuses what takes room', async (t) => {
  await t.rejects(redis.command('SET', 'a', 'b'), /OOM/);
});

storeContract('a full redis', factory);
marksContract('a full redis', factory);
queueContract('a full redis', factory);
