import http from 'node:http';
import t from 'tap';
import { StoreUnavailable } from '../../src/store/store.js';
import { type Answered, burst, RawClient, request, send } from '../support/client.js';
import { COLLAPSED, isProblem } from '../support/expect.js';
import { delay, eventually, Gate } from '../support/gate.js';
import { startInProcess, storeWith } from '../support/in-process.js';
import { coalescePolicy, rejectPolicy, ruleOf } from '../support/rules.js';
import { gated, ordinalAnswer, resetsAfterReading, startUpstream } from '../support/upstream.js';

const down = () => Promise.reject(new StoreUnavailable('down for the test'));

t.test('content that the key does not need goes upstream whole, streamed', async (t) => {
  const upstream = await startUpstream(t);
  const keep = { kind: 'fixed', keepMs: 0 } as const;
  const rules = [ruleOf('c', '/c', coalescePolicy({ keep })), ruleOf('r', '/r', rejectPolicy())];
  const gateway = await startInProcess(t, { upstreamUrl: upstream.url, rules, store: storeWith(() => ({})) });
  for (const path of ['/c', '/r']) {
    upstream.on(path, async (call) => {
      await call.received;
      call.answer({ content: 'read' });
    });
    // Small on a cold and a warm connection, large, and in chunks: each of them was empty upstream once.
    for (const [size, chunked] of [
      [14, false],
      [14, false],
      [1_000_000, false],
      [1_000_000, true],
      [5, true],
    ] as const) {
      const body = Buffer.alloc(size, `${size}`);
      const headers = chunked ? ['Transfer-Encoding', 'chunked'] : [];
      const answer = await request(gateway.url, { method: 'PUT', path, body, headers });
      const call = upstream.calls.at(-1);
      t.equal(answer.status, 200);
      t.equal(call?.method, 'PUT');
      t.ok(call?.content?.equals(body), `${path}: ${size} bytes${chunked ? ', chunked' : ''}`);
    }
  }
});

t.test('a claim whose answer comes after its own lease sends nothing', async (t) => {
  const upstream = await startUpstream(t);
  const store = storeWith((real) => ({
    // As seen by a process that was frozen between the question and the answer.
    claim: async (claim) => {
      const result = await real.claim(claim);
      await new Promise((resolve) => setTimeout(resolve, claim.leaseMs + 50));
      return result;
    },
  }));
  const rules = [ruleOf('r', '/a', coalescePolicy({ leaseMs: 200 }))];
  const gateway = await startInProcess(t, { upstreamUrl: upstream.url, rules, store });
  const answers = await burst(3, () => request(gateway.url, { method: 'POST', path: '/a' }));
  for (const answer of answers) isProblem(t, answer, 'leader-failed', 1);
  t.equal(upstream.count(), 0);
  t.equal(gateway.inProgress(), 0);
});

t.test('nobody joins a leader whose lease is lost: the next request asks the store', async (t) => {
  const upstream = await startUpstream(t);
  const held = upstream.holds('/a');
  let claims = 0;
  const store = storeWith((real) => ({
    claim: (claim) => {
      claims++;
      return real.claim(claim);
    },
    renew: async (lease) => {
      await real.release(lease, { unlessAwaited: false });
      return real.renew(lease);
    },
  }));
  const rules = [ruleOf('r', '/a', coalescePolicy({ leaseMs: 300 }))];
  const gateway = await startInProcess(t, { upstreamUrl: upstream.url, rules, store });
  const first = request(gateway.url, { path: '/a' });
  await held.arrived(1);
  await eventually('the lease is lost', () => gateway.lost() === 1);
  const second = request(gateway.url, { path: '/a' });
  await held.arrived(2);
  held.release();
  t.same([ordinalOf(await first), ordinalOf(await second)], [1, 2], 'each has its own answer');
  t.equal(claims, 2);
  t.equal(upstream.count(), 2);
});

t.test('a settlement that the store did not take is tried again within the lease', async (t) => {
  const upstream = await startUpstream(t);
  let refusals = 2;
  const taken = new Gate();
  const store = storeWith((real) => ({
    complete: async (lease, settlement, keepMs) => {
      if (refusals-- > 0) return down();
      const answer = await real.complete(lease, settlement, keepMs);
      taken.open();
      return answer;
    },
  }));
  const rules = [ruleOf('r', '/a', coalescePolicy({ leaseMs: 10_000 }))];
  const gateway = await startInProcess(t, { upstreamUrl: upstream.url, rules, store });
  const first = await request(gateway.url, { method: 'POST', path: '/a' });
  t.equal(first.status, 200);
  await taken.opened;
  const second = await request(gateway.url, { method: 'POST', path: '/a' });
  t.match(second.cacheStatus, /^oneflight; hit/);
  t.equal(upstream.count(), 1);
  t.equal(gateway.unsettled(), 0);
});

