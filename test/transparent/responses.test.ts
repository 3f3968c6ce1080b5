/** A response comes as it was sent, over every kind of route, and what cannot be read in one way only does not come at all. */

import t from 'tap';
import {
  allResponses,
  bytesOf,
  KINDS,
  type Kind,
  lastBytesOf,
  lastRequest,
  own,
  type Reply,
  startStage,
  Wire,
} from './stage.js';
import { fieldsOf, type Message, statusOf } from './strict-reading.js';

t.setTimeout(60_000);

const { gateway, witness } = await startStage(t);

let asked = 0;

/** All responses to one request that the upstream answers so, without the answer to the request behind it. */
async function answered(kind: Kind, reply: Reply, method = 'POST'): Promise<Message[]> {
  asked += 1;
  const target = `/${kind}/answer-${asked}`;
  witness.on(target, reply);
  const request = `${method} ${target} HTTP/1.1\r\nHost: a\r\n${method === 'POST' ? 'Content-Length: 0\r\n' : ''}\r\n`;
  const responses = await allResponses(
    gateway.url,
    request + lastRequest('/last'),
    new Set(method === 'HEAD' ? [0] : []),
  );
  const last = responses.pop();
  if (last?.content.toString() !== '/last') throw new Error(`${target}: the request behind it got ${last?.startLine}`);
  const sent = witness.received.filter((received) => received.target === target).length;
  if (sent !== 1) throw new Error(`${target}: sent ${sent} times`);
  return responses;
}

const OK = 'HTTP/1.1 200 OK\r\n';
const CHUNKED = `${OK}Transfer-Encoding: chunked\r\n\r\n`;
const LENGTH = 'Content-Length: 2\r\n\r\nok';

t.test('statuses and reason phrases come as they are', async (t) => {
  const lines = [
    ...[200, 201, 203, 205, 206, 226, 299, 300, 301, 308, 399, 400, 402, 418, 451, 499].map(
      (status) => `${status} Some Words`,
    ),
    ...[500, 502, 504, 505, 599, 600, 700, 999].map((status) => `${status} Other`),
    '200 ',
    '200 caf\xc3\xa9 \xe5\xae\x8c\xe4\xba\x86',
    '200 a\tb  c ',
    '200 200 HTTP/1.1',
    `200 ${'long '.repeat(1_000)}`,
  ];
  for (const kind of KINDS) {
    for (const line of lines) {
      const [response] = await answered(kind, bytesOf(`HTTP/1.1 ${line}\r\n${LENGTH}`));
      t.equal(response?.startLine.trimEnd(), `HTTP/1.1 ${line}`.trimEnd(), kind);
      t.equal(response?.content.toString(), 'ok', `${kind}: ${line}`);
    }
    const [latin] = await answered(kind, bytesOf(`HTTP/1.1 201 cr\xe9\xe9\r\n${LENGTH}`));
    t.equal(latin?.startLine, 'HTTP/1.1 201 Created', `${kind}: what is not UTF-8 has the phrase of its status`);
    const [bare] = await answered(kind, bytesOf(`HTTP/1.1 200\r\n${LENGTH}`));
    t.equal(bare?.startLine, 'HTTP/1.1 200 ', `${kind}: no phrase and no space`);
  }
});

t.test('what has no content has none, whatever it says of its length', async (t) => {
  for (const kind of KINDS) {
    for (const [status, fields, method, length] of [
      [204, '', 'POST', null],
      [204, 'Content-Length: 0\r\n', 'POST', null],
      [204, 'Content-Length: 7\r\n', 'POST', null],
      [304, '', 'GET', null],
      [304, 'Content-Length: 7\r\n', 'GET', '7'],
      [200, 'Content-Length: 7\r\n', 'HEAD', '7'],
      [200, 'Transfer-Encoding: chunked\r\n', 'HEAD', null],
      [200, '', 'HEAD', null],
      [404, 'Content-Length: 1234567\r\n', 'HEAD', '1234567'],
    ] as const) {
      const text = `HTTP/1.1 ${status} Words\r\n${fields}ETag: "x"\r\n\r\n`;
      const [response, ...more] = await answered(kind, bytesOf(text), method);
      const what = `${kind}: ${method} ${status} ${fields.trim()}`;
      t.same([response?.startLine, more], [`HTTP/1.1 ${status} Words`, []], what);
      t.same(fieldsOf(response?.fields ?? [], 'content-length'), length === null ? [] : [length], what);
      t.same(fieldsOf(response?.fields ?? [], 'etag'), ['"x"'], what);
    }
    const [reset] = await answered(kind, bytesOf('HTTP/1.1 205 Reset\r\nContent-Length: 0\r\n\r\n'));
    t.same([statusOf(reset!), reset?.content.length], [205, 0], kind);
  }
});

