import fc from 'fast-check';
import t from 'tap';
import type { Settlement } from '../../src/core/claim.js';
import { decodeSettlement, encodeSettlement } from '../../src/store/codec.js';

/** Plain objects, as `decode` makes them. */
const plain = { noNullPrototype: true };

const latin1 = fc.uint8Array({ maxLength: 40 }).map((bytes) => Buffer.from(bytes).toString('latin1'));
const lines = fc.array(fc.tuple(latin1, latin1), { maxLength: 6 }).map((pairs) => pairs.flat());

const settlements: fc.Arbitrary<Settlement> = fc.oneof(
  fc
    .record(
      {
        status: fc.integer({ min: 200, max: 999 }),
        reason: latin1,
        fields: lines,
        content: fc.uint8Array({ maxLength: 2_000 }).map((bytes) => Buffer.from(bytes)),
        trailers: lines,
        vary: fc.record({ names: fc.array(fc.string()), digest: fc.string({ unit: 'binary' }) }, plain),
      },
      plain,
    )
    .map((response): Settlement => ({ kind: 'response', response })),
  fc
    .tuple(fc.constantFrom('failed', 'withdrawn', 'unknown'), fc.nat())
    .map(([kind, election]): Settlement => ({ kind, election })),
  fc.string({ unit: 'binary' }).map((reason): Settlement => ({ kind: 'unshareable', reason })),
  fc.constant<Settlement>({ kind: 'not-kept' }),
);

t.test('every settlement comes back equal', async (t) => {
  fc.assert(
    fc.property(settlements, (settlement) => {
      t.strictSame(decodeSettlement(encodeSettlement(settlement)), settlement);
    }),
    { numRuns: 300 },
  );
});

t.test('a cut frame is unreadable wherever it is cut', async (t) => {
  fc.assert(
    fc.property(settlements, fc.nat(), (settlement, at) => {
      const frame = encodeSettlement(settlement);
      t.throws(() => decodeSettlement(frame.subarray(0, at % frame.length)), { name: 'UnreadableFrame' });
    }),
  );
});

t.test('garbage is unreadable, never half a settlement', async (t) => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), (garbage) => {
      t.throws(() => decodeSettlement(Buffer.from(garbage)), { name: 'UnreadableFrame' });
    }),
    { examples: [[new Uint8Array(0)], [Uint8Array.of(1, 0, 0, 0, 0, 2, 0x7b, 0x7d)]] },
  );
});

t.test('another version, an unknown kind and a meta of the wrong shape say what is wrong', async (t) => {
  const frame = encodeSettlement({ kind: 'failed', election: 1 });
  const other = Buffer.from(frame);
  other[0] = 2;
  t.throws(() => decodeSettlement(other), { message: 'frame version 2, expected 1' });
  const kind = Buffer.from(frame);
  kind[1] = 9;
  t.throws(() => decodeSettlement(kind), { message: 'frame kind 9 is not known' });
  const response = Buffer.from(frame);
  response[1] = 0;
  t.throws(() => decodeSettlement(response), { name: 'UnreadableFrame' });
});
