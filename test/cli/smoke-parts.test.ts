/** The pure parts of `oneflight smoke`: request files, changed requests, verdicts. */

import t from 'tap';
import { HttpFileError, parseHttpFile } from '../../src/cli/http-file.js';
import { jsonSpan } from '../../src/cli/json-span.js';
import { changePart, PartError, parsePart, partText, readPart } from '../../src/cli/request-parts.js';
import type { Answer, Outgoing } from '../../src/cli/send.js';
import { judgeAlone, judgeDifferent, judgeSame, type KeyedRule } from '../../src/cli/smoke-verdict.js';
import type { KeyPart } from '../../src/core/rule.js';
import { coalescePolicy, queuePolicy, replayPolicy } from '../support/rules.js';

const SALT = 'a1b2c3';

function file(text: string): Outgoing[] {
  return parseHttpFile(Buffer.from(text));
}

function only(text: string): Outgoing {
  const [request] = file(text);
  if (request === undefined) throw new Error('no request');
  return request;
}

function part(text: string): KeyPart {
  const parsed = parsePart(text);
  if (parsed === null) throw new Error(`not a part: ${text}`);
  return parsed;
}

t.test('a request file', async (t) => {
  t.test('gives request line, field lines and content as they stand', async (t) => {
    const request = only('# a note\n\nPOST /a%2Fb/../c?x=1 HTTP/1.1\r\nX-A:  one \r\nx-a: two\r\n\r\n{"n": 1.0}\r\n');
    t.equal(request.method, 'POST');
    t.equal(request.target, '/a%2Fb/../c?x=1');
    t.strictSame(request.fields, ['X-A', 'one', 'x-a', 'two']);
    t.equal(request.content.toString(), '{"n": 1.0}');
  });

  t.test('keeps every byte of the content', async (t) => {
    const bytes = Buffer.from([0x50, 0x55, 0x54, 0x20, 0x2f, 0x0a, 0x0a, 0x00, 0xff, 0x0a, 0xc3, 0xa9, 0x0a]);
    t.strictSame(parseHttpFile(bytes)[0]?.content, Buffer.from([0x00, 0xff, 0x0a, 0xc3, 0xa9]));
  });

  t.test('leaves out the fields that frame the content', async (t) => {
    t.strictSame(only('POST /\nContent-Length: 99\nTransfer-Encoding: chunked\nAccept: */*\n\nx').fields, [
      'Accept',
      '*/*',
    ]);
  });

  t.test('may name the API by a whole URL', async (t) => {
    const request = only('GET https://api.example:8443/a?b#c');
    t.equal(request.target, '/a?b');
    t.strictSame(request.fields, ['Host', 'api.example:8443']);
    t.strictSame(only('GET http://api.example\nHost: other').fields, ['Host', 'other']);
  });

  t.test('may hold several requests', async (t) => {
    t.strictSame(
      file('### first\nGET /1\n\n###\n\nGET /2\nA: b\n### only a note\n# nothing\n').map(({ target }) => target),
      ['/1', '/2'],
    );
  });

  t.test('makes what a client makes anew in every rendering', async (t) => {
    const text = 'POST /\nX-Request-Id: {{$uuid}}\n\n{"at": {{$timestamp}}, "n": {{$randomInt}}, "keep": "{{name}}"}';
    const [one, two] = [only(text), only(text)];
    t.match(one.fields[1], /^[0-9a-f-]{36}$/);
    t.not(one.fields[1], two.fields[1]);
    t.match(one.content.toString(), /^\{"at": \d+, "n": \d+, "keep": "\{\{name\}\}"\}$/);
  });

  t.test('is refused with the line that is wrong', async (t) => {
    const message = (text: string): string => {
      try {
        file(text);
        return 'accepted';
      } catch (error) {
        return error instanceof HttpFileError ? error.message : `threw ${String(error)}`;
      }
    };
    t.match(message(''), 'no request in it');
    t.match(message('# note\nPOST'), 'line 2: expected a request line');
    t.match(message('GET /\nno colon'), 'line 2: expected a field');
    t.match(message('GET orders'), 'line 1: expected a path');
    t.match(message('GET /\nA: {{$nope}}'), 'line 2: expected one of');
  });
});

