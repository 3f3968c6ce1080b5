/** `stream: true`, and a response that nobody else may have after all: who reads it already goes on, on every gateway. */

import { createHash, randomBytes } from 'node:crypto';
import t, { type Test } from 'tap';
import { Watching } from '../support/client.js';
import { LED } from '../support/expect.js';
import { eventually, Gate, within } from '../support/gate.js';
import { allCaughtUp, configOf, type Gateway, metricsOf, startGateway, startGateways } from '../support/gateway.js';
import { startRedis } from '../support/redis.js';
import { inEachStore } from '../support/stores.js';
import { type Call, startUpstream } from '../support/upstream.js';
import { chunkBytes, lastChunkBytes } from '../support/wire.js';

t.setTimeout(170_000);

const MEBI = 1_048_576;

const route = (name: string, more: string) => `
  - name: ${name}
    match: { path: "/${name}/*" }
    policy: coalesce
    key: [ { request: path } ]
    identity: public
    stream: true
    lease: 20s
    wait: { max: 25s, poll: 15s }
    ${more}`;

const ROUTES = [
  route('small', 'maxShared: 64KiB\n    stallTimeout: 1s'),
  route('patient', 'maxShared: 64KiB\n    stallTimeout: 20s'),
  route('whole', 'maxShared: 16MiB'),
].join('');

/** An upstream that sends what the test tells it to. */
function source(upstream: Awaited<ReturnType<typeof startUpstream>>, path: string) {
  let call: Call | null = null;
  const arrived = new Gate();
  upstream.on(path, async (one) => {
    await one.received;
    call = one;
    one.head(200, 'OK', ['Content-Type', 'text/plain', 'Trailer', 'X-Sum', 'Transfer-Encoding', 'chunked']);
    arrived.open();
    await one.over;
  });
  return {
    arrived: arrived.opened,
    piece: (bytes: string | Buffer) => call!.raw(chunkBytes(Buffer.from(bytes))),
    end: (trailers: string[] = []) => {
      call!.raw(lastChunkBytes(trailers));
      call!.finish();
    },
    cut: () => call!.hangUp(),
  };
}

