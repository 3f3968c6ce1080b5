/** A request arrives as it was sent, over every kind of route: what the other tests of forwarding do not look at. */

import http from 'node:http';
import t from 'tap';
import { Gate } from '../support/gate.js';
import { allResponses, bytesOf, KINDS, type Kind, lastRequest, own, type Received, startStage, Wire } from './stage.js';
import { fieldsOf, statusOf } from './strict-reading.js';

t.setTimeout(60_000);

const { gateway, witness } = await startStage(t);

/** The only request of this target. */
function only(target: string): Received {
  const found = witness.received.filter((request) => request.target === target);
  if (found.length !== 1) throw new Error(`${found.length} requests of ${target}`);
  return found[0]!;
}

function message(method: string, target: string, fields = '', content = '', version = '1.1'): string {
  return `${method} ${target} HTTP/${version}\r\nHost: a\r\n${fields}\r\n${content}`;
}

t.test('targets arrive byte for byte, in every form', async (t) => {
  const targets = (kind: Kind) => [
    ...[
      '',
      '//',
      '/./a',
      '/a/../b',
      '//a//b/',
      '/%2F',
      '/%2f',
      '/%61',
      '/a?',
      '/a??',
      '/a?x=%zz&&=',
      '/a?%00',
      '/%',
    ].map((rest) => `/${kind}/target${rest}`),
    `/${kind}/target/"<>^\`{|}\\;:@!$&'()*+,=~`,
    `/${kind}/target/${'long/'.repeat(12_000)}`,
    `http://a/${kind}/target/absolute?x=1`,
    `/${kind}/../${kind}/target/dots`,
    `//${kind}//target/slashes`,
  ];
  for (const kind of KINDS) {
    for (const target of targets(kind)) {
      const responses = await allResponses(
        gateway.url,
        message('POST', target, 'Content-Length: 2\r\n', 'ok') + lastRequest('/'),
      );
      t.same(responses.map(statusOf), [200, 200], `${kind}: ${target.slice(0, 60)}`);
      t.equal(only(target).content.toString(), 'ok');
    }
  }
  for (const target of ['?', '/?', '//', '/', '/.', '/..', '/%2e%2e/']) {
    const before = witness.received.length;
    const responses = await allResponses(gateway.url, message('GET', `http://a${target}`) + lastRequest('/last'));
    t.same(responses.map(statusOf), [200, 200], target);
    t.ok(
      witness.received.slice(before).some((request) => request.target === `http://a${target}`),
      target,
    );
  }
  t.same(witness.faults, []);
});

t.test('every method that the parser knows arrives, with content and without', async (t) => {
  for (const kind of KINDS) {
    for (const method of http.METHODS.filter((method) => method !== 'CONNECT')) {
      for (const content of ['', 'content']) {
        const target = `/${kind}/method-${method}-${content}`;
        const length = content === '' ? '' : `Content-Length: ${content.length}\r\n`;
        const heads = new Set(method === 'HEAD' ? [0] : []);
        const responses = await allResponses(
          gateway.url,
          message(method, target, length, content) + lastRequest('/'),
          heads,
        );
        t.same(responses.map(statusOf), [200, 200], target);
        t.same([only(target).method, only(target).content.toString()], [method, content], target);
      }
    }
  }
});

t.test('a method that the parser does not know is refused, not changed', async (t) => {
  for (const kind of KINDS) {
    for (const method of ['FROBNICATE', 'get', 'Get', 'X-METHOD', 'G', 'DESCRIBE']) {
      const target = `/${kind}/unknown-${method}`;
      const responses = await allResponses(gateway.url, message(method, target) + lastRequest('/'));
      t.same(responses.map(statusOf), [501], `${kind} ${method}`);
      t.same(witness.of(target), []);
    }
  }
  for (const bytes of ['\x16\x03\x01\x02\x00\x01', 'G(T / HTTP/1.1\r\n\r\n', 'FROBNICATE\r\n\r\n']) {
    t.same((await allResponses(gateway.url, bytes)).map(statusOf), [400], JSON.stringify(bytes));
  }
});

