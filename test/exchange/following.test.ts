/** Another process's flight as it is read here: to its end, or cut, and never faster than its readers. */

import t from 'tap';
import type { Settlement } from '../../src/core/claim.js';
import { MemoryBudget } from '../../src/core/memory-budget.js';
import type { CoalescePolicy } from '../../src/core/rule.js';
import { Following } from '../../src/exchange/following.js';
import { encodeContent, encodeHead, encodeOver } from '../../src/exchange/pieces.js';
import type { Recording, RecordingReader } from '../../src/exchange/recording.js';
import { MemoryStore } from '../../src/store/memory.js';
import type { PieceReader } from '../../src/store/relay.js';
import type { Store } from '../../src/store/store.js';
import { delay, eventually } from '../support/gate.js';

const HEAD = { status: 200, reason: 'OK', fields: ['X', 'y'], vary: { names: [], digest: '' } };
const REF = { key: 'k', flight: 'f', leaseLeftMs: 10_000, ageMs: 0, election: 0, material: null };
const TOO_LARGE = { kind: 'unshareable', reason: 'too-large' } as const;

class FakeReader implements RecordingReader {
  gone = false;
  got = '';
  how: 'reading' | 'ended' | 'cut' = 'reading';
  trailers: readonly string[] = [];
  takes = true;
  #onDrain: (() => void) | null = null;

  write(chunk: Buffer): boolean {
    this.got += chunk;
    return this.takes;
  }

  whenDrained(listener: () => void): void {
    this.#onDrain = listener;
  }

  drain(): void {
    this.takes = true;
    this.#onDrain?.();
  }

  hold(): void {}

  end(last: Buffer | null, trailers: readonly string[]): void {
    this.got += last ?? '';
    this.trailers = trailers;
    this.how = 'ended';
  }

  cut(): void {
    this.how = 'cut';
  }
}

function setUp(options: { maxSharedBytes?: number; silenceMs?: number; silenceBeyondMs?: number } = {}) {
  const seen = { resumed: 0, ended: false };
  let settle: (settlement: Settlement) => void = () => {};
  let source: PieceReader | null = null;
  const store = {
    settled: () =>
      new Promise<Settlement>((resolve) => {
        settle = resolve;
      }),
    relayed: (_flight: unknown, reader: PieceReader, { signal }: { signal: AbortSignal }) => {
      source = reader;
      signal.addEventListener('abort', () => {
        seen.ended = true;
      });
      const resume = () => {
        seen.resumed += 1;
      };
      return { resume };
    },
  } as unknown as Store;
  let record: Recording | null = null;
  const budget = new MemoryBudget(1 << 30);
  const policy = { maxSharedBytes: options.maxSharedBytes ?? 1 << 20, stallMs: 60_000 } as CoalescePolicy;
  const silenceMs = options.silenceMs ?? 60_000;
  const following = new Following(REF, {
    store,
    pollMs: 1_000,
    stream: {
      policy,
      budget,
      silenceMs,
      silenceBeyondMs: options.silenceBeyondMs ?? 60_000,
      onRecording: (recording) => {
        record = recording;
      },
      onReaderGone: () => {},
    },
  });
  const settled = following.settled();
  let index = 0;
  const tell = (bytes: Buffer) => source!.onPiece({ index: index++, bytes });
  return {
    seen,
    budget,
    settled,
    following,
    /** The head, with one who reads. */
    begin: () => {
      tell(encodeHead(HEAD));
      const reader = new FakeReader();
      record!.attach(reader);
      return reader;
    },
    content: (text: string) => tell(encodeContent([Buffer.from(text)])),
    over: (over: Parameters<typeof encodeOver>[0]) => tell(encodeOver(over)),
    garbage: () => tell(Buffer.from([7])),
    alive: () => source!.onAlive(),
    lost: () => source!.onLost(),
    settle: async (settlement: Settlement) => {
      settle(settlement);
      return settled;
    },
  };
}

const whole = (text: string): Settlement => ({
  kind: 'response',
  response: { ...HEAD, content: Buffer.from(text), trailers: ['T', 'z'] },
});

t.test('the settlement brings what is missing, once, and the end', async (t) => {
  for (const came of ['', 'ab', 'abcdef']) {
    const { begin, content, settle, seen, budget } = setUp();
    const reader = begin();
    if (came !== '') t.equal(content(came), true);
    await settle(whole('abcdef'));
    t.same([reader.got, reader.how, reader.trailers], ['abcdef', 'ended', ['T', 'z']]);
    t.equal(seen.ended, true);
    t.equal(budget.usedBytes, 0);
  }
});

t.test('what is not the beginning of the settlement is cut, and so is what has no end', async (t) => {
  const others: Settlement[] = [
    whole('another'),
    { kind: 'failed', election: 0 },
    { kind: 'unknown', election: 0 },
    { kind: 'response', response: { ...HEAD, status: 201, content: Buffer.from('ab'), trailers: [] } },
  ];
  for (const settlement of others) {
    const { begin, content, settle } = setUp();
    const reader = begin();
    content('ab');
    await settle(settlement);
    t.same([reader.got, reader.how], ['ab', 'cut'], settlement.kind);
  }
});

