/** Traces: what a collector gets to know of requests, by which span an upstream is called, and who is linked to whom. */

import t, { type Test } from 'tap';
import { RawClient } from '../support/client.js';
import { type Collector, KIND, type SeenSpan, startCollector } from '../support/collector.js';
import { eventually } from '../support/gate.js';
import { type ConfigParts, configOf, type Gateway, startGateway } from '../support/gateway.js';
import { freePort } from '../support/ports.js';
import { startRedis } from '../support/redis.js';
import { resetsAfterReading, type StubUpstream, startUpstream } from '../support/upstream.js';
import { pinEach, watchOver } from '../support/workers.js';

t.setTimeout(120_000);

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const SPAN = '00f067aa0ba902b7';
const SAMPLED = `00-${TRACE}-${SPAN}-01`;
const UNSAMPLED = `00-${TRACE}-${SPAN}-00`;

const ROUTES = `
  - name: shared
    match: { methods: [POST, GET], path: "/shared/:id" }
    upstream: api
    policy: coalesce
    key: [ { param: id } ]
    identity: public
    keep: 0
    wait: 20s
  - name: lock
    match: { methods: [POST], path: "/lock/:id" }
    upstream: api
    policy: reject
    key: [ { param: id } ]
  - name: line
    match: { methods: [POST], path: "/line/:id" }
    upstream: api
    policy: queue
    key: [ { param: id } ]
  - name: kept
    match: { methods: [POST], path: /kept }
    upstream: api
    policy: replay`;

type Parts = Partial<ConfigParts> & { readonly tracing?: string; readonly env?: Readonly<Record<string, string>> };

async function startTraced(
  t: Test,
  upstream: StubUpstream,
  collector: Pick<Collector, 'url'>,
  { tracing = `{ endpoint: "${collector.url}" }`, env = {}, more = '', ...parts }: Parts = {},
): Promise<Gateway> {
  const traced = tracing === '' ? '' : `tracing: ${tracing}`;
  const config = configOf({ upstream: upstream.url, routes: ROUTES, ...parts, more: `${traced}\n${more}` });
  return startGateway(t, { config, env });
}

/** The spans of one request and of what was made for it, by their names. */
function partsOf(collector: Collector, { traceId, spanId }: SeenSpan): Map<string, SeenSpan> {
  const parts = collector.spans.filter((span) => span.traceId === traceId && span.parentSpanId === spanId);
  return new Map(parts.map((span) => [span.name, span]));
}

const post = (gateway: Pick<Gateway, 'request'>, path: string, headers: readonly string[] = []) =>
  gateway.request({ method: 'POST', path, headers, body: 'A' });
const traceparents = (upstream: StubUpstream): string[][] =>
  upstream.calls.map((call) => call.headerLines('traceparent'));

t.test(
  'a request is one span with its claim and its upstream call below, and the upstream is told of that call',
  async (t) => {
    const [upstream, collector] = await Promise.all([startUpstream(t), startCollector(t)]);
    const gateway = await startTraced(t, upstream, collector, {
      tracing: `{ endpoint: "${collector.url}/", serviceName: "edge gateway", headers: { X-Tenant: "blue" } }`,
    });
    await post(gateway, '/shared/secret-7?token=secret-8', ['X-Request-Id', 'one']);
    const [server] = await collector.seen(1, 'server');
    const parts = partsOf(collector, server!);
    t.strictSame([...parts.keys()].sort(), ['POST', 'claim']);
    const call = parts.get('POST')!;
    t.strictSame(traceparents(upstream), [[`00-${server!.traceId}-${call.spanId}-01`]]);
    t.equal(server!.name, 'POST /shared/:id');
    t.equal(server!.parentSpanId, undefined, 'it is the first of its trace');
    const { 'oneflight.key': key, ...attributes } = server!.attributes;
    t.match(key, /^[\w-]{43}$/, 'the digest');
    t.strictSame(attributes, {
      'http.request.method': 'POST',
      'url.scheme': 'http',
      'network.protocol.version': '1.1',
      'http.route': '/shared/:id',
      'http.response.status_code': '200',
      'oneflight.route': 'shared',
      'oneflight.policy': 'coalesce',
      'oneflight.outcome': 'led',
      'oneflight.role': 'leader',
      'oneflight.request_id': 'one',
    });
    t.strictSame(parts.get('claim')!.attributes, { 'oneflight.claim.answer': 'leader' });
    t.equal(call.kind, KIND.client);
    t.strictSame(call.attributes, {
      'http.request.method': 'POST',
      'server.address': '127.0.0.1',
      'server.port': new URL(upstream.url).port,
      'http.response.status_code': '200',
      'oneflight.upstream': 'api',
    });
    t.equal(server!.resource['service.name'], 'edge gateway');
    for (const span of [...parts.values(), server!]) {
      t.ok(
        BigInt(span.startTimeUnixNano) <= BigInt(span.endTimeUnixNano),
        `${span.name} does not end before it begins`,
      );
      t.ok(BigInt(span.startTimeUnixNano) >= BigInt(server!.startTimeUnixNano), `${span.name} is within the request`);
    }
    const [sent] = collector.posts;
    t.equal(sent!.header('content-type'), 'application/json');
    t.equal(sent!.header('x-tenant'), 'blue');
    t.notMatch(sent!.content!.toString(), /secret-[78]/, 'no value of the request');
    const line = gateway.logs.find(({ msg }) => msg === 'exchange') as { traceId?: unknown } | undefined;
    t.equal(line?.traceId, server!.traceId, 'the log line says in which trace it is');
  },
);

