/** Headers of the PROXY protocol as a proxy writes them. */

import { isIPv6 } from 'node:net';

const SIGNATURE = '0d0a0d0a000d0a515549540a';

export type Extension = { readonly type: number; readonly value: Buffer };

export function proxyLine(source: string, sourcePort = 50_000): Buffer {
  const [family, destination] = isIPv6(source) ? ['TCP6', '2001:db8::ff'] : ['TCP4', '192.0.2.255'];
  return Buffer.from(`PROXY ${family} ${source} ${destination} ${sourcePort} 443\r\n`);
}

/** Version 2. `addresses`: as they stand on the wire. */
export function proxyBytes(
  family: number,
  addresses: Buffer,
  extensions: readonly Extension[] = [],
  command = 1,
): Buffer {
  const rest = Buffer.concat([
    addresses,
    ...extensions.map(({ type, value }) => {
      const head = Buffer.of(type, 0, 0);
      head.writeUInt16BE(value.length, 1);
      return Buffer.concat([head, value]);
    }),
  ]);
  const head = Buffer.from(
    `${SIGNATURE}${(0x20 | command).toString(16)}${family.toString(16).padStart(2, '0')}0000`,
    'hex',
  );
  head.writeUInt16BE(rest.length, 14);
  return Buffer.concat([head, rest]);
}

export function ipv4Addresses(source: string): Buffer {
  const bytes = source.split('.').map(Number);
  return Buffer.of(...bytes, 192, 0, 2, 255, 0xc3, 0x50, 0x01, 0xbb);
}

/** The source as its sixteen bytes. */
export function ipv6Addresses(source: Buffer): Buffer {
  return Buffer.concat([
    source,
    Buffer.from('20010db80000000000000000000000ff', 'hex'),
    Buffer.of(0xc3, 0x50, 0x01, 0xbb),
  ]);
}

export function unixAddresses(path: string): Buffer {
  const bytes = Buffer.alloc(216);
  bytes.write(path, 'latin1');
  return bytes;
}
