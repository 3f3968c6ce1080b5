import t from 'tap';
import { fieldLines } from '../../src/core/field-lines.js';
import { cacheStatus } from '../../src/http/cache-status.js';
import {
  ageSecondsOf,
  announcedTrailers,
  clientFields,
  contentLengthOf,
  forwardedFields,
  goesUpstream,
  hasNoContent,
  requestTrailers,
  sharedFields,
  upstreamFields,
  withHost,
} from '../../src/http/fields.js';
import { problemMessage } from '../../src/http/problem.js';

const peer = { address: '192.0.2.7', scheme: 'http', trusted: false } as const;
const sent = (fields: string[], trusted = false) =>
  upstreamFields(forwardedFields(fields, { ...peer, trusted }, 'id-1'), '1.1', 'id-1');

t.test('connection-specific fields never cross, nor those that Connection names', async (t) => {
  const fields = [
    ...[
      'Host',
      'a',
      'Connection',
      'close, X-Hop',
      'connection',
      'x-other',
      'Keep-Alive',
      'timeout=5',
      'TE',
      'trailers',
    ],
    ...['Proxy-Connection', 'keep-alive', 'Transfer-Encoding', 'chunked', 'Upgrade', 'websocket', 'x-hop', '1'],
    ...['X-Other', '2', 'X-Kept', '3'],
  ];
  t.same(sent(fields).slice(0, 4), ['Host', 'a', 'X-Kept', '3']);
  t.same(clientFields(fields), ['Host', 'a', 'X-Kept', '3']);
});

t.test('what is said never to go upstream does not', async (t) => {
  const names = [
    'Connection',
    'Keep-Alive',
    'Proxy-Connection',
    'TE',
    'Transfer-Encoding',
    'Upgrade',
    'Expect',
    'Trailer',
  ];
  for (const name of names) {
    t.equal(goesUpstream(name), false, name);
    t.same(fieldLines(sent([name, 'x']), name.toLowerCase()), [], name);
  }
  t.ok(goesUpstream('Authorization') && goesUpstream('Trailers'));
  t.same(clientFields(['Trailer', 'X-Sum']), ['Trailer', 'X-Sum'], 'trailers of a response are announced');
});

t.test('Connection cannot take away what the message or its sender is known by', async (t) => {
  const names = ['Content-Length', 'Authorization', 'Cookie', 'X-Forwarded-For', 'Idempotency-Key'];
  const fields = ['Connection', names.join(', '), ...names.flatMap((name) => [name, '1'])];
  for (const name of names) t.ok(fieldLines(sent(fields, true), name.toLowerCase()).length === 1, name);
});

t.test('order, spelling and repetition of the other fields are the sender’s', async (t) => {
  const fields = ['b', '1', 'A', '2', 'B', '3', 'Set-Cookie', 'x=1', 'set-cookie', 'y=2', 'Empty', ''];
  t.same(sent(fields).slice(0, fields.length), fields);
  t.same(clientFields(fields), fields);
});

t.test('what the upstream is told of the client', async (t) => {
  const spoofed = [
    ...['Host', 'shop.example', 'X-Forwarded-For', '10.0.0.1', 'x-forwarded-for', '10.0.0.2'],
    ...['X-Forwarded-Proto', 'https', 'X-Forwarded-Host', 'cdn.example', 'Via', '1.1 edge', 'Expect', '100-continue'],
  ];
  const told = (fields: string[], name: string) => fieldLines(fields, name);
  const distrusted = sent(spoofed);
  t.same(told(distrusted, 'x-forwarded-for'), ['192.0.2.7']);
  t.same(told(distrusted, 'x-forwarded-proto'), ['http']);
  t.same(told(distrusted, 'x-forwarded-host'), ['shop.example']);
  t.same(told(distrusted, 'via'), ['1.1 edge', '1.1 oneflight']);
  t.same(told(distrusted, 'x-request-id'), ['id-1']);
  t.same(told(distrusted, 'expect'), []);
  const trusted = sent(spoofed, true);
  t.same(told(trusted, 'x-forwarded-for'), ['10.0.0.1, 10.0.0.2, 192.0.2.7']);
  t.same(told(trusted, 'x-forwarded-proto'), ['https']);
  t.same(told(trusted, 'x-forwarded-host'), ['cdn.example']);
  t.same(told(trusted, 'host'), ['shop.example']);
  const rewritten = withHost(sent(spoofed), 'api.internal:8080');
  t.same(told(rewritten, 'host'), ['api.internal:8080']);
  t.same(told(rewritten, 'x-forwarded-host'), ['shop.example']);
});

