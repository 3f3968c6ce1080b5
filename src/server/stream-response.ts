/**
 * The response on one HTTP/2 stream, in the form that HTTP/1 responses have.
 *
 * Invariants: a response that is cut ends in RST_STREAM with INTERNAL_ERROR and never in END_STREAM; fields of a
 * connection do not go out, and names do in lower case; what the client has not read is known, piece by piece.
 */

import { EventEmitter } from 'node:events';
import { constants, type OutgoingHttpHeaders, type ServerHttp2Stream } from 'node:http2';
import type { StreamedResponse } from '../exchange/client-side.js';
import { clientFields, contentLengthOf, hasNoContent } from '../http/fields.js';
import type { StreamRequest } from './stream-request.js';

/** Each piece that the client takes is told, so that a slow one is not taken for one that stands still. */
const PIECE_BYTES = 65_536;
const UNWRITABLE = /[\0\r\n]/;

export class StreamResponse extends EventEmitter implements StreamedResponse {
  sendDate = false;
  useChunkedEncodingByDefault = true;
  readonly socket = null;
  writableEnded = false;
  chunkedEncoding = false;
  /** What was written and has not been taken, and what has. */
  waitingBytes = 0;
  takenBytes = 0;
  readonly #stream: ServerHttp2Stream;
  readonly #request: StreamRequest;
  #head: OutgoingHttpHeaders | null = null;
  #hasContent = true;
  #trailers: OutgoingHttpHeaders = {};
  #closed = false;

  constructor(stream: ServerHttp2Stream, request: StreamRequest) {
    super();
    this.#stream = stream;
    this.#request = request;
    stream.on('drain', () => this.emit('drain'));
    // Whoever resets a stream, or breaks its rules, has left; the end of the stream tells the same.
    stream.on('error', () => {});
    stream.once('wantTrailers', () => stream.sendTrailers(this.#trailers));
    stream.once('finish', () => {
      // What is left of an upload is not wanted (RFC 9113 section 8.1).
      if (this.writableEnded && !request.complete) stream.close(constants.NGHTTP2_NO_ERROR);
    });
    stream.once('close', () => {
      this.#closed = true;
      this.emit('close');
    });
  }

  get destroyed(): boolean {
    return this.#closed || this.#stream.destroyed;
  }

  get writableFinished(): boolean {
    // A stream may close before its writable side says that it is finished; whatever breaks one has a code.
    return this.writableEnded && this.#closed && this.#stream.rstCode === constants.NGHTTP2_NO_ERROR;
  }

  interim(status: number, fields: readonly string[]): void {
    if (!this.#stream.headersSent && !this.destroyed) this.#stream.additionalHeaders(headersOf(status, fields));
  }

  writeHead(status: number, _reason: string, fields: string[]): void {
    if (status > 599) throw new Error('HTTP/2 in Node has no such status');
    const head = headersOf(status, fields);
    this.#hasContent = !hasNoContent(this.#request.method, status) && status !== 205;
    this.chunkedEncoding = this.#hasContent && contentLengthOf(fields) === null;
    this.#head = head;
  }

  write(chunk: Buffer): boolean {
    this.#respond(false);
    if (chunk.length === 0 || !this.#hasContent || this.destroyed) return true;
    let hasRoom = true;
    for (let at = 0; at < chunk.length; at += PIECE_BYTES) {
      const piece = chunk.subarray(at, at + PIECE_BYTES);
      this.waitingBytes += piece.length;
      hasRoom = this.#stream.write(piece, () => {
        this.waitingBytes -= piece.length;
        this.takenBytes += piece.length;
      });
    }
    return hasRoom;
  }

  addTrailers(pairs: [string, string][]): void {
    this.#trailers = headersOf(null, pairs.flat());
  }

  end(chunk?: Buffer): void {
    const content = chunk ?? Buffer.alloc(0);
    this.#respond(content.length === 0 && Object.keys(this.#trailers).length === 0);
    if (content.length > 0) this.write(content);
    this.writableEnded = true;
    this.#stream.end();
  }

  destroy(): void {
    // `close` with a code would end a stream that has no trailers in order first.
    this.#stream.destroy(new Error('the response is cut'));
  }

  detachSocket(): void {}

  #respond(isWhole: boolean): void {
    const head = this.#head;
    if (head === null || this.destroyed) return;
    this.#head = null;
    this.#stream.respond(head, {
      endStream: isWhole,
      waitForTrailers: !isWhole && this.chunkedEncoding,
      sendDate: false,
    } as object);
  }
}

/** Lines of one name stand together, in their order. */
function headersOf(status: number | null, fields: readonly string[]): OutgoingHttpHeaders {
  const headers: OutgoingHttpHeaders = Object.create(null);
  if (status !== null) headers[':status'] = status;
  const lines = clientFields(fields);
  for (let i = 0; i + 1 < lines.length; i += 2) {
    const name = (lines[i] as string).toLowerCase();
    const value = lines[i + 1] as string;
    if (UNWRITABLE.test(value) || UNWRITABLE.test(name)) throw new Error('a field that cannot be written');
    const before = headers[name];
    if (before === undefined) headers[name] = value;
    else if (!SINGLE.has(name)) headers[name] = [before, value].flat() as string[];
  }
  return headers;
}

/** Fields that Node sends no second line of: of several the first one counts, as for most readers. */
const SINGLE: ReadonlySet<string> = new Set([
  ...['access-control-allow-credentials', 'access-control-max-age', 'access-control-request-method', 'age'],
  ...['authorization', 'content-encoding', 'content-language', 'content-length', 'content-location', 'content-md5'],
  ...['content-range', 'content-type', 'date', 'dnt', 'etag', 'expires', 'from', 'host', 'if-match'],
  ...['if-modified-since', 'if-none-match', 'if-range', 'if-unmodified-since', 'last-modified', 'location'],
  ...['max-forwards', 'proxy-authorization', 'range', 'referer', 'retry-after', 'tk', 'upgrade-insecure-requests'],
  ...['user-agent', 'x-content-type-options'],
]);