t.test('a settlement that never reaches the store is given up with the lease, and said', async (t) => {
  const upstream = await startUpstream(t);
  const store = storeWith(() => ({ complete: down }));
  const rules = [ruleOf('r', '/a', coalescePolicy({ leaseMs: 500 }))];
  const gateway = await startInProcess(t, { upstreamUrl: upstream.url, rules, store });
  t.equal((await request(gateway.url, { path: '/a' })).status, 200);
  await eventually('the flight counts as unsettled', () => gateway.unsettled() === 1);
});

t.test('a key is given back before the client can repeat: nobody is refused by its own request', async (t) => {
  const upstream = await startUpstream(t);
  const rules = [ruleOf('r', '/a', rejectPolicy())];
  const gateway = await startInProcess(t, { upstreamUrl: upstream.url, rules, store: storeWith(() => ({})) });
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  t.teardown(() => agent.destroy());
  for (let i = 0; i < 300; i++) {
    const answer = await request(gateway.url, { method: 'POST', path: '/a', agent });
    if (answer.status !== 200) t.fail(`repeat ${i} was answered ${answer.status}`);
  }
  t.equal(upstream.count(), 300);
});

t.test('a lease that passed unnoticed is not joined either', async (t) => {
  const upstream = await startUpstream(t);
  const held = upstream.holds('/a');
  // The store never answers a renewal: as for a process that was frozen and has not come to its timers yet.
  const store = storeWith(() => ({ renew: () => new Promise(() => {}) }));
  const rules = [ruleOf('r', '/a', coalescePolicy({ leaseMs: 300 }))];
  const gateway = await startInProcess(t, { upstreamUrl: upstream.url, rules, store });
  const first = request(gateway.url, { path: '/a' });
  await held.arrived(1);
  await delay(400);
  const second = request(gateway.url, { path: '/a' });
  await held.arrived(2);
  held.release();
  t.same([ordinalOf(await first), ordinalOf(await second)], [1, 2]);
});

t.test('a client that leaves while the store is asked leads nothing', async (t) => {
  const upstream = await startUpstream(t);
  const settled: string[] = [];
  const asked = new Gate();
  const answer = new Gate();
  const freed = new Gate();
  const store = storeWith((real) => ({
    claim: async (claim) => {
      asked.open();
      await answer.opened;
      return real.claim(claim);
    },
    complete: async (lease, settlement, keepMs) => {
      const held = await real.complete(lease, settlement, keepMs);
      settled.push(settlement.kind);
      freed.open();
      return held;
    },
  }));
  const rules = [ruleOf('r', '/a', coalescePolicy())];
  const gateway = await startInProcess(t, { upstreamUrl: upstream.url, rules, store });
  const sent = send(gateway.url, { method: 'POST', path: '/a' });
  sent.answer.catch(() => {});
  await asked.opened;
  sent.leave();
  await gateway.over(1);
  answer.open();
  await freed.opened;
  t.same(settled, ['withdrawn']);
  t.equal(upstream.count(), 0);
});

t.test('a client that leaves while the store is asked keeps no leader elsewhere at work', async (t) => {
  const upstream = await startUpstream(t);
  const asked = new Gate();
  const answer = new Gate();
  const joined = new Gate();
  let freed = async (): Promise<string> => 'nobody leads';
  const store = storeWith((real) => ({
    claim: async (claim) => {
      const elsewhere = await real.claim({ ...claim, flight: 'elsewhere', join: false });
      if (elsewhere.kind === 'leader') freed = () => real.release(elsewhere.lease, { unlessAwaited: true });
      asked.open();
      await answer.opened;
      const result = await real.claim(claim);
      joined.open();
      return result;
    },
  }));
  const rules = [ruleOf('r', '/a', coalescePolicy())];
  const gateway = await startInProcess(t, { upstreamUrl: upstream.url, rules, store });
  const sent = send(gateway.url, { path: '/a' });
  sent.answer.catch(() => {});
  await asked.opened;
  sent.leave();
  await gateway.over(1);
  answer.open();
  await joined.opened;
  await eventually('nobody waits for the leader', async () => (await freed()) === 'held');
});

t.test('an election promotes exactly one follower, as often as the rule allows', async (t) => {
  const upstream = await startUpstream(t);
  // All of the burst are there before the first leader fails: who comes after the last election is a new leader.
  const joined = new Gate();
  upstream.on('/a', gated(joined, resetsAfterReading));
  const policy = coalescePolicy({ onLeaderFailure: { kind: 'elect', elections: 2 } });
  const gateway = await startInProcess(t, {
    upstreamUrl: upstream.url,
    rules: [ruleOf('r', '/a', policy)],
    store: storeWith(() => ({})),
  });
  const asked = burst(10, () => request(gateway.url, { method: 'POST', path: '/a' }));
  await eventually('all of them being there', () => gateway.waiting() === 10);
  joined.open();
  const answers = await asked;
  t.equal(upstream.count(), 3, 'one leader and two elections');
  t.equal(answers.filter((answer) => answer.status === 504).length, 3, 'each leader is told of its own call');
  t.equal(answers.filter((answer) => answer.status === 503).length, 7);
});

