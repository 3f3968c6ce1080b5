/** Loops of questions: how many, for how long, and what is left when they are stopped. */

import t, { type Test } from 'tap';
import { compileRules } from '../../src/core/match.js';
import type { AskedReport, ReconciledReport } from '../../src/exchange/observer.js';
import { type Asker, Reconciler } from '../../src/exchange/reconciler.js';
import type { Store } from '../../src/store/store.js';
import { Upstream } from '../../src/upstream/upstream.js';
import { delay, eventually, Gate } from '../support/gate.js';
import { storeWith } from '../support/in-process.js';
import { replayPolicy } from '../support/rules.js';
import { answers, gated, type StubUpstream, stalls, startUpstream } from '../support/upstream.js';
import { upstreamConfig } from '../support/upstreams.js';

const EVERY_MS = 50;
const url = { origin: null, target: '/op/{key}', placeholder: 'key' } as const;
const policy = replayPolicy({ reconcile: { url, everyMs: EVERY_MS, fields: [], done: [] } });
const unknown = async () => ({ kind: 'unknown', leftMs: 60_000 }) as const;

type Rig = {
  readonly stub: StubUpstream;
  readonly reconciler: Reconciler;
  readonly asked: AskedReport[];
  readonly reconciled: ReconciledReport[];
  /** Every settlement that the store was asked for: key, flight, as. */
  readonly settled: string[];
  /** Tells that the flight's outcome is unknown. */
  tell(key: string, flight: string, change?: Partial<Asker>): void;
};

async function startRig(t: Test, standing: Store['standing'] = unknown): Promise<Rig> {
  const stub = await startUpstream(t);
  const upstream = new Upstream(upstreamConfig({ url: stub.url }));
  const [asked, reconciled, settled] = [[] as AskedReport[], [] as ReconciledReport[], [] as string[]];
  const failures: unknown[] = [];
  const observer = {
    ...{
      sent() {},
      answered() {},
      unprotected() {},
      keyFound() {},
      unshareable() {},
      flights() {},
      overloaded() {},
      queued() {},
      upgrades() {},
      leaseLost() {},
      unsettled() {},
      observed() {},
      verified() {},
      over() {},
    },
    asked: (report: AskedReport) => void asked.push(report),
    reconciled: (report: ReconciledReport) => void reconciled.push(report),
    failed: (error: unknown) => void failures.push(error),
  };
  const store = storeWith(() => ({
    standing,
    settleUnknown: async (key, flight, as) => {
      settled.push(`${key} ${flight} ${as.kind}`);
      return 'settled';
    },
  }));
  const reconciler = new Reconciler({ observer });
  const generation = { rules: compileRules([]), unmatched: null, upstreamOf: () => upstream, askedAt: () => upstream };
  const asker = { route: 'r', method: 'POST', upstream, generation };
  t.teardown(async () => {
    reconciler.stop();
    await upstream.destroy();
    if (failures.length > 0) throw failures[0];
  });
  return {
    ...{ stub, reconciler, asked, reconciled, settled },
    tell: (key, flight, change = {}) =>
      reconciler.unknown({ ...asker, keyValue: key, ...change }, policy, { store, key, flight, material: null }),
  };
}

t.test('one loop a key, however often it is told; it ends with the answer', async (t) => {
  const { stub, tell, settled, asked } = await startRig(t);
  const gate = new Gate();
  stub.on('/op/a', gated(gate, answers({ content: 'x' })));
  for (let i = 0; i < 5; i += 1) tell('a', 'one');
  await stub.arrived(1, '/op/a');
  tell('a', 'one');
  gate.open();
  await eventually('the answer', () => settled.length > 0);
  await delay(5 * EVERY_MS);
  t.same(settled, ['a one response']);
  t.equal(stub.count(), 1);
  t.match(asked, [{ route: 'r', key: 'a', flight: 'one', verdict: 'done', answer: '200', count: 1 }]);
  tell('a', 'one');
  await eventually('a loop of its own for who tells later', () => settled.length === 2);
});

t.test('a later flight of the key takes the place of an earlier one, whose answer is not looked at', async (t) => {
  const { stub, tell, settled } = await startRig(t);
  const gate = new Gate();
  stub.on('/op/a', (call) => gated(call.ordinal === 1 ? gate : opened(), answers({ status: 404 }))(call));
  tell('a', 'one');
  await stub.arrived(1, '/op/a');
  tell('a', 'two');
  await eventually('the answer about the second', () => settled.length === 1);
  gate.open();
  await delay(5 * EVERY_MS);
  t.same(settled, ['a two free']);
});

function opened(): Gate {
  const gate = new Gate();
  gate.open();
  return gate;
}

t.test('at most 100 ask at a time; the others have their turn', async (t) => {
  const { stub, tell, settled } = await startRig(t);
  const gate = new Gate();
  for (let i = 0; i < 150; i += 1) {
    stub.on(`/op/k${i}`, gated(gate, answers({ content: 'x' })));
    tell(`k${i}`, 'f');
  }
  await stub.arrived(100);
  await delay(3 * EVERY_MS);
  t.equal(stub.count(), 100);
  gate.open();
  await eventually('all of them', () => settled.length === 150);
  t.equal(stub.count(), 150);
});

t.test('stopped: what is under way is given up, nothing is written, nothing begins', async (t) => {
  const { stub, tell, reconciler, settled, asked } = await startRig(t);
  stub.on('/op/a', stalls);
  tell('a', 'f');
  await stub.arrived(1, '/op/a');
  tell('b', 'f');
  reconciler.stop();
  tell('c', 'f');
  await stub.callsOf('/op/a')[0]!.closed;
  await delay(5 * EVERY_MS);
  t.equal(stub.count(), 1);
  t.same([settled, asked], [[], []]);
});

t.test('stopped while the store is asked: no question follows', async (t) => {
  const gate = new Gate();
  let looked = 0;
  const { stub, tell, reconciler } = await startRig(t, async () => {
    looked += 1;
    await gate.opened;
    return unknown();
  });
  tell('a', 'f');
  await eventually('the store being asked', () => looked === 1);
  reconciler.stop();
  gate.open();
  await delay(3 * EVERY_MS);
  t.equal(stub.count(), 0);
});

t.test('a flight that is not unknown yet is waited for, one that is over is not asked about', async (t) => {
  const kinds = ['in-flight', 'in-flight', 'over'] as const;
  let looked = 0;
  const { stub, tell } = await startRig(t, async () => {
    const kind = kinds[looked]!;
    looked += 1;
    return { kind };
  });
  tell('a', 'f');
  await eventually('three looks', () => looked === 3);
  await delay(3 * EVERY_MS);
  t.same([looked, stub.count()], [3, 0]);
});

t.test('a value that cannot stand in a URL is not asked about, and it is told', async (t) => {
  const { stub, tell, asked } = await startRig(t);
  for (const keyValue of [null, '', '..', '../../admin']) tell('a', 'f', { keyValue });
  await delay(3 * EVERY_MS);
  t.equal(stub.count(), 0);
  t.match(asked, Array(4).fill({ verdict: 'no-answer', answer: 'not-askable', count: 1 }));
});

t.test('the number of loops is bounded: the oldest stay', async (t) => {
  const { tell, asked, reconciler } = await startRig(t, () => new Promise(() => {}));
  for (let i = 0; i < 10_000; i += 1) tell(`k${i}`, 'f');
  t.equal(asked.length, 0);
  tell('one-more', 'f');
  t.match(asked, [{ key: 'one-more', answer: 'too-many' }]);
  tell('k0', 'f');
  t.equal(asked.length, 1, 'it has its loop');
  reconciler.stop();
});
