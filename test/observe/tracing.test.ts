/** Which requests are sampled, and who is linked to whom where a test must hold the store up. */

import t from 'tap';
import { newTraceId } from '../../src/core/trace-context.js';
import type { Span } from '../../src/observe/otlp.js';
import { Tracing } from '../../src/observe/tracing.js';
import { request, send } from '../support/client.js';
import { eventually, Gate } from '../support/gate.js';
import { startInProcess, storeWith } from '../support/in-process.js';
import { coalescePolicy, ruleOf } from '../support/rules.js';
import { startUpstream } from '../support/upstream.js';

const requestWith = (fields: readonly string[]) => ({
  method: 'GET',
  fields,
  req: { httpVersion: '1.1' },
  peer: { scheme: 'http' },
  rule: null,
  waitingSinceMs: null,
});

t.test('as large a share of the requests is sampled as was asked for, and of one trace all or none', async (t) => {
  const sink = { add: () => {} };
  const tracing = new Tracing({ parent: 'followed', ratio: 0.25 }, sink);
  const begun = Array.from({ length: 8_000 }, () => tracing.begin(requestWith([]))).filter((trace) => trace !== null);
  t.ok(begun.length > 1_600 && begun.length < 2_400, `${begun.length} of 8,000`);
  const traceparent = ['traceparent', `00-${newTraceId()}-00f067aa0ba902b7-01`];
  const [one, other] = [0.5, 0.5].map((ratio) => new Tracing({ parent: 'ignored', ratio }, sink));
  const sampled = Array.from({ length: 50 }, () => one!.begin(requestWith(traceparent)) !== null);
  t.equal(new Set(sampled).size, 1, 'one trace, one answer');
  t.equal(other!.begin(requestWith(traceparent)) !== null, sampled[0], 'and the same in another process');
});

t.test('who leads in the place of one that has left is linked to it, and its followers to who leads', async (t) => {
  const upstream = await startUpstream(t);
  const claimed = new Gate();
  const store = storeWith((real) => ({
    claim: async (claim) => {
      await claimed.opened;
      return real.claim(claim);
    },
  }));
  const spans: Span[] = [];
  const tracing = new Tracing({ parent: 'followed', ratio: 1 }, { add: (span) => spans.push(span) });
  const gateway = await startInProcess(t, {
    upstreamUrl: upstream.url,
    rules: [ruleOf('c', '/a', coalescePolicy())],
    store,
    traced: (traced) => tracing.begin(traced),
  });
  const opener = send(gateway.url, { method: 'POST', path: '/a' });
  opener.answer.catch(() => {});
  await eventually('the opener is here', () => gateway.waiting() === 1);
  const others = [];
  for (const count of [2, 3]) {
    others.push(request(gateway.url, { method: 'POST', path: '/a' }));
    await eventually('the next one is here', () => gateway.waiting() === count);
  }
  opener.leave();
  await gateway.over(1);
  claimed.open();
  await Promise.all(others);
  await gateway.over(3);
  t.equal(upstream.count(), 1);
  const [left, ...answered] = spans.filter(({ kind }) => kind === 'server');
  const outcomeOf = ({ attributes }: Span) => attributes[attributes.indexOf('oneflight.outcome') + 1];
  const [led, followed] = ['led', 'collapsed'].map((outcome) => answered.find((span) => outcomeOf(span) === outcome)!);
  const linkedTo = ({ links }: Span) => links.map(({ spanId }) => spanId);
  t.equal(outcomeOf(left!), 'left');
  t.strictSame(linkedTo(led!), [left!.spanId]);
  t.strictSame(linkedTo(followed!), [led!.spanId]);
});
