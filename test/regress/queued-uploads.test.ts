/** Content of requests that wait for their turn, or lose it while they upload. */

import t from 'tap';
import { RawClient } from '../support/client.js';
import { isProblem } from '../support/expect.js';
import { delay, eventually } from '../support/gate.js';
import { configOf, type Gateway, metricsOf, startGateways } from '../support/gateway.js';
import { startRedis } from '../support/redis.js';
import { inEachStore } from '../support/stores.js';
import { startUpstream } from '../support/upstream.js';
import { chunkBytes, lastChunkBytes } from '../support/wire.js';

t.setTimeout(120_000);

const route = (name: string, policy: string, lease: string) => `
  - name: ${name}
    match: { path: /${name}/* }
    policy: ${policy}
    key: [ { request: path } ]
    lease: ${lease}
    ${policy === 'queue' ? 'wait: { max: 60s, poll: 30s }' : ''}`;

const lengthHead = (path: string, length: number) =>
  `POST ${path} HTTP/1.1\r\nHost: a\r\nContent-Length: ${length}\r\n\r\n`;
const chunkedHead = (path: string) => `POST ${path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n`;

inEachStore(t, 2, async (t, store, processes) => {
  const upstream = await startUpstream(t);
  const routes = route('q', 'queue', '20s');
  const gateways = await startGateways(t, processes, { config: configOf({ upstream: upstream.url, store, routes }) });
  const last = gateways.at(-1)!;
  const waiting = (count: number) =>
    eventually(`${count} wait`, async () => {
      return (await metricsOf(gateways)).sum('oneflight_queued_requests') === count;
    });

  await t.test('a client that leaves with its content unread is seen to leave, whatever the length', async (t) => {
    for (const kib of [1, 64, 300, 1_000]) {
      const path = `/q/leave-${kib}`;
      const held = upstream.holds(path);
      const leader = gateways[0]!.send({ method: 'POST', path });
      await held.arrived(1);
      const content = Buffer.alloc(kib * 1_024, 'x');
      const whole = await RawClient.connect(last.url);
      whole.write(lengthHead(path, content.length));
      whole.write(content);
      const chunked = await RawClient.connect(last.url);
      chunked.write(chunkedHead(path));
      chunked.write(chunkBytes(content));
      await waiting(2);
      whole.close();
      chunked.close();
      await waiting(0);
      held.release();
      await leader.answer;
      await last.caughtUp();
      t.equal(upstream.count(path), 1, `${kib} KiB: nothing is sent for them`);
    }
  });

  await t.test(
    'content that waited arrives whole, read ahead or not, and also what comes after the turn',
    async (t) => {
      for (const size of [10, 65_536, 300_000, 3_000_000]) {
        for (const framing of ['length', 'chunked']) {
          const path = `/q/${framing}-${size}`;
          const held = upstream.holds(path);
          const leader = gateways[0]!.send({ method: 'POST', path });
          await held.arrived(1);
          const content = Buffer.from(Array.from({ length: size }, (_, i) => i % 251));
          const client = await RawClient.connect(last.url);
          const [early, late] = [content.subarray(0, Math.floor(size / 2)), content.subarray(Math.floor(size / 2))];
          client.write(framing === 'length' ? lengthHead(path, size) : chunkedHead(path));
          client.write(framing === 'length' ? early : chunkBytes(early));
          await waiting(1);
          await delay(20);
          held.release();
          await leader.answer;
          await upstream.arrived(2, path);
          client.write(framing === 'length' ? late : Buffer.concat([chunkBytes(late), lastChunkBytes()]));
          t.equal((await client.answer())?.status, 200);
          t.equal(upstream.callsOf(path)[1]?.content?.equals(content), true, `${framing} ${size}`);
          client.close();
        }
      }
    },
  );
});

t.test('an upload whose lease is lost is not sent on', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  const upstream = await startUpstream(t);
  const routes = route('q', 'queue', '1s') + route('lock', 'reject', '1s');
  const store = `{ kind: redis, url: "${redis.url}", commandTimeout: 2s }`;
  const [first, last] = (await startGateways(t, 2, {
    config: configOf({ upstream: upstream.url, store, routes }),
  })) as [Gateway, Gateway];
  for (const name of ['q', 'lock']) {
    const path = `/${name}/x`;
    const held = upstream.holds(path);
    const client = await RawClient.connect(first.url);
    client.write(lengthHead(path, 1_000));
    client.write('0123456789');
    const call = await held.arrived(1);
    first.pause();
    await eventually('the lease is over', async () => {
      const { flights } = JSON.parse((await last.admin('/flights')).text) as { flights: unknown[] };
      return flights.length === 0;
    });
    held.release();
    t.equal((await last.request({ method: 'POST', path })).status, 200, 'the next one runs');
    first.resume();
    await eventually('the loss is seen', async () => {
      return (await first.metrics()).sum('oneflight_leases_lost_total', { route: name }) === 1;
    });
    client.write(Buffer.alloc(990, 'x'));
    const answer = await client.answer();
    isProblem(t, answer!, 'outcome-unknown');
    await call.closed;
    t.ok((call.content?.length ?? 0) < 1_000, `${name}: the upstream never has the whole of it`);
    client.close();
  }
});