async function scenarios(t: Test, store: string, processes: number): Promise<void> {
  const upstream = await startUpstream(t);
  const gateways = await startGateways(t, processes, {
    config: configOf({ upstream: upstream.url, store, routes: ROUTES }),
  });
  const first = gateways[0]!;
  const watch = (gateway: Gateway, path: string, method = 'POST') => new Watching(gateway.url, { method, path });

  /** A leader at the first gateway and a reader at each, who all have the beginning, more than half of what is shared. */
  async function begun(path: string, method = 'POST') {
    const from = source(upstream, path);
    const leader = watch(first, path, method);
    await from.arrived;
    const readers = gateways.map((gateway) => watch(gateway, path, method));
    await allCaughtUp(gateways);
    from.piece('x'.repeat(40_000));
    await Promise.all([leader, ...readers].map((client) => client.received(40_000)));
    return { from, leader, readers };
  }

  await t.test('who reads goes on to the end, trailers too', async (t) => {
    const path = '/small/goes-on';
    const { from, leader, readers } = await begun(path);
    from.piece('y'.repeat(40_000));
    await Promise.all([leader, ...readers].map((client) => client.received(80_000)));
    from.piece('z');
    from.end(['X-Sum', 'abc']);
    for (const { answer } of [leader, ...readers]) {
      const { cut, text, trailers } = await within(10_000, 'the end', answer);
      t.equal(cut, false);
      t.equal(text, `${'x'.repeat(40_000)}${'y'.repeat(40_000)}z`);
      t.same(trailers, ['X-Sum', 'abc']);
    }
    t.equal((await leader.answer).cacheStatus, LED);
    t.equal(upstream.count(path), 1);
  });

  await t.test('a cut is a cut for whoever goes on', async (t) => {
    const path = '/small/cut';
    const { from, leader, readers } = await begun(path);
    from.piece('y'.repeat(40_000));
    await Promise.all([leader, ...readers].map((client) => client.received(80_000)));
    from.cut();
    for (const { answer } of [leader, ...readers]) t.equal((await within(10_000, 'the cut', answer)).cut, true);
  });

  await t.test('24 MiB go on to everybody, byte for byte, and nothing stays in the store', async (t) => {
    const path = '/patient/much';
    const { from, leader, readers } = await begun(path);
    const sum = createHash('sha256').update('x'.repeat(40_000));
    for (let i = 0; i < 96; i += 1) {
      const piece = randomBytes(MEBI / 4);
      sum.update(piece);
      from.piece(piece);
    }
    from.end();
    const expected = sum.digest('hex');
    for (const { answer } of [leader, ...readers]) {
      const { cut, body } = await within(30_000, 'the end', answer);
      t.equal(cut, false);
      t.equal(createHash('sha256').update(body).digest('hex'), expected);
    }
  });

  await t.test('one that takes nothing holds the others up for stallTimeout, and is cut', async (t) => {
    const path = '/small/stalls';
    const { from, leader, readers } = await begun(path);
    const slow = readers.pop()!;
    // Alone on its gateway, so that nobody there cuts it; in one process beside the others.
    const far = watch(gateways.at(-2) ?? first, path);
    // It has what there was before the response outgrew what is shared.
    await far.received(40_000);
    slow.pause();
    for (let i = 0; i < 160; i += 1) from.piece(Buffer.alloc(MEBI / 4, i));
    from.end();
    const others = processes > 1 ? [leader, ...readers] : [leader, far];
    for (const { answer } of others) {
      const { cut, body } = await within(30_000, 'the end', answer);
      t.equal(cut, false);
      t.equal(body.length, 40_000 + 40 * MEBI);
    }
    slow.resume();
    t.equal((await within(10_000, 'the cut', slow.answer)).cut, true);
    await far.answer;
  });

  await t.test("the leader's client leaves: a safe call goes on for who reads, and ends with the last", async (t) => {
    const path = '/small/leaves';
    const { from, leader, readers } = await begun(path, 'GET');
    from.piece('y'.repeat(40_000));
    await Promise.all([leader, ...readers].map((client) => client.received(80_000)));
    const last = readers.pop()!;
    for (const client of [leader, ...readers]) client.leave();
    await allCaughtUp(gateways);
    from.piece('z'.repeat(1_000));
    await last.received(81_000);
    const [call] = upstream.callsOf(path);
    t.equal(call!.aborted, false);
    last.leave();
    // That nobody reads any more, another process tells with the next piece.
    await eventually('the upstream hears of it', async () => {
      if (!call!.aborted) from.piece('z');
      return call!.aborted;
    });
  });

  await t.test('nothing is left over', async () => {
    await eventually('no flight', async () => (await metricsOf(gateways)).sum('oneflight_flights_in_progress') === 0);
  });
}

inEachStore(t, 3, scenarios);

