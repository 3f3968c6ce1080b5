/**
 * What the exchange needs of the client's side of one request. Node's own request and response are one for HTTP/1, as they
 * are; a stream of HTTP/2 is another (server/stream-request.ts, server/stream-response.ts).
 */

import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { Readable } from 'node:stream';

/** A request: its content is the stream itself. `headers` tells of framing as HTTP/1.1 would. */
export type ClientRequest = Readable &
  Pick<
    IncomingMessage,
    'httpVersion' | 'method' | 'url' | 'rawHeaders' | 'headers' | 'rawTrailers' | 'complete' | 'socket'
  >;

/** Its response. Nothing of the head goes out before the first `write`, or the end. */
export type ClientResponse = {
  sendDate: boolean;
  useChunkedEncodingByDefault: boolean;
  readonly socket: Socket | null;
  readonly destroyed: boolean;
  readonly writableEnded: boolean;
  /** Whether all of it has gone out, to its end. */
  readonly writableFinished: boolean;
  /** Whether trailers can follow its content. */
  readonly chunkedEncoding: boolean;
  /** Throws when something of the head cannot be written. */
  writeHead(status: number, reason: string, fields: string[]): unknown;
  write(chunk: Buffer): boolean;
  addTrailers(pairs: [string, string][]): void;
  end(chunk?: Buffer): unknown;
  /** Ends it so that the client cannot take it for whole. */
  destroy(): unknown;
  detachSocket(socket: Socket): void;
  on(event: 'drain', listener: () => void): unknown;
  once(event: 'close', listener: () => void): unknown;
};

/** One that shares its connection with others: an interim response is a frame of its own there. */
export type StreamedResponse = ClientResponse & {
  interim(status: number, fields: readonly string[]): void;
};

export function isStreamed(response: ClientResponse): response is StreamedResponse {
  return 'interim' in response;
}
