/** `reject` is mutual exclusion: one at a time, and the key is given up on every way out. */

import http from 'node:http';
import t, { type Test } from 'tap';
import type { Answered } from '../support/client.js';
import { isProblem, PROMPT_MS, problemOf } from '../support/expect.js';
import { delay, Gate } from '../support/gate.js';
import { allCaughtUp, configOf, type Gateway, metricsOf, startGateways } from '../support/gateway.js';
import { inEachStore } from '../support/stores.js';
import {
  answers,
  answersAfter,
  answersGarbage,
  type Behaviour,
  cutsChunked,
  cutsContentLength,
  gated,
  hangsUpAfterReading,
  resetsAfterReading,
  stalls,
  startUnconnectable,
  startUpstream,
} from '../support/upstream.js';

t.setTimeout(120_000);

const LEASE_SECONDS = 20;
const unconnectable = await startUnconnectable(t);

async function scenarios(t: Test, store: string, processes: number): Promise<void> {
  const upstream = await startUpstream(t);
  const closed = await startUpstream(t);
  const route = (name: string, to: string, path: string, more = '') => `
  - name: ${name}
    match: { path: "${path}" }
    upstream: ${to}
    policy: reject
    key: [ { param: step } ]
    lease: ${LEASE_SECONDS}s
    ${more}`;
  const routes = [
    route('proceed', 'api', '/sessions/:step/proceed'),
    route('too-many', 'api', '/too-many/:step', 'conflict: { status: 429, retryAfter: 7 }'),
    route('closed', 'closed', '/closed/:step'),
    route('unconnectable', 'unconnectable', '/unconnectable/:step'),
    route('renewed', 'api', '/renewed/:step').replace('lease: 20s', 'lease: 1s'),
    route('lock-a', 'api', '/lock/a/:step', 'scope: lock'),
    route('lock-b', 'api', '/lock/b/:step', 'scope: lock'),
  ].join('');
  const upstreams = `
  closed: { url: "${closed.url}" }
  unconnectable: { url: "${unconnectable.url}", timeouts: { connect: 500ms, headers: 5s, body: 5s } }`;
  const timeouts = '{ connect: 2s, headers: 6s, body: 1s }';
  const config = configOf({ upstream: upstream.url, upstreams, timeouts, store, routes });
  const gateways = await startGateways(t, processes, { config });
  const first = gateways[0]!;
  const last = gateways[gateways.length - 1]!;
  const post = (gateway: Gateway, path: string) => gateway.request({ method: 'POST', path });

  /** The next request in each process is forwarded: nobody holds the key. */
  async function isFree(t: Test, path: string, calls: number): Promise<void> {
    upstream.on(path, answers({ content: 'mine' }));
    for (const [index, gateway] of [last, first].entries()) {
      const next = await post(gateway, path);
      t.equal(next.text, 'mine', `free (${problemOf(next)})`);
      t.equal(upstream.count(path), calls + index + 1);
    }
  }

  await t.test('a duplicate is told at once that the first is in flight, and is free to try afterwards', async (t) => {
    const path = '/sessions/one/proceed';
    const held = upstream.holds(path);
    const leader = post(first, path);
    await held.arrived(1);
    for (const gateway of [first, last]) {
      const answer = await post(gateway, path);
      isProblem(t, answer, 'in-flight', LEASE_SECONDS);
      t.equal(answer.status, 409);
      t.match(answer.cacheStatus, /^oneflight(;|$)/);
      t.ok(answer.elapsedMs < PROMPT_MS);
    }
    t.equal(upstream.count(path), 1, 'neither was forwarded');
    held.release();
    const answer = await leader;
    t.equal(answer.text, `{"path":"${path}","call":1}`);
    t.match(answer.cacheStatus, /^oneflight; fwd=miss/);
    await isFree(t, path, 1);
    const metrics = await metricsOf(gateways);
    t.same(metrics.outcomes('proceed'), { led: 3, 'in-flight': 2 });
    t.equal(metrics.sum('oneflight_upstream_calls_total', { route: 'proceed' }), 3);
  });

  await t.test('status and Retry-After are as configured', async (t) => {
    const held = upstream.holds('/too-many/1');
    const leader = post(first, '/too-many/1');
    await held.arrived(1);
    const answer = await post(last, '/too-many/1');
    isProblem(t, answer, 'in-flight');
    t.equal(answer.status, 429);
    t.equal(answer.header('retry-after'), '7');
    held.release();
    t.equal((await leader).status, 200);
    t.equal(upstream.count('/too-many/1'), 1);
  });

  await t.test('of 60 at once never two are upstream at the same time', async (t) => {
    const path = '/sessions/many/proceed';
    let now = 0;
    let most = 0;
    upstream.on(path, async (call) => {
      most = Math.max(most, ++now);
      await delay(30);
      now -= 1;
      await answers({ content: 'done' })(call);
    });
    const all: Answered[] = [];
    await Promise.all(
      Array.from({ length: 60 }, async (_, index) => {
        for (let turn = 0; turn < 3; turn += 1) all.push(await post(gateways[index % processes]!, path));
      }),
    );
    const done = all.filter((answer) => answer.text === 'done');
    t.equal(most, 1);
    t.ok(done.length >= 1);
    t.equal(upstream.count(path), done.length);
    for (const answer of all) if (!done.includes(answer)) isProblem(t, answer, 'in-flight', LEASE_SECONDS);
  });

  await t.test('other keys are not held up, whatever the method the same key is', async (t) => {
    const held = upstream.holds('/sessions/a/proceed');
    const leader = post(first, '/sessions/a/proceed');
    await held.arrived(1);
    t.equal((await post(last, '/sessions/b/proceed')).status, 200);
    for (const method of ['GET', 'PATCH', 'DELETE']) {
      isProblem(t, await last.request({ method, path: '/sessions/a/proceed' }), 'in-flight', LEASE_SECONDS);
    }
    held.release();
    t.equal((await leader).status, 200);
    t.equal(upstream.count('/sessions/a/proceed'), 1);
  });

  await t.test('no spelling of a path slips past its rule', async (t) => {
    const held = upstream.holds('/sessions/s/proceed');
    const leader = post(first, '/sessions/s/proceed');
    await held.arrived(1);
    const calls = upstream.count();
    for (const path of [
      '//sessions/s/proceed',
      '/./sessions/s/proceed',
      '/x/../sessions//s/proceed',
      '/session%73/s/%70roceed',
      '/sessions/%73/proceed?a',
    ]) {
      isProblem(t, await post(last, path), 'in-flight', LEASE_SECONDS);
    }
    t.equal(upstream.count(), calls, 'none was forwarded');
    held.release();
    t.equal((await leader).status, 200);
  });

  await t.test('routes of one scope lock each other', async (t) => {
    const held = upstream.holds('/lock/a/1');
    const leader = post(first, '/lock/a/1');
    await held.arrived(1);
    isProblem(t, await post(last, '/lock/b/1'), 'in-flight', LEASE_SECONDS);
    t.equal(upstream.count('/lock/b/1'), 0);
    t.equal((await post(last, '/lock/b/2')).status, 200);
    held.release();
    t.equal((await leader).status, 200);
    t.equal((await post(last, '/lock/b/1')).status, 200);
  });

  await t.test('the lease is renewed while the upstream works', async (t) => {
    const held = upstream.holds('/renewed/1');
    const leader = post(first, '/renewed/1');
    await held.arrived(1);
    for (let look = 0; look < 5; look += 1) {
      await delay(500);
      isProblem(t, await post(last, '/renewed/1'), 'in-flight', 1);
    }
    held.release();
    t.equal((await leader).status, 200);
    t.equal(upstream.count('/renewed/1'), 1);
    t.equal((await metricsOf(gateways)).sum('oneflight_leases_lost_total'), 0);
  });

  await t.test('the key is given up on every way out', async (t) => {
    const open = new Gate();
    open.open();
    const ways: Record<string, { ends: Behaviour; wanted: (answer: Answered) => boolean }> = {
      ok: { ends: answers({ content: 'ok' }), wanted: ({ text }) => text === 'ok' },
      empty: { ends: answers({ status: 204, framing: 'none' }), wanted: ({ status }) => status === 204 },
      404: { ends: answers({ status: 404 }), wanted: ({ status }) => status === 404 },
      500: { ends: answers({ status: 500 }), wanted: ({ status }) => status === 500 },
      reset: { ends: resetsAfterReading, wanted: (answer) => problemOf(answer) === 'outcome-unknown' },
      'hang-up': { ends: hangsUpAfterReading, wanted: (answer) => problemOf(answer) === 'outcome-unknown' },
      stall: { ends: stalls, wanted: (answer) => problemOf(answer) === 'outcome-unknown' },
      garbage: { ends: answersGarbage, wanted: ({ status }) => status === 502 || status === 504 },
      'cut-length': { ends: cutsContentLength(open), wanted: ({ cut }) => cut },
      'cut-chunked': { ends: cutsChunked(open), wanted: ({ cut }) => cut },
    };
    await Promise.all(
      Object.entries(ways).map(async ([name, { ends, wanted }]) => {
        const path = `/sessions/way-${name}/proceed`;
        const gate = new Gate();
        upstream.on(path, gated(gate, ends));
        const leader = post(first, path);
        await upstream.arrived(1, path);
        isProblem(t, await post(last, path), 'in-flight', LEASE_SECONDS);
        gate.open();
        const answer = await leader;
        t.ok(wanted(answer), `${name}: ${answer.status} ${problemOf(answer)}`);
        t.equal(upstream.count(path), 1, name);
        await isFree(t, path, 1);
      }),
    );
  });

  await t.test('refused and not connected: nothing was sent and the key is free', async (t) => {
    await closed.refuse();
    for (const gateway of [first, last, first]) isProblem(t, await post(gateway, '/closed/1'), 'upstream-unreachable');
    await closed.listen();
    t.equal((await post(last, '/closed/1')).status, 200);
    t.equal(closed.count(), 1);
    for (const gateway of [first, last]) isProblem(t, await post(gateway, '/unconnectable/1'), 'upstream-timeout');
  });

  await t.test('the client leaves: the upstream call goes on, and only its end frees the key', async (t) => {
    const path = '/sessions/left/proceed';
    const held = upstream.holds(path);
    const leader = first.send({ method: 'POST', path });
    const call = await held.arrived(1);
    leader.leave();
    await t.rejects(leader.answer);
    await allCaughtUp(gateways);
    t.equal(call.aborted, false, 'the call goes on');
    for (const gateway of [first, last]) isProblem(t, await post(gateway, path), 'in-flight', LEASE_SECONDS);
    held.release();
    await call.over;
    await first.caughtUp();
    await isFree(t, path, 1);
    t.equal(call.aborted, false);
  });

  await t.test('who repeats right after the answer is never rejected', async (t) => {
    const path = '/sessions/again/proceed';
    upstream.on(path, answersAfter(0));
    const agents = gateways.map(() => new http.Agent({ keepAlive: true, maxSockets: 1 }));
    t.teardown(() => {
      for (const agent of agents) agent.destroy();
    });
    for (let turn = 0; turn < 200; turn += 1) {
      const at = turn % processes;
      const { status } = await gateways[at]!.request({ method: 'POST', path, agent: agents[at]! });
      if (status !== 200) t.fail(`turn ${turn}: ${status}`);
    }
    t.equal(upstream.count(path), 200);
  });

  await t.test('no flight is left over', async (t) => {
    t.equal((await metricsOf(gateways)).sum('oneflight_flights_in_progress'), 0);
  });
}

inEachStore(t, 2, scenarios);