t.test('content is equal, whatever its framing and its coding', async (t) => {
  const bytes = Buffer.from(Array.from({ length: 512 }, (_, at) => at % 256)).toString('latin1');
  const contents = { none: '', small: 'ok', bytes, 'like-a-response': `${OK}${LENGTH}`, large: bytes.repeat(300) };
  for (const kind of KINDS) {
    for (const [name, content] of Object.entries(contents)) {
      const size = content.length.toString(16);
      const chunk = content === '' ? '' : `${size};a=b;c="d;\\"e"\r\n${content}\r\n`;
      const framed: Readonly<Record<string, Reply>> = {
        length: bytesOf(`${OK}Content-Length: ${content.length}\r\nContent-Encoding: gzip\r\n\r\n${content}`),
        chunked: bytesOf(`${OK}Content-Encoding: gzip\r\nTransfer-Encoding: CHUNKED\r\n\r\n${chunk}0;last\r\n\r\n`),
        'until-close': lastBytesOf(`${OK}Content-Encoding: gzip\r\n\r\n${content}`),
        'old until-close': lastBytesOf(`HTTP/1.0 200 OK\r\nContent-Encoding: gzip\r\n\r\n${content}`),
      };
      for (const [framing, reply] of Object.entries(framed)) {
        const [response] = await answered(kind, reply, 'GET');
        t.ok(response?.content.equals(Buffer.from(content, 'latin1')), `${kind}: ${name}, ${framing}`);
        t.same(fieldsOf(response?.fields ?? [], 'content-encoding'), ['gzip'], `${kind}: ${name}, ${framing}`);
        if (framing === 'length') t.equal(response?.framing, 'length', `${kind}: ${name} keeps its length`);
      }
    }
  }
});

t.test('fields keep order, spelling, repetition, emptiness and bytes, up to 64 KiB', async (t) => {
  const lines = [
    ['X-Zero', '0'],
    ['Set-Cookie', 'a=1; Path=/'],
    ['X-EMPTY', ''],
    ['set-cookie', 'b="2"; Expires=Thu, 01 Jan 1970 00:00:00 GMT'],
    ['x-TwIcE', 'one'],
    ['X-Latin', '\xa0caf\xe9\xff\x80'],
    ['X-Twice', 'two, three'],
    ['Date', 'yesterday'],
    ['server', 'Any/1.0'],
    ['Via', '1.0 upstream'],
    ['Vary', 'Accept'],
    ['Content-Type', 'Text/HTML ; Charset=x'],
    ['WWW-Authenticate', 'Basic realm="a, b"'],
    ['Accept-Ranges', 'bytes'],
    ['X-Large', 'a'.repeat(60_000)],
    ['Set-Cookie', ''],
  ] as const;
  const fields = lines.map(([name, value]) => `${name}:${value === '' ? '' : ` ${value}`}\r\n`).join('');
  for (const kind of KINDS) {
    const [response] = await answered(kind, bytesOf(`${OK}${fields}${LENGTH}`));
    t.same(own(response?.fields ?? []), own(lines.flat()), kind);
    t.same(fieldsOf(response?.fields ?? [], 'via'), ['1.0 upstream'], kind);
    const many = 'X-Many: a\r\n'.repeat(5_000);
    const [crowd] = await answered(kind, bytesOf(`${OK}${many}${LENGTH}`));
    t.equal(own(crowd?.fields ?? []).length, 10_000, kind);
    const [tooLarge] = await answered(kind, bytesOf(`${OK}X-A: ${'a'.repeat(70_000)}\r\n${LENGTH}`));
    t.equal(statusOf(tooLarge!), 502, kind);
    const [plain] = await answered(kind, bytesOf(`${OK}${LENGTH}`));
    t.same(own(plain?.fields ?? []), [], `${kind}: nothing is made up, no Date either`);
  }
});

