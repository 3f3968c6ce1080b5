/** Gateways with rules of a measurement's own, and an upstream in this process that it can hold and release. */

import { configOf, type Gateway, startGateway } from '../test/support/gateway.js';
import { type RedisServer, startRedis } from '../test/support/redis.js';
import { type StubUpstream, startUpstream } from '../test/support/upstream.js';
import { pin } from './cores.js';

export type Stage = {
  /** One at least. */
  readonly gateways: readonly [Gateway, ...Gateway[]];
  readonly upstream: StubUpstream;
  /** null: they have a store in memory. */
  readonly redis: RedisServer | null;
  end(): Promise<void>;
};

export type StageParts = {
  readonly routes: string;
  readonly gateways?: number;
  readonly store?: 'memory' | 'redis';
};

/** A rule under which requests for one path share a response with whoever asks; `more`: its further options, a line each. */
export function sharedRoute(name: string, more: readonly string[] = []): string {
  const options = ['policy: coalesce', 'key: [ { request: path } ]', 'identity: public', ...more];
  return `
  - name: ${name}
    match: { path: /${name}/* }
    ${options.join('\n    ')}`;
}

export async function startStage({ routes, gateways = 1, store = 'memory' }: StageParts): Promise<Stage> {
  const ends: (() => void | Promise<void>)[] = [];
  const end = async () => {
    for (const one of ends.splice(0).reverse()) await one();
  };
  const scope = {
    teardown: (one: () => void | Promise<void>) => void ends.push(one),
    passing: () => true,
    comment: (text: string) => console.error(text),
  };
  try {
    const upstream = await startUpstream(scope);
    const redis = store === 'redis' ? await startRedis() : null;
    if (redis !== null) {
      ends.push(() => redis.stop());
      pin(redis.pid, 'load');
    }
    const config = configOf({
      upstream: upstream.url,
      routes,
      store: redis === null ? '{ kind: memory }' : `{ kind: redis, url: "${redis.url}", commandTimeout: 300ms }`,
      more: 'log: { level: error }',
    });
    const started: Gateway[] = [];
    for (let i = 0; i < gateways; i += 1) {
      const gateway = await startGateway(scope, { config });
      pin(gateway.pid, 'measured');
      started.push(gateway);
    }
    return { gateways: started as [Gateway, ...Gateway[]], upstream, redis, end };
  } catch (error) {
    await end();
    throw error;
  }
}
