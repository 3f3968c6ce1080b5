/** Clients that leave, that are slow, and that use their connection for more than one request. */

import t, { type Test } from 'tap';
import { burst, RawClient } from '../support/client.js';
import { allEqual, COLLAPSED, HIT, isProblem, LED, PROMPT_MS, tally } from '../support/expect.js';
import { Gate, within } from '../support/gate.js';
import { allCaughtUp, configOf, type Gateway, startGateway, startGateways } from '../support/gateway.js';
import { startRedis } from '../support/redis.js';
import { answers, chunkedInParts, startUpstream } from '../support/upstream.js';

t.setTimeout(120_000);

const redis = await startRedis();
t.teardown(() => redis.stop());
const upstream = await startUpstream(t);
const routes = `
  - name: unsafe
    match: { methods: [POST], path: /unsafe/* }
    policy: coalesce
    key: [ { request: path }, { query: id } ]
    lease: 30s
    wait: { max: 25s, poll: 15s }
    keep: 20s
  - name: impatient
    match: { methods: [POST], path: /impatient/* }
    policy: coalesce
    key: [ { request: path }, { query: id } ]
    wait: 700ms
    keep: 20s
  - name: safe
    match: { methods: [GET], path: /safe/* }
    policy: coalesce
    key: [ { request: path }, { query: id } ]
    lease: 30s
    wait: { max: 25s, poll: 15s }`;
const config = (store: string) => configOf({ upstream: upstream.url, store, routes });
const shared = await startGateways(t, 2, {
  config: config(`{ kind: redis, url: "${redis.url}", commandTimeout: 2s }`),
});
const single = await startGateway(t, { config: config('{ kind: memory }') });

/** Where the leader is and where its followers are. */
const places: [string, Gateway, Gateway][] = [
  ['one process in memory', single, single],
  ['one process with Redis', shared[0]!, shared[0]!],
  ['two processes', shared[0]!, shared[1]!],
];

for (const [name, here, there] of places) {
  t.test(`leaving: ${name}`, (t) => leaving(t, name.replaceAll(' ', '-'), here, there));
}

