/** docs/recipes/orders.md: an order is placed once, and a client of Stripe's has its repeats answered, over two gateways. */

import Stripe from 'stripe';
import t from 'tap';
import { isProblem } from '../support/expect.js';
import type { Gateway } from '../support/gateway.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { answers, inTurn, resetsAfterReading } from '../support/upstream.js';
import { startRecipe } from './recipe.js';

t.setTimeout(120_000);

const ORDERS = '/orders';
const CUSTOMERS = '/v1/customers';

function order(gateway: Gateway, key: string | null, body = '{"sku":"42","count":1}', caller = 'a') {
  const headers = ['Content-Type', 'application/json', 'Authorization', `Bearer ${caller}`];
  if (key !== null) headers.push('Idempotency-Key', key);
  return gateway.request({ method: 'POST', path: ORDERS, headers, body });
}

t.test('orders', async (t) => {
  const { upstream, gateways, first, last } = await startRecipe(t, 'orders.md');
  await t.test('a repeat waits for the first one, wherever it comes, and is the same order', async (t) => {
    const held = upstream.holds(ORDERS, ({ ordinal }) => ({ status: 201, content: `order ${ordinal}` }));
    const placing = order(first, 'k-1');
    await held.arrived(1);
    const repeat = order(last, 'k-1', '{ "count": 1, "sku": "42" }');
    const reused = await order(last, 'k-1', '{"sku":"42","count":2}');
    isProblem(t, reused, 'key-reused');
    await Promise.all(gateways.map((gateway) => gateway.caughtUp()));
    held.release();
    t.equal((await placing).text, 'order 1');
    for (const answer of [await repeat, await order(first, 'k-1')]) {
      t.equal(answer.status, 201);
      t.equal(answer.text, 'order 1');
      t.equal(answer.header('idempotent-replayed'), 'true');
    }
    t.equal(upstream.count(ORDERS), 1);
  });

  await t.test('no key is no order; another caller with that key has an order of its own', async (t) => {
    const refused = await order(first, null);
    isProblem(t, refused, 'key-missing');
    t.equal(upstream.count(ORDERS), 1);
    t.equal((await order(last, 'k-1', undefined, 'b')).text, 'order 2');
    t.equal(upstream.count(ORDERS), 2);
  });

  await t.test('a refusal is recorded; "later" is not', async (t) => {
    const before = upstream.count(ORDERS);
    const once = (status: number) => answers({ status, content: String(status) });
    const [refuses, later, places] = [once(400), once(503), once(201)];
    const behaviours = [...Array.from({ length: before }, () => refuses), refuses, later, places];
    upstream.on(ORDERS, inTurn(...behaviours));
    for (const gateway of [first, last]) t.equal((await order(gateway, 'k-refused')).status, 400);
    t.equal(upstream.count(ORDERS), before + 1);
    t.equal((await order(first, 'k-later')).status, 503);
    t.equal((await order(last, 'k-later')).status, 201);
    t.equal(upstream.count(ORDERS), before + 3);
  });

  await t.test('an answer that was lost is not guessed: no repeat runs', async (t) => {
    const before = upstream.count(ORDERS);
    upstream.on(ORDERS, resetsAfterReading);
    t.equal((await order(first, 'k-lost')).status, 504);
    const repeat = await order(last, 'k-lost');
    t.equal(repeat.status, 409);
    isProblem(t, repeat, 'outcome-unknown');
    t.equal(upstream.count(ORDERS), before + 1);
  });
});

t.test("Stripe's SDK repeats by itself when a connection breaks, and makes one customer", async (t) => {
  const { upstream, first } = await startRecipe(t, 'orders.md');
  upstream.on(
    CUSTOMERS,
    answers(({ ordinal }) => ({
      fields: ['Content-Type', 'application/json'],
      content: JSON.stringify({ id: `cus_${ordinal}`, object: 'customer' }),
    })),
  );
  const proxy = await TcpProxy.start(t, Number(new URL(first.url).port));
  const dropped = proxy.loseReplyTo(`POST ${CUSTOMERS}`);
  const at = { host: '127.0.0.1', port: proxy.port, protocol: 'http' } as const;
  const stripe = new Stripe('sk_test_placeholder', { ...at, maxNetworkRetries: 2, telemetry: false });
  const made = await stripe.customers.create({ email: 'a@example.com' });
  await dropped;
  t.equal(made.id, 'cus_1');
  t.equal(made.lastResponse.headers['idempotent-replayed'], 'true');
  t.equal(upstream.count(CUSTOMERS), 1);

  const options = { idempotencyKey: 'reused' };
  await stripe.customers.create({ email: 'b@example.com' }, options);
  const error = await stripe.customers.create({ email: 'c@example.com' }, options).catch((reason: unknown) => reason);
  t.match(error, { rawType: 'idempotency_error', statusCode: 422 });
  t.equal(upstream.count(CUSTOMERS), 2);
});