t.test('interim responses come in order, with their fields and without a length', async (t) => {
  const interim =
    'HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nlink: </b>\r\n\r\n' +
    'HTTP/1.1 102 Processing\r\n\r\n' +
    'HTTP/1.1 199 Odd\r\nX-A: caf\xe9\r\nContent-Length: 5\r\n\r\n' +
    'HTTP/1.1 103 Early Hints\r\nLink: </c>\r\n\r\n';
  for (const kind of KINDS) {
    const responses = await answered(kind, bytesOf(`${interim}${OK}${LENGTH}`));
    t.same(responses.map(statusOf), [103, 102, 199, 103, 200], kind);
    t.same(
      responses.slice(0, 4).map(({ fields }) => fields),
      [['Link', '</a>', 'link', '</b>'], [], ['X-A', 'caf\xe9'], ['Link', '</c>']],
      kind,
    );
    t.equal(responses.at(-1)?.content.toString(), 'ok');
  }
});

t.test('trailers come as they are, but none that a reader could take for framing', async (t) => {
  const trailers = 'X-Sum: 1\r\nx-sum: caf\xe9\r\nX-Empty:\r\n';
  const framing = 'Transfer-Encoding: chunked\r\nHost: b\r\nConnection: close\r\nTrailer: X-A\r\nContent-Type: a/b\r\n';
  for (const kind of KINDS) {
    const head = `${OK}Trailer: X-Sum, X-Empty\r\nTransfer-Encoding: chunked\r\n\r\n`;
    const [response] = await answered(kind, bytesOf(`${head}2\r\nok\r\n0\r\n${framing}${trailers}\r\n`));
    t.same(response?.trailers, ['X-Sum', '1', 'x-sum', 'caf\xe9', 'X-Empty', ''], kind);
    t.same(fieldsOf(response?.fields ?? [], 'trailer'), ['X-Sum, X-Empty'], kind);
    t.equal(response?.content.toString(), 'ok', kind);
  }
});

t.test('what could be read in two ways is a bad response', async (t) => {
  const CODED = '\r\n\r\n2\r\nok\r\n0\r\n\r\n';
  const rows: Readonly<Record<string, string>> = {
    ...Object.fromEntries(
      [
        'xchunked',
        'chunked, identity',
        'identity',
        'identity, chunked',
        'gzip, chunked',
        ', chunked',
        'chunked;q=1',
        '"chunked"',
        '',
        'chunked\r\nTransfer-Encoding: chunked',
        'chunked\r\nTransfer-Encoding:',
        'identity\r\nTransfer-Encoding: chunked',
      ].map((coding) => [`coding ${JSON.stringify(coding)}`, `${OK}Transfer-Encoding: ${coding}${CODED}`]),
    ),
    ...Object.fromEntries(
      ['+2', '2,2', '2 2', '0x2', '', '2.0', '9007199254740993', '2\r\nContent-Length: 2'].map((length) => [
        `length ${JSON.stringify(length)}`,
        `${OK}Content-Length: ${length}\r\n\r\nok`,
      ]),
    ),
    'a length and a coding': `${OK}Content-Length: 2\r\nTransfer-Encoding: identity\r\n\r\nok`,
    'space before a colon': `${OK}Transfer-Encoding : chunked${CODED}`,
    'a folded coding': `${OK}Transfer-Encoding:\r\n chunked${CODED}`,
    'a folded field': `${OK}X-A: a\r\n b\r\n${LENGTH}`,
    'LF for the end of a field': `${OK}X-A: a\nX-B: b\r\n${LENGTH}`,
    'LF everywhere': 'HTTP/1.1 200 OK\nContent-Length: 2\n\nok',
    'CR in a field': `${OK}X-A: a\rX-B: b\r\n${LENGTH}`,
    'NUL in a field': `${OK}X-A: a\x00b\r\n${LENGTH}`,
    'a control byte in a field': `${OK}X-A: a\x01b\r\n${LENGTH}`,
    'DEL in a field': `${OK}X-A: a\x7fb\r\n${LENGTH}`,
    'a field without a name': `${OK}: b\r\n${LENGTH}`,
    'CR in the reason phrase': `HTTP/1.1 200 a\rb\r\n${LENGTH}`,
    'version 1.2': `HTTP/1.2 200 OK\r\n${LENGTH}`,
    'no HTTP': `ICY 200 OK\r\n${LENGTH}`,
    'a status of two digits': `HTTP/1.1 20 OK\r\n${LENGTH}`,
    'a status of four digits': `HTTP/1.1 2000 OK\r\n${LENGTH}`,
    'status 000': `HTTP/1.1 000 OK\r\n${LENGTH}`,
    'status 099': `HTTP/1.1 099 OK\r\n${LENGTH}`,
  };
  for (const kind of KINDS) {
    for (const [name, text] of Object.entries(rows)) {
      const [response, ...more] = await answered(kind, lastBytesOf(text), 'GET');
      t.same([statusOf(response!), more], [502, []], `${kind}: ${name}`);
      t.match(response?.content.toString(), /problem:bad-upstream-response/, `${kind}: ${name}`);
    }
  }
});