async function leaving(t: Test, name: string, here: Gateway, there: Gateway): Promise<void> {
  await t.test("the leader's client leaves: its followers get the answer, and so does who comes later", async (t) => {
    const path = `/unsafe/leader-${name}`;
    const held = upstream.holds(path);
    const leader = here.send({ method: 'POST', path: `${path}?id=1` });
    const call = await held.arrived(1);
    const followers = [here, there, there].map((gateway) => gateway.request({ method: 'POST', path: `${path}?id=1` }));
    await allCaughtUp([here, there]);
    leader.leave();
    await t.rejects(leader.answer);
    await allCaughtUp([here, there]);
    t.equal(call.aborted, false, 'the upstream call goes on');
    const released = performance.now();
    held.release();
    const all = await Promise.all(followers);
    t.ok(performance.now() - released < PROMPT_MS);
    allEqual(t, all, 200, `{"path":"${path}","call":1}`);
    t.same(tally(all), { [COLLAPSED]: 3 });
    t.match((await there.request({ method: 'POST', path: `${path}?id=1` })).cacheStatus, HIT);
    t.equal(upstream.count(path), 1);
  });

  await t.test('everybody leaves an unsafe request: the call goes on and is recorded', async (t) => {
    const path = `/unsafe/all-${name}`;
    const held = upstream.holds(path);
    const clients = [here, here, there].map((gateway) => gateway.send({ method: 'POST', path: `${path}?id=1` }));
    const call = await held.arrived(1);
    await allCaughtUp([here, there]);
    for (const client of clients) client.leave();
    for (const client of clients) await t.rejects(client.answer);
    await allCaughtUp([here, there]);
    t.equal(call.aborted, false, 'not aborted');
    const later = there.request({ method: 'POST', path: `${path}?id=1` });
    await there.caughtUp();
    held.release();
    allEqual(t, [await later], 200, `{"path":"${path}","call":1}`);
    // The push can be faster than the reply to the leader's process, where the flight is open until then.
    await here.caughtUp();
    t.match((await here.request({ method: 'POST', path: `${path}?id=1` })).cacheStatus, HIT);
    t.equal(upstream.count(path), 1);
    t.equal(call.aborted, false);
  });

  await t.test("a follower's client leaves: only its own request ends", async (t) => {
    const path = `/unsafe/follower-${name}`;
    const held = upstream.holds(path);
    const leader = here.send({ method: 'POST', path: `${path}?id=1` });
    await held.arrived(1);
    const followers = [here, here, there, there].map((gateway) =>
      gateway.send({ method: 'POST', path: `${path}?id=1` }),
    );
    await allCaughtUp([here, there]);
    const stay = [followers[1]!, followers[3]!];
    for (const left of [followers[0]!, followers[2]!]) {
      left.leave();
      await t.rejects(left.answer);
    }
    await allCaughtUp([here, there]);
    held.release();
    const all = await Promise.all([leader, ...stay].map((sent) => sent.answer));
    allEqual(t, all, 200, `{"path":"${path}","call":1}`);
    t.same(tally(all), { [LED]: 1, [COLLAPSED]: 2 });
    t.equal(upstream.count(path), 1);
  });

  await t.test('a follower that waited long enough is told so, and the flight goes on', async (t) => {
    const path = `/impatient/${name}`;
    const held = upstream.holds(path);
    const leader = here.request({ method: 'POST', path: `${path}?id=1` });
    await held.arrived(1);
    const all = await burst(4, (index) => [here, there][index % 2]!.request({ method: 'POST', path: `${path}?id=1` }));
    for (const answer of all) {
      isProblem(t, answer, 'wait-timeout');
      t.ok(answer.elapsedMs >= 650 && answer.elapsedMs < 700 + PROMPT_MS, `after ${Math.round(answer.elapsedMs)} ms`);
    }
    const patient = there.request({ method: 'POST', path: `${path}?id=1` });
    await there.caughtUp();
    held.release();
    allEqual(t, [await leader, await patient], 200, `{"path":"${path}","call":1}`);
    t.match((await there.request({ method: 'POST', path: `${path}?id=1` })).cacheStatus, HIT);
    t.equal(upstream.count(path), 1);
  });

  await t.test('everybody leaves a safe request: the upstream call is aborted and the key is free', async (t) => {
    const path = `/safe/all-${name}`;
    const held = upstream.holds(path);
    const leader = here.send({ path: `${path}?id=1` });
    const call = await held.arrived(1);
    const follower = here.send({ path: `${path}?id=1` });
    await here.caughtUp();
    leader.leave();
    await t.rejects(leader.answer);
    await here.caughtUp();
    t.equal(call.aborted, false, 'one is still there');
    follower.leave();
    await t.rejects(follower.answer);
    await within(PROMPT_MS, 'the upstream call being aborted', call.closed);
    t.equal(call.aborted, true);
    const next = there.request({ path: `${path}?id=1` });
    await held.arrived(2);
    held.release();
    const answer = await next;
    t.equal(answer.cacheStatus, LED, 'the next request leads');
    t.equal(answer.text, `{"path":"${path}","call":2}`);
    t.equal(upstream.count(path), 2);
  });

  await t.test(
    "a safe request's leader leaves while somebody waits in another process: the flight goes on",
    async (t) => {
      const path = `/safe/waits-${name}`;
      const held = upstream.holds(path);
      const leader = here.send({ path: `${path}?id=1` });
      const call = await held.arrived(1);
      const follower = there.request({ path: `${path}?id=1` });
      await there.caughtUp();
      leader.leave();
      await t.rejects(leader.answer);
      await allCaughtUp([here, there]);
      t.equal(call.aborted, false);
      held.release();
      allEqual(t, [await follower], 200, `{"path":"${path}","call":1}`);
      t.equal(upstream.count(path), 1);
    },
  );

  await t.test("the leader's client leaves in the middle of the content: followers get all of it", async (t) => {
    const path = `/unsafe/middle-${name}`;
    const gate = new Gate();
    upstream.on(path, chunkedInParts([Buffer.alloc(50_000, 'a'), Buffer.alloc(50_000, 'b')], gate));
    const leader = here.send({ method: 'POST', path: `${path}?id=1` });
    await upstream.arrived(1, path);
    const followers = [here, there].map((gateway) => gateway.request({ method: 'POST', path: `${path}?id=1` }));
    await leader.started;
    await allCaughtUp([here, there]);
    leader.leave();
    t.equal((await leader.answer).cut, true);
    await here.caughtUp();
    gate.open();
    allEqual(t, await Promise.all(followers), 200, 'a'.repeat(50_000) + 'b'.repeat(50_000));
    t.equal(upstream.count(path), 1);
  });
}

