/** Outcomes that nobody knows: no second execution until an operator settles them or their time is over. */

import t, { type Test } from 'tap';
import { type Answered, request } from '../support/client.js';
import { HIT, isProblem, problemOf } from '../support/expect.js';
import { delay, eventually, Gate } from '../support/gate.js';
import { allCaughtUp, configOf, type Gateway, startGateways } from '../support/gateway.js';
import { startRedis } from '../support/redis.js';
import {
  answers,
  answersGarbage,
  type Behaviour,
  cutsChunked,
  cutsContentLength,
  hangsUpAfterReading,
  inTurn,
  ordinalAnswer,
  resetsAfterReading,
  stalls,
  startUpstream,
} from '../support/upstream.js';

t.setTimeout(170_000);

const LEASE_MS = 1_500;

const routes = (() => {
  const route = (name: string, more = '') => `
  - name: ${name}
    match: { path: "/${name}/*" }
    upstream: api
    policy: replay
    lease: ${LEASE_MS}ms
    ${more}`;
  return [
    route('held'),
    route('waits', 'wait: 10s'),
    route('short', 'unknownFor: 1s'),
    route('freed', 'onUnknown: release'),
  ].join('');
})();
const configFor = (upstream: string, store: string, more = '') =>
  configOf({ upstream, store, routes, more, timeouts: '{ connect: 2s, headers: 4s, body: 1s }' });

function post(gateway: Gateway, path: string, body = 'A'): Promise<Answered> {
  return gateway.request({ method: 'POST', path, headers: ['Idempotency-Key', path], body });
}

function isHeld(t: Test, answer: Answered): void {
  isProblem(t, answer, 'outcome-unknown');
  t.equal(answer.status, 409);
}

type Listed = {
  readonly key: string;
  readonly flight: string;
  readonly route: string;
  readonly state: string;
  readonly leftMs: number;
  readonly fence: number;
};

/** What the admin listener lists, and the text of it. */
async function listed(gateway: Gateway, state: string, route?: string): Promise<{ all: Listed[]; text: string }> {
  const answer = await gateway.admin(`/flights?state=${state}`);
  const { flights } = answer.json() as { flights: Listed[] };
  return { all: flights.filter((flight) => route === undefined || flight.route === route), text: answer.text };
}

async function settle(gateway: Gateway, key: string, as: object): Promise<Answered> {
  return request(gateway.adminUrl, {
    method: 'POST',
    path: `/flights/${key}/settle`,
    headers: ['Content-Type', 'application/json'],
    body: JSON.stringify(as),
  });
}

async function setLevel(gateway: Gateway, level: string): Promise<void> {
  await request(gateway.adminUrl, {
    method: 'PUT',
    path: '/log-level',
    headers: ['Content-Type', 'application/json'],
    body: JSON.stringify({ level }),
  });
}

/** The key of the one unknown flight that the action leaves behind. */
async function newUnknown(gateway: Gateway, action: () => Promise<unknown>): Promise<Listed> {
  const before = new Set((await listed(gateway, 'unknown')).all.map((flight) => flight.key));
  await action();
  const added = (await listed(gateway, 'unknown')).all.filter((flight) => !before.has(flight.key));
  if (added.length !== 1) throw new Error(`${added.length} unknown flights`);
  return added[0]!;
}

