import fc from 'fast-check';
import t from 'tap';
import { newFlightId } from '../../src/core/claim.js';
import {
  newSpanId,
  newTraceId,
  parentOf,
  spanOfFlight,
  tracedFlightId,
  traceparentOf,
} from '../../src/core/trace-context.js';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const SPAN = '00f067aa0ba902b7';

t.test('what a traceparent says, and what says nothing (W3C Trace Context, section 3.2)', async (t) => {
  t.same(parentOf([`00-${TRACE}-${SPAN}-01`]), { traceId: TRACE, spanId: SPAN, isSampled: true });
  for (const [flags, isSampled] of [
    ['00', false],
    ['02', false],
    ['03', true],
    ['ff', true],
  ] as const) {
    t.equal(parentOf([`00-${TRACE}-${SPAN}-${flags}`])?.isSampled, isSampled, flags);
  }
  t.ok(parentOf([`cc-${TRACE}-${SPAN}-01-what the future brings`]), 'a later version may say more');
  t.ok(parentOf([`cc-${TRACE}-${SPAN}-01`]));
  for (const bad of [
    `00-${TRACE}-${SPAN}-01-more`,
    `ff-${TRACE}-${SPAN}-01`,
    `00-${TRACE.toUpperCase()}-${SPAN}-01`,
    `00-${'0'.repeat(32)}-${SPAN}-01`,
    `00-${TRACE}-${'0'.repeat(16)}-01`,
    `00-${TRACE}-${SPAN}-1`,
    `00-${TRACE}-${SPAN}`,
    `00-${TRACE.slice(1)}-${SPAN}-01`,
    `cc-${TRACE}-${SPAN}-01.more`,
    ` 00-${TRACE}-${SPAN}-01`,
    '',
  ]) {
    t.equal(parentOf([bad]), null, bad);
  }
  t.equal(parentOf([]), null);
  t.equal(parentOf([`00-${TRACE}-${SPAN}-01`, `00-${TRACE}-${SPAN}-01`]), null, 'two lines');
});

t.test('ids are new each time, and never zeros; what is sent is read back', async (t) => {
  const spans = Array.from({ length: 5_000 }, () => ({ traceId: newTraceId(), spanId: newSpanId() }));
  t.equal(new Set(spans.flatMap(({ traceId, spanId }) => [traceId, spanId])).size, 10_000);
  for (const span of spans.slice(0, 100)) t.same(parentOf([traceparentOf(span)]), { ...span, isSampled: true });
});

t.test("a flight's id tells of any span, and of none where it was made without", async (t) => {
  const hex = (bytes: number) =>
    fc.uint8Array({ minLength: bytes, maxLength: bytes }).map((array) => Buffer.from(array).toString('hex'));
  fc.assert(
    fc.property(hex(16), hex(8), (traceId, spanId) => {
      const flight = newFlightId();
      const traced = tracedFlightId(flight, { traceId, spanId });
      return (
        traced.startsWith(`${flight}.`) &&
        traced.length < 64 &&
        spanOfFlight(traced)?.traceId === traceId &&
        spanOfFlight(traced)?.spanId === spanId
      );
    }),
  );
  for (const flight of [
    newFlightId(),
    '',
    'one',
    `${newFlightId()}.`,
    ...[32, 34].map((length) => `${newFlightId()}.${'a'.repeat(length)}`),
  ]) {
    t.equal(spanOfFlight(flight), null, flight);
  }
});