t.test("the leader's client breaks off its upload: the flight fails at once and the key is free", async (t) => {
  for (const [name, here, there] of places) {
    const path = `/unsafe/broken-${name.replaceAll(' ', '-')}`;
    const leader = await RawClient.connect(here.url);
    leader.write(`POST ${path}?id=1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n`);
    await upstream.arrived(1, path);
    const followers = burst(4, (index) => [here, there][index % 2]!.request({ method: 'POST', path: `${path}?id=1` }));
    await allCaughtUp([here, there]);
    leader.close();
    const broken = performance.now();
    for (const answer of await followers) isProblem(t, answer, 'leader-failed');
    t.ok(performance.now() - broken < PROMPT_MS, name);
    const [call] = upstream.callsOf(path);
    await within(PROMPT_MS, 'the upstream seeing it', call!.closed);
    t.equal((await call!.received).whole, false, 'half an upload is never passed off as a whole one');
    const next = await there.request({ method: 'POST', path: `${path}?id=1` });
    t.equal(next.cacheStatus, LED);
    t.equal(upstream.count(path), 2);
  }
});

t.test('a follower whose content nobody needs gets its answer, and its connection stays in step', async (t) => {
  for (const [name, here, there] of places) {
    const path = `/unsafe/unread-${name.replaceAll(' ', '-')}`;
    const held = upstream.holds(path);
    const leader = here.request({ method: 'POST', path: `${path}?id=1`, body: 'mine' });
    await held.arrived(1);
    const client = await RawClient.connect(there.url);
    t.teardown(() => client.close());
    const content = Buffer.alloc(3_000_000, 'u');
    client.write(`POST ${path}?id=1 HTTP/1.1\r\nHost: a\r\nContent-Length: ${content.length}\r\n\r\n`);
    client.write(content);
    await allCaughtUp([here, there]);
    held.release();
    const all = [await leader, (await client.answer())!];
    allEqual(t, all, 200, `{"path":"${path}","call":1}`);
    client.write(`POST ${path}?id=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n`);
    t.match((await client.answer())?.cacheStatus ?? '', HIT, name);
    t.equal(upstream.count(path), 1);
  }
});

t.test('a client that does not read slows nobody', async (t) => {
  for (const [name, here, there] of places) {
    const path = `/unsafe/slow-${name.replaceAll(' ', '-')}`;
    const content = Buffer.alloc(6 * 1024 * 1024, 'x');
    const held = upstream.holds(path, { content });
    const slow = await RawClient.connect(here.url);
    t.teardown(() => slow.close());
    slow.socket.pause();
    slow.write(`POST ${path}?id=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n`);
    await held.arrived(1);
    const followers = [here, there].map((gateway) => gateway.request({ method: 'POST', path: `${path}?id=1` }));
    await allCaughtUp([here, there]);
    held.release();
    const all = await within(10_000, 'the followers', Promise.all(followers));
    allEqual(t, all, 200, content.toString());
    slow.socket.resume();
    t.equal((await slow.answer())?.body.length, content.length, 'and it gets everything when it reads at last');
    t.equal(upstream.count(path), 1);
  }
});

t.test('requests on one connection are answered one after the other', async (t) => {
  for (const gateway of [single, shared[0]!]) {
    const where = gateway === single ? 'memory' : 'redis';
    const client = await RawClient.connect(gateway.url);
    t.teardown(() => client.close());
    const held = upstream.holds(`/unsafe/pipe-a-${where}`);
    upstream.on(`/unsafe/pipe-b-${where}`, answers({ content: 'b' }));
    const post = (path: string) => `POST ${path}?id=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}`;
    // The third is a duplicate of the first: it may follow it or find its response, but it must not block the line.
    const paths = [`/unsafe/pipe-a-${where}`, `/unsafe/pipe-b-${where}`, `/unsafe/pipe-a-${where}`, '/plain'];
    client.write(paths.map(post).join(''));
    await held.arrived(1);
    held.release();
    const all = [];
    for (const path of paths) {
      const answer = await client.answer();
      t.equal(answer?.status, 200, path);
      all.push(answer?.text);
    }
    t.equal(all[0], `{"path":"/unsafe/pipe-a-${where}","call":1}`);
    t.equal(all[1], 'b');
    t.equal(all[2], all[0]);
    t.match(all[3], /"path":"\/plain"/);
    t.equal(upstream.count(`/unsafe/pipe-a-${where}`), 1);
    client.write(post(`/unsafe/pipe-a-${where}`));
    t.match((await client.answer())?.cacheStatus ?? '', HIT, 'the connection is still good');
  }
});
