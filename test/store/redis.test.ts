import t from 'tap';
import { RedisStore } from '../../src/store/redis.js';
import { startRedis } from '../support/redis.js';
import { type StoreFactory, storeContract } from './contract.js';
import { marksContract } from './marks-contract.js';
import { queueContract } from './queue-contract.js';

const redis = await startRedis();
t.teardown(() => redis.stop());

const factory: StoreFactory = async (test, count) => {
  const stores = Array.from({ length: count }, () => new RedisStore({ url: redis.url, commandTimeoutMs: 2_000 }));
  test.teardown(() => Promise.all(stores.map((store) => store.close())));
  await Promise.all(stores.map((store) => store.open()));
  return stores;
};

storeContract('redis', factory);
marksContract('redis', factory);
queueContract('redis', factory);