t.test('chunks that cannot be read cut the answer, and never end it', async (t) => {
  const rows = [
    '2 \r\nok\r\n0\r\n\r\n',
    '+2\r\nok\r\n0\r\n\r\n',
    '-2\r\nok\r\n0\r\n\r\n',
    '0x2\r\nok\r\n0\r\n\r\n',
    '2;\nok\r\n0\r\n\r\n',
    '2\nok\n0\n\n',
    '2\r\nok!\r\n0\r\n\r\n',
    '2\r\nok0\r\n\r\n',
    '10000000000000002\r\nok\r\n0\r\n\r\n',
    '\r\nok\r\n0\r\n\r\n',
    '2\r\nok\r\n0\r\nContent-Length: 9\r\n\r\n',
    '2\r\nok\r\n0\r\nX Y: 9\r\n\r\n',
  ];
  for (const kind of KINDS) {
    for (const [index, chunks] of rows.entries()) {
      const target = `/${kind}/chunks-${index}`;
      witness.on(target, bytesOf(CHUNKED + chunks));
      const wire = new Wire(gateway.url);
      wire.write(`GET ${target} HTTP/1.1\r\nHost: a\r\n\r\n`);
      await wire.closed;
      t.notMatch(wire.text, /\r\n0\r\n/, `${kind}: ${JSON.stringify(chunks)}`);
      t.ok((wire.text.match(/HTTP\/1\.1/g) ?? []).length <= 1, `${kind}: one answer at most`);
    }
  }
});

t.test('nothing that an upstream sends beyond its answer reaches anybody', async (t) => {
  const evil = `${OK}Content-Length: 4\r\n\r\nevil`;
  const rows: Readonly<Record<string, readonly [method: string, text: string]>> = {
    'behind a length': ['GET', `${OK}${LENGTH}`],
    'behind chunks': ['GET', `${CHUNKED}2\r\nok\r\n0\r\n\r\n`],
    'behind HEAD': ['HEAD', `${OK}Content-Length: 2\r\n\r\n`],
    'content of HEAD': ['HEAD', `${OK}${LENGTH}`],
    'behind 204': ['POST', 'HTTP/1.1 204 None\r\n\r\n'],
    'content of 204': ['POST', 'HTTP/1.1 204 None\r\nContent-Length: 2\r\n\r\nok'],
    'behind 304': ['GET', 'HTTP/1.1 304 Same\r\n\r\n'],
    'content of 304': ['GET', 'HTTP/1.1 304 Same\r\nContent-Length: 2\r\n\r\nok'],
  };
  for (const kind of KINDS) {
    for (const [name, [method, text]] of Object.entries(rows)) {
      const responses = await answered(kind, bytesOf(text + evil), method);
      t.equal(responses.length, 1, `${kind}: ${name}`);
      for (let turn = 0; turn < 3; turn += 1) {
        const target = `/${kind}/beyond-${name.replaceAll(' ', '-')}-${turn}`;
        const [next] = await allResponses(gateway.url, lastRequest(target));
        t.equal(next?.content.toString(), target, `${kind}: ${name}: the next answer is its own`);
      }
    }
  }
});

t.test('fields that Connection names stay behind, but none that frames the message', async (t) => {
  for (const kind of KINDS) {
    const named = 'Connection: X-Hop, content-length, content-type\r\nX-Hop: 1\r\nContent-Type: a/b\r\n';
    const [response] = await answered(kind, bytesOf(`${OK}${named}${LENGTH}`));
    t.same(own(response?.fields ?? []), ['Content-Type', 'a/b'], kind);
    t.equal(response?.framing, 'length', kind);
  }
});
