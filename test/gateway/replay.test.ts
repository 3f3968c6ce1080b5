/** `replay` as the clients of an `Idempotency-Key` see it: the operation runs once, and a repeat gets what the first got. */

import { gzipSync } from 'node:zlib';
import t, { type Test } from 'tap';
import { type Answered, burst, RawClient, type RequestOptions } from '../support/client.js';
import { allEqual, BYPASSED, HIT, isProblem, LED, PROMPT_MS, problemOf } from '../support/expect.js';
import { delay, eventually, Gate } from '../support/gate.js';
import { allCaughtUp, configOf, type Gateway, startGateways } from '../support/gateway.js';
import { type RedisServer, startRedis } from '../support/redis.js';
import { type AnswerOf, answers, inTurn, startUpstream } from '../support/upstream.js';

t.setTimeout(170_000);

const LEASE_SECONDS = 20;
const MAX_SHARED = 64 * 1024;
/** Fields of a replay that are its own, and of the first answer that are not for others or for this connection only. */
const OF_THE_COPY = ['idempotent-replayed', 'idempotency-expires', 'age', 'cache-status'];
const OF_THE_FIRST = ['set-cookie', 'date', 'cache-status'];
const OF_THE_MESSAGE = ['connection', 'keep-alive', 'transfer-encoding', 'content-length', 'trailer'];

const RICH: AnswerOf = (call) => ({
  status: 201,
  reason: 'Created',
  fields: [
    ...['Content-Type', 'application/json', 'Content-Encoding', 'gzip', 'Location', '/things/1', 'ETag', '"v1"'],
    ...['Link', '</a>; rel=next', 'X-Kept', 'one', 'Link', '</b>; rel=prev', 'X-Kept', 'two'],
    ...['Set-Cookie', 'a=1', 'Set-Cookie', 'b=2', 'Date', 'Thu, 01 Jan 1970 00:00:00 GMT'],
    ...['X-Hop', 'hop', 'Connection', 'X-Hop'],
  ],
  content: gzipSync(JSON.stringify({ call: call.ordinal })),
});

function linesWithout(answer: Answered, ...names: readonly string[][]): string[] {
  const left = names.flat();
  return answer.rawHeaders.flatMap((name, at, all) =>
    at % 2 === 1 || left.includes(name.toLowerCase()) ? [] : [`${name}: ${all[at + 1]}`],
  );
}

/** The answer is the replay of the first one, complete as the contract says. */
function isReplay(t: Test, first: Answered, again: Answered, keepSeconds = 86_400): void {
  t.equal(again.status, first.status);
  t.equal(again.cut, false);
  t.ok(again.body.equals(first.body), `${again.body.length} bytes of content, ${first.body.length} of the first`);
  t.same(linesWithout(again, OF_THE_COPY, OF_THE_MESSAGE), linesWithout(first, OF_THE_FIRST, OF_THE_MESSAGE));
  t.same(again.trailers, first.trailers);
  t.equal(again.header('idempotent-replayed'), 'true');
  t.match(again.header('age'), /^\d+$/);
  t.match(again.cacheStatus, HIT);
  const ttl = Number(/ttl=(\d+)/.exec(again.cacheStatus ?? '')?.[1]);
  t.ok(ttl > 0 && ttl <= keepSeconds, `ttl ${ttl}`);
  const endsIn = Date.parse(again.header('idempotency-expires') ?? '') - Date.now();
  // A date has whole seconds, and the answer took its time.
  t.ok(endsIn > -1_000 - again.elapsedMs && endsIn <= keepSeconds * 1_000, `expires in ${endsIn} ms`);
  for (const name of ['set-cookie', 'date']) t.equal(again.header(name), null, `no ${name}`);
}

function isFirst(t: Test, answer: Answered, status = 200): void {
  t.equal(answer.status, status, answer.text.slice(0, 200));
  t.equal(answer.header('idempotent-replayed'), null);
}

