/** The upstream closes its connection while the client has still to take what came: that ends nothing but the connection. */

import t, { type Test } from 'tap';
import type { UpstreamFailure } from '../../src/upstream/failure.js';
import { type Exchange, type ForwardSink, Upstream } from '../../src/upstream/upstream.js';
import { delay, Gate, within } from '../support/gate.js';
import { type Call, startUpstream } from '../support/upstream.js';
import { upstreamConfig } from '../support/upstreams.js';

t.setTimeout(60_000);

/** For what nobody can see: that the gateway has heard of the end. */
const HEARD_MS = 100;

const CLOSE = ['Connection', 'close'];
const FRAMINGS: readonly (readonly [string, readonly string[]])[] = [
  ['until the connection ends', CLOSE],
  ['a length and the last response of its connection', [...CLOSE, 'Content-Length', '10']],
  ['a length', ['Content-Length', '10']],
];

/** Takes one piece and no more until it is told to go on. */
class Slow implements ForwardSink {
  readonly began = new Gate();
  readonly full = new Gate();
  content = '';
  readonly #ended: (how: 'whole' | UpstreamFailure) => void;
  readonly over: Promise<'whole' | UpstreamFailure>;

  constructor() {
    let ended = (_how: 'whole' | UpstreamFailure) => {};
    this.over = new Promise((resolve) => {
      ended = resolve;
    });
    this.#ended = ended;
  }

  onSend(): boolean {
    return true;
  }

  onInterim(): void {}

  onFields(): void {
    this.began.open();
  }

  onContent(chunk: Buffer): boolean {
    this.content += chunk;
    this.full.open();
    return false;
  }

  onEnd(): void {
    this.#ended('whole');
  }

  onFailure(failure: UpstreamFailure): void {
    this.#ended(failure);
  }
}

async function paused(t: Test, fields: readonly string[], answer: (call: Call, sink: Slow) => void | Promise<void>) {
  const stub = await startUpstream(t);
  const upstream = new Upstream(upstreamConfig({ url: stub.url }));
  t.teardown(() => upstream.destroy());
  const sink = new Slow();
  stub.on('/a', async (call) => {
    call.head(200, 'OK', fields);
    await sink.began.opened;
    await answer(call, sink);
  });
  const request = { method: 'GET', target: '/a', fields: ['Host', 'a'], content: null, trailers: null };
  const exchange: Exchange = upstream.forward(request, sink, 'open');
  await within(10_000, 'the first piece', sink.full.opened);
  return { sink, exchange };
}

for (const [framing, fields] of FRAMINGS) {
  t.test(`closed behind what was taken: ${framing}`, async (t) => {
    const { sink, exchange } = await paused(t, fields, async (call, { full }) => {
      call.raw('0123456789');
      await full.opened;
      call.hangUp();
    });
    await delay(HEARD_MS);
    exchange.resume();
    t.equal(await within(10_000, 'the end', sink.over), 'whole');
    t.equal(sink.content, '0123456789');
  });

  t.test(`closed with the last piece: ${framing}`, async (t) => {
    const { sink, exchange } = await paused(t, fields, (call) => {
      call.socket.end('0123456789');
      call.finish();
    });
    await delay(HEARD_MS);
    exchange.resume();
    t.equal(await within(10_000, 'the end', sink.over), 'whole');
    t.equal(sink.content, '0123456789');
  });

  t.test(`reset in the middle: ${framing}`, async (t) => {
    const { sink, exchange } = await paused(t, fields, async (call, { full }) => {
      call.raw('01234');
      await full.opened;
      call.reset();
    });
    await delay(HEARD_MS);
    exchange.resume();
    t.same(await within(10_000, 'the end', sink.over), { kind: 'cut', cause: 'reset' });
  });
}

t.test('closed before the end of a length: cut', async (t) => {
  const { sink, exchange } = await paused(t, ['Content-Length', '10'], async (call, { full }) => {
    call.raw('01234');
    await full.opened;
    call.hangUp();
  });
  await delay(HEARD_MS);
  exchange.resume();
  t.same(await within(10_000, 'the end', sink.over), { kind: 'cut', cause: 'reset' });
});
