/** One response, many readers: whatever their pace, nobody's bytes are lost, doubled or out of order. */

import fc from 'fast-check';
import t from 'tap';
import { MemoryBudget } from '../../src/core/memory-budget.js';
import { sizeOf } from '../../src/core/sharing.js';
import { Recording, type RecordingReader } from '../../src/exchange/recording.js';
import { eventually } from '../support/gate.js';

const HEAD = { status: 200, reason: 'OK', fields: [], vary: { names: [], digest: '' } };

/** A client that takes what it is given as fast as the test wants. */
class FakeReader implements RecordingReader {
  gone = false;
  readonly got: Buffer[] = [];
  ended = 0;
  wasCut = false;
  trailers: readonly string[] = [];
  /** Pieces that it takes before its connection is full. */
  room = Number.POSITIVE_INFINITY;
  #onDrain: (() => void) | null = null;

  get bytes(): Buffer {
    return Buffer.concat(this.got);
  }

  write(chunk: Buffer): boolean {
    if (this.ended > 0 || this.wasCut) throw new Error('written to after its end');
    this.got.push(chunk);
    this.room -= 1;
    return this.room > 0;
  }

  whenDrained(listener: () => void): void {
    this.#onDrain = listener;
  }

  /** Takes so many pieces more. */
  drain(pieces = Number.POSITIVE_INFINITY): void {
    this.room = pieces;
    const listener = this.#onDrain;
    this.#onDrain = null;
    listener?.();
  }

  hold(): void {}

  end(last: Buffer | null, trailers: readonly string[]): void {
    if (last !== null) this.got.push(last);
    this.ended += 1;
    this.trailers = trailers;
  }

  cut(): void {
    this.wasCut = true;
  }
}

function recording(limitBytes: number, options: { budget?: MemoryBudget; stallMs?: number } = {}) {
  const seen = { room: 0, gone: 0 };
  const budget = options.budget ?? new MemoryBudget(1 << 30);
  const record = new Recording(HEAD, {
    limitBytes,
    budget,
    stallMs: options.stallMs ?? 60_000,
    onRoom: () => {
      seen.room += 1;
    },
    onReaderGone: () => {
      seen.gone += 1;
    },
  });
  return { record, budget, seen };
}

/** What a piece is charged beside its bytes. */
const PIECE_COST = 256;

const chunkOf = (size: number, fill: number) => Buffer.alloc(size, fill);

t.test('every reader gets every byte once and in order, or is cut; memory is bounded and given back', async () => {
  const step = fc.oneof(
    { weight: 6, arbitrary: fc.record({ do: fc.constant('add' as const), size: fc.integer({ min: 1, max: 400 }) }) },
    { weight: 3, arbitrary: fc.record({ do: fc.constant('attach' as const), room: fc.integer({ min: 1, max: 5 }) }) },
    {
      weight: 5,
      arbitrary: fc.record({
        do: fc.constant('drain' as const),
        who: fc.nat({ max: 9 }),
        pieces: fc.integer({ min: 1, max: 6 }),
      }),
    },
    { weight: 1, arbitrary: fc.record({ do: fc.constant('leave' as const), who: fc.nat({ max: 9 }) }) },
  );
  fc.assert(
    fc.property(
      fc.array(step, { maxLength: 60 }),
      fc.integer({ min: 1, max: 3_000 }),
      fc.constantFrom('conclude' as const, 'fail' as const),
      fc.boolean(),
      (steps, limitBytes, how, announced) => {
        const { record, budget } = recording(limitBytes);
        const readers: { reader: FakeReader; left: boolean }[] = [];
        const sent: Buffer[] = [];
        const adds = steps.filter((one) => one.do === 'add').length;
        let fill = 0;
        for (const one of steps) {
          // An upstream that is held back sends nothing.
          if (one.do === 'add' && !record.full) {
            const chunk = chunkOf(one.size, ++fill % 251);
            sent.push(chunk);
            record.add(chunk, announced && sent.length === adds);
          }
          if (one.do === 'attach' && record.isWhole && readers.length < 10) {
            const reader = new FakeReader();
            reader.room = one.room;
            readers.push({ reader, left: false });
            record.attach(reader);
          }
          const who = one.do === 'drain' || one.do === 'leave' ? readers[one.who] : undefined;
          if (one.do === 'drain') who?.reader.drain(one.pieces);
          if (one.do === 'leave' && who !== undefined && !who.left) {
            who.left = true;
            who.reader.gone = true;
            record.detach(who.reader);
          }
          // A window may be over its bound by the one piece that filled it.
          if (budget.usedBytes > limitBytes + 400 + PIECE_COST * sent.length) return false;
          if (readers.some(({ reader }) => reader.ended > 0)) return false;
        }
        const whole = Buffer.concat(sent);
        if (how === 'fail') record.fail();
        else record.conclude(['T', '1']);
        for (const { reader } of readers) reader.drain();
        return (
          budget.usedBytes === (how === 'conclude' || how === 'fail' ? 0 : -1) &&
          readers.every(({ reader, left }) => {
            const isPrefix = whole.subarray(0, reader.bytes.length).equals(reader.bytes);
            if (!isPrefix) return false;
            if (left) return reader.ended === 0;
            if (how === 'fail') return reader.wasCut && reader.ended === 0;
            return reader.ended === 1 && !reader.wasCut && reader.bytes.equals(whole) && reader.trailers.length === 2;
          })
        );
      },
    ),
    { numRuns: 3_000 },
  );
});