t.test('the span of a JSON value', async (t) => {
  const at = (text: string, pointer: string): string | null => {
    const content = Buffer.from(text);
    const span = jsonSpan(content, pointer);
    return span && content.subarray(span.start, span.end).toString();
  };
  const text = ' { "a" : [1, {"b/c": "x\\"y]"}, [] ,null], "d~": {}, "é": "ü", "a2":12345678901234567890 } ';
  t.equal(at(text, ''), text.trim());
  t.equal(at(text, '/a/0'), '1');
  t.equal(at(text, '/a/1/b~1c'), '"x\\"y]"');
  t.equal(at(text, '/a/2'), '[]');
  t.equal(at(text, '/a/3'), 'null');
  t.equal(at(text, '/d~0'), '{}');
  t.equal(at(text, '/é'), '"ü"');
  t.equal(at('{"\\u00e9":1}', '/é'), '1');
  t.equal(at(text, '/a2'), '12345678901234567890');
  t.equal(at('{"a":1,"a":2}', '/a'), '2', 'the last of duplicate members');
  t.equal(at(text, '/none'), null);
  t.equal(at(text, '/a/9'), null);
  t.equal(at(text, '/a2/0'), null);
  t.equal(at('{"__proto__":{"x":1}}', '/__proto__/x'), '1');
});

t.test('a key part', async (t) => {
  t.test('is read as it is written in a rule', async (t) => {
    t.strictSame(parsePart('body: /refreshToken'), { from: 'body', name: '/refreshToken', optional: false });
    t.strictSame(parsePart('{ header: X-Tenant }'), { from: 'header', name: 'x-tenant', optional: false });
    t.strictSame(parsePart('param:id'), { from: 'param', name: 'id', optional: false });
    for (const text of ['', 'body', 'head: x', 'param:', 'body: token', 'body: /~2', 'request: body'])
      t.equal(parsePart(text), null, text);
  });

  const PATH = '/shops/:shop/items/:item';
  const request = only(
    'POST /shops/one%2F1/items/2?q=a&r=%C3%A9&q=b\nX-Tenant: t-0001-0001-0001\nCookie: sid=abc; theme=dark\n\n' +
      '{"big": 12345678901234567890, "token": "rt-aaaaaaaaaaaaaaaaaaaa", "ok": true, "list": [1.0]}',
  );
  const ALL = [
    'header: x-tenant',
    'header: x-absent',
    'query: q',
    'query: r',
    'query: absent',
    'param: shop',
    'param: item',
    'cookie: sid',
    'cookie: absent',
    'body: /token',
    'body: /big',
    'body: /ok',
    'body: /list',
    'request: host',
    'request: path',
    'request: target',
    'request: content',
  ].map(part);

  for (const varied of ALL) {
    t.test(`can be varied alone: ${partText(varied)}`, async (t) => {
      const changed = changePart(request, varied, PATH, SALT);
      t.not(readPart(changed, varied, PATH), readPart(request, varied, PATH));
      const others = ALL.filter(({ from }) => from !== 'request' && varied.from !== 'request' && from !== varied.from);
      for (const each of others) t.equal(readPart(changed, each, PATH), readPart(request, each, PATH), partText(each));
      if (varied.from === 'body') JSON.parse(changed.content.toString());
      t.not(
        readPart(changed, varied, PATH),
        varied.name === '/ok' ? 'true' : readPart(changePart(request, varied, PATH, 'z9y8x7'), varied, PATH),
        'every salt gives another value',
      );
    });
  }

  t.test('keeps the spelling of all other JSON', async (t) => {
    const changed = changePart(request, part('body: /token'), PATH, SALT).content.toString();
    t.equal(changed, request.content.toString().replace('aaaaaa"', `${SALT}"`));
  });

  t.test('can be varied in a form', async (t) => {
    const form = only('POST /\n\na=1&b=two&b=three');
    const changed = changePart(form, part('form: b'), '/', SALT);
    t.equal(changed.content.toString(), `a=1&b=two${SALT}&b=three${SALT}`);
  });

  t.test('that the request does not have is an error where it cannot be made up', async (t) => {
    t.throws(() => changePart(request, part('body: /none'), PATH, SALT), PartError);
    t.throws(() => changePart(only('POST /\n\nnot json'), part('body: /none'), PATH, SALT), PartError);
    t.throws(() => changePart(request, part('param: none'), PATH, SALT), PartError);
    t.throws(() => changePart(only('GET /a'), part('request: path'), '/a', SALT), PartError);
    t.throws(
      () => changePart(only('GET /a:b'), part('request: path'), '/a:b', SALT),
      /one path only/,
      'a colon inside a segment names no parameter',
    );
  });
});