async function scenarios(t: Test, store: string, processes: number): Promise<void> {
  const upstream = await startUpstream(t);
  const gateways = await startGateways(t, processes, { config: configFor(upstream.url, store) });
  const first = gateways[0]!;
  const last = gateways[processes - 1]!;
  const open = new Gate();
  open.open();

  const lost: readonly (readonly [string, Behaviour, string])[] = [
    ['reset', resetsAfterReading, 'outcome-unknown'],
    ['hung-up', hangsUpAfterReading, 'outcome-unknown'],
    ['silent', stalls, 'outcome-unknown'],
    ['garbage', answersGarbage, 'bad-upstream-response'],
  ];
  for (const [name, behaviour, code] of lost) {
    t.test(`sent and not answered (${name}): held, and nobody runs it again`, async (t) => {
      const path = `/held/${name}`;
      upstream.on(path, inTurn(behaviour, answers(ordinalAnswer)));
      const ran = await post(first, path);
      isProblem(t, ran, code);
      if (code === 'outcome-unknown') t.equal(ran.status, 504);
      for (const gateway of [first, last, first]) isHeld(t, await post(gateway, path));
      for (const gateway of [first, last]) isProblem(t, await post(gateway, path, 'B'), 'key-reused');
      t.equal(upstream.count(path), 1);
    });
  }

  for (const [name, behaviour] of [
    ['content-length', cutsContentLength(open)],
    ['chunked', cutsChunked(open)],
  ] as const) {
    t.test(`an answer that is cut (${name}) is held and never given`, async (t) => {
      const path = `/held/cut-${name}`;
      upstream.on(path, inTurn(behaviour, answers(ordinalAnswer)));
      const ran = await post(first, path).catch(() => null);
      t.ok(ran === null || ran.cut || problemOf(ran) === 'outcome-unknown', 'no whole answer');
      for (const gateway of [first, last]) isHeld(t, await post(gateway, path));
      t.equal(upstream.count(path), 1);
    });
  }

  t.test('who waits for it learns the same', async (t) => {
    const path = '/waits/reset';
    const gate = new Gate();
    upstream.on(path, async (call) => {
      await gate.opened;
      await resetsAfterReading(call);
    });
    const leader = post(first, path);
    await upstream.arrived(1, path);
    const waiting = [post(first, path), post(last, path)];
    await allCaughtUp(gateways);
    gate.open();
    const ran = await leader;
    isProblem(t, ran, 'outcome-unknown');
    t.equal(ran.status, 504);
    for (const answer of await Promise.all(waiting)) isHeld(t, answer);
    isHeld(t, await post(last, path));
    t.equal(upstream.count(path), 1);
  });

  t.test('with onUnknown: release the next one runs', async (t) => {
    const path = '/freed/reset';
    upstream.on(path, inTurn(resetsAfterReading, answers(ordinalAnswer)));
    isProblem(t, await post(first, path), 'outcome-unknown');
    t.equal((await post(last, path)).status, 200);
    t.equal((await post(first, path)).header('idempotent-replayed'), 'true');
    t.equal(upstream.count(path), 2);
  });

  t.test('after unknownFor the next one runs', async (t) => {
    const path = '/short/reset';
    upstream.on(path, inTurn(resetsAfterReading, answers(ordinalAnswer)));
    isProblem(t, await post(first, path), 'outcome-unknown');
    const began = performance.now();
    isHeld(t, await post(last, path));
    let answer = await post(last, path);
    while (answer.status === 409 && performance.now() - began < 5_000) {
      isHeld(t, answer);
      await delay(100);
      answer = await post(last, path);
    }
    const after = performance.now() - began;
    t.equal(answer.status, 200);
    t.ok(after > 800 && after < 2_500, `after ${Math.round(after)} ms`);
    t.equal((await post(first, path)).header('idempotent-replayed'), 'true');
    t.equal(upstream.count(path), 2);
  });

  t.test('nothing was written: the next one runs at once', async (t) => {
    const path = '/held/closed';
    await upstream.refuse();
    for (const gateway of [first, last]) isProblem(t, await post(gateway, path), 'upstream-unreachable');
    t.same((await listed(first, 'any')).text.includes(path), false);
    await upstream.listen();
    t.equal((await post(last, path)).status, 200);
    t.equal(upstream.count(path), 1);
  });

  t.test('unknown outcomes are listed by digest and rule, without a value of the request', async (t) => {
    const path = '/held/listed-value';
    upstream.on(path, resetsAfterReading);
    const flight = await newUnknown(last, () => post(first, path, 'the-content-of-it'));
    t.match(flight.key, /^[\w-]{43}$/);
    t.match(flight, { route: 'held', state: 'unknown' });
    t.ok(flight.leftMs > 86_000_000 && flight.leftMs <= 86_400_000, `left ${flight.leftMs}`);
    const { text } = await listed(first, 'unknown');
    t.notOk(/listed-value|the-content/.test(text), 'no value');
    t.notOk((await listed(first, 'kept')).all.some(({ key }) => key === flight.key));
    t.ok((await listed(first, 'any')).all.some(({ key }) => key === flight.key));
    t.equal((await first.admin('/flights?state=whatever')).status, 400);
  });

  t.test('settled as free: the next one runs, and it is in the log', async (t) => {
    const path = '/held/settled-free';
    upstream.on(path, inTurn(resetsAfterReading, answers(ordinalAnswer)));
    const { key } = await newUnknown(last, () => post(first, path));
    isHeld(t, await post(last, path));
    t.equal((await settle(last, key, { as: 'free' })).status, 200);
    const ran = await post(first, path);
    t.equal(ran.status, 200);
    t.equal((await post(last, path)).text, ran.text);
    t.equal(upstream.count(path), 2);
    const told = () => last.logs.filter((line) => line.msg === 'settled by an operator');
    await eventually('it is in the log', () => told().length > 0);
    t.match(told(), [{ key, as: 'free', result: 'settled' }]);
    t.equal((await settle(last, 'A'.repeat(43), { as: 'free' })).status, 404);
  });

  t.test('settled as a response: repeats get exactly that, and it is in the log', async (t) => {
    const path = '/held/settled-response';
    upstream.on(path, resetsAfterReading);
    const { key } = await newUnknown(first, () => post(first, path));
    const response = {
      as: 'response',
      status: 201,
      fields: [
        ['Content-Type', 'application/json'],
        ['Link', '</a>'],
        ['Link', '</b>'],
        ['Location', '/things/1'],
        ['Set-Cookie', 'a=b'],
        ['Date', 'Thu, 01 Jan 1970 00:00:00 GMT'],
      ],
      content: '{"id":"\u00e4"}',
    };
    for (const wrong of [
      { status: 99 },
      { fields: [['a b', 'c']] },
      { fields: [['a', 'b\r\nc: d']] },
      { content: 1 },
      { body: 'the answer' },
      { status: 204 },
      { status: 304 },
    ]) {
      t.equal((await settle(first, key, { ...response, ...wrong })).status, 400);
    }
    isHeld(t, await post(last, path));
    t.equal((await settle(first, key, response)).status, 200);
    for (const gateway of [first, last]) {
      const again = await post(gateway, path);
      t.equal(again.status, 201);
      t.equal(again.body.toString(), '{"id":"\u00e4"}');
      t.same(again.headerLines('link'), ['</a>', '</b>']);
      t.equal(again.header('location'), '/things/1');
      t.equal(again.header('set-cookie'), null);
      t.equal(again.header('date'), null);
      t.equal(again.header('content-type'), 'application/json');
      t.equal(again.header('idempotent-replayed'), 'true');
      t.match(again.cacheStatus, HIT);
      isProblem(t, await post(gateway, path, 'B'), 'key-reused');
    }
    t.equal(upstream.count(path), 1);
    const told = () => first.logs.filter((line) => line.msg === 'settled by an operator' && line.key === key);
    await eventually('it is in the log', () => told().length > 0);
    t.match(told().slice(-1), [{ key, as: 'response', result: 'settled' }]);
    const audited = JSON.stringify(told());
    t.notOk(audited.includes('things'), 'the response is not in the log');
    t.notOk((await listed(last, 'unknown')).all.some((flight) => flight.key === key));
  });

  t.test("an operator's response cannot break the message that carries it", async (t) => {
    const path = '/held/settled-badly';
    upstream.on(path, resetsAfterReading);
    const { key } = await newUnknown(first, () => post(first, path));
    const fields = [
      ['Transfer-Encoding', 'chunked'],
      ['Connection', 'close, X-Hop'],
      ['X-Hop', 'hop'],
      ['Content-Length', '1000'],
      ['X-Kept', '1'],
    ];
    t.equal((await settle(first, key, { as: 'response', status: 200, fields, content: 'whole' })).status, 200);
    for (const gateway of [first, last]) {
      const again = await post(gateway, path);
      t.equal(again.text, 'whole');
      t.equal(again.cut, false);
      t.equal(again.header('transfer-encoding'), null);
      t.equal(again.header('x-hop'), null);
      t.equal(again.header('x-kept'), '1');
      t.equal(again.header('content-length'), '5');
    }
    t.equal(upstream.count(path), 1);
  });

  t.test('settled twice: the second word does not end what runs, or was kept, since the first', async (t) => {
    const path = '/held/settled-twice';
    upstream.on(path, resetsAfterReading);
    const unknown = await newUnknown(last, () => post(first, path));
    t.equal((await settle(first, unknown.key, { as: 'free' })).status, 200);
    const held = upstream.holds(path);
    const again = post(last, path);
    await held.arrived(2);
    t.equal((await settle(first, unknown.key, { as: 'free' })).status, 409, 'the repeat runs');
    held.release();
    t.equal((await again).status, 200);
    t.equal((await settle(first, unknown.key, { as: 'free' })).status, 409, 'its answer is kept');
    t.equal((await post(first, path)).header('idempotent-replayed'), 'true');
    t.equal(upstream.count(path), 2);
  });

  t.test(
    'who means an unknown outcome does not take away what was recorded meanwhile, and every word is written down',
    async (t) => {
      const [path, other] = ['/held/known-meanwhile', '/held/still-unknown'];
      for (const one of [path, other]) upstream.on(one, resetsAfterReading);
      const { key, flight } = await newUnknown(last, () => post(first, path));
      t.equal((await settle(first, key, { as: 'response', status: 200, content: 'done' })).status, 200);
      t.equal((await settle(last, key, { as: 'free', flight, state: 'unknown' })).status, 409);
      t.equal((await settle(last, key, { as: 'free', flight, state: 'kept' })).status, 400);
      t.equal((await post(last, path)).text, 'done');
      t.equal(upstream.count(path), 1, 'no second execution');
      const unknown = await newUnknown(last, () => post(first, other));
      await setLevel(last, 'silent');
      const meant = { flight: unknown.flight, state: 'unknown' };
      t.equal((await settle(last, unknown.key, { as: 'free', ...meant })).status, 200);
      const told = () => last.logs.some((line) => line.msg === 'settled by an operator' && line.key === unknown.key);
      await eventually('the line of a silent log', told);
      await setLevel(last, 'info');
      upstream.on(other, answers({ content: 'again' }));
      t.equal((await post(last, other)).text, 'again');
    },
  );

  t.test('settled while it is in flight: the leader can no longer publish', async (t) => {
    const path = '/held/settled-early';
    const held = upstream.holds(path);
    const leader = post(first, path);
    await held.arrived(1);
    const [flight] = (await listed(last, 'in-flight', 'held')).all;
    const word = { as: 'response', status: 202, content: 'by word' };
    t.equal((await settle(last, flight!.key, word)).status, 409, 'not without saying which flight is meant');
    t.equal((await settle(last, flight!.key, { as: 'free', flight: 'another' })).status, 409);
    t.equal((await settle(last, flight!.key, { as: 'free', flight: 7 })).status, 400);
    t.equal((await settle(last, flight!.key, { ...word, flight: flight!.flight })).status, 200);
    held.release();
    t.equal((await leader).status, 200, 'the leader has the real answer');
    t.equal((await post(last, path)).text, 'by word');
    t.equal(upstream.count(path), 1);
  });
}