t.test('fields keep order, spelling, repetition, emptiness and bytes', async (t) => {
  const lines = [
    ['X-Zero', '0'],
    ['cookie', 'a=1; b=2'],
    ['X-EMPTY', ''],
    ['Cookie', 'c="3"'],
    ['x-TwIcE', 'one'],
    ['X-Latin', '\xa0caf\xe9\xff\x80'],
    ['X-Twice', 'two, three'],
    ["x!#$%&'*+.^_`|~", 'every byte of a name'],
    ['X-Inner', 'a\tb   c'],
    ['COOKIE', 'd'],
    ['Content-Type', 'Text/PLAIN ; Charset = "x"'],
    ['Content-Encoding', 'made-up'],
    ['Accept-Encoding', 'gzip;q=0'],
    ['Authorization', 'Basic eDp5'],
    ['If-None-Match', 'W/"a", "b"'],
    ['Range', 'bytes=0-0'],
    ['X-Twice', ''],
  ] as const;
  for (const kind of KINDS) {
    const target = `/${kind}/fields`;
    const fields = lines.map(([name, value]) => `${name}:${value === '' ? '' : ` ${value}`}\r\n`).join('');
    await allResponses(gateway.url, message('POST', target, `${fields}Content-Length: 2\r\n`, 'ok') + lastRequest('/'));
    t.same(own(only(target).fields), lines.flat(), kind);
  }
});

t.test('white space around a value is no part of it', async (t) => {
  for (const kind of KINDS) {
    const target = `/${kind}/space`;
    await allResponses(
      gateway.url,
      message('GET', target, 'X-A: \t a b \t \r\nX-B:b\r\nX-C:   \r\n') + lastRequest('/'),
    );
    t.same(own(only(target).fields), ['X-A', 'a b', 'X-B', 'b', 'X-C', ''], kind);
  }
});

t.test('fields pass up to 64 KiB in all, and no further', async (t) => {
  for (const kind of KINDS) {
    const one = `X-One: ${'a'.repeat(65_000)}\r\n`;
    const many = 'X-Many: a\r\n'.repeat(5_800);
    for (const [name, fields] of Object.entries({ one, many })) {
      const target = `/${kind}/size-${name}`;
      const responses = await allResponses(gateway.url, message('GET', target, fields) + lastRequest('/'));
      t.same(responses.map(statusOf), [200, 200], target);
      t.equal(own(only(target).fields).length, name === 'one' ? 2 : 11_600, target);
      const more = await allResponses(gateway.url, message('GET', `${target}-more`, fields + one) + lastRequest('/'));
      t.same(more.map(statusOf), [431], `${target}: more`);
      t.same(witness.of(`${target}-more`), []);
    }
  }
});

t.test('content arrives equal and framed once, however it was framed', async (t) => {
  const contents: Readonly<Record<string, string>> = {
    none: '',
    small: 'hello',
    bytes: Buffer.from(Array.from({ length: 256 }, (_, byte) => byte)).toString('latin1'),
    'like-chunks': '5\r\nhello\r\n0\r\n\r\n',
    'like-a-request': 'GET / HTTP/1.1\r\nHost: a\r\n\r\n',
    large: 'abcdefghij'.repeat(20_000),
  };
  const chunked = (content: string, size: number) =>
    `${(content.match(new RegExp(`[\\s\\S]{1,${size}}`, 'g')) ?? [])
      .map((chunk) => `${chunk.length.toString(16)}\r\n${chunk}\r\n`)
      .join('')}0\r\n\r\n`;
  for (const kind of KINDS) {
    for (const method of ['POST', 'GET', 'DELETE']) {
      for (const [name, content] of Object.entries(contents)) {
        const target = `/${kind}/framed-${method}-${name}`;
        const coding = 'Transfer-Encoding: chunked\r\n';
        const responses = await allResponses(
          gateway.url,
          message(method, `${target}-length`, `Content-Length: ${content.length}\r\n`, content) +
            message(method, `${target}-one`, coding, chunked(content, 1_000_000)) +
            message(method, `${target}-many`, coding, chunked(content, 7_777)) +
            lastRequest('/'),
        );
        t.same(responses.map(statusOf), [200, 200, 200, 200], target);
        for (const how of ['length', 'one', 'many']) {
          const { fields, content: arrived } = only(`${target}-${how}`);
          t.ok(arrived.equals(Buffer.from(content, 'latin1')), `${target}-${how}: equal`);
          t.ok(fieldsOf(fields, 'content-length').length + fieldsOf(fields, 'transfer-encoding').length < 2);
        }
      }
    }
  }
  t.same(witness.faults, [], 'every message was framed in one way');
});

t.test('Expect: 100-continue is answered once, before the content, and goes no further', async (t) => {
  for (const kind of KINDS) {
    const target = `/${kind}/expect`;
    const wire = new Wire(gateway.url);
    wire.write(message('POST', target, 'Expect: 100-continue\r\nContent-Length: 5\r\n'));
    await wire.has('HTTP/1.1 100 Continue\r\n\r\n');
    wire.write(`hello${lastRequest('/')}`);
    await wire.closed;
    t.same(wire.text.match(/HTTP\/1\.1 \d+/g), ['HTTP/1.1 100', 'HTTP/1.1 200', 'HTTP/1.1 200'], kind);
    t.equal(only(target).content.toString(), 'hello');
    t.same(fieldsOf(only(target).fields, 'expect'), []);
  }
});

