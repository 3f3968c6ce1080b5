/**
 * The request of one HTTP/2 stream, in the form that HTTP/1 requests have.
 *
 * Invariants: pseudo-fields become method, target and `Host`, and what contradicts them is a fault, never a choice; names
 * stay as they came, in order; the content is read no faster than it is taken, by the stream's window.
 */

import type { IncomingHttpHeaders } from 'node:http';
import type { ServerHttp2Stream } from 'node:http2';
import type { Socket } from 'node:net';
import { Readable } from 'node:stream';
import type { ClientRequest } from '../exchange/client-side.js';

/** What a name and a value cost beside their bytes, as a line of HTTP/1. */
const LINE_COST_BYTES = 4;

export class StreamRequest extends Readable implements ClientRequest {
  readonly httpVersion = '2.0';
  readonly method: string;
  readonly url: string;
  readonly rawHeaders: string[] = [];
  readonly headers: IncomingHttpHeaders = {};
  rawTrailers: string[] = [];
  complete = false;
  /** Why it cannot be read in one way only; null: it can. */
  fault: string | null = null;
  /** Of the request line and the fields, as HTTP/1 would count them. */
  readonly fieldBytes: number;
  receivedBytes = 0;
  readonly socket: Socket;
  readonly #stream: ServerHttp2Stream;

  /** `fields`: flat, pseudo-fields among them. */
  constructor(stream: ServerHttp2Stream, fields: readonly string[], socket: Socket) {
    super({ autoDestroy: false });
    this.#stream = stream;
    this.socket = socket;
    const pseudo = new Map<string, string>();
    let bytes = 0;
    for (let i = 0; i + 1 < fields.length; i += 2) {
      const [name, value] = [fields[i] as string, fields[i + 1] as string];
      bytes += name.length + value.length + LINE_COST_BYTES;
      if (name.startsWith(':')) pseudo.set(name, value);
      else this.rawHeaders.push(name, value);
    }
    this.fieldBytes = bytes;
    this.method = pseudo.get(':method') ?? '';
    this.url = pseudo.get(':path') ?? '';
    this.#joinCookies();
    this.#nameHost(pseudo.get(':authority'));
    // A space would end the target in HTTP/1, and what follows would be something else.
    if (!/^[\x21-\x7e\x80-\xff]*$/.test(this.url)) this.fault = 'A target that is none.';
    if (!/^https?$/i.test(pseudo.get(':scheme') ?? 'https')) this.fault = 'A scheme that is not of HTTP.';
    this.#readHeaders(!stream.endAfterHeaders);
    this.#listen();
  }

  override _read(): void {
    this.#stream.resume();
  }

  #listen(): void {
    const stream = this.#stream;
    stream.on('data', (chunk: Buffer) => {
      this.receivedBytes += chunk.length;
      if (!this.push(chunk)) stream.pause();
    });
    stream.on('trailers', (_fields: unknown, _flags: number, raw: string[]) => {
      this.rawTrailers = raw;
    });
    stream.once('end', () => {
      // A stream that is reset ends as well.
      if (stream.rstCode !== 0 || stream.aborted) return;
      this.complete = true;
      this.push(null);
    });
    stream.once('aborted', () => this.#broken());
    stream.once('close', () => this.#broken());
    if (stream.endAfterHeaders) stream.resume();
    else stream.pause();
  }

  #broken(): void {
    if (this.complete || this.destroyed) return;
    this.emit('aborted');
    this.destroy();
  }

  /** RFC 9113 section 8.2.3: the crumbs of a cookie are one line elsewhere. */
  #joinCookies(): void {
    const lines = this.rawHeaders;
    let first = -1;
    for (let i = 0; i + 1 < lines.length; i += 2) {
      if (lines[i] !== 'cookie') continue;
      if (first < 0) {
        first = i + 1;
        continue;
      }
      lines[first] += `; ${lines[i + 1]}`;
      lines.splice(i, 2);
      i -= 2;
    }
  }

  /** RFC 9113 section 8.3.1: `Host` is the authority; both may be there if they say the same. */
  #nameHost(authority: string | undefined): void {
    if (authority === undefined) return;
    const lines = this.rawHeaders;
    const hosts: string[] = [];
    for (let i = 0; i + 1 < lines.length; i += 2) if (lines[i] === 'host') hosts.push(lines[i + 1] as string);
    if (hosts.length === 0) lines.unshift('host', authority);
    else if (hosts.some((host) => host.toLowerCase() !== authority.toLowerCase())) {
      this.fault = 'The Host field is not the authority.';
    }
  }

  /** Of what the gateway itself goes by. Content without a length is what HTTP/1.1 sends in chunks. */
  #readHeaders(hasContent: boolean): void {
    const lines = this.rawHeaders;
    const single = (name: string): string | undefined => {
      const values: string[] = [];
      for (let i = 0; i + 1 < lines.length; i += 2) if (lines[i] === name) values.push(lines[i + 1] as string);
      return values.length === 0 ? undefined : values.join(', ');
    };
    for (const name of ['content-length', 'x-request-id', 'expect'] as const) {
      const value = single(name);
      if (value !== undefined) this.headers[name] = value;
    }
    if (hasContent && this.headers['content-length'] === undefined) this.headers['transfer-encoding'] = 'chunked';
  }
}