t.test('the piece that completes the message is kept back until it is concluded', async (t) => {
  const { record } = recording(1_000);
  const reader = new FakeReader();
  record.attach(reader);
  record.add(Buffer.from('ab'), false);
  record.add(Buffer.from('cd'), true);
  t.equal(reader.bytes.toString(), 'ab');
  const late = new FakeReader();
  record.attach(late);
  t.equal(late.bytes.toString(), 'ab');
  t.match(record.response([]), { content: Buffer.from('abcd') });
  record.conclude([]);
  for (const { bytes, ended } of [reader, late]) t.same([bytes.toString(), ended], ['abcd', 1]);
});

t.test('while the record is whole nobody slows anybody', async (t) => {
  const { record } = recording(1_000_000);
  const slow = new FakeReader();
  slow.room = 1;
  const fast = new FakeReader();
  record.attach(slow);
  record.attach(fast);
  for (let i = 0; i < 100; i += 1) record.add(chunkOf(1_000, i), false);
  t.equal(record.full, false);
  t.equal(fast.bytes.length, 100_000);
  t.equal(slow.bytes.length, 1_000);
});

t.test('outgrown by its own limit or by that of all, it is no response, and goes on for those who read', async (t) => {
  for (const [limit, budget] of [
    [1_000, new MemoryBudget(1 << 20)],
    [1 << 20, new MemoryBudget(1_300)],
  ] as const) {
    const { record } = recording(limit, { budget });
    const reader = new FakeReader();
    record.attach(reader);
    t.equal(record.add(chunkOf(900, 1), false), 'held');
    t.equal(record.add(chunkOf(200, 2), false), 'outgrown');
    t.equal(record.isWhole, false);
    t.equal(record.add(chunkOf(200, 3), false), 'held', 'said once');
    t.equal(record.response([]), null);
    t.equal(budget.usedBytes, 0, 'what everybody has read is let go');
    record.conclude([]);
    t.same([reader.bytes.length, reader.ended], [1_300, 1]);
  }
});

t.test('a reader that holds up the others for too long is cut, and they go on', async (t) => {
  const { record, seen, budget } = recording(1_000, { stallMs: 50 });
  const stalled = new FakeReader();
  stalled.room = 1;
  const fast = new FakeReader();
  record.attach(stalled);
  record.attach(fast);
  for (let i = 0; i < 20 && !record.full; i += 1) record.add(chunkOf(100, i), false);
  t.equal(record.full, true);
  await eventually('it is cut', () => stalled.wasCut);
  t.equal(stalled.ended, 0);
  t.same([seen.room, seen.gone, record.full], [1, 1, false]);
  record.add(chunkOf(100, 99), false);
  record.conclude([]);
  t.equal(fast.ended, 1);
  t.equal(budget.usedBytes, 0);
});

