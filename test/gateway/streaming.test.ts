/** Followers in the leader's process read the response as it comes, each at its own pace. */

import t, { type Test } from 'tap';
import { Watching } from '../support/client.js';
import { COLLAPSED, isProblem, LED, problemOf } from '../support/expect.js';
import { eventually, Gate, within } from '../support/gate.js';
import { configOf, type Gateway, metricsOf, startGateways } from '../support/gateway.js';
import { inEachStore } from '../support/stores.js';
import { type Behaviour, type Call, startUpstream } from '../support/upstream.js';
import { chunkBytes, lastChunkBytes } from '../support/wire.js';

t.setTimeout(120_000);

const MEBI = 1_048_576;

const route = (name: string, more: string) => `
  - name: ${name}
    match: { path: "/${name}/*" }
    policy: coalesce
    key: [ { request: path } ]
    identity: public
    lease: 20s
    wait: { max: 25s, poll: 15s }
    keep: 0
    ${more}`;

/** Fields, then one piece for each step that the test allows, then the end. */
class Script {
  readonly #steps: Gate[] = [];
  #at = 0;

  step(index: number): Gate {
    for (let i = this.#steps.length; i <= index; i += 1) this.#steps.push(new Gate());
    return this.#steps[index] as Gate;
  }

  /** Lets the next piece go. */
  next(): void {
    this.step(this.#at++).open();
  }

  chunked(pieces: readonly Buffer[], fields: readonly string[] = [], trailers: readonly string[] = []): Behaviour {
    return async (call: Call) => {
      await call.received;
      call.head(200, 'OK', ['Content-Type', 'application/octet-stream', ...fields, 'Transfer-Encoding', 'chunked']);
      for (const [i, piece] of pieces.entries()) {
        await this.step(i).opened;
        call.raw(chunkBytes(piece));
      }
      await this.step(pieces.length).opened;
      call.raw(lastChunkBytes(trailers));
      call.finish();
    };
  }
}

async function scenarios(t: Test, store: string, processes: number): Promise<void> {
  const upstream = await startUpstream(t);
  const routes = [
    route('s', ''),
    route('small', 'maxShared: 64KiB\n    stallTimeout: 500ms'),
    route('few', 'maxFollowers: 2'),
  ].join('');
  const gateways = await startGateways(t, processes, { config: configOf({ upstream: upstream.url, store, routes }) });
  const first = gateways[0]!;
  const last = gateways[gateways.length - 1]!;
  const watch = (gateway: Gateway, path: string, method = 'GET', headers: string[] = []) =>
    new Watching(gateway.url, { method, path, headers });

  await t.test(
    'bytes reach leader and followers as they come; who comes later gets them from the first on',
    async (t) => {
      const script = new Script();
      upstream.on(
        '/s/live',
        script.chunked([Buffer.from('one '), Buffer.from('two '), Buffer.from('three')], [], ['X-Sum', '3']),
      );
      const leader = watch(first, '/s/live');
      await upstream.arrived(1, '/s/live');
      const followers = [watch(first, '/s/live'), watch(first, '/s/live')];
      await first.caughtUp();
      script.next();
      await Promise.all([leader, ...followers].map((client) => client.received(4)));
      const late = watch(first, '/s/live');
      await late.received(4);
      script.next();
      await Promise.all([leader, ...followers, late].map((client) => client.received(8)));
      script.next();
      script.next();
      t.equal((await leader.answer).cacheStatus, LED);
      for (const client of [leader, ...followers, late]) {
        const answer = await client.answer;
        t.equal(answer.text, 'one two three');
        t.equal(answer.cut, false);
        t.same(answer.trailers, ['X-Sum', '3']);
        if (client !== leader) t.equal(answer.cacheStatus, COLLAPSED);
      }
      t.equal(upstream.count('/s/live'), 1);
    },
  );

  await t.test('a cut upstream: cut for whoever had the fields, 503 for the others, and nothing is kept', async (t) => {
    const gate = new Gate();
    upstream.on('/s/cut', async (call) => {
      await call.received;
      call.head(200, 'OK', ['Transfer-Encoding', 'chunked']);
      call.raw(chunkBytes(Buffer.from('half')));
      await gate.opened;
      call.hangUp();
    });
    const clients = [watch(first, '/s/cut'), watch(first, '/s/cut')];
    await Promise.all(clients.map((client) => client.received(4)));
    const elsewhere = last === first ? null : watch(last, '/s/cut');
    await last.caughtUp();
    gate.open();
    for (const { answer } of clients) t.equal((await answer).cut, true);
    if (elsewhere !== null) isProblem(t, await elsewhere.answer, 'leader-failed', 20);
    t.equal(upstream.count('/s/cut'), 1);
    upstream.on('/s/cut', (call) => call.answer({ content: 'whole' }));
    t.equal((await watch(last, '/s/cut').answer).text, 'whole');
  });

  await t.test('no client slows another: one that reads nothing, leader or follower, holds up nobody', async (t) => {
    for (const slowest of ['leader', 'follower']) {
      const path = `/s/slow-${slowest}`;
      const script = new Script();
      const pieces = Array.from({ length: 24 }, (_, i) => Buffer.alloc(MEBI / 4, i));
      upstream.on(path, script.chunked(pieces));
      const leader = new Watching(first.url, { path }, slowest !== 'leader');
      await upstream.arrived(1, path);
      const follower = new Watching(first.url, { path }, slowest !== 'follower');
      await first.caughtUp();
      for (let i = 0; i <= pieces.length; i += 1) script.next();
      const [slow, fast] = slowest === 'leader' ? [leader, follower] : [follower, leader];
      const answer = await within(15_000, 'the fast one', fast.answer);
      t.equal(answer.body.equals(Buffer.concat(pieces)), true);
      slow.resume();
      t.equal((await slow.answer).body.equals(Buffer.concat(pieces)), true, 'and it loses nothing');
      t.equal(upstream.count(path), 1);
    }
  });

  await t.test(
    'longer than maxShared: who reads goes on, who has no bytes yet is released at that moment',
    async (t) => {
      for (const method of ['GET', 'POST']) {
        const path = `/small/long-${method}`;
        const script = new Script();
        const pieces = Array.from({ length: 8 }, (_, i) => Buffer.alloc(32_768, i));
        upstream.on(path, script.chunked(pieces));
        const leader = watch(first, path, method);
        await upstream.arrived(1, path);
        const near = watch(first, path, method);
        await first.caughtUp();
        script.next();
        await near.received(1);
        const far = last === first ? null : watch(last, path, method);
        await last.caughtUp();
        upstream.on(path, (call) => call.answer({ content: 'own' }));
        for (let i = 0; i < 4; i += 1) script.next();
        if (far !== null) {
          const answer = await within(10_000, 'the release', far.answer);
          if (method === 'GET') t.equal(answer.text, 'own');
          else t.equal(problemOf(answer), 'not-shareable');
        }
        for (let i = 0; i < 5; i += 1) script.next();
        for (const { answer } of [leader, near]) {
          t.equal((await answer).body.equals(Buffer.concat(pieces)), true);
          t.equal((await answer).cut, false);
        }
        t.equal(upstream.count(path), far !== null && method === 'GET' ? 2 : 1);
      }
    },
  );

  await t.test('one that stalls in the window is cut, never ended cleanly; the others go on', async (t) => {
    const path = '/small/stall';
    const script = new Script();
    const pieces = Array.from({ length: 64 }, (_, i) => Buffer.alloc(MEBI / 4, i));
    upstream.on(path, script.chunked(pieces));
    const leader = watch(first, path);
    await upstream.arrived(1, path);
    const stalled = new Watching(first.url, { path }, false);
    await first.caughtUp();
    for (let i = 0; i <= pieces.length; i += 1) script.next();
    const answer = await within(20_000, 'the leader', leader.answer);
    t.equal(answer.body.length, 16 * MEBI);
    t.equal(answer.cut, false);
    stalled.resume();
    t.equal((await stalled.answer).cut, true);
  });

  await t.test('a variant has a flight of its own from the fields on', async (t) => {
    const script = new Script();
    const path = '/s/vary';
    upstream.on(path, script.chunked([Buffer.from('de')], ['Vary', 'Accept-Language']));
    const leader = watch(first, path, 'GET', ['Accept-Language', 'de']);
    await upstream.arrived(1, path);
    upstream.on(path, (call) => call.answer({ content: 'fr', fields: ['Vary', 'Accept-Language'] }));
    const others = ['de', 'fr', 'fr'].map((language) => watch(first, path, 'GET', ['Accept-Language', language]));
    await first.caughtUp();
    script.next();
    t.equal((await others[1]!.answer).text, 'fr', 'while the first one still goes on');
    t.equal((await others[2]!.answer).text, 'fr');
    script.next();
    for (const client of [leader, others[0]!]) t.equal((await client.answer).text, 'de');
    t.equal(upstream.count(path), 2);
  });

  await t.test('as many followers as the rule allows, then 503', async (t) => {
    const held = upstream.holds('/few/x');
    const leader = watch(first, '/few/x');
    await held.arrived(1);
    const followers = [watch(first, '/few/x'), watch(first, '/few/x')];
    await first.caughtUp();
    isProblem(t, await watch(first, '/few/x').answer, 'overloaded');
    held.release();
    for (const { answer } of [leader, ...followers]) t.equal((await answer).status, 200);
    t.equal(upstream.count('/few/x'), 1);
  });

  await t.test('clients that leave: the others go on, and with the last one a safe call ends', async (t) => {
    const script = new Script();
    upstream.on('/s/leave', script.chunked([Buffer.from('a'), Buffer.from('b'), Buffer.from('c')]));
    const leader = watch(first, '/s/leave');
    await upstream.arrived(1, '/s/leave');
    const followers = [watch(first, '/s/leave'), watch(first, '/s/leave')];
    await first.caughtUp();
    script.next();
    await Promise.all(followers.map((client) => client.received(1)));
    leader.leave();
    followers[0]!.leave();
    script.next();
    await followers[1]!.received(2);
    const [call] = upstream.callsOf('/s/leave');
    t.equal(call?.aborted, false);
    followers[1]!.leave();
    await within(10_000, 'the upstream hears of it', call!.closed);
    t.equal(call?.aborted, true);
    upstream.on('/s/leave', (next) => next.answer({ content: 'new' }));
    t.equal((await watch(last, '/s/leave').answer).text, 'new');
  });

  await t.test('nothing is left over', async () => {
    await eventually('no flight', async () => {
      return (await metricsOf(gateways)).sum('oneflight_flights_in_progress') === 0;
    });
  });
}

inEachStore(t, 2, scenarios);