t.test('with the memory store', async (t) => scenarios(t, '{ kind: memory }', 1));

const redis = await startRedis();
t.teardown(() => redis.stop());
const store = `{ kind: redis, url: "${redis.url}", commandTimeout: 2s }`;

t.test('with Redis and two gateways', async (t) => scenarios(t, store, 2));

t.test('kill -9 of the leader in flight: unknown when its lease is over', async (t) => {
  const upstream = await startUpstream(t);
  for (const rule of ['held', 'waits', 'freed', 'short']) {
    const [leading, there] = (await startGateways(t, 2, { config: configFor(upstream.url, store) })) as [
      Gateway,
      Gateway,
    ];
    const path = `/${rule}/killed`;
    const held = upstream.holds(path);
    const gone = t.rejects(post(leading, path));
    await held.arrived(1);
    const waiting = rule === 'waits' ? post(there, path) : null;
    await there.caughtUp();
    await leading.kill9();
    await gone;
    const killed = performance.now();
    if (rule !== 'waits') isProblem(t, await post(there, path), 'in-flight', LEASE_MS / 1000);
    held.release();
    let answer = waiting === null ? await post(there, path) : await waiting;
    while (problemOf(answer) === 'in-flight' && performance.now() - killed < 8_000) {
      await delay(50);
      answer = await post(there, path);
    }
    const after = performance.now() - killed;
    t.ok(after < LEASE_MS + 1_500, `${rule}: after ${Math.round(after)} ms`);
    if (rule === 'freed') {
      t.equal(answer.status, 200, 'the lease alone held the key');
      t.equal((await post(there, path)).header('idempotent-replayed'), 'true');
      t.equal(upstream.count(path), 2);
      continue;
    }
    isHeld(t, answer);
    isHeld(t, await post(there, path));
    isProblem(t, await post(there, path, 'B'), 'key-reused');
    t.equal(upstream.count(path), 1);
    if (rule === 'short') {
      await eventually('unknownFor being over', async () => (await post(there, path)).status === 200, 4_000);
      t.equal(upstream.count(path), 2);
    } else {
      t.ok((await listed(there, 'unknown', rule)).all.length >= 1, 'listed');
    }
  }
});

