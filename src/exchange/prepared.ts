/**
 * The whole message that one follower was given, for the next ones: in a burst they get the same bytes, and making and
 * checking the same head for each costs more than sending it.
 *
 * Invariants: the bytes are those that Node wrote for the first; only a message that Node would write in the same way is
 * sent so (HTTP/1.1, its connection kept, its turn come); nothing is held beyond the turn of the event loop.
 */

import type { SharedResponse } from '../core/sharing.js';
import type { ClientRequest, ClientResponse } from './client-side.js';
import { isStreamed } from './client-side.js';

/** What is copied for each message; larger content is better sent as it is. */
const MOST_BYTES = 65_536;

type Prepared = { readonly response: SharedResponse; readonly head: string; readonly message: Buffer };

/** What Node keeps of a response's head. It has no public name for it. */
type HeadOfNode = { _header: string | null; _headerSent: boolean; readonly shouldKeepAlive: boolean };

export let prepared: Prepared | null = null;

/** Whether a response can be given by the same bytes as to others. */
export function isRepeatable(req: ClientRequest, res: ClientResponse, response: SharedResponse): boolean {
  return (
    req.httpVersion === '1.1' &&
    req.method !== 'HEAD' &&
    res.socket !== null &&
    !isStreamed(res) &&
    (res as unknown as HeadOfNode).shouldKeepAlive &&
    response.trailers.length === 0 &&
    response.content.length > 0 &&
    response.content.length <= MOST_BYTES
  );
}

/** Keeps the message whose head has just been written, for those who come in this turn. */
export function prepare(res: ClientResponse, response: SharedResponse): void {
  const { _header: head } = res as unknown as HeadOfNode;
  // Not the first words of a message that ends its connection.
  if (head === null || !/\r\nConnection: keep-alive\r\n/.test(head)) return;
  if (prepared === null) setImmediate(forget);
  prepared = { response, head, message: Buffer.concat([Buffer.from(head, 'latin1'), response.content]) };
}

function forget(): void {
  prepared = null;
}

/** Sends a whole message, and ends it. */
export function sendWhole(res: ClientResponse, { head, message }: Prepared): void {
  const ofNode = res as unknown as HeadOfNode;
  ofNode._header = head;
  // It is in the message.
  ofNode._headerSent = true;
  res.end(message);
}
