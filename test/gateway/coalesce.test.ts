/** One key, one call: bursts over several processes and in one, with Redis and in memory. */

import t, { type Test } from 'tap';
import { type Answered, burst } from '../support/client.js';
import { allEqual, COLLAPSED, HIT, LED, PROMPT_MS, slowestMs, tally } from '../support/expect.js';
import { delay } from '../support/gate.js';
import { allCaughtUp, configOf, type Gateway, metricsOf, startGateways } from '../support/gateway.js';
import { startRedis } from '../support/redis.js';
import { inEachStore } from '../support/stores.js';
import { type Answer, answers, answersAfter, inTurn, startUpstream } from '../support/upstream.js';

t.setTimeout(180_000);

const JSON_KEY = '[ { body: /id } ]';

function coalesce(name: string, more: string): string {
  return `
  - name: ${name}
    match: { path: /${name}/* }
    policy: coalesce
    key: [ { request: path }, { query: id } ]
    lease: 30s
    wait: { max: 25s, poll: 15s }
    ${more}`;
}

const ROUTES = [
  ...['burst', 'slow', 'again', 'many', 'hit', 'wake', 'variants', 'callers', 'errors', 'thrift'].map((name) =>
    coalesce(name, name === 'again' ? 'keep: 0' : 'keep: 20s'),
  ),
  coalesce('brief', 'keep: 1s'),
  `
  - name: renewed
    match: { methods: [POST], path: /renewed }
    policy: coalesce
    key: ${JSON_KEY}
    lease: 1s
    wait: 20s`,
  `
  - name: reads
    match: { methods: [GET], path: /reads }
    policy: coalesce
    key: [ { request: path }, { query: id } ]`,
].join('');

/** Requests in turn to each of the gateways. */
function toEach(gateways: readonly Gateway[], count: number, path: string, method = 'POST'): Promise<Answered[]> {
  return burst(count, (index) => gateways[index % gateways.length]!.request({ method, path }));
}