t.test('Expect: 100-continue behind another request is answered in its turn, and never inside an answer', async (t) => {
  for (const kind of KINDS) {
    const first = `/${kind}/expect-first`;
    const second = `/${kind}/expect-second`;
    const gate = new Gate();
    witness.on(first, async (received) => {
      await gate.opened;
      bytesOf('HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst')(received);
    });
    const expecting = message('PUT', second, 'Expect: 100-continue\r\nContent-Length: 2\r\n', 'hi');
    const answered = allResponses(gateway.url, message('GET', first) + expecting + lastRequest('/last'));
    await gateway.caughtUp();
    gate.open();
    const responses = await answered;
    t.same(responses.map(statusOf), [200, 100, 200, 200], kind);
    t.same(
      responses.map(({ content }) => content.toString()),
      ['first', '', second, '/last'],
      kind,
    );
    t.equal(only(second).content.toString(), 'hi');
  }
});

t.test(
  'an answer that comes before the upload has ended reaches its client, and nothing else is mistaken for it',
  async (t) => {
    // Those that read content for a key ask nobody before they have it.
    for (const kind of ['pass', 'reject'] as const) {
      for (const [name, framing, piece] of [
        ['length', 'Content-Length: 1000000\r\n', 'x'.repeat(1_000)],
        ['chunked', 'Transfer-Encoding: chunked\r\n', '5\r\nhello\r\n'],
      ] as const) {
        // A strict reader would wait for the whole request.
        const target = `/${kind}/early-${name}`;
        const arrived = new Gate();
        witness.hands(target, (socket) => {
          socket.write('HTTP/1.1 403 No\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno');
          arrived.open();
        });
        const wire = new Wire(gateway.url);
        wire.write(message('PUT', target, framing, piece));
        await arrived.opened;
        await wire.has('\r\n\r\nno');
        t.match(wire.text, /^HTTP\/1\.1 403 No\r\n/, `${kind} ${name}`);
        wire.socket.destroy();
      }
    }
  },
);

t.test('HTTP/1.0 clients: one request a connection unless they ask to stay', async (t) => {
  for (const kind of KINDS) {
    const target = (name: string) => `/${kind}/old-${name}`;
    const [closed] = await allResponses(gateway.url, message('GET', target('closed'), '', '', '1.0'));
    t.equal(closed?.content.toString(), target('closed'), kind);
    t.match(fieldsOf(closed?.fields ?? [], 'connection').join(), /close/);
    const stay = message('GET', target('stay'), 'Connection: keep-alive\r\n', '', '1.0');
    const both = await allResponses(gateway.url, stay + message('GET', target('then'), '', '', '1.0'));
    t.same(
      both.map(({ content }) => content.toString()),
      [target('stay'), target('then')],
      `${kind}: keep-alive`,
    );
    witness.on(
      target('chunked'),
      bytesOf('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n'),
    );
    const asks = message('GET', target('chunked'), 'Connection: keep-alive\r\n', '', '1.0');
    const [whole] = await allResponses(gateway.url, asks);
    t.equal(whole?.content.toString(), 'hello', `${kind}: its end is the end of the connection`);
    t.equal(whole?.framing, 'until-close');
    t.match(fieldsOf(only(target('closed')).fields, 'via').join(), /^1\.0 /);
  }
});

t.test('pipelined requests are answered in order, whoever is ready first', async (t) => {
  for (const kind of KINDS) {
    const names = ['a', 'b', 'c', 'd', 'e'];
    const target = (name: string) => `/${kind}/pipe-${name}`;
    const gate = new Gate();
    witness.on(target('a'), async (received) => {
      await gate.opened;
      bytesOf('HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na')(received);
    });
    witness.on(target('c'), bytesOf('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nc\r\n0\r\n\r\n'));
    witness.on(target('d'), bytesOf('HTTP/1.1 204 None\r\n\r\n'));
    const sent = names.map((name) => message('POST', target(name), 'Content-Length: 1\r\n', name)).join('');
    const answered = allResponses(gateway.url, sent + lastRequest('/last'));
    await gateway.caughtUp();
    gate.open();
    t.same(
      (await answered).map(({ content }) => content.toString()),
      ['a', target('b'), 'c', '', target('e'), '/last'],
      kind,
    );
    for (const name of names) t.equal(only(target(name)).content.toString(), name);
  }
});
