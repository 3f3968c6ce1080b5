import { createHash, createSecretKey } from 'node:crypto';
import fc from 'fast-check';
import t from 'tap';
import type { Settlement } from '../../src/core/claim.js';
import { encodeSettlement, UnreadableFrame } from '../../src/store/codec.js';
import { Frames } from '../../src/store/frames.js';
import { isSealed, type SealedPlace, Sealing } from '../../src/store/sealing.js';

const [OLD, NEW] = ['the old secret of this test', 'the new secret of this test'];
const NONCE = [11, 23] as const;

function materialOf(text: string) {
  return createSecretKey(createHash('sha256').update(text).digest());
}

const place: SealedPlace = { key: 'digest', flight: 'flight', material: materialOf('request') };
const byOperator: SealedPlace = { ...place, material: null };
const sealing = new Sealing([NEW]);

const bytes = fc.uint8Array({ maxLength: 3_000 }).map((array) => Buffer.from(array));
const places = fc.record({
  key: fc.string(),
  flight: fc.string(),
  material: fc.option(fc.string().map(materialOf)),
});

const response: Settlement = {
  kind: 'response',
  response: {
    status: 200,
    reason: 'OK',
    fields: ['X-A', 'field value'],
    content: Buffer.from('the content'),
    trailers: [],
    vary: { names: [], digest: '' },
  },
};
const WITHOUT_CONTENT: readonly Settlement[] = [
  { kind: 'failed', election: 1 },
  { kind: 'withdrawn', election: 1 },
  { kind: 'unknown', election: 1 },
  { kind: 'unshareable', reason: 'vary-any' },
  { kind: 'not-kept' },
];

t.test('what is sealed opens equal where it was put, and nothing of it is seen', async () => {
  fc.assert(
    fc.property(bytes, places, (plain, at) => {
      const sealed = sealing.seal(plain, at);
      return (
        isSealed(sealed) &&
        sealing.open(sealed, at).equals(plain) &&
        (plain.length < 8 || !sealed.includes(plain.subarray(0, 8)))
      );
    }),
  );
});

t.test('with any one bit changed it does not open', async (t) => {
  for (const at of [place, byOperator]) {
    const sealed = sealing.seal(Buffer.from('some content'), at);
    for (let bit = 0; bit < sealed.length * 8; bit += 1) {
      const changed = Buffer.from(sealed);
      changed[bit >> 3]! ^= 1 << (bit & 7);
      if (opens(changed, at)) t.fail(`bit ${bit}`);
    }
    for (let length = 0; length < sealed.length; length += 1) {
      if (opens(sealed.subarray(0, length), at)) t.fail(`cut to ${length}`);
    }
    t.notOk(opens(Buffer.concat([sealed, Buffer.of(0)]), at), 'nor with a byte more');
    t.ok(opens(sealed, at));
  }
});

t.test('it opens at no other key, flight or material, and under no other secret', async (t) => {
  const sealed = sealing.seal(Buffer.from('some content'), place);
  const elsewhere: readonly (readonly [string, SealedPlace])[] = [
    ['key', { ...place, key: 'digesu' }],
    ['flight', { ...place, flight: 'flighu' }],
    ['key and flight, together the same text', { ...place, key: 'digestf', flight: 'light' }],
    ['material', { ...place, material: materialOf('another request') }],
    ['no material', byOperator],
  ];
  for (const [what, at] of elsewhere) t.notOk(opens(sealed, at), what);
  t.throws(() => new Sealing([OLD]).open(sealed, place), UnreadableFrame);
  const ofOperator = sealing.seal(Buffer.from('some content'), byOperator);
  t.ok(opens(ofOperator, place), "an operator's opens for every request of its key");
  for (const [what, at] of elsewhere.slice(0, 3)) t.notOk(opens(ofOperator, at), `an operator's: ${what}`);
  t.throws(() => new Sealing([OLD]).open(ofOperator, place), UnreadableFrame);
});

t.test('the first secret seals, every one of them opens', async (t) => {
  const plain = Buffer.from('some content');
  const [before, between] = [new Sealing([OLD, NEW]), new Sealing([NEW, OLD])];
  t.same(between.open(before.seal(plain, place), place), plain);
  t.same(before.open(between.seal(plain, place), place), plain);
  t.same(sealing.open(between.seal(plain, place), place), plain);
  t.throws(() => sealing.open(before.seal(plain, place), place), UnreadableFrame);
});

t.test('no nonce comes twice', async (t) => {
  const nonces = Array.from({ length: 2_000 }, () => sealing.seal(Buffer.of(), place).toString('hex', ...NONCE));
  t.equal(new Set(nonces).size, 2_000);
});

t.test('neither secret nor material is in a frame', async (t) => {
  const sealed = sealing.seal(Buffer.of(), place);
  t.notOk(sealed.includes(place.material!.export().subarray(0, 4)));
  t.notOk(sealed.includes(createHash('sha256').update(NEW).digest().subarray(0, 4)));
});

t.test('responses are sealed, what has no content is not', async (t) => {
  const frames = new Frames([NEW]);
  const sealed = frames.encode(response, place);
  t.ok(isSealed(sealed));
  t.same(frames.decode(sealed, place), response);
  t.equal(frames.encode(response, place), sealed, 'asked again, it is the same bytes');
  t.notOk(frames.encode(response, { ...place, flight: 'another' }).equals(sealed));
  for (const settlement of WITHOUT_CONTENT) {
    const frame = frames.encode(settlement, place);
    t.same(frame, encodeSettlement(settlement), settlement.kind);
    t.same(frames.decode(frame, place), settlement);
  }
});

t.test('with a secret a response that is not sealed is not read, without one a sealed one is not', async (t) => {
  const [open, secret] = [new Frames([]), new Frames([NEW])];
  const [plain, sealed] = [open.encode(response, place), secret.encode(response, place)];
  t.same(open.decode(plain, place), response);
  t.throws(() => secret.decode(plain, place), UnreadableFrame);
  t.throws(() => open.decode(sealed, place), UnreadableFrame);
});

function opens(sealed: Buffer, at: SealedPlace): boolean {
  try {
    sealing.open(sealed, at);
    return true;
  } catch (error) {
    if (!(error instanceof UnreadableFrame)) throw error;
    return false;
  }
}
