/** A sentinel that takes a connection again and then says nothing is no reason to end. */

import t from 'tap';
import { delay, eventually } from '../support/gate.js';
import { configOf, startGateway } from '../support/gateway.js';
import { startWatched } from '../support/redis-fleet.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { startUpstream } from '../support/upstream.js';

t.setTimeout(120_000);

/** Longer than a sentinel is given for an answer. */
const UNANSWERED_MS = 2_000;

t.test('who subscribes again at a sentinel and is not answered goes on', async (t) => {
  const watched = await startWatched(t);
  const way = await TcpProxy.start(t, watched.sentinels[0]!.port);
  const upstream = await startUpstream(t);
  const gateway = await startGateway(t, {
    config: configOf({
      upstream: upstream.url,
      store: `{ kind: redis, sentinel: { name: main, hosts: ["127.0.0.1:${way.port}"] } }`,
      routes: '  - { name: all, match: { path: /* }, policy: pass }',
    }),
  });
  const isReady = async () => (await gateway.admin('/readyz')).status === 200;
  await eventually('the gateway is ready', isReady, 30_000);
  await eventually('it hears the news of the sentinel', () => way.subscribers > 0, 30_000);

  way.deafTo = 'subscribe';
  way.cut();
  await eventually('the connections being gone', () => way.subscribers === 0, 30_000);
  await eventually('it subscribes again', () => way.subscribers > 0, 30_000);
  await delay(UNANSWERED_MS);
  t.ok(gateway.running);
  t.ok(await isReady());
  t.equal(gateway.stderr, '');
});
