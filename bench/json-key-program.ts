/**
 * How long a key from four paths of JSON content takes beside UTF-8 decoding and `JSON.parse` of the same content. Prints a
 * JSON array of the sizes and the ratios.
 */

import { keyOf } from '../src/core/key.js';
import { parseTarget } from '../src/core/target.js';
import { coalescePolicy } from '../test/support/rules.js';

const SIZES_KIB = [1, 100, 1_000];
const ROUNDS = 15;
/** Time that a round of either takes, about. */
const ROUND_MS = 40;

const policy = coalescePolicy({
  key: ['/customer/id', '/reference', '/items/0/sku', '/total/amount'].map((name) => ({
    from: 'body' as const,
    name,
    optional: false,
  })),
});

/** An order as an API would be sent one, of about that length. */
function orderOf(bytes: number): Buffer {
  const item = (i: number) => ({
    sku: `SKU-${100_000 + i}`,
    title: `Ordinary article number ${i}, größer als gedacht`,
    quantity: 1 + (i % 7),
    price: { amount: 19.99 + i, currency: 'EUR' },
    tags: ['new', 'in stock', `shelf ${i % 40}`],
    gift: i % 3 === 0,
    note: null,
  });
  const order = {
    reference: 'b1946ac9-2f6e-4c8d-9d0a-52f5c1a7c5f1',
    customer: { id: 4711, email: 'somebody@example.com' },
    items: [item(0)],
    total: { amount: 1234.5, currency: 'EUR' },
  };
  let length = JSON.stringify(order).length;
  for (let i = 1; length < bytes - 200; i += 1) {
    const next = item(i);
    length += Buffer.byteLength(JSON.stringify(next)) + 1;
    order.items.push(next);
  }
  return Buffer.from(JSON.stringify(order));
}

/** Microseconds of one call. */
function timeOf(work: () => unknown, times: number): number {
  const beganMs = performance.now();
  for (let i = 0; i < times; i += 1) work();
  return ((performance.now() - beganMs) * 1_000) / times;
}

function middle(values: number[]): number {
  return values.sort((a, b) => a - b)[Math.floor(values.length / 2)] as number;
}

const results = SIZES_KIB.map((kib) => {
  const content = orderOf(kib * 1_024);
  const view = {
    method: 'POST',
    target: parseTarget('/orders'),
    host: 'bench',
    fields: ['Host', 'bench', 'Content-Type', 'application/json'],
    params: new Map<string, string>(),
    content,
  };
  const key = () => keyOf(policy, view, null);
  const parse = () => JSON.parse(content.toString('utf8'));
  if (key().kind !== 'key') throw new Error('the content has no key');
  for (let i = 0; i < 5_000 / kib + 20; i += 1) [key(), parse()];
  const times = Math.max(1, Math.round((ROUND_MS * 1_000) / timeOf(parse, 5)));
  const keys: number[] = [];
  const parses: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    keys.push(timeOf(key, times));
    parses.push(timeOf(parse, times));
  }
  return { kib, keyUs: middle(keys), parseUs: middle(parses) };
});
process.stdout.write(JSON.stringify(results));