t.test('several that stall are cut one after the other, and the rest goes on', async (t) => {
  const { record } = recording(1_000, { stallMs: 50 });
  const stalled = [1, 2, 3].map((room) => Object.assign(new FakeReader(), { room }));
  const fast = new FakeReader();
  for (const reader of [fast, ...stalled]) record.attach(reader);
  await eventually('all are cut', () => {
    for (let i = 0; i < 50 && !record.full; i += 1) record.add(chunkOf(100, i), false);
    return stalled.every(({ wasCut }) => wasCut);
  });
  t.equal(fast.wasCut, false);
  record.conclude([]);
  t.equal(fast.ended, 1);
});

t.test('held up again and again, its time adds up; with everything read, it begins anew', async (t) => {
  const { record } = recording(1_000, { stallMs: 200 });
  const slow = new FakeReader();
  slow.room = 1;
  const fast = new FakeReader();
  record.attach(slow);
  record.attach(fast);
  const fill = () => {
    for (let i = 0; i < 50 && !record.full; i += 1) record.add(chunkOf(100, i), false);
  };
  const began = performance.now();
  for (let i = 0; i < 500 && !slow.wasCut; i += 1) {
    fill();
    await new Promise((resolve) => setTimeout(resolve, 10));
    slow.drain(1);
  }
  t.equal(slow.wasCut, true, 'a reader that only trickles is cut too');
  t.ok(performance.now() - began >= 150);
});

t.test('the piece that completes a message never makes the upstream wait for room', async (t) => {
  const { record } = recording(16_384, { budget: new MemoryBudget(0) });
  const reader = new FakeReader();
  record.attach(reader);
  t.equal(record.add(chunkOf(16_384, 1), true), 'outgrown');
  t.equal(record.full, false);
  record.conclude([]);
  t.same([reader.bytes.length, reader.ended], [16_384, 1]);
});

t.test('many small pieces are charged for what they cost', async (t) => {
  const { record, budget } = recording(1 << 20, { budget: new MemoryBudget(10 * 300) });
  let held = 0;
  while (record.add(chunkOf(1, 1), false) === 'held') held += 1;
  t.equal(held, 11);
  t.equal(budget.usedBytes, 0, 'and nobody reads them');
});

t.test('a response and its record are one content, counted once and as long as either is held', async (t) => {
  const { record, budget } = recording(1 << 20);
  const slow = Object.assign(new FakeReader(), { room: 1 });
  record.attach(slow);
  for (let i = 0; i < 10; i += 1) record.add(chunkOf(10_000, i), false);
  const response = record.response([]);
  t.equal(response?.content.length, 100_000);
  t.equal(budget.usedBytes, sizeOf(response!));
  record.conclude([]);
  t.equal(budget.usedBytes, sizeOf(response!), 'somebody still reads it');
  slow.drain();
  t.ok(slow.bytes.equals(response!.content));
  t.equal(budget.usedBytes, 0);
});

t.test('a window for one reader alone is small', async (t) => {
  const { record, budget } = recording(8_000_000, { budget: new MemoryBudget(100_000) });
  const slow = Object.assign(new FakeReader(), { room: 1 });
  record.attach(slow);
  for (let i = 0; i < 200 && !record.full; i += 1) record.add(chunkOf(10_000, i), false);
  t.equal(record.full, true);
  t.ok(budget.usedBytes < 300_000, `${budget.usedBytes}`);
  record.fail();
});

t.test('alone a slow reader is nobody’s burden', async (t) => {
  const { record } = recording(1_000, { stallMs: 20 });
  const slow = new FakeReader();
  slow.room = 1;
  record.attach(slow);
  for (let i = 0; i < 50 && !record.full; i += 1) record.add(chunkOf(100, i), false);
  await new Promise((resolve) => setTimeout(resolve, 100));
  t.equal(slow.wasCut, false);
  slow.drain();
  t.equal(record.full, false);
  record.fail();
});
