/** Which peers are believed: by address and by CIDR, however the system writes them. */

import t from 'tap';
import { Peers } from '../../src/server/peers.js';

t.test('IPv4, IPv6 and IPv4-mapped ranges', async (t) => {
  const rows: readonly [trusted: string, inside: readonly string[], outside: readonly string[]][] = [
    [
      '10.0.0.0/8',
      ['10.0.0.0', '10.255.255.255', '::ffff:10.1.2.3', '::FFFF:10.1.2.3'],
      ['11.0.0.0', '9.255.255.255', '::ffff:11.0.0.1', '::10.1.2.3'],
    ],
    ['192.0.2.1', ['192.0.2.1', '::ffff:192.0.2.1'], ['192.0.2.2', '::ffff:192.0.2.0']],
    ['192.0.2.129/25', ['192.0.2.128', '192.0.2.255'], ['192.0.2.127']],
    ['0.0.0.0/0', ['8.8.8.8', '::ffff:8.8.8.8'], ['::1', '2001:db8::1']],
    ['::/0', ['::1', '2001:db8::1'], []],
    ['2001:db8::/33', ['2001:db8::1', '2001:DB8:7fff::'], ['2001:db8:8000::', '2001:db9::']],
    ['::1', ['::1', '0:0:0:0:0:0:0:1'], ['::2', '127.0.0.1']],
    ['fe80::/10', ['fe80::1', 'fe80::1%eth0', 'febf::1'], ['fec0::1']],
    ['::ffff:10.0.0.0/104', ['10.1.2.3', '::ffff:10.1.2.3'], ['11.0.0.1']],
    ['::ffff:192.0.2.1', ['192.0.2.1'], ['192.0.2.2']],
  ];
  for (const [trusted, inside, outside] of rows) {
    const peers = new Peers([trusted]);
    for (const address of inside) t.equal(peers.trusts(address), true, `${trusted} has ${address}`);
    for (const address of outside) t.equal(peers.trusts(address), false, `${trusted} has not ${address}`);
  }
});

t.test('nobody is believed when nobody is named, and no name of no address ever', async (t) => {
  for (const address of ['127.0.0.1', '::1', 'unknown', '', '/run/client.sock']) {
    t.equal(new Peers([]).trusts(address), false, address);
  }
  for (const address of ['unknown', '', '/run/client.sock', '10.0.0.1.evil', '::ffff:10.0.0']) {
    t.equal(new Peers(['0.0.0.0/0', '::/0']).trusts(address), false, address);
  }
});

t.test('a peer is named as its owner would', async (t) => {
  const peers = new Peers(['10.0.0.0/8']);
  t.same(peers.of('::ffff:10.0.0.1', 'https'), { address: '10.0.0.1', scheme: 'https', trusted: true });
  t.same(peers.of('2001:db8::1', 'http'), { address: '2001:db8::1', scheme: 'http', trusted: false });
  t.same(peers.of(undefined, 'http'), { address: 'unknown', scheme: 'http', trusted: false });
});
