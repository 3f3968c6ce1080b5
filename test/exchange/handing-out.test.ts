/** A whole response for many clients: in memory once, in order, and at the cost of those who take nothing. */

import { mock } from 'node:test';
import t from 'tap';
import { MemoryBudget } from '../../src/core/memory-budget.js';
import type { SharedResponse } from '../../src/core/sharing.js';
import { HandingOut, type Recipient } from '../../src/exchange/handing-out.js';

const MEBI = 1_048_576;
const GIVEN = { ageMs: 0, outcome: { kind: 'collapsed' }, added: [] } as const;

function response(fill: string, size = MEBI): SharedResponse {
  const vary = { names: [], digest: '' };
  return { status: 200, reason: 'OK', fields: ['X', fill], trailers: [], vary, content: Buffer.alloc(size, fill) };
}

/** A client that takes a part whenever the test lets it. */
class FakeClient implements Recipient {
  gone = false;
  got = '';
  ended = false;
  #onDrain: (() => void) | null = null;
  #onOver: (() => void) | null = null;

  give(...[, , , , write]: Parameters<Recipient['give']>): void {
    write?.();
  }

  write(part: Buffer): boolean {
    this.got += part;
    return false;
  }

  whenDrained(listener: () => void): void {
    this.#onDrain = listener;
  }

  whenOver(listener: () => void): void {
    this.#onOver = listener;
  }

  end(part: Buffer): void {
    this.got += part;
    this.ended = true;
  }

  cut(): void {
    this.gone = true;
    this.#onOver?.();
  }

  /** Takes what lies in its connection. */
  take(): void {
    if (this.ended) return this.#onOver?.();
    if (this.#onDrain === null) throw new Error('it was given nothing');
    this.#onDrain();
  }

  takeAll(): void {
    while (!this.ended) this.take();
    this.take();
  }
}

function setUp(mostBytes: number) {
  const clock = { ms: 0 };
  const budget = new MemoryBudget(mostBytes);
  const handingOut = new HandingOut(budget, () => clock.ms);
  const give = (key: string, shared: SharedResponse, anyway = false) => {
    const client = new FakeClient();
    return { client, how: handingOut.give(client, key, shared, GIVEN, anyway) };
  };
  return { clock, budget, give };
}

t.test('a response that was fetched twice is held once, until the last has read it', async (t) => {
  const { budget, give } = setUp(1.5 * MEBI);
  const clients = Array.from({ length: 5 }, () => give('key', response('a')).client);
  t.ok(budget.usedBytes < 1.1 * MEBI);
  for (const client of clients) client.takeAll();
  for (const { got } of clients) t.equal(got, 'a'.repeat(MEBI));
  t.equal(budget.usedBytes, 0);
});

t.test('another response of the key, or an equal one of another key, is another', async (t) => {
  const { budget, give } = setUp(10 * MEBI);
  const all = [give('key', response('a')), give('key', response('b')), give('other', response('a'))];
  t.ok(budget.usedBytes > 3 * MEBI);
  for (const { client } of all) client.takeAll();
  t.same(
    all.map(({ client }) => client.got[0]),
    ['a', 'b', 'a'],
  );
  t.equal(budget.usedBytes, 0);
});

t.test('with room short one that takes nothing makes room, one that moves does not', async (t) => {
  const { clock, budget, give } = setUp(2.5 * MEBI);
  const still = give('still', response('s')).client;
  const moves = give('moves', response('m')).client;
  t.equal(give('third', response('t')).how, 'overloaded');
  clock.ms += 1_900;
  moves.take();
  clock.ms += 200;
  const third = give('third', response('t'));
  t.equal(third.how, 'given');
  t.equal(still.gone, true);
  t.equal(moves.gone, false);
  clock.ms += 500;
  t.equal(give('fourth', response('f')).how, 'overloaded');
  const awaited = give('awaited', response('w'), true);
  t.equal(awaited.how, 'given', 'what is here anyway');
  for (const client of [moves, third.client, awaited.client]) client.takeAll();
  t.equal(moves.got, 'm'.repeat(MEBI));
  t.equal(budget.usedBytes, 0);
});

t.test('a small one is not looked after, nor one for a client that is gone', async (t) => {
  const { budget, give } = setUp(10);
  t.equal(give('key', response('a', 65_536)).how, 'given');
  t.equal(budget.usedBytes, 0);
});

t.test('one that is seen to take something every two minutes reads; one that takes nothing for longer is cut', (t) => {
  mock.timers.enable({ apis: ['setInterval'] });
  t.teardown(() => mock.timers.reset());
  const { clock, budget, give } = setUp(10 * MEBI);
  const slow = give('slow', response('s')).client;
  const still = give('still', response('t')).client;
  const pass = (ms: number) => {
    clock.ms += ms;
    mock.timers.tick(ms);
  };
  for (let i = 0; i < 2; i += 1) {
    pass(120_000);
    slow.take();
  }
  t.equal(slow.gone, false);
  t.equal(still.gone, true);
  slow.takeAll();
  t.equal(budget.usedBytes, 0);
  t.end();
});
