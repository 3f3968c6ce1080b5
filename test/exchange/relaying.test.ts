/** The leader's end of a response on its way to other processes: pieces in order, and beyond the flight their own end. */

import t from 'tap';
import { MemoryBudget } from '../../src/core/memory-budget.js';
import { readPiece } from '../../src/exchange/pieces.js';
import { Recording } from '../../src/exchange/recording.js';
import { RelayingReader } from '../../src/exchange/relaying.js';
import type { Piece, Relay } from '../../src/store/relay.js';
import { eventually } from '../support/gate.js';

const HEAD = { status: 200, reason: 'OK', fields: [], vary: { names: [], digest: '' } };
const MEBI = 1_048_576;
const LEASE = { key: 'k', flight: 'f', fence: 1, leaseMs: 1_000, material: null };

function setUp(limitBytes: number) {
  const sent: { piece: Piece; how: 'within' | 'beyond' }[] = [];
  const signs = { count: 0 };
  /** How much had been sent when somebody was given up. */
  const dropped: number[] = [];
  /** What the slowest wants next; null: as far as it can be. */
  const slowest = { wants: null as number | null, gone: false };
  const relay = {
    relay: async (_lease: unknown, piece: Piece) => {
      sent.push({ piece, how: 'within' });
      return 'held';
    },
    relayOn: async (_lease: unknown, piece: Piece | null, dropBefore: number) => {
      if (piece !== null) sent.push({ piece, how: 'beyond' });
      else signs.count += 1;
      if (slowest.wants !== null && slowest.wants < dropBefore) {
        dropped.push(sent.reduce((sum, { piece: { bytes } }) => sum + bytes.length, 0));
        slowest.wants = null;
      }
      return slowest.gone ? null : { wanted: slowest.wants ?? sent.length, processes: 2 };
    },
  } as unknown as Relay;
  const recording = new Recording(HEAD, {
    limitBytes,
    budget: new MemoryBudget(1 << 30),
    stallMs: 60_000,
    onRoom: () => {},
    onReaderGone: () => {},
  });
  const reader = new RelayingReader({ relay, lease: LEASE, recording, stallMs: 100 });
  recording.attach(reader, 'relay');
  const text = () => {
    const parts = sent.map(({ piece }) => readPiece(piece));
    return parts.map((part) => (part?.kind === 'content' ? String(part.bytes) : part?.kind)).join('|');
  };
  return { sent, signs, dropped, slowest, recording, reader, text };
}

t.test('of a whole response the settlement has the rest', async (t) => {
  const { sent, recording, reader } = setUp(100);
  recording.add(Buffer.from('ab'), false);
  await eventually('two pieces', () => sent.length === 2);
  recording.add(Buffer.from('cd'), true);
  recording.conclude([]);
  await reader.done;
  t.same(
    sent.map(({ how }) => how),
    ['within', 'within'],
  );
});

t.test('beyond the flight the pieces go on to the end, the last of a known length too', async (t) => {
  const { sent, recording, reader, text } = setUp(3);
  recording.add(Buffer.from('ab'), false);
  await eventually('two pieces', () => sent.length === 2);
  recording.add(Buffer.from('cd'), false);
  await eventually('three pieces', () => sent.length === 3);
  recording.add(Buffer.from('ef'), true);
  recording.conclude(['T', 'x']);
  await reader.done;
  t.equal(text(), 'head|ab|cd|ef|over');
  t.same(readPiece(sent.at(-1)!.piece), { kind: 'over', over: { kind: 'end', trailers: ['T', 'x'] } });
  t.same(
    sent.map(({ how }) => how),
    ['within', 'within', 'beyond', 'beyond', 'beyond'],
  );
});

t.test('while nothing comes beyond the flight there are signs of life, and none when it is over', async (t) => {
  const { signs, recording, reader } = setUp(3);
  recording.add(Buffer.from('abcd'), false);
  await eventually('two signs', () => signs.count >= 2);
  recording.conclude([]);
  await reader.done;
  t.equal(reader.gone, true);
});

t.test('a cut is told as one', async (t) => {
  const { sent, recording, reader } = setUp(3);
  recording.add(Buffer.from('abcd'), false);
  await eventually('two pieces', () => sent.length === 2);
  recording.fail();
  await reader.done;
  t.same(readPiece(sent.at(-1)!.piece), { kind: 'over', over: { kind: 'cut' } });
});

t.test('with nobody who reads nothing more is sent', async (t) => {
  const { sent, slowest, recording, reader } = setUp(3);
  // The head is sent, and its sending over.
  await new Promise((resolve) => setImmediate(resolve));
  t.equal(sent.length, 1);
  let begun = 0;
  const { setInterval: real } = globalThis;
  t.teardown(() => Object.assign(globalThis, { setInterval: real }));
  const counted = (act: () => void, ms: number) => {
    begun += 1;
    return real(act, ms);
  };
  Object.assign(globalThis, { setInterval: counted });
  slowest.gone = true;
  recording.add(Buffer.from('abcd'), false);
  await reader.done;
  // Whoever was sending then has come to its end.
  await new Promise((resolve) => setImmediate(resolve));
  t.equal(begun, 0, 'nor is there anything that gives signs of life');
  t.equal(recording.isRead, false);
  const count = sent.length;
  recording.add(Buffer.from('e'), false);
  t.equal(sent.length, count);
});

t.test('no more than a window is ahead of the slowest, for as long as it may hold up the others', async (t) => {
  const { dropped, slowest, recording, reader } = setUp(MEBI);
  slowest.wants = 1;
  for (let i = 0; i < 24; i += 1) recording.add(Buffer.alloc(MEBI / 2, i), false);
  await eventually('it is given up', () => dropped.length === 1);
  t.ok(dropped[0]! > 4 * MEBI && dropped[0]! < 7 * MEBI, `${dropped[0]} bytes`);
  recording.fail();
  await reader.done;
});
