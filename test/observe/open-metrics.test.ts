import { Registry } from 'prom-client';
import t from 'tap';
import { Metrics } from '../../src/observe/metrics.js';
import { openMetricsText } from '../../src/observe/open-metrics.js';
import { Timings } from '../../src/observe/timings.js';
import { WorkerFigures } from '../../src/observe/worker-figures.js';

const of = (figures: unknown) => openMetricsText(figures as Parameters<typeof openMetricsText>[0]);

t.test('each kind of metric as OpenMetrics writes it', async (t) => {
  const exemplar = { labelSet: { trace_id: 'ab' }, value: 0.5, timestamp: 1.23456 };
  const text = of([
    { name: 'a_total', help: 'A "b".\nC\\', type: 'counter', values: [{ labels: { x: 'q"\\\n' }, value: 2 }] },
    {
      name: 'b',
      help: 'B.',
      type: 'gauge',
      values: [{ labels: {}, value: Number.NaN }, { value: Number.NEGATIVE_INFINITY }],
    },
    {
      name: 'c_seconds',
      help: 'C.',
      type: 'histogram',
      values: [
        { labels: { le: '+Inf' }, value: 1, metricName: 'c_seconds_bucket', exemplar },
        { labels: {}, value: 0.5, metricName: 'c_seconds_sum' },
      ],
    },
  ]);
  t.equal(
    text,
    `# TYPE a counter
# HELP a A \\"b\\".\\nC\\\\
a_total{x="q\\"\\\\\\n"} 2
# TYPE b gauge
# HELP b B.
b NaN
b -Inf
# TYPE c_seconds histogram
# HELP c_seconds C.
c_seconds_bucket{le="+Inf"} 1 # {trace_id="ab"} 0.5 1.235
c_seconds_sum 0.5
# EOF
`,
  );
});

t.test('a time that was traced is the exemplar of its bucket until the next one; others leave it alone', async (t) => {
  const registry = new Registry();
  const timings = new Timings(registry, 'took_seconds', 'How long it took.', 'route', [0.01, 0.1]);
  const traces = async () =>
    [...of(await registry.getMetricsAsJSON()).matchAll(/le="([^"]+)".*trace_id="(\w+)"/g)].map(([, le, id]) => [
      le,
      id,
    ]);
  timings.observe('r', 5);
  t.same(await traces(), []);
  timings.observe('r', 50, 'one');
  timings.observe('r', 60);
  t.same(await traces(), [['0.1', 'one']]);
  timings.observe('r', 50, 'two');
  timings.observe('r', 5_000, 'three');
  t.same(await traces(), [
    ['0.1', 'two'],
    ['+Inf', 'three'],
  ]);
});

t.test('of several workers the newest exemplar of each bucket is shown', async (t) => {
  const figures = new WorkerFigures();
  const told = async (id: string, traceId: string, at: number) => {
    figures.began(id);
    const registry = new Registry();
    new Timings(registry, 'took_seconds', 'T.', 'route', [0.1]).observe('r', 5, traceId);
    const json = (await registry.getMetricsAsJSON()) as unknown as { values: { exemplar?: { timestamp: number } }[] }[];
    for (const { exemplar } of json[0]!.values) if (exemplar !== undefined) exemplar.timestamp = at;
    figures.told(id, [...(await new Metrics('1').figures()), ...(json as never[])]);
  };
  await told('1', 'old', 1);
  await told('2', 'new', 3);
  await told('3', 'older', 2);
  const text = await figures.exposeOpenMetrics();
  t.match(
    text,
    /^oneflight_took_seconds_bucket\{(?:le="0.1",route="r"|route="r",le="0.1")\} 3 # \{trace_id="new"\} 0.005 3.000$/m,
  );
  t.equal(text.split('# EOF').length, 2, 'one end');
  t.notOk(text.includes('\n\n'), 'no empty line');
  t.equal(text.match(/^# TYPE oneflight_config_reload_success gauge$/gm)?.length, 1);
});
