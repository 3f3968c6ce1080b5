/** Headers of the PROXY protocol are read to the letter, in whatever pieces they come. */

import { isIPv6 } from 'node:net';
import fc from 'fast-check';
import t from 'tap';
import { type ProxySource, readProxyHeader, V2_MAX_REST } from '../../src/server/proxy-protocol.js';
import {
  type Extension,
  ipv4Addresses,
  ipv6Addresses,
  proxyBytes,
  proxyLine,
  unixAddresses,
} from '../support/proxy-header.js';

const address = (text: string): ProxySource => ({ kind: 'address', address: text });
const UNKNOWN: ProxySource = { kind: 'unknown' };
const LOCAL: ProxySource = { kind: 'local' };
const v6 = (hex: string) => ipv6Addresses(Buffer.from(hex, 'hex'));

t.test('sound headers', async (t) => {
  const rows: readonly [name: string, header: Buffer, source: ProxySource][] = [
    ['v1 IPv4', proxyLine('203.0.113.7'), address('203.0.113.7')],
    ['v1 IPv6', proxyLine('2001:db8::7'), address('2001:db8::7')],
    ['v1 port 0', proxyLine('203.0.113.7', 0), address('203.0.113.7')],
    ['v1 unknown', Buffer.from('PROXY UNKNOWN\r\n'), UNKNOWN],
    ['v1 unknown, with what is to be ignored', Buffer.from('PROXY UNKNOWN ffff::1 a b c\r\n'), UNKNOWN],
    ['v1 as long as may be', Buffer.from(`PROXY UNKNOWN ${'a'.repeat(91)}\r\n`), UNKNOWN],
    ['v2 IPv4', proxyBytes(0x11, ipv4Addresses('203.0.113.7')), address('203.0.113.7')],
    ['v2 IPv6', proxyBytes(0x21, v6('20010db8000000000000000000000007')), address('2001:db8::7')],
    ['v2 IPv6 in full', proxyBytes(0x21, v6('20010db8000100020003000400050006')), address('2001:db8:1:2:3:4:5:6')],
    ['v2 IPv4-mapped', proxyBytes(0x21, v6('00000000000000000000ffffcb007107')), address('::ffff:203.0.113.7')],
    ['v2 UNIX', proxyBytes(0x31, unixAddresses('/run/client.sock')), UNKNOWN],
    ['v2 unspecified', proxyBytes(0x00, Buffer.alloc(0)), UNKNOWN],
    ['v2 local', proxyBytes(0x00, Buffer.alloc(0), [], 0), LOCAL],
    ['v2 local, whatever its family', proxyBytes(0x99, Buffer.from('anything at all'), [], 0), LOCAL],
    [
      'v2 with extensions',
      proxyBytes(0x11, ipv4Addresses('203.0.113.7'), [
        { type: 1, value: Buffer.from('h2') },
        { type: 4, value: Buffer.alloc(300) },
        { type: 0xea, value: Buffer.alloc(0) },
      ]),
      address('203.0.113.7'),
    ],
  ];
  for (const [name, header, source] of rows) {
    for (const behind of ['', 'GET / HTTP/1.1\r\n', 'PROXY UNKNOWN\r\n']) {
      const read = readProxyHeader(Buffer.concat([header, Buffer.from(behind)]));
      t.same(read, { kind: 'whole', length: header.length, source }, `${name}, then ${JSON.stringify(behind)}`);
    }
    for (let length = 0; length < header.length; length += 1) {
      const { kind } = readProxyHeader(header.subarray(0, length));
      if (kind !== 'more') t.fail(`${name}: ${kind} after ${length} bytes`);
    }
  }
});