t.test(
  'beyond the flight whoever reads hears of the end, however it comes, and nothing stays in the store',
  async (t) => {
    const redis = await startRedis();
    t.teardown(() => redis.stop());
    const upstream = await startUpstream(t);
    const store = `{ kind: redis, url: "${redis.url}", commandTimeout: 2s }`;
    const config = configOf({ upstream: upstream.url, store, routes: ROUTES });
    const [near, far] = (await startGateways(t, 2, { config })) as [Gateway, Gateway];

    /** A leader at one gateway and a reader at the other, both beyond what is shared. */
    async function beyond(path: string) {
      const from = source(upstream, path);
      const leader = new Watching(near.url, { method: 'POST', path });
      await from.arrived;
      const reader = new Watching(far.url, { method: 'POST', path });
      await far.caughtUp();
      from.piece('x'.repeat(40_000));
      await reader.received(40_000);
      from.piece('y'.repeat(40_000));
      await reader.received(80_000);
      return { from, leader, reader };
    }
    const names = async () => ((await redis.command('KEYS', '*:[sp]:*')) as string[]).length;

    await t.test('the end', async (t) => {
      const { from, reader } = await beyond('/patient/end');
      t.equal(await names(), 2);
      from.end();
      t.equal((await reader.answer).cut, false);
      await eventually('nothing is left', async () => (await names()) === 0);
    });

    await t.test('the store goes on after a short outage, and so does the response', async (t) => {
      const { from, reader } = await beyond('/patient/outage');
      await redis.command('CLIENT', 'PAUSE', 1_500, 'ALL');
      from.piece('z');
      from.end();
      const { cut, body } = await within(15_000, 'the end', reader.answer);
      t.equal(cut, false);
      t.equal(body.length, 80_001);
    });

    await t.test('the store forgets', async (t) => {
      const { leader, from, reader } = await beyond('/patient/forgets');
      await redis.command('FLUSHALL');
      t.equal((await within(15_000, 'the cut', reader.answer)).cut, true);
      from.end();
      t.equal((await leader.answer).cut, false, 'the leader has no need of it');
    });

    await t.test(
      'the store answers no more: the leader goes on, who reads elsewhere does not wait for it',
      async (t) => {
        const { leader, from, reader } = await beyond('/patient/silent');
        await eventually(
          'the flight is over',
          async () => ((await redis.command('KEYS', '*}')) as string[]).length === 0,
        );
        // What is pushed after the end of the flight arrives after it.
        from.piece('z');
        await reader.received(80_001);
        redis.pause();
        // The leader's upstream goes on all the time.
        const beat = setInterval(() => from.piece('.'), 1_000);
        try {
          // Its flight would be listened for for 33 s.
          t.equal((await within(25_000, 'the cut', reader.answer)).cut, true);
        } finally {
          clearInterval(beat);
          redis.resume();
        }
        from.end();
        t.equal((await leader.answer).cut, false, 'the leader has no need of it');
      },
    );

    await t.test("the leader's process dies", async (t) => {
      const { leader, reader } = await beyond('/patient/dies');
      await near.kill9();
      t.equal((await within(20_000, 'the cut', reader.answer)).cut, true);
      await leader.answer.catch(() => {});
    });
  },
);

t.test('a follower whose gateway is short of memory reads at its own pace, and has all of it at the end', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  const upstream = await startUpstream(t);
  const config = (more: string) =>
    configOf({ upstream: upstream.url, store: `{ kind: redis, url: "${redis.url}"${more} }`, routes: ROUTES });
  const first = await startGateway(t, { config: config('') });
  const poor = await startGateway(t, { config: config(', maxMemory: 1MiB') });
  const path = '/whole/poor';
  const from = source(upstream, path);
  const leader = new Watching(first.url, { method: 'POST', path });
  await from.arrived;
  const [reads, stands] = [1, 2].map(() => new Watching(poor.url, { method: 'POST', path })) as [Watching, Watching];
  await poor.caughtUp();
  from.piece('begins');
  await Promise.all([leader, reads, stands].map((client) => client.received(6)));
  stands.pause();
  const pieces = Array.from({ length: 32 }, () => randomBytes(MEBI / 4));
  for (const piece of pieces) from.piece(piece);
  await leader.received(6 + 8 * MEBI);
  const late = new Watching(poor.url, { method: 'POST', path });
  await poor.caughtUp();
  from.end();
  const whole = Buffer.concat([Buffer.from('begins'), ...pieces]);
  t.equal((await within(20_000, 'the leader', leader.answer)).body.equals(whole), true);
  stands.resume();
  for (const client of [reads, stands, late]) {
    const { cut, body } = await within(20_000, 'the end', client.answer);
    t.equal(cut, false);
    t.equal(body.equals(whole), true);
  }
  t.equal(upstream.count(path), 1);
});