t.test('what is for nobody else any more goes on for who reads it, to its own end', async (t) => {
  const { begin, content, over, settle, seen } = setUp();
  const reader = begin();
  content('ab');
  await settle(TOO_LARGE);
  t.equal(reader.how, 'reading');
  content('cd');
  over({ kind: 'end', trailers: ['T', 'z'] });
  t.same([reader.got, reader.how, reader.trailers], ['abcd', 'ended', ['T', 'z']]);
  t.equal(seen.ended, true);
});

t.test('the end may be read before the flight is known to be over', async (t) => {
  const { begin, content, over, settle } = setUp();
  const reader = begin();
  content('ab');
  over({ kind: 'end', trailers: [] });
  t.same([reader.got, reader.how], ['ab', 'ended']);
  await settle(TOO_LARGE);
});

t.test('cut by its own last piece, by one that nobody can read, and by what was lost', async (t) => {
  const ways: ((flight: ReturnType<typeof setUp>) => void)[] = [
    ({ over }) => void over({ kind: 'cut' }),
    ({ garbage }) => void garbage(),
    ({ lost }) => lost(),
  ];
  for (const way of ways) {
    const flight = setUp();
    const reader = flight.begin();
    flight.content('ab');
    await flight.settle(TOO_LARGE);
    way(flight);
    t.same([reader.got, reader.how, flight.seen.ended], ['ab', 'cut', true]);
  }
});

t.test(
  'pieces that are lost before the flight is known to be over: its settlement has the rest, or nothing has',
  async (t) => {
    for (const [settlement, end] of [
      [whole('abcd'), ['abcd', 'ended']],
      [TOO_LARGE, ['ab', 'cut']],
    ] as const) {
      const { begin, content, lost, settle } = setUp();
      const reader = begin();
      content('ab');
      lost();
      t.equal(reader.how, 'reading');
      await settle(settlement);
      t.same([reader.got, reader.how], end);
    }
  },
);

t.test('whoever leaves lets go of what was held for it', async (t) => {
  const { begin, content, settle, following, budget } = setUp();
  const reader = begin();
  content('ab');
  await settle(TOO_LARGE);
  t.ok(budget.usedBytes > 0);
  reader.gone = true;
  following.leave();
  t.equal(budget.usedBytes, 0);
});

t.test('a window that is full waits for its reader, and then for a sign of life', async (t) => {
  const { begin, content, alive, seen } = setUp({ maxSharedBytes: 1, silenceMs: 700 });
  const reader = begin();
  reader.takes = false;
  content('ab');
  t.equal(content('cd'), false);
  await delay(1_000);
  t.equal(reader.how, 'reading');
  reader.drain();
  for (let i = 0; i < 10; i += 1) {
    await delay(100);
    alive();
  }
  t.equal(reader.how, 'reading', 'signs of life are enough');
  await eventually('the cut, without', () => reader.how === 'cut');
  t.equal(seen.ended, true);
});

t.test('with nobody who reads it, it ends with the flight', async (t) => {
  const { settle, seen } = setUp();
  await settle(TOO_LARGE);
  t.equal(seen.ended, true);
});

t.test('silence is a cut', async (t) => {
  const { begin, content, seen } = setUp({ silenceMs: 20 });
  const reader = begin();
  content('ab');
  await eventually('the cut', () => reader.how === 'cut');
  t.equal(seen.ended, true);
});

t.test('beyond the flight the signs of life are what is listened for, from its end on', async (t) => {
  const { begin, content, settle, alive, seen } = setUp({ silenceBeyondMs: 700 });
  const reader = begin();
  content('ab');
  await settle(TOO_LARGE);
  for (let i = 0; i < 10; i += 1) {
    await delay(100);
    alive();
  }
  t.equal(reader.how, 'reading', 'signs of life are enough');
  await eventually('the cut, without', () => reader.how === 'cut');
  t.equal(seen.ended, true);

  const silent = setUp({ silenceBeyondMs: 20 });
  const other = silent.begin();
  silent.content('ab');
  await silent.settle(TOO_LARGE);
  await eventually('the cut, without a sign', () => other.how === 'cut');
});

t.test('a window that is full takes no more until its reader has', async (t) => {
  const { begin, content, settle, seen } = setUp({ maxSharedBytes: 10 });
  const reader = begin();
  reader.takes = false;
  t.equal(content('12345678'), true, 'kept whole');
  t.equal(content('9012345678'), false, 'a window, and full');
  t.equal(seen.resumed, 0);
  reader.drain();
  t.equal(seen.resumed, 1);
  t.equal(content('x'), true);
  await settle(whole('123456789012345678xyz'));
  t.same([reader.got, reader.how], ['123456789012345678xyz', 'ended']);
});

t.test('known to be up again, it can be joined again', async (t) => {
  const store = new MemoryStore({ budget: new MemoryBudget(1) });
  const following = new Following({ ...REF, leaseLeftMs: -1 }, { store, pollMs: 1_000, stream: null });
  t.equal(following.isOutOfDate, true);
  following.isKnown(REF);
  t.equal(following.isOutOfDate, false);
});
