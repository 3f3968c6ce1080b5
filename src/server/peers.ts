/** Who is at the other end of a connection, and whether it is believed when it says who stands behind it. */

import { BlockList, isIPv4, isIPv6 } from 'node:net';
import type { Peer } from '../http/fields.js';

export class Peers {
  #none = true;
  #trusted = new BlockList();

  /** Addresses and CIDRs; an IPv4-mapped one means the IPv4 addresses in it. */
  constructor(trustedProxies: readonly string[]) {
    this.trust(trustedProxies);
  }

  /** Believes these from the next request on, over connections that are open as well. */
  trust(trustedProxies: readonly string[]): void {
    this.#none = trustedProxies.length === 0;
    const trusted = new BlockList();
    for (const entry of trustedProxies) {
      const [written, prefix] = entry.split('/') as [string, string | undefined];
      const address = plainAddress(written);
      const family = isIPv6(address) ? 'ipv6' : 'ipv4';
      const bits = prefix === undefined ? (family === 'ipv6' ? 128 : 32) : Number(prefix);
      // A range of mapped addresses counts the 96 bits that say so.
      trusted.addSubnet(address, address === written ? bits : bits - (prefix === undefined ? 0 : 96), family);
    }
    this.#trusted = trusted;
  }

  /** Whether nobody is named: then nobody is believed. */
  get none(): boolean {
    return this.#none;
  }

  trusts(address: string): boolean {
    const plain = plainAddress(address);
    if (isIPv4(plain)) return this.#trusted.check(plain, 'ipv4');
    return isIPv6(plain) && this.#trusted.check(plain, 'ipv6');
  }

  of(address: string | undefined, scheme: Peer['scheme']): Peer {
    const plain = plainAddress(address ?? 'unknown');
    // Looked up once a connection, and again only when others are believed.
    const read = () => this.#trusted;
    const judge = () => this.trusts(plain);
    let by = read();
    let trusted = judge();
    return {
      address: plain,
      scheme,
      get trusted() {
        if (by === read()) return trusted;
        by = read();
        trusted = judge();
        return trusted;
      },
    };
  }
}

const MAPPED = /^::ffff:(?=\d+\.)/i;

/** An IPv4 peer of a dual-stack socket is written as IPv4, as its owner would; the zone of a link says nothing elsewhere. */
export function plainAddress(address: string): string {
  const [bare = ''] = address.split('%', 1);
  return bare.replace(MAPPED, '');
}
