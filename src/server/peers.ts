/** Who is at the other end of a connection, and whether it is believed when it says who stands behind it. */

import { BlockList, isIPv6, type Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { Peer } from '../http/fields.js';

/** Compiles CIDRs and single addresses once; who is at the end of a connection is looked up at its first request only. */
export function compilePeers(trustedProxies: readonly string[]): (socket: Socket) => Peer {
  const trusted = new BlockList();
  for (const entry of trustedProxies) {
    const [address, prefix] = entry.split('/') as [string, string | undefined];
    const family = isIPv6(address) ? 'ipv6' : 'ipv4';
    if (prefix === undefined) trusted.addAddress(address, family);
    else trusted.addSubnet(address, Number(prefix), family);
  }
  const known = new WeakMap<Socket, Peer>();
  const look = (socket: Socket): Peer => {
    const address = plainAddress(socket.remoteAddress ?? 'unknown');
    const isListed = address !== 'unknown' && trusted.check(address, isIPv6(address) ? 'ipv6' : 'ipv4');
    return {
      address,
      scheme: socket instanceof TLSSocket ? 'https' : 'http',
      trusted: trustedProxies.length > 0 && isListed,
    };
  };
  return (socket) => {
    let peer = known.get(socket);
    if (peer === undefined) {
      peer = look(socket);
      // A connection that is gone already says nothing of itself.
      if (!socket.destroyed) known.set(socket, peer);
    }
    return peer;
  };
}

/** An IPv4 peer of a dual-stack socket is written as IPv4, as its owner would. */
function plainAddress(address: string): string {
  return address.startsWith('::ffff:') ? address.slice(7) : address;
}