t.test('who waits has its wait as a span, and a link to the leader', async (t) => {
  const [upstream, collector] = await Promise.all([startUpstream(t), startCollector(t)]);
  const gateway = await startTraced(t, upstream, collector);
  const held = upstream.holds('/shared/1');
  const leader = post(gateway, '/shared/1', ['X-Request-Id', 'leader']);
  await held.arrived(1);
  const follower = post(gateway, '/shared/1', ['X-Request-Id', 'follower']);
  await gateway.caughtUp();
  held.release();
  await Promise.all([leader, follower]);
  const spans = await collector.seen(2, 'server', 'POST /shared/:id');
  const [led, followed] = ['leader', 'follower'].map(
    (id) => spans.find((span) => span.attributes['oneflight.request_id'] === id)!,
  );
  t.not(led!.traceId, followed!.traceId, 'each has a trace of its own');
  t.strictSame(
    followed!.links.map(({ traceId, spanId }) => [traceId, spanId]),
    [[led!.traceId, led!.spanId]],
  );
  t.strictSame(
    [followed!.attributes['oneflight.role'], followed!.attributes['oneflight.outcome']],
    ['follower', 'collapsed'],
  );
  t.strictSame([...partsOf(collector, followed!).keys()], ['wait'], 'it asked nobody, and called nobody');
  t.strictSame(led!.links, []);
});

t.test(
  'with Redis, a follower in another process is linked to the leader, and so is who is refused or replayed',
  async (t) => {
    const redis = await startRedis();
    t.teardown(() => redis.stop());
    const [upstream, collector] = await Promise.all([startUpstream(t), startCollector(t)]);
    const store = `{ kind: redis, url: "${redis.url}", commandTimeout: 2s, secret: "0123456789abcdef" }`;
    const [one, other] = await Promise.all([
      startTraced(t, upstream, collector, { store }),
      startTraced(t, upstream, collector, { store }),
    ]);
    const held = upstream.holds('/shared/1');
    const leader = post(one, '/shared/1', ['X-Request-Id', 'leader']);
    await held.arrived(1);
    const follower = post(other, '/shared/1', ['X-Request-Id', 'follower']);
    await other.caughtUp();
    held.release();
    t.strictSame(
      (await Promise.all([leader, follower])).map(({ status }) => status),
      [200, 200],
    );
    const spans = await collector.seen(2, 'server', 'POST /shared/:id');
    const [led, followed] = ['leader', 'follower'].map(
      (id) => spans.find((span) => span.attributes['oneflight.request_id'] === id)!,
    );
    t.not(led!.resource['service.instance.id'], followed!.resource['service.instance.id'], 'two processes');
    t.strictSame(
      followed!.links.map(({ traceId, spanId }) => [traceId, spanId]),
      [[led!.traceId, led!.spanId]],
    );
    t.strictSame([...partsOf(collector, followed!).keys()].sort(), ['claim', 'wait']);
    t.equal(partsOf(collector, followed!).get('claim')!.attributes['oneflight.claim.answer'], 'follower');
    t.equal(upstream.count('/shared/1'), 1);

    const busy = upstream.holds('/lock/1');
    const locked = post(one, '/lock/1');
    await busy.arrived(1);
    t.equal((await post(other, '/lock/1')).status, 409);
    busy.release();
    await locked;
    const locks = await collector.seen(2, 'server', 'POST /lock/:id');
    const [winner, refused] = ['led', 'in-flight'].map(
      (outcome) => locks.find((span) => span.attributes['oneflight.outcome'] === outcome)!,
    );
    t.strictSame(
      refused!.links.map(({ spanId }) => spanId),
      [winner!.spanId],
    );

    const key = ['Idempotency-Key', 'k1'];
    await post(one, '/kept', key);
    t.equal((await post(other, '/kept', key)).header('idempotent-replayed'), 'true');
    const kept = await collector.seen(2, 'server', 'POST /kept');
    const [made, replayed] = ['led', 'hit'].map(
      (outcome) => kept.find((span) => span.attributes['oneflight.outcome'] === outcome)!,
    );
    t.strictSame(
      replayed!.links.map(({ spanId }) => spanId),
      [made!.spanId],
      'what is kept tells who made it',
    );
  },
);