t.test('a stop that cannot wait leaves what was sent as unknown', async (t) => {
  const upstream = await startUpstream(t);
  const config = configFor(upstream.url, store, 'drain: 300ms');
  const [stopping, there] = (await startGateways(t, 2, { config })) as [Gateway, Gateway];
  const path = '/held/stopped';
  const held = upstream.holds(path);
  const leader = post(stopping, path).catch(() => null);
  await held.arrived(1);
  const stopped = performance.now();
  stopping.signal('SIGTERM');
  await stopping.exited;
  isHeld(t, await post(there, path));
  t.ok(performance.now() - stopped < 300 + LEASE_MS, 'without waiting for the lease');
  const answer = await leader;
  t.ok(answer === null || problemOf(answer) === 'outcome-unknown', `${answer?.status}`);
  t.equal(upstream.count(path), 1);
});

t.test('kill -9 of the leader after its end: the record stays', async (t) => {
  const upstream = await startUpstream(t);
  const [leading, there] = (await startGateways(t, 2, { config: configFor(upstream.url, store) })) as [
    Gateway,
    Gateway,
  ];
  const path = '/held/killed-late';
  const ran = await post(leading, path);
  await leading.kill9();
  await delay(LEASE_MS + 200);
  const again = await post(there, path);
  t.equal(again.text, ran.text);
  t.equal(again.header('idempotent-replayed'), 'true');
  t.equal(upstream.count(path), 1);
});

