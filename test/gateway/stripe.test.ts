/** A real client of `Idempotency-Key` that nobody here wrote: the npm package `stripe`, before a stub of its API. */

import Stripe from 'stripe';
import t, { type Test } from 'tap';
import { eventually } from '../support/gate.js';
import { configOf, type Gateway, startGateways } from '../support/gateway.js';
import { startRedis } from '../support/redis.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { answers, type Call, type StubUpstream, startUpstream } from '../support/upstream.js';

t.setTimeout(120_000);

const CUSTOMERS = '/v1/customers';
const PLACEHOLDER_KEY = 'sk_test_placeholder';

/** The client as its documentation says, with its host pointed at an origin. */
function clientOf(origin: string, retries: number): Stripe {
  const { hostname, port } = new URL(origin);
  return new Stripe(PLACEHOLDER_KEY, {
    host: hostname,
    port: Number(port),
    protocol: 'http',
    maxNetworkRetries: retries,
    telemetry: false,
  });
}

/** A customer as the API answers one; each call makes another. */
function customer(call: Call) {
  const form = new URLSearchParams(call.content?.toString());
  return {
    fields: ['Content-Type', 'application/json', 'Request-Id', `req_${call.ordinal}`],
    content: JSON.stringify({ id: `cus_${call.ordinal}`, object: 'customer', email: form.get('email') }),
  };
}

async function scenarios(t: Test, store: string, processes: number): Promise<void> {
  const start = async (t: Test): Promise<{ upstream: StubUpstream; first: Gateway; last: Gateway }> => {
    const upstream = await startUpstream(t);
    upstream.on(CUSTOMERS, answers(customer));
    const routes = `
  - name: api
    match: { methods: [POST], path: /v1/* }
    upstream: api
    policy: replay
    lease: 20s`;
    const gateways = await startGateways(t, processes, { config: configOf({ upstream: upstream.url, store, routes }) });
    return { upstream, first: gateways[0]!, last: gateways[processes - 1]! };
  };

  t.test('two creates at once with one key are one customer: the client asks again after 409', async (t) => {
    const { upstream, first, last } = await start(t);
    const held = upstream.holds(CUSTOMERS, customer);
    const options = { idempotencyKey: 'two-at-once' };
    const one = clientOf(first.url, 5).customers.create({ email: 'a@example.com' }, options);
    await held.arrived(1);
    const client = clientOf(last.url, 5);
    const statuses: number[] = [];
    client.on('response', (event: { status: number }) => statuses.push(event.status));
    const other = client.customers.create({ email: 'a@example.com' }, options);
    await eventually(
      'a refusal of the second',
      async () => ((await last.metrics()).outcomes('api')['in-flight'] ?? 0) >= 1,
    );
    held.release();
    const [a, b] = await Promise.all([one, other]);
    t.equal(a.id, 'cus_1');
    t.equal(b.id, 'cus_1');
    t.equal(b.lastResponse.headers['idempotent-replayed'], 'true');
    t.same(statuses, [200], 'what it reports in the end');
    t.equal(upstream.count(CUSTOMERS), 1);
  });

  t.test(
    'the connection is dropped before the answer: the client asks again by itself and has its customer',
    async (t) => {
      const { upstream, first } = await start(t);
      const proxy = await TcpProxy.start(t, Number(new URL(first.url).port));
      const dropped = proxy.loseReplyTo('POST /v1/customers');
      const made = await clientOf(`http://127.0.0.1:${proxy.port}`, 2).customers.create({ email: 'b@example.com' });
      await dropped;
      t.equal(made.id, 'cus_1');
      t.equal(made.lastResponse.headers['idempotent-replayed'], 'true');
      t.equal(upstream.count(CUSTOMERS), 1);
      t.ok(upstream.callsOf(CUSTOMERS)[0]!.header('idempotency-key'), 'the client made a key');
    },
  );

  t.test('the connection is dropped while the API works: refusals, then the same customer', async (t) => {
    const { upstream, first } = await start(t);
    const proxy = await TcpProxy.start(t, Number(new URL(first.url).port));
    const held = upstream.holds(CUSTOMERS, customer);
    const making = clientOf(`http://127.0.0.1:${proxy.port}`, 5).customers.create({ email: 'c@example.com' });
    await held.arrived(1);
    proxy.cut();
    await eventually(
      'a refusal of its next try',
      async () => ((await first.metrics()).outcomes('api')['in-flight'] ?? 0) >= 1,
    );
    held.release();
    t.equal((await making).id, 'cus_1');
    t.equal(upstream.count(CUSTOMERS), 1);
  });

  t.test('a refusal is an error of the client when it does not ask again', async (t) => {
    const { upstream, first, last } = await start(t);
    const held = upstream.holds(CUSTOMERS, customer);
    const options = { idempotencyKey: 'no-retries' };
    const one = clientOf(first.url, 0).customers.create({ email: 'f@example.com' }, options);
    await held.arrived(1);
    const error = await clientOf(last.url, 0)
      .customers.create({ email: 'f@example.com' }, options)
      .catch((reason: unknown) => reason);
    t.ok(error instanceof Stripe.errors.StripeError, 'it rejects with an error of its own');
    t.match(error, { statusCode: 409, code: 'in-flight' });
    held.release();
    t.equal((await one).id, 'cus_1');
    t.equal(upstream.count(CUSTOMERS), 1);
  });

  t.test('the key of other parameters is an error of the client, and no second customer', async (t) => {
    const { upstream, first, last } = await start(t);
    const options = { idempotencyKey: 'reused' };
    const made = await clientOf(first.url, 2).customers.create({ email: 'd@example.com' }, options);
    const reused = clientOf(last.url, 2).customers.create({ email: 'e@example.com' }, options);
    const error = await reused.then(
      () => null,
      (reason: unknown) => reason,
    );
    t.ok(error instanceof Stripe.errors.StripeError, 'it rejects with an error of its own');
    t.match(error, { rawType: 'idempotency_error', statusCode: 422 });
    const again = await clientOf(last.url, 2).customers.create({ email: 'd@example.com' }, options);
    t.equal(again.id, made.id);
    t.equal(upstream.count(CUSTOMERS), 1);
  });
}

t.test('with the memory store', async (t) => scenarios(t, '{ kind: memory }', 1));

t.test('with Redis and two gateways', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  await scenarios(t, `{ kind: redis, url: "${redis.url}", commandTimeout: 2s }`, 2);
});