t.test('each worker exports its own spans, and followers in others are linked', async (t) => {
  const [upstream, collector] = await Promise.all([startUpstream(t), startCollector(t)]);
  const gateway = await startTraced(t, upstream, collector, { more: 'workers: 2' });
  watchOver(gateway);
  const [one, other] = await pinEach(t, gateway, 2);
  const held = upstream.holds('/shared/1');
  const leader = post(one!, '/shared/1', ['X-Request-Id', 'leader']);
  await held.arrived(1);
  const follower = post(other!, '/shared/1', ['X-Request-Id', 'follower']);
  await eventually('the follower waits', async () => {
    const { flights } = (await gateway.admin('/flights')).json() as { flights: { waiting: number }[] };
    return flights[0]?.waiting === 1;
  });
  held.release();
  await Promise.all([leader, follower]);
  const spans = await collector.seen(2, 'server', 'POST /shared/:id');
  const [led, followed] = ['leader', 'follower'].map(
    (id) => spans.find((span) => span.attributes['oneflight.request_id'] === id)!,
  );
  t.strictSame(
    new Set([led, followed].map((span) => span!.resource['process.pid'])),
    new Set([one!.pid, other!.pid].map(String)),
  );
  t.strictSame(
    followed!.links.map(({ spanId }) => spanId),
    [led!.spanId],
  );
  const { text } = await openMetrics(gateway);
  t.match(
    text,
    new RegExp(`oneflight_follower_wait_seconds_bucket\\{.*\\} \\d+ # \\{trace_id="${followed!.traceId}"\\}`),
    'exemplars of workers',
  );
});

t.test('whose sender is traced is traced in that trace, and whose sender is not is left alone', async (t) => {
  const [upstream, collector] = await Promise.all([startUpstream(t), startCollector(t)]);
  const gateway = await startTraced(t, upstream, collector);
  await post(gateway, '/a', ['Traceparent', UNSAMPLED, 'Tracestate', 'v=1']);
  await post(gateway, '/b', ['Traceparent', SAMPLED, 'Tracestate', 'v=2', 'Tracestate', 'w=3']);
  const [server] = await collector.seen(1, 'server');
  const [call] = await collector.seen(1, 'client');
  t.equal(server!.traceId, TRACE);
  t.equal(server!.parentSpanId, SPAN);
  t.equal(server!.flags, 0x301, 'its parent is remote');
  t.equal(server!.traceState, 'v=2,w=3');
  t.equal(server!.attributes['oneflight.outcome'], 'passed');
  t.equal(server!.name, 'POST', 'nothing of the path of a request that no rule knows');
  t.strictSame(traceparents(upstream), [[UNSAMPLED], [`00-${TRACE}-${call!.spanId}-01`]]);
  t.strictSame(
    upstream.calls.map((one) => one.headerLines('tracestate')),
    [['v=1'], ['v=2', 'w=3']],
  );
  t.equal(collector.spans.length, 2, 'nothing of the first one');
});

