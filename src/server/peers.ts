/** Who is at the other end of a connection, and whether it is believed when it says who stands behind it. */

import { BlockList, isIPv6, type Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { Peer } from '../http/fields.js';

/** Compiles CIDRs and single addresses once; the answer of the returned function costs no parsing per request. */
export function compilePeers(trustedProxies: readonly string[]): (socket: Socket) => Peer {
  const trusted = new BlockList();
  for (const entry of trustedProxies) {
    const [address, prefix] = entry.split('/') as [string, string | undefined];
    const family = isIPv6(address) ? 'ipv6' : 'ipv4';
    if (prefix === undefined) trusted.addAddress(address, family);
    else trusted.addSubnet(address, Number(prefix), family);
  }
  return (socket) => {
    const address = plainAddress(socket.remoteAddress ?? 'unknown');
    const known = address !== 'unknown' && trusted.check(address, isIPv6(address) ? 'ipv6' : 'ipv4');
    return {
      address,
      scheme: socket instanceof TLSSocket ? 'https' : 'http',
      trusted: trustedProxies.length > 0 && known,
    };
  };
}

/** An IPv4 peer of a dual-stack socket is written as IPv4, as its owner would. */
function plainAddress(address: string): string {
  return address.startsWith('::ffff:') ? address.slice(7) : address;
}