async function scenarios(t: Test, store: string, processes: number, redis: RedisServer | null): Promise<void> {
  const upstream = await startUpstream(t);
  const closed = await startUpstream(t);
  const route = (name: string, more = '', to = 'api') => `
  - name: ${name}
    match: { path: "/${name}/*" }
    upstream: ${to}
    policy: replay
    lease: ${LEASE_SECONDS}s
    maxShared: ${MAX_SHARED}
    ${more}`;
  const routes = [
    route('plain'),
    route('other'),
    route('small', 'maxKeyBody: 1KiB'),
    route('needs', 'onMissingKey: reject'),
    route('canonical', 'fingerprint: canonical'),
    route('unread', 'fingerprint: none'),
    route('five', 'release: [500]'),
    route('closed', '', 'closed'),
    route('bare', 'keepContent: none'),
    route('members', 'keepContent: [ /id, /owner/name ]'),
    route('waits', 'wait: 15s'),
    route('impatient', 'wait: 300ms'),
    route('brief', 'keep: 2s'),
  ].join('');
  const upstreams = `
  closed: { url: "${closed.url}" }`;
  const config = configOf({ upstream: upstream.url, upstreams, store, routes });
  const gateways = await startGateways(t, processes, { config });
  const first = gateways[0]!;
  const last = gateways[processes - 1]!;
  const keyed = (key: string | null, options: RequestOptions): RequestOptions => ({
    method: 'POST',
    body: '{"amount":1}',
    ...options,
    headers: [
      'Content-Type',
      'application/json',
      ...(key === null ? [] : ['Idempotency-Key', key]),
      ...(options.headers ?? []),
    ],
  });
  const post = (gateway: Gateway, path: string, key: string | null, options: RequestOptions = {}) =>
    gateway.request(keyed(key, { path, ...options }));

  t.test('of 50 at once one runs, the others are refused, and repeats get its answer', async (t) => {
    const path = '/plain/fifty';
    const held = upstream.holds(path, RICH);
    const all: Answered[] = [];
    const done = burst(50, async (index) => {
      const answer = await post(gateways[index % processes]!, path, 'fifty');
      all.push(answer);
      return answer;
    });
    await held.arrived(1);
    await eventually('49 refusals', () => all.length === 49);
    held.release();
    await done;
    const ran = all.filter((answer) => answer.status === 201);
    t.equal(ran.length, 1);
    t.equal(ran[0]!.cacheStatus, LED);
    t.same(ran[0]!.headerLines('set-cookie'), ['a=1', 'b=2'], 'the first one has its cookies');
    const refused = all.filter((answer) => answer.status !== 201);
    t.equal(refused.length, 49);
    for (const answer of refused) isProblem(t, answer, 'in-flight', LEASE_SECONDS);
    for (const gateway of [first, last, first]) isReplay(t, ran[0]!, await post(gateway, path, 'fifty'));
    t.equal(upstream.count(path), 1);
  });

  t.test('after ten refusals in flight a repeat gets the answer and no refusal', async (t) => {
    const path = '/plain/ten';
    const held = upstream.holds(path);
    const leader = post(first, path, 'ten');
    await held.arrived(1);
    const refused = await burst(10, (index) => post(index % 2 === 0 ? first : last, path, 'ten'));
    for (const answer of refused) isProblem(t, answer, 'in-flight', LEASE_SECONDS);
    held.release();
    const ran = await leader;
    isFirst(t, ran);
    isReplay(t, ran, await post(last, path, 'ten'));
    t.equal(upstream.count(path), 1);
  });

  t.test('a key is one with and without quotes', async (t) => {
    const path = '/plain/quoted';
    const ran = await post(first, path, '"abc"');
    isFirst(t, ran);
    isReplay(t, ran, await post(last, path, 'abc'));
    isReplay(t, ran, await post(first, path, ' abc '));
    isFirst(t, await post(first, path, 'ABC'));
    isFirst(t, await post(first, path, 'k'.repeat(255)));
    t.equal(upstream.count(path), 3);
  });

  t.test('a malformed key is refused before the store and the upstream are asked', async (t) => {
    const before = (await redis?.command('KEYS', '*')) ?? [];
    for (const path of ['/plain/malformed', '/needs/malformed']) {
      for (const key of ['', '""', 'a,b', '"a", "b"', '"a', 'a;b', 'k'.repeat(256), '\xe4', '"a\\"']) {
        const answer = await post(first, path, key);
        isProblem(t, answer, 'key-malformed');
        if (key.length > 2 && key.length < 9) t.notOk(answer.text.includes(key), 'the key is not told');
      }
      isProblem(t, await post(first, path, 'a', { headers: ['Idempotency-Key', 'b'] }), 'key-malformed');
      isProblem(t, await post(first, path, 'a', { headers: ['idempotency-key', 'a'] }), 'key-malformed');
      t.equal(upstream.count(path), 0);
    }
    t.same(((await redis?.command('KEYS', '*')) as string[] | undefined) ?? [], before);
  });

  t.test('without a key a request is forwarded, unread, or refused by its rule', async (t) => {
    for (const [path, body] of [
      ['/plain/none', '{}'],
      ['/small/none', 'x'.repeat(64 * 1024)],
    ] as const) {
      for (const turn of [1, 2]) {
        const answer = await post(first, path, null, { body });
        isFirst(t, answer);
        t.match(answer.cacheStatus, BYPASSED);
        t.equal(upstream.callsOf(path)[turn - 1]!.content?.length, body.length);
      }
      t.equal(upstream.count(path), 2);
    }
    // It streams: its head reaches the upstream while the client still has most of the content.
    const client = await RawClient.connect(first.url);
    client.write('POST /small/streamed HTTP/1.1\r\nHost: a\r\nContent-Length: 70000\r\n\r\n');
    client.write('x'.repeat(5_000));
    await upstream.arrived(1, '/small/streamed');
    client.write('x'.repeat(65_000));
    t.equal((await client.answer())?.status, 200);
    client.close();
    isProblem(t, await post(first, '/small/keyed', 'large', { body: 'x'.repeat(1025) }), 'content-too-large');
    isProblem(t, await post(first, '/needs/none', null), 'key-missing');
    t.equal(upstream.count('/small/keyed') + upstream.count('/needs/none'), 0);
  });

  t.test('the key of another content is refused, and the first answer stays', async (t) => {
    const path = '/plain/reused';
    const held = upstream.holds(path, RICH);
    const leader = post(first, path, 'reused', { body: 'A' });
    await held.arrived(1);
    for (const gateway of [first, last]) {
      isProblem(t, await post(gateway, path, 'reused', { body: 'B' }), 'key-reused');
      isProblem(t, await post(gateway, `${path}?other`, 'reused', { body: 'A' }), 'key-reused');
      isProblem(t, await post(gateway, path, 'reused', { body: 'A' }), 'in-flight', LEASE_SECONDS);
    }
    held.release();
    const ran = await leader;
    isFirst(t, ran, 201);
    for (const gateway of [last, first]) {
      isProblem(t, await post(gateway, path, 'reused', { body: 'B' }), 'key-reused');
      isReplay(t, ran, await post(gateway, path, 'reused', { body: 'A' }));
    }
    t.equal(upstream.count(path), 1);
  });

  t.test('two contents with one key at the same moment: one runs, the other is refused', async (t) => {
    const path = '/plain/both';
    const held = upstream.holds(path);
    const all: Answered[] = [];
    const done = burst(8, async (index) => {
      const answer = await post(index < 4 ? first : last, path, 'both', { body: `${index % 2}` });
      all.push(answer);
      return answer;
    });
    await eventually('seven refusals', () => all.length === 7);
    t.equal(all.filter((answer) => problemOf(answer) === 'key-reused').length, 4);
    t.equal(all.filter((answer) => problemOf(answer) === 'in-flight').length, 3);
    held.release();
    await done;
    t.equal(all.filter((answer) => answer.status === 200).length, 1);
    t.equal(upstream.count(path), 1);
  });

  t.test('other callers, rules and methods have records of their own', async (t) => {
    const path = '/plain/apart';
    const headers = (value: string) => ({ headers: ['Authorization', value] });
    const ran = [
      await post(first, path, 'apart'),
      await post(first, path, 'apart', headers('Bearer a')),
      await post(first, path, 'apart', headers('Bearer b')),
      await post(first, path, 'apart', { headers: ['Cookie', 's=1'] }),
      await post(first, path, 'apart', { method: 'PUT' }),
    ];
    const other = await post(first, '/other/apart', 'apart');
    for (const answer of [...ran, other]) isFirst(t, answer);
    t.equal(new Set(ran.map((answer) => answer.text)).size, 5);
    isReplay(t, ran[1]!, await post(last, path, 'apart', headers('Bearer a')));
    isReplay(t, ran[2]!, await post(last, path, 'apart', headers('Bearer b')));
    isReplay(t, ran[4]!, await post(last, path, 'apart', { method: 'PUT' }));
    isReplay(t, other, await post(last, '/other/apart', 'apart'));
    t.equal(upstream.count(path), 5);
    t.equal(upstream.count('/other/apart'), 1);
  });

  t.test('canonical fingerprints go by the value of JSON, and none by nothing', async (t) => {
    const path = '/canonical/value';
    const ran = await post(first, path, 'value', { body: '{"a":1,"b":[2,{"c":"x"}]}' });
    isFirst(t, ran);
    isReplay(t, ran, await post(last, path, 'value', { body: ' { "b" : [2.0, {"c":"\\u0078"}], "a" : 1e0 } ' }));
    isProblem(t, await post(last, path, 'value', { body: '{"a":1,"b":[{"c":"x"},2]}' }), 'key-reused');
    isFirst(t, await post(first, path, 'big', { body: '{"n":9007199254740993}' }));
    isProblem(t, await post(last, path, 'big', { body: '{"n":9007199254740992}' }), 'key-reused');
    t.equal(upstream.count(path), 2);

    const exact = await post(first, '/plain/exact', 'exact', { body: '{"a":1}' });
    isFirst(t, exact);
    isProblem(t, await post(last, '/plain/exact', 'exact', { body: '{"a":1 }' }), 'key-reused');
    const unread = await post(first, '/unread/any', 'any', { body: 'A' });
    isFirst(t, unread);
    isReplay(t, unread, await post(last, '/unread/any', 'any', { body: 'B' }));
    t.equal(upstream.count('/plain/exact') + upstream.count('/unread/any'), 2);
  });

  t.test('statuses that say "later" free the key, all others are recorded', async (t) => {
    const tryThrice = async (path: string, status: number) => {
      upstream.on(
        path,
        inTurn(answers({ status, reason: 'As It Is', content: `${status}`, fields: ['X-Kept', '1'] }), answers(RICH)),
      );
      const all = [await post(first, path, path), await post(last, path, path)];
      return [...all, await post(first, path, path)] as [Answered, Answered, Answered];
    };
    for (const status of [401, 407, 408, 421, 425, 429, 503]) {
      const path = `/plain/frees-${status}`;
      const [one, two, three] = await tryThrice(path, status);
      isFirst(t, one, status);
      t.equal(one.text, `${status}`);
      t.not(one.cacheStatus, LED, 'not said to be stored');
      isFirst(t, two, 201);
      isReplay(t, two, three);
      t.equal(upstream.count(path), 2, `${status}`);
    }
    for (const status of [302, 400, 403, 404, 409, 422, 500, 502, 504]) {
      const path = `/plain/keeps-${status}`;
      const [one, two, three] = await tryThrice(path, status);
      isFirst(t, one, status);
      isReplay(t, one, two);
      isReplay(t, one, three);
      t.equal(upstream.count(path), 1, `${status}`);
    }
    const [, again] = await tryThrice('/five/frees', 500);
    isFirst(t, again, 201);
    const [one, kept] = await tryThrice('/five/keeps', 503);
    isReplay(t, one, kept);
    t.equal(upstream.count('/five/frees') + upstream.count('/five/keeps'), 3);
  });

  t.test("the gateway's own answer is never recorded", async (t) => {
    await closed.refuse();
    for (const gateway of [first, last]) {
      isProblem(t, await post(gateway, '/closed/port', 'port'), 'upstream-unreachable');
    }
    await closed.listen();
    const began = performance.now();
    const ran = await post(last, '/closed/port', 'port');
    isFirst(t, ran);
    t.ok(performance.now() - began < PROMPT_MS, 'at once');
    isReplay(t, ran, await post(first, '/closed/port', 'port'));
    t.equal(closed.count(), 1);
  });

  const binary = Buffer.from(Array.from({ length: 4_096 }, (_, at) => (at * 31) % 256));
  const contents: readonly (readonly [string, AnswerOf, number])[] = [
    ['no-content', { status: 204, framing: 'none', fields: ['X-Kept', '1'] }, 204],
    ['empty', { status: 200, fields: ['X-Kept', '1'] }, 200],
    ['empty-chunked', { status: 200, framing: 'chunked' }, 200],
    ['binary', { content: binary, fields: ['Content-Type', 'application/octet-stream'] }, 200],
    ['until-close', { content: binary, framing: 'until-close' }, 200],
    ['trailers', { content: 'x', framing: 'chunked', trailers: ['X-Sum', '1'], fields: ['Trailer', 'X-Sum'] }, 200],
    ['largest', { content: Buffer.alloc(MAX_SHARED, 'a') }, 200],
    ['largest-chunked', { content: Buffer.alloc(MAX_SHARED, 'b'), framing: 'chunked' }, 200],
  ];
  t.test('contents are replayed byte for byte', async (t) => {
    for (const [name, answer, status] of contents) {
      const path = `/plain/content-${name}`;
      upstream.on(path, answers(answer));
      const ran = await post(first, path, name);
      isFirst(t, ran, status);
      isReplay(t, ran, await post(last, path, name));
      isReplay(t, ran, await post(first, path, name));
      t.equal(upstream.count(path), 1, name);
    }
  });

  t.test('an answer to HEAD is replayed as one', async (t) => {
    const path = '/plain/head';
    upstream.on(path, answers({ framing: 'none', fields: ['Content-Length', '1000', 'X-Kept', '1'] }));
    const head = (gateway: Gateway) =>
      gateway.request({ method: 'HEAD', path, headers: ['Idempotency-Key', 'head', 'X-A', 'b'] });
    const ran = await head(first);
    isFirst(t, ran);
    const again = await head(last);
    isReplay(t, ran, again);
    t.equal(again.header('content-length'), '1000');
    t.equal(upstream.count(path), 1);
  });

  t.test('an answer that is too large is given whole, and its repeats are told that it was not kept', async (t) => {
    for (const framing of ['length', 'chunked'] as const) {
      const path = `/plain/too-large-${framing}`;
      upstream.on(path, answers({ status: 201, content: Buffer.alloc(MAX_SHARED + 1, 'a'), framing }));
      const ran = await post(first, path, framing);
      isFirst(t, ran, 201);
      t.equal(ran.body.length, MAX_SHARED + 1);
      t.equal(ran.cut, false);
      for (const gateway of [first, last]) {
        const again = await post(gateway, path, framing);
        isProblem(t, again, 'response-not-kept');
        t.equal(again.status, 409);
        isProblem(t, await post(gateway, path, framing, { body: 'B' }), 'key-reused');
      }
      t.equal(upstream.count(path), 1, framing);
    }
  });

  t.test('a rule may keep nothing of the content, or only the members it names', async (t) => {
    const content = '{"id":12345678901234567890,"secret":"s","owner":{"name":"n","card":"c"},"list":[1]}';
    const fields = ['Content-Type', 'application/json', 'Location', '/things/1', 'ETag', '"v1"'];
    for (const path of ['/bare/none', '/members/some']) {
      upstream.on(path, answers({ status: 201, content, fields }));
      const ran = await post(first, path, 'part');
      isFirst(t, ran, 201);
      t.equal(ran.text, content, 'the first one has everything');
      for (const gateway of [first, last]) {
        const again = await post(gateway, path, 'part');
        t.equal(again.status, 201);
        t.equal(again.text, path === '/bare/none' ? '' : '{"id":12345678901234567890,"owner":{"name":"n"}}');
        t.equal(again.header('location'), '/things/1');
        t.equal(again.header('etag'), null);
        t.equal(again.header('idempotent-replayed'), 'true');
      }
      t.equal(upstream.count(path), 1);
    }
  });

  t.test('with a wait repeats in flight get the result', async (t) => {
    const path = '/waits/ten';
    const held = upstream.holds(path, RICH);
    const leader = post(first, path, 'wait');
    await held.arrived(1);
    const waiting = burst(10, (index) => post(index % 2 === 0 ? first : last, path, 'wait'));
    await allCaughtUp(gateways);
    isProblem(t, await post(first, path, 'wait', { body: 'B' }), 'key-reused');
    isProblem(t, await post(last, path, 'wait', { body: 'B' }), 'key-reused');
    held.release();
    const released = performance.now();
    const ran = await leader;
    isFirst(t, ran, 201);
    for (const answer of await waiting) {
      t.equal(answer.status, 201);
      t.ok(answer.body.equals(ran.body));
      t.equal(answer.header('idempotent-replayed'), 'true');
      for (const name of ['set-cookie', 'date']) t.equal(answer.header(name), null);
      t.same(linesWithout(answer, OF_THE_COPY, OF_THE_MESSAGE), linesWithout(ran, OF_THE_FIRST, OF_THE_MESSAGE));
    }
    t.ok(performance.now() - released < PROMPT_MS, 'by push');
    isReplay(t, ran, await post(last, path, 'wait'));
    t.equal(upstream.count(path), 1);
  });

  t.test('who waits for an answer that is not kept is told why', async (t) => {
    const later = upstream.holds('/waits/later', { status: 429 });
    const large = upstream.holds('/waits/large', { content: Buffer.alloc(MAX_SHARED + 1) });
    for (const [path, held, status, code] of [
      ['/waits/later', later, 429, 'leader-failed'],
      ['/waits/large', large, 200, 'response-not-kept'],
    ] as const) {
      const leader = post(first, path, path);
      await held.arrived(1);
      const waiting = [post(first, path, path), post(last, path, path)];
      await allCaughtUp(gateways);
      held.release();
      isFirst(t, await leader, status);
      for (const answer of await Promise.all(waiting)) isProblem(t, answer, code, LEASE_SECONDS);
      t.equal(upstream.count(path), 1);
    }
    isFirst(t, await post(last, '/waits/later', '/waits/later'), 429);
    t.equal(upstream.count('/waits/later'), 2, 'its key is free');
  });

  t.test('an upstream that replays by itself does not double the fields of a replay', async (t) => {
    const path = '/plain/replaying-upstream';
    const fields = ['Idempotent-Replayed', 'true', 'Idempotency-Expires', 'Thu, 01 Jan 1970 00:00:00 GMT', 'Age', '7'];
    upstream.on(path, answers({ fields, content: 'x' }));
    const ran = await post(first, path, 'twice');
    t.equal(ran.header('idempotent-replayed'), 'true', "the upstream's own");
    for (const gateway of [first, last]) {
      const again = await post(gateway, path, 'twice');
      t.same(again.headerLines('idempotent-replayed'), ['true']);
      t.equal(again.headerLines('idempotency-expires').length, 1);
      t.ok(Date.parse(again.header('idempotency-expires') ?? '') > Date.now());
      t.match(again.header('age'), /^\d+$/);
    }
    t.equal(upstream.count(path), 1);
  });

  t.test('after its wait a repeat is told that the first one is still in flight', async (t) => {
    const path = '/impatient/slow';
    const held = upstream.holds(path);
    const leader = post(first, path, 'slow');
    await held.arrived(1);
    for (const answer of await Promise.all([post(first, path, 'slow'), post(last, path, 'slow')])) {
      isProblem(t, answer, 'in-flight', LEASE_SECONDS);
      t.equal(answer.status, 409);
      t.ok(answer.elapsedMs >= 290, `after ${Math.round(answer.elapsedMs)} ms`);
    }
    held.release();
    isReplay(t, await leader, await post(last, path, 'slow'));
    t.equal(upstream.count(path), 1);
  });

  t.test('a client that leaves in flight gets the answer when it asks again', async (t) => {
    for (const rule of ['plain', 'waits']) {
      const path = `/${rule}/left`;
      const held = upstream.holds(path, RICH);
      const leaving = first.send(keyed('left', { path }));
      await held.arrived(1);
      leaving.leave();
      await t.rejects(leaving.answer);
      await allCaughtUp(gateways);
      if (rule === 'plain') isProblem(t, await post(last, path, 'left'), 'in-flight', LEASE_SECONDS);
      held.release();
      await eventually('the answer being recorded', async () => (await post(last, path, 'left')).status === 201);
      const again = await post(first, path, 'left');
      t.equal(again.header('idempotent-replayed'), 'true');
      t.same(again.headerLines('link'), ['</a>; rel=next', '</b>; rel=prev']);
      t.equal(upstream.count(path), 1);
    }
  });

  t.test('an answer is kept from its end for as long as the rule says', async (t) => {
    const path = '/brief/two';
    const gate = new Gate();
    upstream.on(path, async (call) => {
      if (call.ordinal === 1) await gate.opened;
      await answers({ content: `call ${call.ordinal}` })(call);
    });
    // The flight is longer than the retention: that begins with its end.
    const leader = post(first, path, 'brief');
    await upstream.arrived(1, path);
    await delay(2_300);
    isProblem(t, await post(last, path, 'brief'), 'in-flight', LEASE_SECONDS);
    gate.open();
    const ran = await leader;
    isFirst(t, ran);
    await delay(1_000);
    const again = await post(last, path, 'brief');
    isReplay(t, ran, again, 2);
    t.equal(again.header('age'), '1');
    await delay(2_000);
    allEqual(t, [await post(first, path, 'brief')], 200, 'call 2');
    t.equal(upstream.count(path), 2);
  });

  t.test('no key is written to the log', async (t) => {
    const path = '/plain/unlogged';
    isFirst(t, await post(first, path, 'a-key-like-no-other'));
    isProblem(t, await post(first, path, 'a-key-like-no-other', { body: 'B' }), 'key-reused');
    await first.caughtUp();
    t.notOk(gateways.some((gateway) => gateway.output.includes('a-key-like-no-other')));
    if (redis !== null) t.notOk(String(await redis.command('KEYS', '*')).includes('like-no-other'));
  });
}

t.test('with the memory store', async (t) => scenarios(t, '{ kind: memory }', 1, null));

t.test('with Redis and two gateways', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  await scenarios(t, `{ kind: redis, url: "${redis.url}", commandTimeout: 2s }`, 2, redis);
});
