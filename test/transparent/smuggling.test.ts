/**
 * Requests that two servers could read differently are refused, and nothing behind them on their connection is executed.
 * Whatever is forwarded reads in one way only.
 */

import t from 'tap';
import { allResponses, KINDS, lastRequest, startStage } from './stage.js';
import { fieldsOf, statusOf } from './strict-reading.js';

t.setTimeout(60_000);

const { gateway, witness } = await startStage(t);

/** The bytes of a request for this target. */
type Request = (target: string) => string;
type Row = readonly [name: string, request: Request, status?: number];

const HOST = 'Host: a\r\n';
const LAST = '0\r\n\r\n';

function post(fields: string, content: string, version = '1.1'): Request {
  return (target) => `POST ${target} HTTP/${version}\r\n${HOST}${fields}\r\n\r\n${content}`;
}

function get(fields: string): Request {
  return (target) => `GET ${target} HTTP/1.1\r\n${fields}\r\n`;
}

function coded(coding: string): Request {
  return post(`Transfer-Encoding:${coding}`, LAST);
}

function long(length: string): Request {
  return post(`Content-Length:${length}`, 'hello');
}

function chunked(chunks: string): Request {
  return post('Transfer-Encoding: chunked', chunks);
}

function line(requestLine: (target: string) => string): Request {
  return (target) => `${requestLine(target)}\r\n${HOST}\r\n`;
}

