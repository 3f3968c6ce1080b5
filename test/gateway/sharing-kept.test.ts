/** What of a response is given to others, and to whom comes later. */

import t, { type Test } from 'tap';
import { burst } from '../support/client.js';
import { allEqual, COLLAPSED, HIT, tally } from '../support/expect.js';
import { Gate } from '../support/gate.js';
import { allCaughtUp, configOf, type Gateway, startGateways } from '../support/gateway.js';
import { inEachStore } from '../support/stores.js';
import { startUpstream } from '../support/upstream.js';
import { chunkBytes, lastChunkBytes } from '../support/wire.js';

t.setTimeout(120_000);

const ROUTES = [
  ['errors', 'keepStatuses: [404, 5xx]'],
  ['plain', ''],
  ['public', 'identity: public'],
  ['stream', 'identity: public\n    stream: true'],
]
  .map(
    ([name, more]) => `
  - name: ${name}
    match: { path: /${name}/* }
    policy: coalesce
    key: [ { request: path } ]
    lease: 30s
    wait: { max: 25s, poll: 15s }
    keep: 20s
    ${more}`,
  )
  .join('');

/** Of one exchange, and not to be seen by anybody else. */
const OWN: readonly (readonly [string, string])[] = [
  ['X-Request-Id', 'of-the-leader'],
  ['request-id', 'req_1'],
  ['X-Correlation-Id', 'c1'],
  ['Server-Timing', 'db;dur=53'],
  ['traceresponse', '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'],
  ['Proxy-Authenticate', 'Basic realm="p"'],
  ['Proxy-Authentication-Info', 'nextnonce="p"'],
  ['Authentication-Info', 'nextnonce="n"'],
];
/** Of the response, whoever reads it. */
const EVERYBODYS: readonly (readonly [string, string])[] = [
  ['Date', 'Sun, 06 Nov 1994 08:49:37 GMT'],
  ['Server', 'stub'],
  ['WWW-Authenticate', 'Basic realm="a"'],
  ['Alt-Svc', 'h2=":443"'],
  ['ETag', '"x"'],
  ['X-Other', 'o'],
];

async function scenarios(t: Test, store: string, processes: number): Promise<void> {
  const upstream = await startUpstream(t);
  const config = configOf({ upstream: upstream.url, store, routes: ROUTES });
  const gateways = await startGateways(t, processes, { config });
  const first = gateways[0]!;
  const last = gateways[gateways.length - 1]!;
  const toEach = (path: string) =>
    burst(4, (index) => (index % 2 === 0 ? first : last).request({ method: 'POST', path }));

  await t.test('keepStatuses says which are kept; the others are for those who joined the flight', async (t) => {
    for (const [status, kept] of [
      [200, false],
      [403, false],
      [404, true],
      [500, true],
      [503, true],
    ] as const) {
      const path = `/errors/${status}`;
      const held = upstream.holds(path, (call) => ({ status, reason: 'So it is', content: `call ${call.ordinal}` }));
      const leader = first.request({ method: 'POST', path });
      await held.arrived(1);
      const followers = toEach(path);
      await allCaughtUp(gateways);
      held.release();
      allEqual(t, [await leader, ...(await followers)], status, 'call 1');
      const later = await last.request({ method: 'POST', path });
      if (kept) t.match(later.cacheStatus, HIT, `${status} is kept`);
      allEqual(t, [later], status, kept ? 'call 1' : 'call 2');
    }
  });

  await t.test("fields of the leader's exchange reach nobody else, now or later", async (t) => {
    const path = '/plain/fields';
    const held = upstream.holds(path, { fields: [...OWN, ...EVERYBODYS].flat(), content: 'x' });
    const leader = first.request({ method: 'POST', path });
    await held.arrived(1);
    const followers = toEach(path);
    await allCaughtUp(gateways);
    held.release();
    const led = await leader;
    for (const [name, value] of [...OWN, ...EVERYBODYS]) t.equal(led.header(name), value, `leader: ${name}`);
    const others = [
      ...(await followers),
      await first.request({ method: 'POST', path }),
      await last.request({ method: 'POST', path }),
    ];
    t.equal(tally(others)[COLLAPSED], 4);
    for (const other of others) {
      for (const [name] of OWN) t.equal(other.header(name), null, `${other.cacheStatus}: ${name}`);
      for (const [name, value] of EVERYBODYS) t.equal(other.header(name), value, `${other.cacheStatus}: ${name}`);
    }
    t.equal(upstream.count(path), 1);
  });

  /** The upstream answers `a` when the first gate opens, and `b` with the trailers when the second does. */
  function answersInTwoParts(path: string, fields: readonly string[], trailers: readonly string[]): [Gate, Gate] {
    const [begin, rest] = [new Gate(), new Gate()];
    upstream.on(path, async (call) => {
      await begin.opened;
      call.head(200, 'OK', [...fields, 'Transfer-Encoding', 'chunked']);
      call.raw(chunkBytes(Buffer.from('a')));
      await rest.opened;
      call.raw(Buffer.concat([chunkBytes(Buffer.from('b')), lastChunkBytes(trailers)]));
      call.finish();
    });
    return [begin, rest];
  }

  await t.test('nor do they in the trailer, nor to whom reads along', async (t) => {
    const path = '/plain/trailer';
    const trailers = ['Server-Timing', 'db;dur=1', 'X-Sum', '7'];
    const [begin, rest] = answersInTwoParts(path, ['Trailer', 'Server-Timing, X-Sum', 'X-Request-Id', 'l'], trailers);
    const ask = (gateway: Gateway) => gateway.send({ method: 'POST', path });
    const leader = ask(first);
    await upstream.arrived(1, path);
    const here = [ask(first), ask(first)];
    const there = [ask(last), ask(last)];
    await allCaughtUp(gateways);
    begin.open();
    await Promise.all([leader, ...here].map(({ started }) => started));
    rest.open();
    const others = await Promise.all([...here, ...there, ask(last)].map(({ answer }) => answer));
    t.same((await leader.answer).trailers, trailers);
    for (const other of others) {
      t.equal(other.text, 'ab');
      t.equal(other.header('x-request-id'), null);
      t.same(other.trailers, ['X-Sum', '7']);
    }
  });

  await t.test('a cookie in the trailer is for its own client alone where callers are not told apart', async (t) => {
    for (const name of ['public', 'stream', 'plain']) {
      const path = `/${name}/cookie`;
      const trailers = ['Set-Cookie', 'session=of-the-leader', 'X-Sum', '7', 'set-cookie', 'b=2'];
      const [begin, rest] = answersInTwoParts(path, ['Trailer', 'Set-Cookie, X-Sum'], trailers);
      const ask = (gateway: Gateway) => gateway.send({ method: 'POST', path });
      const leader = ask(first);
      await upstream.arrived(1, path);
      const others = [ask(first), ask(first), ask(last), ask(last)];
      await allCaughtUp(gateways);
      begin.open();
      await Promise.all([leader, ...others.slice(0, 2)].map(({ started }) => started));
      rest.open();
      t.same((await leader.answer).trailers, trailers, `${name}: the leader`);
      const answers = await Promise.all(others.map(({ answer }) => answer));
      for (const other of [...answers, await ask(first).answer, await ask(last).answer]) {
        t.equal(other.text, 'ab');
        const seen = name === 'plain' ? trailers : ['X-Sum', '7'];
        t.same(other.trailers, seen, `${name}: ${other.cacheStatus}`);
      }
      t.equal(upstream.count(path), 1);
    }
  });
}

inEachStore(t, 2, scenarios);