t.test('another Idempotency-Key is a well-formed one, quoted or bare', async (t) => {
  const key: KeyPart = { from: 'idempotency-key', name: 'idempotency-key', optional: false };
  for (const [given, changed] of [
    ['"abc"', '"abc-s1"'],
    ['abc', 'abc-s1'],
  ]) {
    const request: Outgoing = {
      method: 'POST',
      target: '/',
      fields: ['Idempotency-Key', given!],
      content: Buffer.alloc(0),
    };
    t.same(changePart(request, key, '/', 's1').fields, ['Idempotency-Key', changed!]);
  }
});

t.test('a verdict', async (t) => {
  const policy = coalescePolicy({
    scope: 'refresh',
    key: [part('body: /token')],
    leaseMs: 5_000,
    keep: { kind: 'fixed', keepMs: 0 },
  });
  const rule: KeyedRule = {
    name: 'refresh',
    match: { methods: ['POST'], path: '/refresh', host: null, headers: [] },
    upstream: 'api',
    maxRequests: Number.POSITIVE_INFINITY,
    policy,
  };
  const answer = (cacheStatus: string | null, content = 'x', status = 200): Answer => ({
    status,
    fields: cacheStatus === null ? [] : ['Cache-Status', cacheStatus],
    content: Buffer.from(content),
    tookMs: 4,
  });
  const problem = (code: string, status: number): Answer => ({
    status,
    fields: ['Content-Type', 'application/problem+json'],
    content: Buffer.from(`{"type":"urn:oneflight:problem:${code}"}`),
    tookMs: 4,
  });
  const LED = answer('oneflight; fwd=miss; stored');
  const FOLLOWED = answer('oneflight; fwd=miss; collapsed');
  const KEPT = answer('oneflight; hit; ttl=3');
  const TOKEN = part('body: /token');

  t.test('on one request alone', async (t) => {
    t.equal(judgeAlone(rule, LED).kind, 'ok');
    t.equal(judgeAlone(rule, answer('edge; hit, oneflight; fwd=miss')).kind, 'ok', 'behind another cache');
    t.match(judgeAlone(rule, answer(null)), { kind: 'fail', reason: 'no rule was applied' });
    t.match(judgeAlone(rule, answer('edge; hit; detail="a, oneflight; hit"')), { kind: 'fail', reason: 'no rule' });
    t.match(judgeAlone(rule, answer('oneflight; fwd=bypass; detail=key-missing')), {
      kind: 'fail',
      reason: 'forwarded unprotected (key-missing): does the request have `body: /token`?',
    });
    t.match(judgeAlone(rule, problem('upstream-unreachable', 502)), { kind: 'fail', reason: 'upstream-unreachable' });
    t.match(judgeAlone(rule, FOLLOWED), { kind: 'fail', reason: 'somebody else' });
  });

  t.test('on two requests with one key', async (t) => {
    t.equal(judgeSame(rule, [LED, FOLLOWED], []).kind, 'ok');
    t.equal(judgeSame(rule, [KEPT, KEPT], []).kind, 'ok');
    t.equal(judgeSame(rule, [KEPT, LED], []).kind, 'ok');
    t.match(judgeSame(rule, [LED, answer('oneflight; fwd=miss; collapsed', 'y')], []), {
      kind: 'fail',
      reason: 'differ',
    });
    t.match(judgeSame(rule, [LED, LED], [part('header: x-request-id')]), {
      kind: 'fail',
      reason: 'too fine: two equal requests had two keys. Look at `header: x-request-id`',
    });
    t.match(judgeSame(rule, [LED, LED], []), { kind: 'inconclusive', reason: 'nothing is kept' });
    t.match(judgeSame(rule, [LED, answer(null)], []), { kind: 'fail', reason: 'no rule' });
  });

  t.test('on two requests with different keys', async (t) => {
    t.equal(judgeDifferent(rule, [LED, LED], TOKEN).kind, 'ok');
    t.equal(judgeDifferent(rule, [KEPT, LED], TOKEN).kind, 'ok', 'the unchanged one may have been kept');
    t.match(judgeDifferent(rule, [LED, FOLLOWED], part('body: /user')), {
      kind: 'fail',
      reason: 'too coarse: requests that differ in `body: /user` share one. `body: /user` is not in it',
    });
    t.equal(judgeDifferent(rule, [KEPT, KEPT], TOKEN).kind, 'fail');
    t.equal(judgeDifferent(rule, [FOLLOWED, LED], TOKEN).kind, 'fail');
    t.match(judgeDifferent(rule, [LED, problem('wait-timeout', 504)], TOKEN), { kind: 'fail', reason: 'too coarse' });
  });

  t.test('on a rule that rejects', async (t) => {
    const rejecting: KeyedRule = {
      ...rule,
      policy: { ...policy, kind: 'reject', conflict: { status: 429, retryAfter: { kind: 'computed' } } },
    };
    const PASSED = answer('oneflight; fwd=miss');
    t.equal(judgeSame(rejecting, [problem('in-flight', 429), PASSED], []).kind, 'ok');
    t.match(judgeSame(rejecting, [PASSED, problem('in-flight', 409)], []), { kind: 'fail', reason: 'got 409' });
    t.match(judgeSame(rejecting, [PASSED, answer('oneflight; fwd=miss', 'x', 429)], []), { kind: 'inconclusive' });
    t.equal(judgeSame(rejecting, [problem('in-flight', 429), problem('in-flight', 429)], []).kind, 'fail');
    t.equal(judgeDifferent(rejecting, [PASSED, PASSED], TOKEN).kind, 'ok');
    t.match(judgeDifferent(rejecting, [PASSED, problem('in-flight', 429)], TOKEN), {
      kind: 'fail',
      reason: 'too coarse',
    });
    t.match(judgeAlone(rejecting, problem('in-flight', 429)), { kind: 'fail', reason: 'somebody else' });
  });

  t.test('on a rule that replays', async (t) => {
    const replaying: KeyedRule = { ...rule, policy: replayPolicy() };
    const REFUSED = problem('in-flight', 409);
    t.match(judgeSame(replaying, [LED, REFUSED], []), { kind: 'ok', reason: 'one passed, one got 409' });
    t.equal(judgeSame(replaying, [KEPT, KEPT], []).kind, 'ok');
    t.equal(judgeSame(replaying, [REFUSED, REFUSED], []).kind, 'fail');
    const waiting: KeyedRule = { ...rule, policy: replayPolicy({ wait: { kind: 'bounded', waitMs: 1, pollMs: 1 } }) };
    t.equal(judgeSame(waiting, [LED, REFUSED], []).kind, 'fail', 'with wait it would have waited');
  });

  t.test('on a rule whose caller cannot be told', async (t) => {
    const identity = { kind: 'parts', parts: [{ from: 'header', name: 'x-user', optional: false }] } as const;
    const strict: KeyedRule = { ...rule, policy: { ...policy, identity } };
    t.match(judgeAlone(strict, answer('oneflight; fwd=bypass; detail=key-missing')), {
      kind: 'fail',
      reason: 'does the request have `body: /token`, `header: x-user`?',
    });
  });

  t.test('on a rule that queues', async (t) => {
    const queueing: KeyedRule = { ...rule, policy: queuePolicy() };
    const AT_ONCE = answer('oneflight; fwd=miss');
    const QUEUED = answer('oneflight; fwd=miss; detail=queued', 'y');
    t.match(judgeSame(queueing, [QUEUED, AT_ONCE], []), { kind: 'ok', reason: 'one after the other' });
    t.equal(judgeSame(queueing, [AT_ONCE, QUEUED], []).kind, 'ok');
    t.match(judgeSame(queueing, [QUEUED, QUEUED], []), { kind: 'fail', reason: 'somebody else' });
    t.match(judgeSame(queueing, [AT_ONCE, AT_ONCE], []), { kind: 'inconclusive', reason: 'before two' });
    const two: KeyedRule = { ...rule, policy: queuePolicy({ concurrency: 2 }) };
    t.match(judgeSame(two, [AT_ONCE, AT_ONCE], []), { kind: 'inconclusive', reason: 'concurrency is 2' });
    t.match(judgeSame(queueing, [AT_ONCE, problem('wait-timeout', 504)], []), { kind: 'fail', reason: 'wait-timeout' });
    t.equal(judgeDifferent(queueing, [AT_ONCE, AT_ONCE], TOKEN).kind, 'ok');
    t.match(judgeDifferent(queueing, [AT_ONCE, QUEUED], TOKEN), { kind: 'fail', reason: 'too coarse' });
    t.match(judgeDifferent(queueing, [AT_ONCE, problem('queue-full', 429)], TOKEN), {
      kind: 'fail',
      reason: 'too coarse',
    });
    t.match(judgeAlone(queueing, QUEUED), { kind: 'fail', reason: 'somebody else' });
  });
});