t.test(
  'who is not sampled passes as it came, malformed fields too; a trace of our own takes the place of what cannot be read',
  async (t) => {
    const [upstream, collector] = await Promise.all([startUpstream(t), startCollector(t)]);
    const never = await startTraced(t, upstream, collector, {
      tracing: `{ endpoint: "${collector.url}", sample: 0% }`,
    });
    await post(never, '/a', ['traceparent', '00-junk', 'tracestate', 'v=1']);
    await post(never, '/a');
    await post(never, '/a', ['traceparent', SAMPLED]);
    const always = await startTraced(t, upstream, collector);
    await post(always, '/a', ['traceparent', SAMPLED, 'traceparent', SAMPLED, 'tracestate', 'v=1']);
    const servers = await collector.seen(2, 'server');
    t.strictSame(
      servers.map(({ traceId }) => traceId === TRACE).sort(),
      [false, true],
      'only a sampled parent, and our own',
    );
    const [junk, none, child, own] = upstream.calls;
    t.strictSame([junk!.headerLines('traceparent'), junk!.headerLines('tracestate')], [['00-junk'], ['v=1']]);
    t.strictSame(none!.headerLines('traceparent'), []);
    t.match(child!.header('traceparent'), new RegExp(`^00-${TRACE}-`));
    t.equal(own!.headerLines('traceparent').length, 1);
    t.notMatch(own!.header('traceparent'), TRACE);
    t.strictSame(own!.headerLines('tracestate'), [], 'it belonged to nothing');
  },
);

t.test('what fails is told: an upstream that resets, one that answers 503, and a client that leaves', async (t) => {
  const [upstream, collector] = await Promise.all([startUpstream(t), startCollector(t)]);
  const gateway = await startTraced(t, upstream, collector);
  upstream.on('/shared/reset', resetsAfterReading);
  upstream.on('/busy', (call) => call.answer({ status: 503 }));
  t.equal((await post(gateway, '/shared/reset')).status, 504);
  await post(gateway, '/busy');
  const held = upstream.holds('/left');
  const left = gateway.send({ path: '/left' });
  left.answer.catch(() => {});
  await held.arrived(1);
  left.leave();
  const servers = await collector.seen(3, 'server');
  const by = (outcome: string) => servers.find((span) => span.attributes['oneflight.outcome'] === outcome)!;
  const callOf = (span: SeenSpan) => partsOf(collector, span).get(span.name.split(' ')[0]!)!;
  await collector.seen(3, 'client');
  t.strictSame(
    [by('outcome-unknown').status.code, by('outcome-unknown').attributes['error.type']],
    [2, 'outcome-unknown'],
  );
  t.strictSame(
    [callOf(by('outcome-unknown')).status.code, callOf(by('outcome-unknown')).attributes['error.type']],
    [2, 'reset'],
  );
  t.strictSame([by('passed').status.code, by('passed').attributes['error.type']], [2, '503']);
  t.strictSame([by('left').status.code, by('left').attributes['error.type']], [undefined, undefined]);
  t.equal(callOf(by('left')).attributes['error.type'], 'aborted');
});

t.test('a leader whose client has left: its upstream call is told of when it ends', async (t) => {
  const [upstream, collector] = await Promise.all([startUpstream(t), startCollector(t)]);
  const gateway = await startTraced(t, upstream, collector);
  const held = upstream.holds('/shared/1');
  const leader = gateway.send({ method: 'POST', path: '/shared/1', body: 'A' });
  leader.answer.catch(() => {});
  await held.arrived(1);
  leader.leave();
  const [server] = await collector.seen(1, 'server');
  t.equal(server!.attributes['oneflight.outcome'], 'left');
  held.release();
  const [call] = await collector.seen(1, 'client');
  t.strictSame([call!.parentSpanId, call!.attributes['http.response.status_code']], [server!.spanId, '200']);
});

