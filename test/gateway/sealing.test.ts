/** What somebody finds who reads all of the store, with and without a secret. */

import t, { type Test } from 'tap';
import { burst, Watching } from '../support/client.js';
import { HIT, isProblem } from '../support/expect.js';
import { Gate } from '../support/gate.js';
import { allCaughtUp, configOf, type Gateway, startGateways } from '../support/gateway.js';
import { startRedis } from '../support/redis.js';
import { foundIn, tapRedis } from '../support/redis-dump.js';
import { type AnswerOf, chunkedInParts, startUpstream } from '../support/upstream.js';

t.setTimeout(120_000);

const SECRET = 'k7-the-secret-of-the-gateways';
/** Of the requests. */
const ASKED = {
  token: 'token-uh3Wq9zX',
  cookie: 'cookie-Bv71kkPe',
  member: 'refresh-Zr40vDq2',
  idempotencyKey: 'order-Yt55mnaB',
  amount: 'amount-Jw08ssLo',
  language: 'language-Cc31xEqu',
  variant: 'language-Hh66oPty',
  query: 'query-Nm92fRta',
};
/** Of the answers: small ones travel in messages, large ones are fetched. */
const ANSWERED = {
  small: 'small-content-Gq18Vbdz',
  large: 'large-content-Xs57Rtyu',
  replayed: 'replayed-content-Kp93Wexc',
  field: 'field-value-Dm24Qazn',
  trailer: 'trailer-value-Oo77Lkih',
  operator: 'operator-content-Ff39Tgbw',
  piece: 'piece-content-Ee66Plom',
  streamed: 'streamed-field-Rr21Nbvc',
};
const EVERY_TEXT = [SECRET, ...Object.values(ASKED), ...Object.values(ANSWERED)];

const ROUTES = `
  - name: refresh
    match: { path: /refresh/* }
    policy: coalesce
    key: [ { request: path }, { body: /refreshToken }, { query: q } ]
    keep: 60s
    wait: { max: 20s, poll: 15s }
  - name: orders
    match: { path: /orders/* }
    policy: replay
    wait: { max: 20s, poll: 15s }
  - name: held
    match: { path: /held/* }
    policy: replay
  - name: live
    match: { path: /live/* }
    policy: coalesce
    key: [ { query: q } ]
    stream: true
    wait: { max: 20s, poll: 15s }
  - name: stock
    match: { path: /stock/* }
    policy: queue
    key: [ { query: q } ]`;

const FIELDS = ['X-Private', ANSWERED.field, 'Vary', 'Accept-Language'];
const small: AnswerOf = {
  content: ANSWERED.small,
  fields: FIELDS,
  framing: 'chunked',
  trailers: ['X-Sum', ANSWERED.trailer],
};
const large: AnswerOf = { content: ANSWERED.large.repeat(2_000), fields: FIELDS };
const replayed: AnswerOf = { content: ANSWERED.replayed, fields: ['X-Private', ANSWERED.field] };

type Found = { readonly texts: string[]; readonly names: Set<string>; readonly log: string };

/** Sends what is told above through two gateways and a Redis of its own, and tells what is found in it, during and after. */
async function leavesBehind(t: Test, secret: string | null): Promise<Found> {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  const upstream = await startUpstream(t);
  const store = `{ kind: redis, url: "${redis.url}", commandTimeout: 2s${secret === null ? '' : `, secret: ${secret}`} }`;
  const gateways = await startGateways(t, 2, { config: configOf({ upstream: upstream.url, store, routes: ROUTES }) });
  const [first, last] = gateways as [Gateway, Gateway];
  const { dump, messages } = await tapRedis(t, redis);
  const found: Buffer[] = [];

  const ask = (gateway: Gateway, path: string, language = ASKED.language) =>
    gateway.request({
      method: 'POST',
      path: `${path}?q=${ASKED.query}`,
      headers: [
        ...['Authorization', `Bearer ${ASKED.token}`, 'Cookie', `sid=${ASKED.cookie}`, 'Accept-Language', language],
        ...['Content-Type', 'application/json', 'Idempotency-Key', ASKED.idempotencyKey],
      ],
      body: JSON.stringify({ refreshToken: ASKED.member, amount: ASKED.amount }),
    });

  for (const [path, answer, inside] of [
    ['/refresh/small', small, ANSWERED.small],
    ['/refresh/large', large, ANSWERED.large],
    ['/orders/one', replayed, ANSWERED.replayed],
  ] as const) {
    const held = upstream.holds(path, answer);
    const leader = ask(first, path);
    await held.arrived(1);
    const followers = burst(4, (index) => ask(index % 2 === 0 ? first : last, path));
    await allCaughtUp(gateways);
    found.push(...(await dump()));
    held.release();
    const calls = upstream.count(path);
    for (const one of [await leader, ...(await followers)]) t.ok(one.text.startsWith(inside), `${path}: the answer`);
    const kept = await ask(last, path);
    t.match(kept.cacheStatus, HIT, `${path}: kept`);
    t.ok(kept.text.startsWith(inside));
    t.equal(upstream.count(path), calls, `${path}: ${calls} call`);
    found.push(...(await dump()));
  }

  await t.test('a variant of a key is as private', async (t) => {
    const path = '/refresh/small';
    const variants = [await ask(first, path, ASKED.variant), await ask(last, path, ASKED.variant)];
    t.match(variants[1]?.cacheStatus, HIT);
    t.same(
      variants.map((one) => one.text),
      [ANSWERED.small, ANSWERED.small],
    );
    t.equal(upstream.count(path), 2);
    found.push(...(await dump()));
  });

  await t.test("an operator's word is sealed too, and opens for every gateway", async (t) => {
    const path = '/held/one';
    upstream.on(path, (call) => call.reset());
    isProblem(t, await ask(first, path), 'outcome-unknown');
    const { flights } = (await first.admin('/flights?state=unknown')).json() as { flights: { key: string }[] };
    const settled = await fetch(`${last.adminUrl}/flights/${flights[0]!.key}/settle`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ as: 'response', status: 200, content: ANSWERED.operator }),
    });
    t.equal(settled.status, 200);
    for (const gateway of gateways) t.equal((await ask(gateway, path)).text, ANSWERED.operator);
    found.push(...(await dump()));
  });

  await t.test('pieces of a response under way are sealed too', async (t) => {
    const gate = new Gate();
    const parts = [ANSWERED.piece, 'the end'].map((text) => Buffer.from(text));
    upstream.on('/live/one', chunkedInParts(parts, gate, ['X-Private', ANSWERED.streamed]));
    const watch = (gateway: Gateway) => new Watching(gateway.url, { path: `/live/one?q=${ASKED.query}` });
    const leader = watch(first);
    await leader.received(ANSWERED.piece.length);
    const follower = watch(last);
    await follower.received(ANSWERED.piece.length);
    found.push(...(await dump()));
    gate.open();
    for (const { answer } of [leader, follower]) t.equal((await answer).text, `${ANSWERED.piece}the end`);
    t.equal(upstream.count('/live/one'), 1);
    found.push(...(await dump()));
  });

  await t.test('a queue keeps no contents', async (t) => {
    const held = upstream.holds('/stock/one', small);
    const all = [ask(first, '/stock/one')];
    await held.arrived(1);
    all.push(ask(last, '/stock/one'));
    await allCaughtUp(gateways);
    found.push(...(await dump()));
    held.release();
    for (const one of await Promise.all(all)) t.equal(one.text, ANSWERED.small);
  });

  const pushed = messages.filter((message) => message.length > 100);
  t.ok(pushed.length > 0, `${pushed.length} messages with a content`);
  const names = [...found.join(' ').matchAll(/oneflight:\{([\w-]{43})\}/g)].map(([, digest]) => digest ?? '');
  t.ok(names.length > 5, `${names.length} names of keys`);
  const log = gateways.map((gateway) => gateway.output).join('\n');
  return { texts: foundIn([...found, ...messages], EVERY_TEXT), names: new Set(names), log };
}

