/** What a request is called: by its client, where that is believed and sound, or by the gateway. */

import { randomUUID } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { RequestIdTrust } from '../config/config.js';
import type { Peer } from '../http/fields.js';

/** Longest id that is taken from a client. */
const MAX_LENGTH = 200;

/** The client's own id where it is one line of moderate, visible text and its sender may give one; a new one otherwise. */
export function requestIdOf(headers: IncomingHttpHeaders, peer: Peer, trust: RequestIdTrust): string {
  const given = headers['x-request-id'];
  const isSound = typeof given === 'string' && given.length <= MAX_LENGTH && /^[\x21-\x7e]+$/.test(given);
  return isSound && (trust === 'always' || (trust === 'trusted-proxies' && peer.trusted)) ? given : randomUUID();
}
