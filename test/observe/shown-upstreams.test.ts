/** Metrics of upstreams that come and go. */

import t from 'tap';
import { Metrics } from '../../src/observe/metrics.js';

const upstream = (name: string, ...addresses: string[]) => ({
  name,
  state: {
    addresses: addresses.map((address) => ({ name: address, isUsable: true, pending: 0 })),
    waiting: 0,
    isOpen: false,
  },
});

t.test('of upstreams and addresses that are gone nothing is shown, not even what their last requests do', async (t) => {
  const metrics = new Metrics('0');
  let shown = [upstream('api', 'a:1', 'b:1'), upstream('old', 'c:1')];
  metrics.upstreams.show(() => shown);
  const tell = () => {
    for (const [name, address] of [
      ['api', 'a:1'],
      ['api', 'b:1'],
      ['old', 'c:1'],
    ] as const) {
      metrics.upstreams.happened(name, { kind: 'ejected', address, forMs: 1, cause: 'refused' });
      metrics.upstreams.happened(name, { kind: 'retried', address, cause: 'refused' });
    }
    metrics.upstreams.happened('old', { kind: 'opened', cause: 'refused' });
  };
  const lines = async () =>
    (await metrics.expose()).split('\n').filter((line) => /^oneflight_upstream_(?!calls)\w+\{.*(b:1|old)/.test(line));
  tell();
  t.equal((await lines()).length, 10, 'before');
  shown = [upstream('api', 'a:1')];
  await metrics.upstreams.forgetGone();
  t.same(await lines(), []);
  tell();
  t.same(await lines(), []);
  t.match(await metrics.expose(), 'oneflight_upstream_ejections_total{upstream="api",address="a:1"} 2');
});
