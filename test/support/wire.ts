/**
 * HTTP/1.1 on raw sockets for both ends of a test: what came is kept as it came, and what is malformed is seen.
 *
 * Invariant: no library stands between a test and the bytes, so that a field's spelling, its order and a cut message
 * are facts and not somebody's opinion of them.
 */

import type { Socket } from 'node:net';

const CRLF = '\r\n';

/** Reads a socket piece by piece. Every read answers null once the other side has ended before the piece was whole. */
export class ByteReader {
  #buffered: Buffer = Buffer.alloc(0);
  #incoming: Buffer[] = [];
  #incomingLength = 0;
  #ended = false;
  #wake: (() => void) | null = null;

  constructor(socket: Socket) {
    const end = () => {
      this.#ended = true;
      this.#wake?.();
    };
    socket.on('data', (piece: Buffer) => {
      this.#incoming.push(piece);
      this.#incomingLength += piece.length;
      this.#wake?.();
    });
    socket.on('end', end);
    socket.on('error', end);
    socket.on('close', end);
  }

  /** Bytes up to and without the delimiter. */
  async until(delimiter: string): Promise<Buffer | null> {
    for (let searched = 0; ; ) {
      const buffered = this.#gather();
      const at = buffered.indexOf(delimiter, searched, 'latin1');
      if (at >= 0) return this.#take(at, delimiter.length);
      searched = Math.max(0, buffered.length - delimiter.length);
      if (!(await this.#next())) return null;
    }
  }

  /** Exactly this many bytes. */
  async exactly(length: number): Promise<Buffer | null> {
    while (this.#buffered.length + this.#incomingLength < length) {
      if (!(await this.#next())) return null;
    }
    this.#gather();
    return this.#take(length, 0);
  }

  /** Everything until the other side ends. */
  async rest(): Promise<Buffer> {
    while (await this.#next());
    return this.#take(this.#gather().length, 0);
  }

  #gather(): Buffer {
    if (this.#incoming.length > 0) {
      this.#buffered = Buffer.concat([this.#buffered, ...this.#incoming]);
      this.#incoming = [];
      this.#incomingLength = 0;
    }
    return this.#buffered;
  }

  #take(length: number, skipped: number): Buffer {
    const taken = this.#buffered.subarray(0, length);
    this.#buffered = this.#buffered.subarray(length + skipped);
    return taken;
  }

  /** Waits for what comes next; false when nothing can come any more. */
  async #next(): Promise<boolean> {
    if (this.#ended) return false;
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
    });
    this.#wake = null;
    return true;
  }
}

/** Start line and flat field lines (name, value, name, value …) of a message head, latin1, exactly as they were sent. */
export type Head = { readonly startLine: string; readonly fields: readonly string[] };

/** Reads a message head; null when the connection ended before one was whole. */
export async function readHead(reader: ByteReader): Promise<Head | null> {
  const bytes = await reader.until(CRLF + CRLF);
  if (bytes === null) return null;
  const [startLine = '', ...lines] = bytes.toString('latin1').split(CRLF);
  return { startLine, fields: lines.flatMap(splitField) };
}

function splitField(line: string): [string, string] {
  const colon = line.indexOf(':');
  return colon < 0 ? [line, ''] : [line.slice(0, colon), line.slice(colon + 1).trim()];
}

/** Values of all field lines of that name, in order. */
export function fieldLines(fields: readonly string[], name: string): string[] {
  const wanted = name.toLowerCase();
  return fields.filter((_, at) => at % 2 === 1 && fields[at - 1]!.toLowerCase() === wanted);
}

/** The values of a field as one list, as RFC 9110 section 5.3 joins them; null when it is absent. */
export function fieldValue(fields: readonly string[], name: string): string | null {
  const values = fieldLines(fields, name);
  return values.length === 0 ? null : values.join(', ');
}

export type Content = {
  readonly bytes: Buffer;
  readonly trailers: readonly string[];
  /** False when the connection ended before the message did. */
  readonly whole: boolean;
};

const NOTHING: Content = { bytes: Buffer.alloc(0), trailers: [], whole: true };

/** Reads the content that the fields announce. `untilClose`: no announcement means "until the connection ends". */
export async function readContent(
  reader: ByteReader,
  fields: readonly string[],
  untilClose: boolean,
): Promise<Content> {
  if (fieldValue(fields, 'transfer-encoding')?.toLowerCase().endsWith('chunked')) return readChunked(reader);
  const announced = fieldValue(fields, 'content-length');
  if (announced === null) {
    return untilClose ? { bytes: await reader.rest(), trailers: [], whole: true } : NOTHING;
  }
  const bytes = await reader.exactly(Number(announced));
  return bytes === null ? { bytes: await reader.rest(), trailers: [], whole: false } : { ...NOTHING, bytes };
}

async function readChunked(reader: ByteReader): Promise<Content> {
  const pieces: Buffer[] = [];
  const cut = (): Content => ({ bytes: Buffer.concat(pieces), trailers: [], whole: false });
  for (;;) {
    const size = await reader.until(CRLF);
    if (size === null) return cut();
    const length = Number.parseInt(size.toString('latin1'), 16);
    if (Number.isNaN(length)) return cut();
    if (length === 0) break;
    const piece = await reader.exactly(length);
    if (piece !== null) pieces.push(piece);
    if (piece === null || (await reader.exactly(CRLF.length)) === null) return cut();
  }
  const trailers: string[] = [];
  for (;;) {
    const line = await reader.until(CRLF);
    if (line === null) return cut();
    if (line.length === 0) return { bytes: Buffer.concat(pieces), trailers, whole: true };
    trailers.push(...splitField(line.toString('latin1')));
  }
}

/** A message head as bytes. Values are written as latin1 and not looked at: a test may send what is not allowed. */
export function headBytes(startLine: string, fields: readonly string[]): Buffer {
  let text = startLine + CRLF;
  for (let at = 0; at < fields.length; at += 2) text += `${fields[at]}: ${fields[at + 1]}${CRLF}`;
  return Buffer.from(text + CRLF, 'latin1');
}

/** One chunk of chunked content; an empty one would end the message and is left out. */
export function chunkBytes(content: Buffer): Buffer {
  if (content.length === 0) return content;
  return Buffer.concat([Buffer.from(content.length.toString(16) + CRLF), content, Buffer.from(CRLF)]);
}

/** The end of chunked content, with trailer fields. */
export function lastChunkBytes(trailers: readonly string[] = []): Buffer {
  return headBytes('0', trailers);
}