t.test('every form of a text is looked for', async (t) => {
  const [text] = EVERY_TEXT as [string];
  for (const before of ['', 'a', 'ab', 'abc']) {
    const inside = Buffer.from(`${before}${text}xyz`);
    for (const form of ['utf8', 'base64', 'base64url', 'hex'] as const) {
      t.same(foundIn([Buffer.from(inside.toString(form))], EVERY_TEXT), [text], `${form} after "${before}"`);
    }
  }
  t.same(foundIn([Buffer.from(encodeURIComponent(`a ${text}`))], EVERY_TEXT), [text]);
});

t.test('with a secret nothing of requests or answers is in the store or in what it sends', async (t) => {
  const sealed = await leavesBehind(t, SECRET);
  t.same(sealed.texts, []);
  t.same(foundIn([Buffer.from(sealed.log)], EVERY_TEXT), [], 'nor in the log');
  const plain = await leavesBehind(t, null);
  t.same(plain.texts.sort(), Object.values(ANSWERED).sort(), 'without one every content and field value is');
  t.same(
    [...sealed.names].filter((name) => plain.names.has(name)),
    [],
    'the same requests have other digests',
  );
});

t.test('what was changed or moved in the store answers nobody', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  const upstream = await startUpstream(t);
  const store = `{ kind: redis, url: "${redis.url}", commandTimeout: 2s, secret: ${SECRET} }`;
  const [gateway] = (await startGateways(t, 1, {
    config: configOf({ upstream: upstream.url, store, routes: ROUTES }),
  })) as [Gateway];
  const { client } = await tapRedis(t, redis);
  const order = (key: string) =>
    gateway.request({ method: 'POST', path: '/orders/x', headers: ['Idempotency-Key', key], body: '{}' });
  const recordOf = async (key: string) => {
    const before = new Set(await client.keys('oneflight:{*}'));
    t.equal((await order(key)).status, 200);
    return (await client.keys('oneflight:{*}')).find((name) => !before.has(name)) as string;
  };
  upstream.on('/orders/x', (call) => call.answer({ content: `call ${call.ordinal}` }));
  const [one, two] = [await recordOf('one'), await recordOf('two')];
  const frame = (await client.hgetBuffer(one, 'b')) as Buffer;

  await client.hset(two, 'b', frame);
  isProblem(t, await order('two'), 'store-unavailable');
  await client.hset(two, 'f', (await client.hget(one, 'f')) as string);
  isProblem(t, await order('two'), 'store-unavailable');
  for (const at of [0, 1, 2, 5, 15, frame.length - 20, frame.length - 1]) {
    const changed = Buffer.from(frame);
    changed[at]! ^= 1;
    await client.hset(one, 'b', changed);
    isProblem(t, await order('one'), 'store-unavailable');
  }
  await client.hset(one, 'b', frame);
  const again = await order('one');
  t.equal(again.text, 'call 1');
  t.match(again.cacheStatus, HIT);
  t.equal(upstream.count('/orders/x'), 2);
  t.ok(gateway.output.includes('kept response cannot be read'), 'it is in the log');
  t.notOk(gateway.output.includes('call 1'));
});
