/**
 * A strict reading of HTTP/1.1 messages, by RFC 9112 alone: what judges what the gateway sent, and how many requests there
 * were in what it was sent.
 *
 * Invariant: whatever two readers could take differently is a fault here. Of what RFC 9112 lets a reader be lenient about,
 * this one takes line ends before a request line (section 2.2) and several spaces in it (section 3).
 */

export type Message = {
  readonly startLine: string;
  /** Flat field lines, latin1, without the white space around values. */
  readonly fields: readonly string[];
  readonly content: Buffer;
  readonly trailers: readonly string[];
  readonly framing: 'none' | 'length' | 'chunked' | 'until-close';
};

export type Read =
  | { readonly kind: 'whole'; readonly message: Message; readonly length: number }
  /** What is there can be the beginning of a message. */
  | { readonly kind: 'incomplete' }
  | { readonly kind: 'fault'; readonly why: string };

const TOKEN = /^[\w!#$%&'*+\-.^`|~]+$/;
const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;
const HOST = /^(?:\[[\w:.%]+\]|[\w\-.~!$&'()*+,;=%]*)(?::\d*)?$/;

class Fault extends Error {}

class Incomplete extends Error {}

/** Walks over bytes; what is missing at their end is no fault. */
class Cursor {
  at = 0;

  constructor(readonly bytes: Buffer) {}

  line(): string {
    const end = this.bytes.indexOf('\n', this.at, 'latin1');
    const seen = this.bytes.toString('latin1', this.at, end < 0 ? this.bytes.length : end);
    if (end < 0) throw new Incomplete();
    if (!seen.endsWith('\r')) throw new Fault('a line that ends in LF alone');
    this.at = end + 1;
    if (seen.indexOf('\r') < seen.length - 1) throw new Fault('CR in a line');
    return seen.slice(0, -1);
  }

  exactly(length: number): Buffer {
    if (this.bytes.length < this.at + length) throw new Incomplete();
    this.at += length;
    return this.bytes.subarray(this.at - length, this.at);
  }
}

export function fieldsOf(fields: readonly string[], name: string): string[] {
  return fields.filter((_, at) => at % 2 === 1 && fields[at - 1]!.toLowerCase() === name);
}

function readFields(cursor: Cursor): string[] {
  const fields: string[] = [];
  for (let line = cursor.line(); line !== ''; line = cursor.line()) {
    const colon = line.indexOf(':');
    const name = line.slice(0, Math.max(0, colon));
    const value = line.slice(colon + 1).replace(/^[\t ]+|[\t ]+$/g, '');
    if (!TOKEN.test(name)) throw new Fault(`no field: ${JSON.stringify(line)}`);
    if (!VALUE.test(value)) throw new Fault(`no field value: ${JSON.stringify(line)}`);
    fields.push(name, value);
  }
  return fields;
}

function framingOf(fields: readonly string[], version: string): { chunked: boolean; length: number | null } {
  const codings = fieldsOf(fields, 'transfer-encoding');
  const lengths = fieldsOf(fields, 'content-length');
  if (codings.length + lengths.length > 1) throw new Fault('framed more than once');
  const [coding] = codings;
  if (coding !== undefined && (coding.toLowerCase() !== 'chunked' || version === '1.0')) throw new Fault('coding');
  const [length] = lengths;
  if (length !== undefined && !/^\d{1,15}$/.test(length)) throw new Fault('length');
  return { chunked: coding !== undefined, length: length === undefined ? null : Number(length) };
}

function readChunks(cursor: Cursor): { content: Buffer; trailers: string[] } {
  const chunks: Buffer[] = [];
  for (;;) {
    const line = cursor.line();
    const [, size] = /^([0-9A-Fa-f]{1,40})(?:;[\t\x20-\x7e\x80-\xff]*)?$/.exec(line) ?? [];
    if (size === undefined) throw new Fault(`no chunk size: ${JSON.stringify(line)}`);
    const length = Number.parseInt(size, 16);
    if (!Number.isSafeInteger(length)) throw new Fault('chunk size out of range');
    if (length === 0) return { content: Buffer.concat(chunks), trailers: readFields(cursor) };
    chunks.push(cursor.exactly(length));
    const end = cursor.bytes.toString('latin1', cursor.at, cursor.at + 2);
    if (!'\r\n'.startsWith(end)) throw new Fault('a chunk that is longer than its size');
    cursor.exactly(2);
  }
}

function reading(read: () => Message, cursor: Cursor): Read {
  try {
    const message = read();
    return { kind: 'whole', message, length: cursor.at };
  } catch (error) {
    if (error instanceof Incomplete) return { kind: 'incomplete' };
    if (error instanceof Fault) return { kind: 'fault', why: error.message };
    throw error;
  }
}

/** Reads one request from the start of the bytes. */
export function readRequest(bytes: Buffer): Read {
  const cursor = new Cursor(bytes);
  return reading(() => {
    while (bytes[cursor.at] === 0x0d || bytes[cursor.at] === 0x0a) cursor.at += 1;
    const startLine = cursor.line();
    const [, method = '', target = '', version = ''] = /^(\S+) +(\S+) +HTTP\/(1\.[01])$/.exec(startLine) ?? [];
    if (!TOKEN.test(method) || !/^[\x21-\x7e]+$/.test(target)) {
      throw new Fault(`no request line: ${JSON.stringify(startLine)}`);
    }
    const fields = readFields(cursor);
    const hosts = fieldsOf(fields, 'host');
    if (hosts.length > 1 || (hosts.length === 0 && version === '1.1')) throw new Fault('not one Host');
    if (hosts.length === 1 && !HOST.test(hosts[0]!)) throw new Fault('no host');
    const { chunked, length } = framingOf(fields, version);
    if (chunked) return { startLine, fields, ...readChunks(cursor), framing: 'chunked' };
    const content = cursor.exactly(length ?? 0);
    return { startLine, fields, content, trailers: [], framing: length === null ? 'none' : 'length' };
  }, cursor);
}

export type Requests = {
  readonly requests: readonly Message[];
  /** Why reading stopped: nothing is left, the last request closes, more would have to come, or nobody can tell. */
  readonly end: 'nothing' | 'closed' | 'incomplete' | 'fault';
  readonly why: string;
};

/** All requests of one connection. */
export function readRequests(bytes: Buffer): Requests {
  const requests: Message[] = [];
  for (let rest = bytes; ; ) {
    if (rest.length === 0) return { requests, end: 'nothing', why: '' };
    const read = readRequest(rest);
    if (read.kind !== 'whole') return { requests, end: read.kind, why: read.kind === 'fault' ? read.why : '' };
    requests.push(read.message);
    rest = rest.subarray(read.length);
    const options = fieldsOf(read.message.fields, 'connection').join().toLowerCase();
    const stays = /keep-alive/.test(options) || read.message.startLine.endsWith('1.1');
    if (/close/.test(options) || !stays) return { requests, end: 'closed', why: '' };
  }
}

/** Reads one response; `toHead`: it answers a HEAD. What ends with the connection is everything that is there. */
export function readResponse(bytes: Buffer, toHead: boolean): Read {
  const cursor = new Cursor(bytes);
  return reading(() => {
    const startLine = cursor.line();
    const [, version = '', code = ''] = /^HTTP\/(1\.[01]) (\d{3}) [\t\x20-\x7e\x80-\xff]*$/.exec(startLine) ?? [];
    if (version === '') throw new Fault(`no status line: ${JSON.stringify(startLine)}`);
    const fields = readFields(cursor);
    const status = Number(code);
    const { chunked, length } = framingOf(fields, version);
    if ((status < 200 || status === 204) && (chunked || length !== null)) throw new Fault(`${status} with a length`);
    const nothing = { startLine, fields, content: Buffer.alloc(0), trailers: [], framing: 'none' } as const;
    if (toHead || status < 200 || status === 204 || status === 304) return nothing;
    if (chunked) return { startLine, fields, ...readChunks(cursor), framing: 'chunked' };
    const content = cursor.exactly(length ?? bytes.length - cursor.at);
    return { ...nothing, content, framing: length === null ? 'until-close' : 'length' };
  }, cursor);
}

/** All responses of one connection, interim ones too. `heads`: which final response, from 0, answers a HEAD. */
export function readResponses(bytes: Buffer, heads: ReadonlySet<number> = new Set()): Message[] {
  const responses: Message[] = [];
  let finals = 0;
  for (let rest = bytes; rest.length > 0; ) {
    const read = readResponse(rest, heads.has(finals));
    if (read.kind !== 'whole')
      throw new Error(`${read.kind}: ${JSON.stringify(rest.toString('latin1').slice(0, 300))}`);
    responses.push(read.message);
    if (statusOf(read.message) >= 200) finals += 1;
    rest = rest.subarray(read.length);
  }
  return responses;
}

export function statusOf(message: Message): number {
  return Number(message.startLine.split(' ')[1]);
}
