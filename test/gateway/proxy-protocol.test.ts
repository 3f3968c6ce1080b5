/** Connections that begin with a header of the PROXY protocol: whom the upstream is told of, in clear and over TLS. */

import { connect, type Socket } from 'node:net';
import t, { type Test } from 'tap';
import { secured, tlsYaml } from '../support/dial.js';
import { eventually, within } from '../support/gate.js';
import { configOf, type Gateway, startGateway } from '../support/gateway.js';
import { ipv4Addresses, ipv6Addresses, proxyBytes, proxyLine, unixAddresses } from '../support/proxy-header.js';
import { startUpstream } from '../support/upstream.js';
import { ByteReader, readHead } from '../support/wire.js';

t.setTimeout(60_000);

const stub = await startUpstream(t);
let count = 0;

function start(t: Test, more: string, tls = false): Promise<Gateway> {
  const listen = `proxyProtocol: true${tls ? `, tls: ${tlsYaml()}` : ''}`;
  return startGateway(t, { config: configOf({ upstream: stub.url, routes: '', unmatched: 'api', listen, more }) });
}

function open(t: Test, gateway: Gateway): Socket {
  const { port } = new URL(gateway.url);
  const socket = connect({ host: '127.0.0.1', port: Number(port), noDelay: true });
  socket.on('error', () => {});
  t.teardown(() => socket.destroy());
  return socket;
}

const request = (target: string, fields = '') => `GET ${target} HTTP/1.1\r\nHost: a\r\n${fields}\r\n`;
const CLAIM = 'X-Forwarded-For: 1.1.1.1\r\nX-Forwarded-Proto: gopher\r\n';

/** What the upstream is told of a request that came behind this header. */
async function seen(
  t: Test,
  gateway: Gateway,
  header: Buffer,
  how: 'together' | 'byte by byte' | 'apart' = 'together',
) {
  const target = `/seen-${++count}`;
  const socket = open(t, gateway);
  const isTls = gateway.url.startsWith('https:');
  let channel = socket;
  if (isTls || how === 'apart') {
    socket.write(header);
    if (isTls) channel = secured(socket);
    channel.write(request(target, CLAIM));
  } else {
    const bytes = Buffer.concat([header, Buffer.from(request(target, CLAIM))]);
    if (how === 'together') socket.write(bytes);
    for (let at = 0; how === 'byte by byte' && at < bytes.length; at += 1) {
      socket.write(bytes.subarray(at, at + 1));
      await new Promise((resolve) => setImmediate(resolve));
    }
  }
  const reader = new ByteReader(channel);
  const answer = await within(10_000, 'an answer', readHead(reader));
  t.match(answer?.startLine, /200/);
  const [call] = stub.callsOf(target);
  const told = [call!.header('x-forwarded-for'), call!.header('x-forwarded-proto')];
  // The header is the connection's, not the request's: the next request is from the same client.
  channel.write(request(`${target}-again`));
  await stub.arrived(1, `${target}-again`);
  t.equal(
    stub.callsOf(`${target}-again`)[0]!.header('x-forwarded-for')?.split(', ').at(-1),
    told[0]?.split(', ').at(-1),
  );
  socket.destroy();
  return told;
}

const V6 = ipv6Addresses(Buffer.from('20010db8000000000000000000000007', 'hex'));