for (const [name, outageMs] of [
  ['for less than the lease', 0],
  ['past the lease', LEASE_MS + 500],
] as const) {
  t.test(`the store is away between answer and record, ${name}`, async (t) => {
    const upstream = await startUpstream(t);
    const own = await startRedis();
    t.teardown(() => own.stop());
    const config = configFor(upstream.url, `{ kind: redis, url: "${own.url}", commandTimeout: 2s }`);
    const [first, last] = (await startGateways(t, 2, { config })) as [Gateway, Gateway];
    const path = '/held/paused';
    const held = upstream.holds(path, { status: 201, content: 'real' });
    const leader = post(first, path);
    await held.arrived(1);
    own.pause();
    t.teardown(() => own.resume());
    held.release();
    const ran = await leader;
    t.equal(ran.status, 201);
    t.equal(ran.text, 'real');
    t.equal(ran.cacheStatus, 'oneflight; fwd=miss; detail=not-stored');
    isProblem(t, await post(last, path), 'store-unavailable');
    if (outageMs > 0) await delay(outageMs);
    own.resume();
    let again = await post(last, path);
    const began = performance.now();
    while ((again.status === 503 || problemOf(again) === 'in-flight') && performance.now() - began < 10_000) {
      await delay(50);
      again = await post(last, path);
    }
    if (outageMs > 0) isHeld(t, again);
    else if (again.status === 201) t.equal(again.text, 'real');
    else isHeld(t, again);
    t.comment(`${name}: ${again.status}`);
    t.equal(upstream.count(path), 1, 'no second call');
  });
}

t.test('the store dies between answer and record: the caller has the real answer, marked', async (t) => {
  const upstream = await startUpstream(t);
  const own = await startRedis();
  t.teardown(() => own.stop());
  const config = configFor(upstream.url, `{ kind: redis, url: "${own.url}", commandTimeout: 2s }`);
  const [gateway] = (await startGateways(t, 1, { config })) as [Gateway];
  const path = '/held/store-killed';
  const held = upstream.holds(path, { status: 201, content: 'real' });
  const leader = post(gateway, path);
  await held.arrived(1);
  await own.kill();
  held.release();
  const ran = await leader;
  t.equal(ran.status, 201);
  t.equal(ran.text, 'real');
  t.equal(ran.cacheStatus, 'oneflight; fwd=miss; detail=not-stored');
  isProblem(t, await post(gateway, path), 'store-unavailable');
  t.equal(upstream.count(path), 1);
});

t.test(
  'a leader that is frozen past its lease: held for the others, and its late answer changes nothing',
  async (t) => {
    const upstream = await startUpstream(t);
    const [frozen, there] = (await startGateways(t, 2, { config: configFor(upstream.url, store) })) as [
      Gateway,
      Gateway,
    ];
    const path = '/held/frozen';
    const held = upstream.holds(path);
    const leader = post(frozen, path);
    await held.arrived(1);
    frozen.pause();
    await eventually(
      'the lease being over',
      async () => problemOf(await post(there, path)) === 'outcome-unknown',
      5_000,
    );
    held.release();
    frozen.resume();
    const ran = await leader;
    t.equal(ran.status, 200, 'its own client has the answer');
    t.equal(ran.cacheStatus, 'oneflight; fwd=miss; detail=not-stored');
    for (const gateway of [frozen, there]) isHeld(t, await post(gateway, path));
    t.equal(upstream.count(path), 1);
  },
);
