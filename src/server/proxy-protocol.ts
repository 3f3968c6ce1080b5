/**
 * The header of the PROXY protocol, versions 1 and 2 (https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt): who a
 * proxy has accepted the connection from that it has opened to us.
 *
 * Invariants: pure; every prefix of a header is `more` and nothing else, so that it may come byte by byte; no more is read
 * than a header may be long; what is not one to the letter is malformed, never guessed at.
 */

import { isIPv4, isIPv6 } from 'node:net';

export type ProxySource =
  | { readonly kind: 'address'; readonly address: string }
  /** The proxy speaks for itself, for its health checks say: the connection is its own. */
  | { readonly kind: 'local' }
  /** Somebody stands behind it who has no address of the internet, or none that the proxy tells. */
  | { readonly kind: 'unknown' };

export type ProxyHeader =
  | { readonly kind: 'more' }
  | { readonly kind: 'malformed'; readonly why: string }
  /** `length`: where the connection's own bytes begin. */
  | { readonly kind: 'whole'; readonly length: number; readonly source: ProxySource };

const SIGNATURE = Buffer.from('0d0a0d0a000d0a515549540a', 'hex');
const V1_BEGIN = Buffer.from('PROXY ');
/** Longest line of version 1, its end included (section 2.1). */
const V1_MAX = 107;
const V2_HEAD = 16;
/** Longest that version 2 may announce here: addresses, and extensions with a certificate in them. */
export const V2_MAX_REST = 8_192;
/** Family and transport → length of the addresses (section 2.2). Datagrams do not come over a connection. */
const V2_ADDRESSES: Readonly<Record<number, number>> = { 0: 0, 17: 12, 33: 36, 49: 216 };
const MORE: ProxyHeader = { kind: 'more' };

/** Reads the header at the beginning of a connection's bytes. */
export function readProxyHeader(bytes: Buffer): ProxyHeader {
  if (begins(bytes, SIGNATURE)) return bytes.length < V2_HEAD ? versionTwoSoFar(bytes) : versionTwo(bytes);
  if (begins(bytes, V1_BEGIN)) return versionOne(bytes);
  return malformed('no header of the PROXY protocol');
}

/** Whether bytes begin with what is expected, as far as they go. */
function begins(bytes: Buffer, expected: Buffer): boolean {
  const length = Math.min(bytes.length, expected.length);
  return bytes.compare(expected, 0, length, 0, length) === 0;
}

function versionOne(bytes: Buffer): ProxyHeader {
  const end = bytes.subarray(0, V1_MAX).indexOf('\r\n');
  if (end < 0) return bytes.length < V1_MAX ? MORE : malformed('a line that is too long');
  const words = bytes.toString('latin1', V1_BEGIN.length, end).split(' ');
  const length = end + 2;
  if (words[0] === 'UNKNOWN') return { kind: 'whole', length, source: { kind: 'unknown' } };
  const [family, source = '', destination = '', sourcePort = '', destinationPort = '', ...rest] = words;
  const isAddress = family === 'TCP4' ? isIPv4 : family === 'TCP6' ? isPlainIPv6 : null;
  if (isAddress === null) return malformed('a family that is none');
  const isSound =
    isAddress(source) && isAddress(destination) && isPort(sourcePort) && isPort(destinationPort) && rest.length === 0;
  return isSound
    ? { kind: 'whole', length, source: { kind: 'address', address: source } }
    : malformed('addresses or ports that are none');
}

function isPlainIPv6(text: string): boolean {
  return isIPv6(text) && !text.includes('%');
}

function isPort(text: string): boolean {
  return /^(0|[1-9]\d{0,4})$/.test(text) && Number(text) <= 65_535;
}

/** What can be told before the fixed part is whole. */
function versionTwoSoFar(bytes: Buffer): ProxyHeader {
  return bytes.length > 12 ? (commandFault(bytes[12] as number) ?? MORE) : MORE;
}

function commandFault(versionAndCommand: number): ProxyHeader | null {
  if (versionAndCommand >> 4 !== 2) return malformed('a version that is none');
  return (versionAndCommand & 0xf) > 1 ? malformed('a command that is none') : null;
}

function versionTwo(bytes: Buffer): ProxyHeader {
  const command = bytes[12] as number;
  const fault = commandFault(command);
  if (fault !== null) return fault;
  const rest = bytes.readUInt16BE(14);
  if (rest > V2_MAX_REST) return malformed('a header that is too long');
  const length = V2_HEAD + rest;
  const isLocal = (command & 0xf) === 0;
  const addresses = V2_ADDRESSES[bytes[13] as number];
  // What a proxy says of its own connection is to be skipped, whatever it is.
  if (!isLocal && addresses === undefined) return malformed('a family or a transport that is none');
  if (!isLocal && (addresses as number) > rest) return malformed('addresses that are cut off');
  if (bytes.length < length) return MORE;
  if (isLocal) return { kind: 'whole', length, source: { kind: 'local' } };
  if (!areExtensions(bytes.subarray(V2_HEAD + (addresses as number), length)))
    return malformed('extensions that are none');
  return { kind: 'whole', length, source: sourceOf(bytes) };
}

function sourceOf(bytes: Buffer): ProxySource {
  const family = (bytes[13] as number) >> 4;
  if (family === 1) return { kind: 'address', address: bytes.subarray(V2_HEAD, V2_HEAD + 4).join('.') };
  if (family === 2) return { kind: 'address', address: ipv6Text(bytes.subarray(V2_HEAD, V2_HEAD + 16)) };
  return { kind: 'unknown' };
}

/** As RFC 5952 has it; `URL` knows how. */
function ipv6Text(bytes: Buffer): string {
  const groups = Array.from({ length: 8 }, (_, at) => bytes.readUInt16BE(at * 2).toString(16));
  const mapped = bytes.compare(MAPPED, 0, MAPPED.length, 0, MAPPED.length) === 0;
  if (mapped) return `::ffff:${bytes.subarray(12).join('.')}`;
  return new URL(`http://[${groups.join(':')}]`).hostname.slice(1, -1);
}

const MAPPED = Buffer.from('00000000000000000000ffff', 'hex');

/** A type, a length and so many bytes, to the end. */
function areExtensions(bytes: Buffer): boolean {
  let at = 0;
  while (at < bytes.length) {
    if (at + 3 > bytes.length) return false;
    at += 3 + bytes.readUInt16BE(at + 1);
  }
  return at === bytes.length;
}

function malformed(why: string): ProxyHeader {
  return { kind: 'malformed', why };
}