t.test('what is no header', async (t) => {
  const line = (text: string) => Buffer.from(text, 'latin1');
  const changed = (at: number, value: number) => {
    const bytes = proxyBytes(0x11, ipv4Addresses('203.0.113.7'));
    bytes[at] = value;
    return bytes;
  };
  const rows: Readonly<Record<string, Buffer>> = {
    'a request': line('GET / HTTP/1.1\r\nHost: a\r\n\r\n'),
    'a TLS handshake': Buffer.from('1603010200', 'hex'),
    'lower case': line('proxy TCP4 203.0.113.7 192.0.2.1 1 2\r\n'),
    'two blanks': line('PROXY  TCP4 203.0.113.7 192.0.2.1 1 2\r\n'),
    'no family': line('PROXY \r\n'),
    'another family': line('PROXY TCP5 203.0.113.7 192.0.2.1 1 2\r\n'),
    'unknown with something at it': line('PROXY UNKNOWNS\r\n'),
    'IPv6 as IPv4': line('PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n'),
    'IPv4 as IPv6': line('PROXY TCP6 203.0.113.7 192.0.2.1 1 2\r\n'),
    'a zone': line('PROXY TCP6 fe80::1%eth0 fe80::2 1 2\r\n'),
    'a name': line('PROXY TCP4 localhost 192.0.2.1 1 2\r\n'),
    octal: line('PROXY TCP4 203.0.113.007 192.0.2.1 1 2\r\n'),
    'a port too high': line('PROXY TCP4 203.0.113.7 192.0.2.1 65536 2\r\n'),
    'a port with a zero before it': line('PROXY TCP4 203.0.113.7 192.0.2.1 01 2\r\n'),
    'a port missing': line('PROXY TCP4 203.0.113.7 192.0.2.1 1\r\n'),
    'a word too many': line('PROXY TCP4 203.0.113.7 192.0.2.1 1 2 3\r\n'),
    'a bare line feed': line(`PROXY TCP4 203.0.113.7 192.0.2.1 1 2\n${'a'.repeat(80)}\r\n`),
    'too long a line': line(`PROXY UNKNOWN ${'a'.repeat(92)}\r\n`),
    'too long without an end': line(`PROXY UNKNOWN ${'a'.repeat(93)}`),
    'v2, another signature': changed(11, 0x0b),
    'v2, version 1': changed(12, 0x11),
    'v2, version 3': changed(12, 0x31),
    'v2, another command': changed(12, 0x22),
    'v2, another family': changed(13, 0x41),
    'v2, datagrams': changed(13, 0x12),
    'v2, an address cut off': changed(15, 11),
    'v2, too long': changed(14, (V2_MAX_REST >> 8) + 1),
    'v2, an extension cut off': proxyBytes(0x11, Buffer.concat([ipv4Addresses('203.0.113.7'), Buffer.of(1, 0, 5, 1)])),
    'v2, half an extension': proxyBytes(0x11, Buffer.concat([ipv4Addresses('203.0.113.7'), Buffer.of(1, 0)])),
  };
  for (const [name, bytes] of Object.entries(rows)) t.equal(readProxyHeader(bytes).kind, 'malformed', name);
});

const ipv4 = fc.tuple(fc.nat(255), fc.nat(255), fc.nat(255), fc.nat(255)).map((bytes) => bytes.join('.'));
const sixteen = fc.uint8Array({ minLength: 16, maxLength: 16 }).map((bytes) => Buffer.from(bytes));
const extensions = fc.array(
  fc.record({ type: fc.nat(255), value: fc.uint8Array({ maxLength: 60 }).map((bytes) => Buffer.from(bytes)) }),
  { maxLength: 5 },
);

t.test('every address is read as it was written, whatever stands behind the header', async (t) => {
  fc.assert(
    fc.property(ipv4, extensions, fc.uint8Array({ maxLength: 40 }), (source, more: Extension[], behind) => {
      for (const header of [proxyLine(source), proxyBytes(0x11, ipv4Addresses(source), more)]) {
        const read = readProxyHeader(Buffer.concat([header, behind]));
        if (JSON.stringify(read) !== JSON.stringify({ kind: 'whole', length: header.length, source: address(source) }))
          return false;
      }
      return true;
    }),
  );
  fc.assert(
    fc.property(sixteen, extensions, (source, more: Extension[]) => {
      const read = readProxyHeader(proxyBytes(0x21, ipv6Addresses(source), more));
      if (read.kind !== 'whole' || read.source.kind !== 'address' || !isIPv6(read.source.address)) return false;
      const line = readProxyHeader(proxyLine(read.source.address));
      return line.kind === 'whole' && JSON.stringify(line.source) === JSON.stringify(read.source);
    }),
  );
  t.pass();
});

t.test('no bytes throw, and more bytes never change what was decided', async (t) => {
  const begun = fc.oneof(
    fc.uint8Array({ maxLength: 200 }),
    fc
      .tuple(
        fc.constantFrom(
          proxyLine('203.0.113.7'),
          proxyBytes(0x11, ipv4Addresses('203.0.113.7')),
          proxyBytes(0x21, Buffer.alloc(36)),
        ),
        fc.nat(60),
        fc.uint8Array({ maxLength: 80 }),
      )
      .map(([header, at, rest]) => Buffer.concat([header.subarray(0, at), rest])),
  );
  fc.assert(
    fc.property(begun, (bytes) => {
      const all = Buffer.from(bytes);
      let decided = '';
      for (let length = 0; length <= all.length; length += 1) {
        const read = readProxyHeader(all.subarray(0, length));
        if (read.kind === 'more') {
          if (decided !== '') return false;
          continue;
        }
        const said = JSON.stringify(read);
        // Why it is malformed may become clearer; that it is does not change.
        if (decided !== '' && read.kind === 'whole' && said !== decided) return false;
        if (decided.includes('"whole"') && said !== decided) return false;
        decided = said;
      }
      return true;
    }),
    { numRuns: 500 },
  );
  t.pass();
});
