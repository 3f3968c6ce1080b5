import t from 'tap';
import { RedisStore } from '../../src/store/redis.js';
import { accessTo, startRedis } from '../support/redis.js';
import { type StoreFactory, storeContract } from './contract.js';
import { marksContract } from './marks-contract.js';
import { queueContract } from './queue-contract.js';

const redis = await startRedis();
t.teardown(() => redis.stop());

function factoryWith(secrets: readonly string[], prefix: string): StoreFactory {
  const options = { access: accessTo(redis.url), commandTimeoutMs: 2_000, secrets, prefix };
  return async (test, count) => {
    const stores = Array.from({ length: count }, () => new RedisStore(options));
    test.teardown(() => Promise.all(stores.map((store) => store.close())));
    await Promise.all(stores.map((store) => store.open()));
    return stores;
  };
}

const factory = factoryWith([], 'oneflight');

storeContract('redis', factory);
storeContract('redis with a secret', factoryWith(['the secret of this test'], 'sealed'));
marksContract('redis', factory);
queueContract('redis', factory);
