/** Who asks, as far as those say who are believed. */

import { fieldLines } from '../core/field-lines.js';

/**
 * The address of the client: that of the peer, or, of a peer that is believed, the last one in `X-Forwarded-For` that is not
 * believed itself. What stands further to the left anybody may have written. `forwarded`: lines as `forwardedFields` makes
 * them, which end in the peer.
 */
export function clientAddress(
  peer: { readonly address: string; readonly trusted: boolean },
  forwarded: readonly string[],
  trusts: (address: string) => boolean,
): string {
  if (!peer.trusted) return peer.address;
  const hops = (fieldLines(forwarded, 'x-forwarded-for')[0] ?? '').split(',').map((hop) => hop.trim());
  // The first of a chain of proxies that are all believed is the client.
  return hops.findLast((hop) => hop !== '' && !trusts(hop)) ?? hops.find((hop) => hop !== '') ?? peer.address;
}

/** An address without what tells its household apart: the first 24 bits, or 48 of IPv6; anything else is not shown. */
export function truncatedAddress(address: string): string {
  // Some proxies write the port behind it.
  const bare = /^\[([^\]]*)\](?::\d+)?$/.exec(address)?.[1] ?? /^([\d.]+):\d+$/.exec(address)?.[1] ?? address;
  const four = /^(\d{1,3}\.\d{1,3}\.\d{1,3})\.\d{1,3}$/.exec(bare);
  if (four !== null) return `${four[1]}.0`;
  if (!/^[\da-f]{0,4}(?::[\da-f]{0,4}){2,7}(?::\d+(?:\.\d+){3})?$/i.test(bare)) return '-';
  const [head = '', tail] = bare.split('::');
  const groups = head === '' ? [] : head.split(':');
  // Groups that `::` leaves out are zeros.
  const first = tail === undefined ? groups : [...groups, '0', '0', '0'];
  return `${first.slice(0, 3).join(':')}::`;
}
