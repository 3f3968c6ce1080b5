import { Histogram, Registry } from 'prom-client';
import t from 'tap';
import { Level, Tally } from '../../src/observe/tally.js';
import { Timings } from '../../src/observe/timings.js';

const BUCKETS_S = [0.001, 0.01, 0.1];

t.test('times are exposed as prom-client exposes its own histogram', async (t) => {
  const [ours, theirs] = [new Registry(), new Registry()];
  const timings = new Timings(ours, 'took_seconds', 'How long it took.', 'operation', BUCKETS_S);
  const histogram = new Histogram({
    name: 'oneflight_took_seconds',
    help: 'How long it took.',
    labelNames: ['operation'],
    buckets: BUCKETS_S,
    registers: [theirs],
  });
  for (const [operation, ms] of [
    ['claim', 0.5],
    ['claim', 1],
    ['claim', 5],
    ['release', 1_000],
  ] as const) {
    timings.observe(operation, ms);
    histogram.observe({ operation }, ms / 1000);
  }
  t.equal(await ours.metrics(), await theirs.metrics());
});

t.test('a histogram of nothing is exposed without values', async (t) => {
  const registry = new Registry();
  new Timings(registry, 'took_seconds', 'How long it took.', 'operation', BUCKETS_S);
  t.notMatch(await registry.metrics(), /_bucket/);
});

t.test('a level is what its changes add up to, a tally what was counted, however often they are read', async (t) => {
  const registry = new Registry();
  const level = new Level(registry, 'in_progress', 'Under way.', 'route');
  const tally = new Tally(registry, 'calls_total', 'Calls.', ['route']);
  for (const change of [1, 1, -1]) level.change('a', change);
  tally.count('a');
  await registry.metrics();
  tally.count('a');
  const text = await registry.metrics();
  t.match(text, 'oneflight_in_progress{route="a"} 1\n');
  t.match(text, 'oneflight_calls_total{route="a"} 2\n');
});