t.test('requests that differ in what Vary names have flights of their own, one for each variant', async (t) => {
  const upstream = await startUpstream(t);
  const held = upstream.holds('/a', (call) => ({ fields: ['Vary', 'Accept'], content: call.header('accept') ?? '' }));
  const rules = [ruleOf('r', '/a', coalescePolicy({ keep: { kind: 'fixed', keepMs: 60_000 } }))];
  const gateway = await startInProcess(t, { upstreamUrl: upstream.url, rules, store: storeWith(() => ({})) });
  const ask = (accept: string) => request(gateway.url, { path: '/a', headers: ['Accept', accept] });
  const leader = ask('a');
  await held.arrived(1);
  const others = ['a', 'b', 'b', 'c', 'b', 'a'].map(ask);
  held.release();
  t.equal((await leader).text, 'a');
  t.same(
    (await Promise.all(others)).map((answer) => answer.text),
    ['a', 'b', 'b', 'c', 'b', 'a'],
  );
  t.equal(upstream.count(), 3);
  const later = await Promise.all(['a', 'b', 'c'].map(ask));
  t.same(
    later.map((answer) => answer.text),
    ['a', 'b', 'c'],
  );
  for (const answer of later) t.match(answer.cacheStatus, /^oneflight; hit/);
  t.equal(upstream.count(), 3, 'kept, each under its own variant');
});

t.test('a request that was sent before the end of a flight is answered by it, even if it is read after', async (t) => {
  const upstream = await startUpstream(t);
  const late: RawClient[] = [];
  upstream.on('/a', async (call) => {
    await call.received;
    call.answer(ordinalAnswer(call));
    // In the sockets' buffers now: some are read by the gateway after the upstream's answer, before it is published.
    for (const client of late) client.write('GET /a HTTP/1.1\r\nHost: a\r\n\r\n');
  });
  const gateway = await startInProcess(t, {
    upstreamUrl: upstream.url,
    rules: [ruleOf('r', '/a', coalescePolicy())],
    store: storeWith(() => ({})),
  });
  for (let i = 0; i < 20; i++) late.push(await RawClient.connect(gateway.url));
  const answers = [await request(gateway.url, { path: '/a' })];
  for (const client of late) answers.push((await client.answer()) as Answered);
  for (const client of late) client.close();
  t.equal(upstream.count(), 1);
  t.same(answers.map(ordinalOf), Array(21).fill(1));
  t.equal(answers.filter((answer) => answer.cacheStatus === COLLAPSED).length, 20);
});

t.test('a foreign flight is followed once, however often the store is asked about it', async (t) => {
  const upstream = await startUpstream(t);
  const ref = { key: 'k', flight: 'theirs', leaseLeftMs: 0, ageMs: 0, election: 0, material: null };
  const asked = { claims: 0, waits: 0, owed: 0, readings: 0 };
  const over = new Gate();
  const response = { status: 200, reason: 'OK', fields: [], trailers: [], vary: { names: [], digest: '' } };
  const store = storeWith(() => ({
    claim: async () => {
      asked.claims += 1;
      return { kind: 'follower', flight: ref, expects: 'shareable' };
    },
    settled: async (_flight, { signal }) => {
      if (signal.aborted) asked.owed += 1;
      else asked.waits += 1;
      signal.throwIfAborted();
      await over.opened;
      return { kind: 'response', response: { ...response, content: Buffer.from('theirs') } };
    },
    relayed: () => {
      asked.readings += 1;
      return { resume: () => {} };
    },
  }));
  const rules = [ruleOf('r', '/a', coalescePolicy({ stream: 'to-all-processes' }))];
  const gateway = await startInProcess(t, { upstreamUrl: upstream.url, rules, store });
  const answers: Promise<Answered>[] = [];
  // What is known of the flight is out of date as soon as it is known.
  for (let i = 1; i <= 5; i += 1) {
    answers.push(request(gateway.url, { path: '/a' }));
    await eventually('it is asked about', () => asked.claims === i);
  }
  await eventually('all wait', () => gateway.waiting() === 5 && asked.owed === 4);
  t.same(asked, { claims: 5, waits: 1, owed: 4, readings: 1 });
  over.open();
  for (const answer of await Promise.all(answers)) t.equal(answer.text, 'theirs');
  t.equal(upstream.count(), 0);
});

function ordinalOf(answer: Answered): number {
  return (answer.json() as { call: number }).call;
}