t.test('who waits for its turn has a claim, a wait and a call', async (t) => {
  const [upstream, collector] = await Promise.all([startUpstream(t), startCollector(t)]);
  const gateway = await startTraced(t, upstream, collector);
  const held = upstream.holds('/line/1');
  const first = post(gateway, '/line/1');
  await held.arrived(1);
  const second = post(gateway, '/line/1', ['X-Request-Id', 'second']);
  await eventually('the second waits', async () => (await gateway.metrics()).sum('oneflight_queued_requests') === 1);
  held.release();
  await Promise.all([first, second]);
  const spans = await collector.seen(2, 'server', 'POST /line/:id');
  const queued = spans.find((span) => span.attributes['oneflight.request_id'] === 'second')!;
  await collector.seen(2, 'client');
  t.strictSame([...partsOf(collector, queued).keys()].sort(), ['POST', 'claim', 'wait']);
  t.equal(partsOf(collector, queued).get('claim')!.attributes['oneflight.claim.answer'], 'queued');
});

t.test('an upgrade is a span until its connection ends; its upstream call ends with the switch', async (t) => {
  const [upstream, collector] = await Promise.all([startUpstream(t), startCollector(t)]);
  upstream.on('/up', (call) =>
    call.raw('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n'),
  );
  const gateway = await startTraced(t, upstream, collector);
  const client = await RawClient.connect(gateway.url);
  client.write(
    `GET /up HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\ntraceparent: ${SAMPLED}\r\n\r\n`,
  );
  const [call] = await collector.seen(1, 'client');
  t.equal(call!.attributes['http.response.status_code'], '101');
  t.strictSame(traceparents(upstream), [[`00-${TRACE}-${call!.spanId}-01`]]);
  client.close();
  const [server] = await collector.seen(1, 'server');
  t.equal(server!.attributes['oneflight.outcome'], 'upgraded');
});

t.test(
  'a collector that cannot be reached, or hangs, harms no request, and what is kept for it is bounded',
  async (t) => {
    const upstream = await startUpstream(t);
    const collector = await startCollector(t);
    collector.stub.on('/v1/traces', () => {});
    const gone = { url: `http://127.0.0.1:${await freePort()}` };
    for (const [name, place] of [
      ['gone', gone],
      ['hanging', collector],
    ] as const) {
      const gateway = await startTraced(t, upstream, place);
      for (let round = 0; round < 15; round += 1) {
        const answers = await Promise.all(Array.from({ length: 100 }, () => post(gateway, '/a')));
        t.equal(answers.filter(({ status }) => status === 200).length, 100, `${name}: all answered`);
      }
      // 3,000 spans: 256 are under way, 2,048 wait.
      await eventually(`${name}: the others are dropped`, async () => {
        return (
          (await gateway.metrics()).sum('oneflight_trace_spans_total', { result: 'dropped' }) >= 3_000 - 2_048 - 256
        );
      });
      const samples = await gateway.metrics();
      t.equal(samples.sum('oneflight_trace_spans_total', { result: 'exported' }), 0);
      if (name === 'gone')
        t.equal(
          gateway.logs.filter(({ msg }) => String(msg).startsWith('tracing: the collector takes no')).length,
          1,
          'said once',
        );
      const began = performance.now();
      await gateway.stop();
      t.ok(performance.now() - began < 15_000, `${name}: the stop does not wait for it for long`);
    }
  },
);

t.test('a collector that is busy is asked again, and what it refuses is counted', async (t) => {
  const [upstream, collector] = await Promise.all([startUpstream(t), startCollector(t)]);
  const answers = [
    { status: 503, fields: ['Retry-After', '0'] },
    { status: 429, fields: ['Retry-After', '0'] },
    { status: 200, content: '{"partialSuccess":{"rejectedSpans":"1","errorMessage":"no"}}' },
    { status: 400 },
  ];
  collector.stub.on('/v1/traces', (call) => call.answer(answers[call.ordinal - 1] ?? {}));
  const gateway = await startTraced(t, upstream, collector);
  await post(gateway, '/a');
  const counted = async (result: string) => (await gateway.metrics()).sum('oneflight_trace_spans_total', { result });
  await eventually('one of two spans is taken', async () => (await counted('exported')) === 1);
  t.equal(await counted('dropped'), 1);
  t.equal(collector.posts.length, 3);
  t.equal(new Set(collector.posts.map(({ content }) => content!.toString())).size, 1, 'the same each time');
  await post(gateway, '/b');
  await eventually('what is refused is dropped', async () => (await counted('dropped')) === 3);
  t.equal(collector.posts.length, 4, 'and not sent again');
  t.ok(gateway.logs.some(({ msg }) => msg === 'tracing: the collector takes spans again'));
});

