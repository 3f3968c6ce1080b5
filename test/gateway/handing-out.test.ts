/** Kept responses for clients that do not read them: in memory once, bounded, and at the cost of those who take nothing. */

import { createHash } from 'node:crypto';
import t, { type Test } from 'tap';
import { request, Watching } from '../support/client.js';
import { problemOf } from '../support/expect.js';
import { eventually, within } from '../support/gate.js';
import { configOf, startGateway } from '../support/gateway.js';
import { startRedis } from '../support/redis.js';
import { answers, startUpstream } from '../support/upstream.js';

t.setTimeout(120_000);

const MEBI = 1_048_576;
/** More than lies in the buffers of a connection on loopback. */
const SIZE = 16 * MEBI;

/** Four of these do not fit beside each other. */
const MAX_MEMORY = '56MiB';

const contentOf = (path: string) => Buffer.alloc(SIZE, createHash('sha256').update(path).digest());

async function setUp(t: Test, store: string) {
  const upstream = await startUpstream(t);
  const routes = `
  - name: k
    match: { path: "/k/*" }
    policy: coalesce
    key: [ { request: path } ]
    identity: public
    maxShared: 16MiB
    keep: 100s`;
  const gateway = await startGateway(t, { config: configOf({ upstream: upstream.url, store, routes }) });
  const paths = ['/k/a', '/k/b', '/k/c', '/k/d'];
  for (const path of paths) {
    upstream.on(path, answers({ content: contentOf(path) }));
    t.equal((await request(gateway.url, { path })).body.length, SIZE);
  }
  return { upstream, gateway, paths };
}

t.test('with Redis', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  const store = `{ kind: redis, url: "${redis.url}", commandTimeout: 2s, maxMemory: ${MAX_MEMORY} }`;
  const { upstream, gateway, paths } = await setUp(t, store);
  const reading = async (path: string) => {
    const client = new Watching(gateway.url, { path }, false);
    await client.received(0);
    return client;
  };

  const many: Watching[] = [];
  for (let i = 0; i < 6; i += 1) many.push(await reading('/k/a'));
  const [b, c] = [await reading('/k/b'), await reading('/k/c')];
  t.pass('96 MiB for clients that do not read, of one response, and two more');

  await eventually('room, made by those who have taken nothing for the longest', async () => {
    const answer = await request(gateway.url, { path: '/k/d' });
    if (answer.status === 200) return answer.body.equals(contentOf('/k/d'));
    t.equal(problemOf(answer), 'overloaded');
    return false;
  });
  for (const client of [...many, b, c]) client.resume();
  const all = await Promise.all(many.map(({ answer }) => within(10_000, 'an end', answer)));
  t.ok(all.some(({ cut }) => cut));
  for (const { cut, body } of all) if (!cut) t.equal(body.equals(contentOf('/k/a')), true);
  for (const [client, path] of [
    [b, '/k/b'],
    [c, '/k/c'],
  ] as const) {
    const { cut, body } = await within(10_000, 'an end', client.answer);
    t.equal(cut, false, 'no more are cut than it takes');
    t.equal(body.equals(contentOf(path)), true);
  }
  for (const path of paths) t.equal(upstream.count(path), 1);
});

t.test(
  'in memory what is kept and what is read are one: the oldest is asked for again, nobody is refused',
  async (t) => {
    const { upstream, gateway } = await setUp(t, `{ kind: memory, maxMemory: ${MAX_MEMORY} }`);
    t.equal((await request(gateway.url, { path: '/k/d' })).cacheStatus?.includes('hit'), true);
    t.equal((await request(gateway.url, { path: '/k/a' })).body.equals(contentOf('/k/a')), true);
    t.equal(upstream.count('/k/d'), 1);
    t.equal(upstream.count('/k/a'), 2, 'there was no room for four');
  },
);