async function scenarios(t: Test, store: string, processes: number): Promise<void> {
  const upstream = await startUpstream(t);
  const gateways = await startGateways(t, processes, {
    config: configOf({ upstream: upstream.url, store, routes: ROUTES }),
  });
  const first = gateways[0]!;
  const last = gateways[gateways.length - 1]!;

  await t.test('100 requests with one key make one upstream call and get 100 equal answers', async (t) => {
    upstream.on('/burst/a', answersAfter(2_000));
    const pending = toEach(gateways, 100, '/burst/a?id=1');
    await upstream.arrived(1, '/burst/a');
    t.equal((await metricsOf(gateways)).sum('oneflight_flights_in_progress', { route: 'burst' }), 1);
    const all = await pending;
    t.equal(upstream.count('/burst/a'), 1);
    allEqual(t, all, 200, '{"path":"/burst/a","call":1}');
    t.same(tally(all), { [LED]: 1, [COLLAPSED]: 99 });
    t.ok(slowestMs(all) < 2_000 + PROMPT_MS, `slowest ${slowestMs(all)} ms`);
    const metrics = await metricsOf(gateways);
    t.same(metrics.outcomes('burst'), { led: 1, collapsed: 99 });
    t.equal(metrics.sum('oneflight_upstream_calls_total', { route: 'burst' }), 1);
    t.equal(metrics.sum('oneflight_follower_wait_seconds_count'), 99);
    t.equal(metrics.sum('oneflight_flights_in_progress', { route: 'burst' }), 0);
  });

  await t.test('an upstream four times slower than the lease is still called once', async (t) => {
    upstream.on('/renewed', answersAfter(4_000));
    const post = (index: number) => gateways[index % gateways.length]!.post('/renewed', { id: 'one' }).answer;
    const early = burst(15, post);
    await delay(2_500);
    const late = burst(15, post);
    const all = [...(await early), ...(await late)];
    t.equal(upstream.count('/renewed'), 1);
    allEqual(t, all, 200, '{"path":"/renewed","call":1}');
    t.same(tally(all), { [LED]: 1, [COLLAPSED]: 29 });
    t.equal((await metricsOf(gateways)).sum('oneflight_leases_lost_total'), 0);
  });

  await t.test('followers of a second flight get its data, not that of the first', async (t) => {
    upstream.on('/again/a', answersAfter(300));
    allEqual(t, await toEach(gateways, 9, '/again/a?id=1'), 200, '{"path":"/again/a","call":1}');
    await delay(1_000);
    const second = await toEach(gateways, 9, '/again/a?id=1');
    t.equal(upstream.count('/again/a'), 2);
    allEqual(t, second, 200, '{"path":"/again/a","call":2}');
    t.same(tally(second), { [LED]: 1, [COLLAPSED]: 8 });
  });

  await t.test('with keep 0 a request after the flight leads one of its own, again and again', async (t) => {
    for (let round = 1; round <= 20; round += 1) {
      const { text, cacheStatus } = await gateways[round % processes]!.request({
        method: 'POST',
        path: '/again/b?id=1',
      });
      t.equal(text, `{"path":"/again/b","call":${round}}`);
      t.equal(cacheStatus, LED);
    }
    t.equal(upstream.count('/again/b'), 20);
  });

  await t.test('1,000 other keys do not wait for one that is in flight', async (t) => {
    const held = upstream.holds('/many/held');
    const waiting = first.send({ method: 'POST', path: '/many/held?id=0' });
    await held.arrived(1);
    upstream.on(
      '/many/free',
      answers(({ target }): Answer => ({ content: target })),
    );
    const all = await burst(1_000, (index) =>
      gateways[index % processes]!.request({ method: 'POST', path: `/many/free?id=${index}` }),
    );
    t.equal(upstream.count('/many/free'), 1_000);
    t.ok(all.every((answer, index) => answer.text === `/many/free?id=${index}` && answer.cacheStatus === LED));
    t.equal(upstream.count('/many/held'), 1);
    held.release();
    t.equal((await waiting.answer).status, 200);
  });

  await t.test('a response that is kept already is given at once, in every process', async (t) => {
    upstream.on(
      '/hit/a',
      answers({ status: 201, reason: 'Created', fields: ['X-Made', 'here'], content: 'token pair' }),
    );
    t.equal((await first.request({ method: 'POST', path: '/hit/a?id=1' })).cacheStatus, LED);
    const all = await toEach(gateways, 12, '/hit/a?id=1');
    t.equal(upstream.count('/hit/a'), 1);
    allEqual(t, all, 201, 'token pair');
    for (const answer of all) {
      t.match(answer.cacheStatus, HIT);
      const [, ttl] = /ttl=(\d+)/.exec(answer.cacheStatus ?? '') ?? [];
      t.ok(Number(ttl) >= 10 && Number(ttl) <= 20, `ttl ${ttl}`);
      t.match(answer.header('age'), /^\d+$/);
      t.equal(answer.header('x-made'), 'here');
      t.equal(answer.reason, 'Created');
    }
    t.ok(slowestMs(all) < PROMPT_MS, `slowest ${slowestMs(all)} ms`);
    t.same((await metricsOf(gateways)).outcomes('hit'), { led: 1, hit: 12 });
  });

  await t.test('what is kept is forgotten when its time is over', async (t) => {
    await first.request({ method: 'POST', path: '/brief/a?id=1' });
    t.match((await last.request({ method: 'POST', path: '/brief/a?id=1' })).cacheStatus, HIT);
    await delay(1_300);
    t.equal((await last.request({ method: 'POST', path: '/brief/a?id=1' })).cacheStatus, LED);
    t.equal(upstream.count('/brief/a'), 2);
  });

  await t.test('a safe method keeps nothing by default, but its followers share', async (t) => {
    const held = upstream.holds('/reads');
    const pending = toEach(gateways, 9, '/reads?id=1', 'GET');
    await held.arrived(1);
    await allCaughtUp(gateways);
    held.release();
    t.same(tally(await pending), { [LED]: 1, [COLLAPSED]: 8 });
    t.equal((await last.request({ path: '/reads?id=1' })).cacheStatus, LED);
    t.equal(upstream.count('/reads'), 2);
  });

  await t.test('followers are woken by the end of the flight, long before the poll', async (t) => {
    for (let round = 1; round <= 5; round += 1) {
      const held = upstream.holds(`/wake/${round}`);
      const leader = first.send({ method: 'POST', path: `/wake/${round}?id=1` });
      await held.arrived(1);
      const followers = toEach(gateways, 6, `/wake/${round}?id=1`);
      await allCaughtUp(gateways);
      const released = performance.now();
      held.release();
      const all = [await leader.answer, ...(await followers)];
      t.ok(performance.now() - released < PROMPT_MS, `woken after ${performance.now() - released} ms`);
      allEqual(t, all, 200, `{"path":"/wake/${round}","call":1}`);
      t.same(tally(all), { [LED]: 1, [COLLAPSED]: 6 });
    }
  });

  await t.test('callers, methods and conditions never share', async (t) => {
    const held = upstream.holds('/callers/a', (call) => ({
      content: [call.method, call.header('authorization'), call.header('cookie'), call.header('range')].join(),
    }));
    const kinds: [string, string[]][] = [
      ['GET', []],
      ['POST', []],
      ['PUT', []],
      ['GET', ['Authorization', 'Bearer a']],
      ['GET', ['Authorization', 'Bearer b']],
      ['GET', ['Cookie', 'session=a']],
      ['GET', ['Cookie', 'session=b']],
      ['GET', ['Range', 'bytes=0-1']],
      ['GET', ['If-None-Match', '"x"']],
    ];
    const pending = kinds.flatMap(([method, headers]) =>
      [first, last].map((gateway) => gateway.request({ method, path: '/callers/a?id=1', headers })),
    );
    await held.arrived(kinds.length);
    await allCaughtUp(gateways);
    t.equal(upstream.count('/callers/a'), kinds.length);
    held.release();
    const all = await Promise.all(pending);
    t.equal(upstream.count('/callers/a'), kinds.length);
    kinds.forEach(([method, headers], index) => {
      const wanted = [method, '', '', ''];
      const at = ['Authorization', 'Cookie', 'Range'].indexOf(headers[0] ?? '');
      if (at >= 0) wanted[at + 1] = headers[1]!;
      allEqual(t, all.slice(index * 2, index * 2 + 2), 200, wanted.join());
    });
    t.same(tally(all), { [LED]: kinds.length, [COLLAPSED]: kinds.length });
  });

  await t.test('an error that the upstream answered is shared with its flight and kept for nobody', async (t) => {
    for (const status of [404, 500, 503]) {
      const path = `/errors/${status}`;
      const held = upstream.holds(path, (call) => ({ status, reason: 'So it is', content: `call ${call.ordinal}` }));
      const pending = toEach(gateways, 6, `${path}?id=1`);
      await held.arrived(1);
      await allCaughtUp(gateways);
      held.release();
      const all = await pending;
      allEqual(t, all, status, 'call 1');
      t.equal(tally(all)[COLLAPSED], 5);
      const next = await last.request({ method: 'POST', path: `${path}?id=1` });
      allEqual(t, [next], status, 'call 2');
      t.match(next.cacheStatus, /^oneflight; fwd=miss/);
      t.equal(upstream.count(path), 2);
    }
  });

  await t.test('every kind of content is equal for leader, local and far follower, and kept', async (t) => {
    const big = Buffer.alloc(300_000, 'big');
    const binary = Buffer.from(Array.from({ length: 1024 }, (_, index) => index % 256));
    const kinds: Record<string, { method?: string; answer: Answer; content?: Buffer }> = {
      small: { answer: { content: '{"a":1}', fields: ['Content-Type', 'application/json'] } },
      big: { answer: { content: big }, content: big },
      binary: { answer: { content: binary }, content: binary },
      empty: { answer: { content: '' } },
      chunked: { answer: { content: 'in chunks', framing: 'chunked' } },
      'chunked-empty': { answer: { content: '', framing: 'chunked' } },
      'chunked-big': { answer: { content: big, framing: 'chunked' }, content: big },
      'until-close': { answer: { content: 'to the end', framing: 'until-close' } },
      none: { answer: { status: 204, reason: 'No Content', framing: 'none' } },
      head: { method: 'HEAD', answer: { fields: ['Content-Length', '1234', 'ETag', '"x"'], framing: 'none' } },
    };
    for (const [name, { method = 'POST', answer, content }] of Object.entries(kinds)) {
      const path = `/variants/${name}`;
      const wanted = content?.toString('latin1') ?? String(answer.framing === 'none' ? '' : answer.content);
      const held = upstream.holds(path, { ...answer, fields: [...(answer.fields ?? []), 'X-Kind', name] });
      const leader = first.request({ method, path: `${path}?id=1` });
      await held.arrived(1);
      const followers = [first, last].map((gateway) => gateway.request({ method, path: `${path}?id=1` }));
      await allCaughtUp([first, last]);
      held.release();
      const all = [await leader, ...(await Promise.all(followers))];
      for (const gateway of [first, last]) all.push(await gateway.request({ method, path: `${path}?id=1` }));
      allEqual(t, all, answer.status ?? 200, wanted);
      t.same(tally(all), { [LED]: 1, [COLLAPSED]: 2, 'oneflight; hit; ttl': 2 }, name);
      t.ok(
        all.every((one) => one.header('x-kind') === name),
        `${name}: fields`,
      );
      t.equal(upstream.count(path), 1, `${name}: one call`);
      if (name === 'head') t.ok(all.every((one) => one.header('content-length') === '1234'));
      if (name === 'none')
        t.ok(all.every((one) => one.header('content-length') === null && one.header('transfer-encoding') === null));
    }
  });

  await t.test('repeated fields keep their lines and order, and trailers come, for everybody who shares', async (t) => {
    const fields = [
      'Link',
      '</a>',
      'X-b',
      '1',
      'link',
      '</c>',
      'X-Latin',
      'caf\xe9',
      'Warning',
      '199 - "x"',
      'Trailer',
      'X-Sum',
    ];
    const held = upstream.holds('/variants/fields', {
      fields,
      framing: 'chunked',
      content: 'abc',
      trailers: ['X-Sum', '3'],
    });
    const ask = (gateway: Gateway) =>
      gateway.request({ method: 'POST', path: '/variants/fields?id=1', headers: ['TE', 'trailers'] });
    const pending = [ask(first)];
    await held.arrived(1);
    pending.push(ask(first), ask(last));
    await allCaughtUp([first, last]);
    held.release();
    const all = await Promise.all(pending);
    all.push(await ask(first), await ask(last));
    for (const answer of all) {
      t.same(answer.headerLines('link'), ['</a>', '</c>']);
      t.ok(answer.rawHeaders.includes('X-b') && answer.rawHeaders.includes('link'), 'spelling is kept');
      t.equal(answer.header('x-latin'), 'caf\xe9');
      t.equal(answer.text, 'abc');
      t.same(answer.trailers, ['X-Sum', '3'], answer.cacheStatus ?? '');
    }
    t.equal(upstream.count('/variants/fields'), 1);
  });

  await t.test('a flight that got an error is followed by one that gets the answer', async (t) => {
    upstream.on('/again/c', inTurn(answers({ status: 500, content: 'broken' }), answers({ content: 'mended' })));
    t.equal((await first.request({ method: 'POST', path: '/again/c?id=1' })).status, 500);
    t.equal((await last.request({ method: 'POST', path: '/again/c?id=1' })).text, 'mended');
  });
}

inEachStore(t, 3, scenarios);

t.test('what a burst costs in Redis grows with the processes, not with the requests', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  const upstream = await startUpstream(t);
  upstream.on('/thrift/a', answersAfter(700));
  const store = `{ kind: redis, url: "${redis.url}", commandTimeout: 2s }`;
  const gateways = await startGateways(t, 2, { config: configOf({ upstream: upstream.url, store, routes: ROUTES }) });
  const scripts = async () => {
    const stats = String(await redis.command('INFO', 'commandstats'));
    return [...stats.matchAll(/^cmdstat_(?:evalsha|eval|fcall|publish|get|hgetall):calls=(\d+)/gm)].reduce(
      (sum, [, calls]) => sum + Number(calls),
      0,
    );
  };
  const costs: number[] = [];
  for (const requests of [4, 200]) {
    const before = await scripts();
    const all = await toEach(gateways, requests, `/thrift/a?id=${requests}`);
    t.equal(tally(all)[LED], 1);
    costs.push((await scripts()) - before);
  }
  t.equal(upstream.count('/thrift/a'), 2);
  const [few = 0, many = 0] = costs;
  t.ok(few > 0 && many <= few + 4, `${few} commands for 4 requests, ${many} for 200`);
});