t.test('a stop sends what is left', async (t) => {
  const [upstream, collector] = await Promise.all([startUpstream(t), startCollector(t)]);
  const gateway = await startTraced(t, upstream, collector);
  const held = upstream.holds('/shared/1');
  const late = post(gateway, '/shared/1');
  await held.arrived(1);
  gateway.signal('SIGTERM');
  held.release();
  t.equal((await late).status, 200);
  t.equal((await gateway.exited).code, 0);
  t.equal(collector.spans.filter(({ name }) => name === 'POST /shared/:id').length, 1);
  t.equal(collector.spans.filter(({ kind }) => kind === KIND.client).length, 1);
});

t.test('the environment says it where the file does not', async (t) => {
  const [upstream, collector] = await Promise.all([startUpstream(t), startCollector(t)]);
  const env = {
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
    OTEL_SERVICE_NAME: 'by-env',
    OTEL_EXPORTER_OTLP_HEADERS: 'authorization=Bearer%20a%3Db',
    OTEL_TRACES_SAMPLER: 'always_on',
  };
  const gateway = await startTraced(t, upstream, collector, { tracing: '', env });
  await post(gateway, '/a', ['traceparent', UNSAMPLED]);
  const [server] = await collector.seen(1, 'server');
  t.equal(server!.resource['service.name'], 'by-env');
  t.equal(server!.traceId, TRACE, 'this sampler does not ask the parent');
  t.equal(collector.posts[0]!.header('authorization'), 'Bearer a=b');
  const before = collector.posts.length;
  for (const more of [{ OTEL_SDK_DISABLED: 'true' }, { OTEL_TRACES_SAMPLER: 'parentbased_always_off' }]) {
    const silent = await startTraced(t, upstream, collector, { tracing: '', env: { ...env, ...more } });
    await post(silent, '/a');
    await silent.stop();
  }
  t.equal(collector.posts.length, before, 'neither of them has said anything');
});

const openMetrics = (
  gateway: Gateway,
  accept = 'application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3',
) => gateway.sendAdmin({ path: '/metrics', headers: ['Accept', accept] });

t.test('OpenMetrics for who asks for it: the same samples, and the traces of waits', async (t) => {
  const [upstream, collector] = await Promise.all([startUpstream(t), startCollector(t)]);
  const gateway = await startTraced(t, upstream, collector);
  const held = upstream.holds('/shared/1');
  const leader = post(gateway, '/shared/1');
  await held.arrived(1);
  const follower = post(gateway, '/shared/1', ['traceparent', SAMPLED]);
  await gateway.caughtUp();
  held.release();
  await Promise.all([leader, follower]);
  const open = await openMetrics(gateway);
  t.equal(open.header('content-type'), 'application/openmetrics-text; version=1.0.0; charset=utf-8');
  t.ok(open.text.endsWith('\n# EOF\n'));
  const exemplar = new RegExp(
    `^oneflight_follower_wait_seconds_bucket\\{le="[^"]+",route="shared"\\} 1 # \\{trace_id="${TRACE}"\\} 0\\.\\d+ \\d+\\.\\d{3}$`,
    'm',
  );
  t.match(open.text, exemplar);
  t.match(open.text, /^oneflight_upstream_latency_seconds_bucket\{[^}]+\} 1 # \{trace_id="[0-9a-f]{32}"\} 0\./m);
  t.match(open.text, /^# TYPE oneflight_requests counter$/m);
  const plain = await gateway.admin('/metrics');
  t.match(plain.header('content-type'), /^text\/plain; version=0\.0\.4/);
  t.notMatch(plain.text, TRACE);
  const names = (text: string) =>
    new Set(
      text
        .split('\n')
        .filter((line) => /^(?:oneflight|process)_/.test(line))
        .map((line) => line.replace(/ # .*$/, '').replace(/ \S+$/, '')),
    );
  t.strictSame(names(open.text), names(plain.text), 'the same series');
  for (const accept of [
    '*/*',
    'text/plain, application/openmetrics-text;q=0.1',
    'application/openmetrics-text;version=2.0.0',
  ]) {
    t.match((await openMetrics(gateway, accept)).header('content-type'), /^text\/plain/, accept);
  }
});