const REFUSED: readonly Row[] = [
  // Two ways to tell the length.
  ['a length, then a coding', post('Content-Length: 5\r\nTransfer-Encoding: chunked', LAST)],
  ['a coding, then a length', post('Transfer-Encoding: chunked\r\nContent-Length: 5', LAST)],
  ['a length and the coding identity', post('Content-Length: 5\r\nTransfer-Encoding: identity', 'hello')],
  ['a length and an empty coding', post('Content-Length: 5\r\nTransfer-Encoding:', 'hello')],
  ['equal lengths', post('Content-Length: 5\r\nContent-Length: 5', 'hello')],
  ['different lengths', post('Content-Length: 5\r\nContent-Length: 6', 'hello')],
  // Lengths that are none.
  ...[' +5', ' 5,5', ' 5, 5', ' 5 5', ' 0x5', ' -1', ' 5.0', ' 5e0', ' 5;', '', ' five', ' \x0b5', ' 5_0'].map(
    (length): Row => [`length ${JSON.stringify(length)}`, long(length)],
  ),
  ['a length that is counted no more', long(' 9007199254740993')],
  ['a length past 64 bits', long(' 18446744073709551621')],
  // Codings that are not "chunked" and nothing else.
  ...[
    ' xchunked',
    ' chunked, identity',
    ' identity',
    ' identity, chunked',
    ' gzip, chunked',
    ' chunked, chunked',
    ' chunked,',
    ' , chunked',
    ' chunked;q=1',
    ' "chunked"',
    ' chunked\x00',
    ' \x0bchunked',
    ' \xa0chunked',
    ' chunked\xa0',
    ' chun\tked',
    '\r\n chunked',
    '',
  ].map((coding): Row => [`coding ${JSON.stringify(coding)}`, coded(coding)]),
  ['two codings', post('Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked', LAST)],
  ['two codings, the last one chunked', post('Transfer-Encoding: identity\r\nTransfer-Encoding: chunked', LAST)],
  ['two codings, the last one empty', post('Transfer-Encoding: chunked\r\nTransfer-Encoding:', LAST)],
  ['a coding in HTTP/1.0', post('Transfer-Encoding: chunked', LAST, '1.0')],
  ['a coding in HTTP/1.0 that stays open', post('Connection: keep-alive\r\nTransfer-Encoding: chunked', LAST, '1.0')],
  // Fields that are none.
  ['space before the colon of a coding', post('Transfer-Encoding : chunked', LAST)],
  ['tab before the colon of a coding', post('Transfer-Encoding\t: chunked', LAST)],
  ['space before the colon of a length', post('Content-Length : 5', 'hello')],
  ['space before a first field', (target) => `GET ${target} HTTP/1.1\r\n X-A: b\r\n${HOST}\r\n`],
  ['a folded field', get(`${HOST}X-A: a\r\n b\r\n`)],
  ['a field folded with a tab', get(`${HOST}X-A: a\r\n\tb\r\n`)],
  ['CR in a value', get(`${HOST}X-A: a\rb\r\n`)],
  ['CR for the end of a field', get(`${HOST}X-A: a\rX-B: b\r\n`)],
  ['two CR at the end of a field', get(`${HOST}X-A: a\r\r\n`)],
  ['LF for the end of a field', get(`${HOST}X-A: a\nX-B: b\r\n`)],
  ['LF everywhere', (target) => `GET ${target} HTTP/1.1\nHost: a\n\n`],
  ['LF for the end of the fields', (target) => `GET ${target} HTTP/1.1\r\n${HOST}\n`],
  ['NUL in a value', get(`${HOST}X-A: a\x00b\r\n`)],
  ['a control byte in a value', get(`${HOST}X-A: a\x01b\r\n`)],
  ['DEL in a value', get(`${HOST}X-A: a\x7fb\r\n`)],
  ['NUL in a name', get(`${HOST}X\x00A: b\r\n`)],
  ['a byte beyond ASCII in a name', get(`${HOST}X\xe9: b\r\n`)],
  ['a field without a name', get(`${HOST}: b\r\n`)],
  ['a field without a colon', get(`${HOST}XA\r\n`)],
  // Hosts.
  ['two hosts', get('Host: a\r\nHost: b\r\n')],
  ['two equal hosts', get('Host: a\r\nhost: a\r\n')],
  ['no host', get('')],
  ...['a b', 'a, b', 'a@b', 'a/b', 'a?b', 'a#b', 'a\\b', 'a:b', 'a:1:2', 'a\xe9', '[a', '<a>'].map(
    (host): Row => [`host ${JSON.stringify(host)}`, get(`Host: ${host}\r\n`)],
  ),
  ['another host in the target', line((target) => `GET http://b${target} HTTP/1.1`)],
  ['no host in the target', line((target) => `GET http://${target} HTTP/1.1`)],
  // Chunks.
  ...[
    '5 ',
    ' 5',
    '5 ;a=b',
    '5\t',
    '5 0',
    '+5',
    '-5',
    '0x5',
    '0_5',
    '5h',
    '',
    '10000000000000005',
    '5;\n',
    '5;a\rb',
    '5;\x00',
  ].map((size): Row => [`chunk size ${JSON.stringify(size)}`, chunked(`${size}\r\nhello\r\n${LAST}`)]),
  ['LF after a chunk size', chunked(`5\nhello\r\n${LAST}`)],
  ['CR and a byte after a chunk size', chunked(`5\rxhello\r\n${LAST}`)],
  ['an endless chunk extension', chunked(`5;${'a'.repeat(20_000)}\r\nhello\r\n${LAST}`), 413],
  ['LF after a chunk', chunked(`5\r\nhello\n${LAST}`)],
  ['nothing after a chunk', chunked(`5\r\nhello${LAST}`)],
  ['two other bytes after a chunk', chunked(`5\r\nhelloxx${LAST}`)],
  ['a chunk longer than its size', chunked(`5\r\nhello!\r\n${LAST}`)],
  ['LF at the end of the chunks', chunked('5\r\nhello\r\n0\n\n')],
  ['LF at the end of the trailers', chunked('5\r\nhello\r\n0\r\n\n')],
  ['a length in the trailers', chunked('5\r\nhello\r\n0\r\nContent-Length: 99\r\n\r\n')],
  ['a bad trailer', chunked('5\r\nhello\r\n0\r\nX Y: 1\r\n\r\n')],
  // Request lines.
  ['space after the request line', line((target) => `GET ${target} HTTP/1.1 `)],
  ['space before the request line', line((target) => ` GET ${target} HTTP/1.1`)],
  ['tab after the method', line((target) => `GET\t${target} HTTP/1.1`)],
  ['tab before the version', line((target) => `GET ${target}\tHTTP/1.1`)],
  ['LF after the request line', (target) => `GET ${target} HTTP/1.1\n${HOST}\r\n`],
  ['CR after the request line', (target) => `GET ${target} HTTP/1.1\r${HOST}\r\n`],
  ...['HTTP/1.2', 'HTTP/2.0', 'HTTP/3.0', 'HTTP/0.9', 'HTTP/1', 'HTTP/1.10', 'HTTP/01.1', 'http/1.1', 'XTTP/1.1'].map(
    (version): Row => [`version ${version}`, line((target) => `GET ${target} ${version}`)],
  ),
  ['no version', line((target) => `GET ${target}`)],
  ['the preface of HTTP/2', () => 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'],
  ['a method of another protocol', line((target) => `DESCRIBE ${target} RTSP/1.0`), 501],
  ['a target without a slash', line((target) => `GET ${target.slice(1)} HTTP/1.1`)],
  ['a target of another scheme', line((target) => `GET ftp://a${target} HTTP/1.1`)],
  ...['\r', '\n', '\r\n', ' ', '\x00', '\x01', '\x0c', '\x7f', '\xe9'].map(
    (byte): Row => [`${JSON.stringify(byte)} in the target`, line((target) => `GET ${target}${byte}x HTTP/1.1`)],
  ),
];

/** Unusual, and read alike by everybody: forwarded in a form that leaves no doubt. With the content that must arrive. */
const READ: readonly (readonly [name: string, request: Request, content: string])[] = [
  ['a length with zeros in front', long(' 0005'), 'hello'],
  ['the coding in capitals', post('Transfer-Encoding: CHUNKED', `5\r\nhello\r\n${LAST}`), 'hello'],
  ['a chunk size with zeros in front', chunked(`0000000000000000000005\r\nhello\r\n${LAST}`), 'hello'],
  ['chunk extensions', chunked('5;a=b;c="d;\\"e"\r\nhello\r\n0;x\r\n\r\n'), 'hello'],
  ['chunks of one byte', chunked(`1\r\nh\r\n1\r\ne\r\n3\r\nllo\r\n${LAST}`), 'hello'],
  ['content that looks like a request', long(' 5\r\nX: GET / HTTP/1.1'), 'hello'],
  ['empty lines in front', (target) => `\r\n\r\n${long(' 5')(target)}`, 'hello'],
  ['several spaces in the request line', (target) => `GET  ${target}   HTTP/1.1\r\n${HOST}\r\n`, ''],
  ['an empty host', get('Host:\r\n'), ''],
  ['a host that is an address', get('Host: [::1]:8080\r\n'), ''],
  ['no content, chunked', chunked(LAST), ''],
  ['length named by Connection', post('Connection: content-length\r\nContent-Length: 5', 'hello'), 'hello'],
  [
    'coding named by Connection',
    post('Connection: transfer-encoding\r\nTransfer-Encoding: chunked', `5\r\nhello\r\n${LAST}`),
    'hello',
  ],
  ['host named by Connection', post('Connection: host\r\nContent-Length: 5', 'hello'), 'hello'],
  ['a field like a length', post('Content_Length: 50\r\nContent-Length: 5', 'hello'), 'hello'],
  ['a field like a coding', post('Transfer_Encoding: chunked\r\nContent-Length: 5', 'hello'), 'hello'],
];

t.test('what could be read in two ways is refused, and so is what follows', async (t) => {
  for (const kind of KINDS) {
    for (const [index, [name, request, status = 400]] of REFUSED.entries()) {
      const target = `/${kind}/refused-${index}`;
      const responses = await allResponses(gateway.url, request(target) + lastRequest(`${target}-behind`));
      t.same(responses.map(statusOf), [status], `${kind}: ${name}`);
      t.match(fieldsOf(responses[0]?.fields ?? [], 'proxy-status').join(), /^oneflight; error=/, `${kind}: ${name}`);
    }
  }
  await gateway.caughtUp();
  const executed = witness.received.filter(({ target }) => target.includes('/refused-'));
  t.same(
    executed.map(({ startLine }) => startLine),
    [],
    'nothing of them was executed',
  );
  t.same(witness.faults, []);
});

t.test('what is unusual but clear arrives as it was meant, and so does what follows', async (t) => {
  for (const kind of KINDS) {
    for (const [index, [name, request, content]] of READ.entries()) {
      const target = `/${kind}/read-${index}`;
      const responses = await allResponses(gateway.url, request(target) + lastRequest(`${target}-behind`));
      t.same(
        responses.map((response) => response.content.toString()),
        [target, `${target}-behind`],
        `${kind}: ${name}`,
      );
      const [received, ...more] = witness.received.filter((request) => request.target === target);
      t.equal(received?.content.toString(), content, `${kind}: ${name}: content`);
      t.equal(fieldsOf(received?.fields ?? [], 'host').length, 1, `${kind}: ${name}: one Host`);
      t.same(more, [], `${kind}: ${name}: once`);
    }
  }
  t.same(witness.faults, []);
});

t.test('a refusal comes in its turn: what was sent before it is answered first', async (t) => {
  for (const kind of KINDS) {
    const target = `/${kind}/before`;
    const bad = get('Host: a\r\nHost: b\r\n')(`${target}-bad`);
    const good = long(' 5')(target);
    const responses = await allResponses(gateway.url, good + bad + lastRequest(`${target}-behind`));
    t.same(responses.map(statusOf), [200, 400], kind);
  }
  await gateway.caughtUp();
  t.same(
    witness.received.filter(({ target }) => /before-/.test(target)),
    [],
    'and nothing behind it is executed',
  );
});

t.test(
  'content that breaks off in nonsense ends its request with an answer, and arrives nowhere as a whole',
  async (t) => {
    for (const kind of KINDS) {
      const target = `/${kind}/broken`;
      const text = `POST ${target} HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n`;
      const responses = await allResponses(gateway.url, `${text}zz\r\n${lastRequest(`${target}-behind`)}`);
      t.same(responses.map(statusOf), [400], kind);
      t.same((await gateway.request({ method: 'POST', path: target })).status, 200, `${kind}: no key is held`);
    }
    await gateway.caughtUp();
    t.same(
      witness.received.filter(({ target }) => /broken/.test(target)).map(({ content }) => content.length),
      KINDS.map(() => 0),
      'only what was asked afterwards',
    );
    t.same(witness.faults, []);
  },
);

t.test('bytes behind the last request of a connection are no reason to withhold its answer', async (t) => {
  for (const kind of KINDS) {
    for (const [name, closing] of Object.entries({
      'HTTP/1.1': `POST /${kind}/closing-11 HTTP/1.1\r\n${HOST}Connection: close\r\nContent-Length: 5\r\n\r\nhello`,
      'HTTP/1.0': `POST /${kind}/closing-10 HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello`,
    })) {
      for (const behind of ['garbage\x00', lastRequest(`/${kind}/closing-behind`)]) {
        const target = `/${kind}/closing-${name.replace(/\D/g, '')}`;
        const responses = await allResponses(gateway.url, closing + behind);
        t.same(responses.map(statusOf), [200], `${kind} ${name}`);
        t.equal(responses[0]?.content.toString(), target);
      }
    }
  }
  await gateway.caughtUp();
  t.same(
    witness.received.filter(({ target }) => /closing-behind/.test(target)),
    [],
  );
});

t.test('who the client is cannot be said by fields that some servers take for those of the gateway', async (t) => {
  for (const kind of KINDS) {
    const target = `/${kind}/claims`;
    const claims = 'X_Forwarded_For: 192.0.2.1\r\nx-forwarded_proto: https\r\nX_Forwarded-Host: b\r\nX_Other: kept\r\n';
    await allResponses(gateway.url, get(HOST + claims)(target) + lastRequest(`${target}-last`));
    const [received] = witness.received.filter((request) => request.target === target);
    const names = received?.fields.filter((_, at) => at % 2 === 0).map((name) => name.toLowerCase()) ?? [];
    t.same(
      names.filter((name) => name.replaceAll('_', '-').startsWith('x-forwarded-')),
      ['x-forwarded-for', 'x-forwarded-proto', 'x-forwarded-host'],
      kind,
    );
    t.ok(names.includes('x_other'), kind);
  }
});