for (const tls of [false, true]) {
  const proto = tls ? 'https' : 'http';
  t.test(`${proto}: the client is the one that the header names`, async (t) => {
    const gateway = await start(t, 'trustedProxies: [127.0.0.0/8, 198.51.100.0/24]', tls);
    const rows: readonly [name: string, header: Buffer, told: readonly string[]][] = [
      ['v1', proxyLine('203.0.113.7'), ['203.0.113.7', proto]],
      ['v1 IPv6', proxyLine('2001:db8::7'), ['2001:db8::7', proto]],
      ['v1 unknown', Buffer.from('PROXY UNKNOWN\r\n'), ['127.0.0.1', proto]],
      ['v2', proxyBytes(0x11, ipv4Addresses('203.0.113.7')), ['203.0.113.7', proto]],
      ['v2 IPv6', proxyBytes(0x21, V6), ['2001:db8::7', proto]],
      [
        'v2 with extensions',
        proxyBytes(0x21, V6, [{ type: 2, value: Buffer.alloc(5_000, 'a') }]),
        ['2001:db8::7', proto],
      ],
      ['v2 UNIX', proxyBytes(0x31, unixAddresses('/run/a')), ['127.0.0.1', proto]],
      ['v2 local', proxyBytes(0, Buffer.alloc(0), [], 0), ['1.1.1.1, 127.0.0.1', 'gopher']],
      [
        'v2, a client that is a trusted proxy itself',
        proxyBytes(0x11, ipv4Addresses('198.51.100.1')),
        ['1.1.1.1, 198.51.100.1', 'gopher'],
      ],
    ];
    for (const [name, header, told] of rows) t.same(await seen(t, gateway, header), told, name);
    if (!tls) {
      for (const how of ['byte by byte', 'apart'] as const) {
        t.same(await seen(t, gateway, proxyLine('203.0.113.7'), how), ['203.0.113.7', proto], how);
        t.same(await seen(t, gateway, proxyBytes(0x21, V6), how), ['2001:db8::7', proto], how);
      }
    }
    await gateway.stop();
  });

  t.test(`${proto}: without a sound header in time nothing is forwarded`, async (t) => {
    const gateway = await start(t, 'trustedProxies: [127.0.0.1]\nlimits: { fieldsTimeout: 501ms }', tls);
    const long = Buffer.from(`PROXY TCP4 ${'1'.repeat(100)}`);
    const broken = proxyBytes(0x11, ipv4Addresses('203.0.113.7'));
    broken[13] = 0x55;
    const rows: readonly Buffer[] = [
      Buffer.alloc(0),
      Buffer.from('PROXY TCP4 203.0.113.7'),
      long,
      broken,
      Buffer.from('\r\n'),
      Buffer.from(request('/none')),
    ];
    for (const bytes of rows) {
      const socket = open(t, gateway);
      let came = '';
      socket.on('data', (piece: Buffer) => (came += piece.toString('latin1')));
      socket.write(bytes);
      if (bytes.length > 10) socket.write(request('/none'));
      await within(10_000, 'the end', new Promise((resolve) => socket.once('close', resolve)));
      t.equal(came, '', `no answer after ${JSON.stringify(bytes.toString('latin1').slice(0, 20))}`);
    }
    const left = open(t, gateway);
    left.end('PROXY TCP4');
    await within(10_000, 'the end', new Promise((resolve) => left.once('close', resolve)));
    t.equal(stub.count('/none'), 0);
    const refused = async () =>
      (await gateway.metrics()).sum('oneflight_connections_refused_total', { reason: 'proxy-protocol' });
    await eventually('all are counted', async () => (await refused()) === rows.length + 1);
    t.equal((await gateway.metrics()).sum('oneflight_connections'), 0, 'none is left');
    t.same(await seen(t, gateway, proxyLine('203.0.113.7')), ['203.0.113.7', proto], 'others are served');
  });
}

t.test('only trusted proxies may open one; where none is named, anybody, with a warning', async (t) => {
  const strict = await start(t, 'trustedProxies: [192.0.2.0/24]');
  const socket = open(t, strict);
  socket.write(Buffer.concat([proxyLine('203.0.113.7'), Buffer.from(request('/untrusted'))]));
  await within(10_000, 'the end', new Promise((resolve) => socket.once('close', resolve)));
  t.equal(stub.count('/untrusted'), 0);

  const open_ = await start(t, '');
  t.same(await seen(t, open_, proxyLine('203.0.113.7')), ['203.0.113.7', 'http']);
  t.ok(
    open_.logs.some((line) => 'path' in line && line.path === 'listen.proxyProtocol' && line.level === 40),
    'the warning',
  );
});