t.test('lengths and ages are read only where they can be', async (t) => {
  t.equal(contentLengthOf(['content-length', '12']), 12);
  for (const value of ['', '-1', '1e3', '0x10', '99999999999999999'])
    t.equal(contentLengthOf(['Content-Length', value]), null);
  t.equal(ageSecondsOf(['Age', '7']), 7);
  t.equal(ageSecondsOf(['Age', 'old']), 0);
  t.ok(hasNoContent('HEAD', 200) && hasNoContent('GET', 204) && hasNoContent('GET', 304));
  t.notOk(hasNoContent('GET', 200));
});

t.test('Cache-Status says what happened and nothing of the key', async (t) => {
  t.equal(cacheStatus({ kind: 'led', stored: 'yes', came: 'at-once' }), 'oneflight; fwd=miss; stored');
  t.equal(cacheStatus({ kind: 'led', stored: 'no', came: 'at-once' }), 'oneflight; fwd=miss');
  t.equal(cacheStatus({ kind: 'led', stored: 'failed', came: 'at-once' }), 'oneflight; fwd=miss; detail=not-stored');
  t.equal(cacheStatus({ kind: 'led', stored: 'no', came: 'queued' }), 'oneflight; fwd=miss; detail=queued');
  t.equal(cacheStatus({ kind: 'collapsed' }), 'oneflight; fwd=miss; collapsed');
  t.equal(cacheStatus({ kind: 'hit', ttlMs: 2_001 }), 'oneflight; hit; ttl=3');
  t.equal(cacheStatus({ kind: 'bypassed', reason: 'key-missing' }), 'oneflight; fwd=bypass; detail=key-missing');
  t.equal(cacheStatus({ kind: 'passed' }), null);
});

t.test('a problem is whole: type, status, Proxy-Status, and Retry-After where a repeat makes sense', async (t) => {
  const conflict = problemMessage('in-flight', { status: 429, retryAfterSeconds: 3 });
  t.equal(conflict.status, 429);
  t.match(JSON.parse(conflict.content.toString()), { type: 'urn:oneflight:problem:in-flight', status: 429 });
  t.same(fieldLines(conflict.fields, 'retry-after'), ['3']);
  t.same(fieldLines(conflict.fields, 'proxy-status'), ['oneflight; error=http_request_denied; details="in-flight"']);
  t.same(fieldLines(conflict.fields, 'content-type'), ['application/problem+json']);
  t.same(fieldLines(problemMessage('leader-failed').fields, 'retry-after'), ['1']);
  t.same(fieldLines(problemMessage('no-route').fields, 'retry-after'), []);
  const refused = problemMessage('upstream-unreachable', { proxyError: 'connection_refused' });
  t.match(fieldLines(refused.fields, 'proxy-status')[0], /error=connection_refused/);
});

t.test('what decides about keys is what the upstream will see', async (t) => {
  const forwarded = (fields: string[], trusted = false) => forwardedFields(fields, { ...peer, trusted }, 'id-1');
  const planted = forwarded(['X-Tenant', 'victim', 'Connection', 'close, X-Tenant', 'X-Forwarded-For', '10.9.9.9']);
  t.same(fieldLines(planted, 'x-tenant'), [], 'taken away by the client itself');
  t.same(fieldLines(planted, 'x-forwarded-for'), ['192.0.2.7'], 'claimed by somebody who is not believed');
  t.same(fieldLines(forwarded(['X-Request-Id', 'other']), 'x-request-id'), [], 'an id that was not taken');
  t.same(fieldLines(forwarded(['X-Request-Id', 'id-1']), 'x-request-id'), ['id-1']);
});

t.test(
  'what is of one exchange is for its own client, whatever its spelling; the rest keeps order and lines',
  async (t) => {
    const fields = [
      'Link',
      '</a>',
      'SERVER-Timing',
      'db',
      'x-request-id',
      '1',
      'link',
      '</b>',
      'Date',
      'd',
      'Server',
      's',
    ];
    t.same(sharedFields(fields), ['Link', '</a>', 'link', '</b>', 'Date', 'd', 'Server', 's']);
    t.same(sharedFields([]), []);
  },
);

t.test('trailers of a request cross, but for those that the message or its sender is known by', async (t) => {
  t.same(requestTrailers(['X-A', '1', 'x-a', '2', 'Checksum', 'c']), ['X-A', '1', 'x-a', '2', 'Checksum', 'c']);
  for (const name of [
    'Host',
    'Content-Length',
    'Transfer-Encoding',
    'Trailer',
    'TE',
    'Connection',
    'Upgrade',
    'Expect',
  ]) {
    t.same(requestTrailers([name, 'x']), [], name);
  }
  for (const name of ['Authorization', 'cookie', 'Idempotency-Key', 'X-Forwarded-For', 'Via', 'X-Request-Id']) {
    t.same(requestTrailers([name, 'x']), [], name);
  }
  t.same(announcedTrailers(['A', '1', 'trailer', 'X-A', 'Trailer', 'X-B']), ['Trailer', 'X-A', 'Trailer', 'X-B']);
});
