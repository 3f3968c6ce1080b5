/** What several workers say, put together; what they are given; and when they are started again. */

import { deserialize, serialize } from 'node:v8';
import t from 'tap';
import type { Config } from '../../src/config/config.js';
import { type Figures, Metrics } from '../../src/observe/metrics.js';
import { WorkerFigures } from '../../src/observe/worker-figures.js';
import { Pauses } from '../../src/workers/pauses.js';
import { fromPortable, toPortable } from '../../src/workers/portable-config.js';
import { readinessOf } from '../../src/workers/together.js';
import { Samples } from '../support/gateway.js';

t.test('ready when every worker is, and by what not', async (t) => {
  const ready = { ready: true, checks: { draining: 'ok', store: 'ok', 'upstream a': 'ok' }, config: null };
  const own = { checks: { draining: 'ok', store: 'ok' }, config: null };
  t.same(
    readinessOf(
      2,
      [1, 2].map((worker) => ({ worker, said: ready })),
      own,
    ),
    {
      ready: true,
      checks: { draining: 'ok', store: 'ok', workers: 'ok', 'upstream a': 'ok' },
      config: null,
    },
  );
  const down = { ...ready, ready: false, checks: { ...ready.checks, store: 'gone', 'upstream a': 'refused' } };
  const all = [
    { worker: 1, said: ready },
    { worker: 2, said: down },
    { worker: 3, said: new Error('no answer') },
  ];
  t.same(readinessOf(3, all, { checks: { draining: 'ok' }, config: null }), {
    ready: false,
    checks: { draining: 'ok', workers: '2 of 3 answer', store: 'worker 2: gone', 'upstream a': 'worker 2: refused' },
    config: null,
  });
  t.match(readinessOf(3, all.slice(0, 1), own).checks, { workers: '1 of 3 answer' }, 'some are not there');
});

t.test('a configuration arrives as it was sent', async (t) => {
  const config = {
    upstreams: new Map([['a', { url: new URL('http://u:80/x?y'), socketPath: null, limit: Number.POSITIVE_INFINITY }]]),
    rules: [{ match: { methods: ['GET'] }, policy: { reconcile: { url: { origin: new URL('https://o') } } } }],
    workers: 2,
  };
  const arrived = fromPortable(deserialize(serialize(toPortable(config as unknown as Config))));
  t.strictSame(arrived, config);
});

t.test('pauses grow while workers die young, and end when one has proved itself', async (t) => {
  const pauses = new Pauses();
  t.same(
    [5, 5, 9_999, 0].map((livedMs) => pauses.after(livedMs)),
    [100, 200, 400, 800],
  );
  for (let i = 0; i < 20; i += 1) pauses.after(0);
  t.equal(pauses.after(0), 30_000, 'no longer than that');
  t.equal(pauses.after(10_000), 0);
  t.equal(pauses.after(0), 100);
});

t.test('figures of workers add up, also of those that have ended', async (t) => {
  const of = async (sent: number): Promise<Figures> => {
    const metrics = new Metrics('1.2.3');
    for (let i = 0; i < sent; i += 1) metrics.sent('r', 'client');
    metrics.flights('r', 1);
    metrics.upstreams.show(() => [{ name: 'api', state: stateOf(sent > 2) }]);
    return metrics.figures();
  };
  const figures = new WorkerFigures();
  const samples = async () => new Samples(await figures.expose());
  const sent = async () => (await samples()).sum('oneflight_upstream_calls_total', { route: 'r' });
  figures.began('1');
  figures.began('2');
  figures.told('1', await of(2));
  figures.told('2', await of(3));
  t.equal(await sent(), 5);
  const both = await samples();
  t.equal(both.sum('oneflight_flights_in_progress'), 2);
  t.equal(both.sum('oneflight_build_info'), 1);
  t.equal(both.sum('oneflight_upstream_usable'), 0, 'an address that one worker cannot use');
  t.equal(both.sum('oneflight_upstream_breaker_open'), 1);
  figures.over('2', 'unasked');
  figures.told('2', await of(99));
  figures.began('3');
  t.equal(await sent(), 5, 'what it had told stays, and nothing comes after it');
  t.equal((await samples()).sum('oneflight_flights_in_progress'), 1, 'its levels are gone');
  figures.told('3', await of(4));
  t.equal(await sent(), 9);
  for (let i = 4; i < 60; i += 1) {
    figures.began(String(i));
    figures.told(String(i), await of(1));
    figures.over(String(i), 'unasked');
    const counted = await sent();
    if (counted !== 9 + i - 3) t.fail(`${counted} after ${i}`);
  }
  const last = await samples();
  t.equal(last.sum('oneflight_workers_ended_total'), 57);
  t.equal(last.sum('oneflight_workers'), 2);
});

function stateOf(usable: boolean) {
  return { addresses: [{ name: 'a', isUsable: usable, pending: 1 }], waiting: 0, isOpen: !usable };
}
