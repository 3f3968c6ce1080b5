/**
 * A `100 Continue` that nobody asked for. The gateway asks for none, undici takes one for a broken response, and yet servers
 * send them: an interim response may always be ignored (RFC 9110 section 15.2), so it is taken out of what is read.
 *
 * Invariants: nothing but whole heads with status 100 is taken out, and those only between a request and its final response;
 * everything else is given on as it came. Outside of that time a read costs one comparison.
 */

import type { Socket } from 'node:net';

const HEAD_END = '\r\n\r\n';
/** How an interim response begins, with any minor version; what is longer than one and has no end is somebody else's to judge. */
const INTERIM = /^HTTP\/1\.\d 1/;
const INTERIM_LENGTH = 10;
const INTERIM_PREFIX = 'HTTP/1.';
const CONTINUE = /^HTTP\/1\.\d 100[ \r]/;
const CONTINUE_LENGTH = 13;
const LONE_FEED = /(?<!\r)\n/;

const readings = new WeakMap<Socket, ContinueReading>();

/** Makes whoever reads the connection piece by piece see no `100 Continue`. `maxHeadBytes`: more of a head is not held back. */
export function ignoreContinue(socket: Socket, maxHeadBytes: number): void {
  const read = socket.read.bind(socket);
  const reading = new ContinueReading(read, maxHeadBytes);
  readings.set(socket, reading);
  socket.read = (size?: number) => (size === undefined ? reading.next() : read(size));
}

/** A request is about to be written to the connection: what comes next is its response. */
export function expectResponse(socket: Socket): void {
  readings.get(socket)?.expect();
}

class ContinueReading {
  readonly #read: () => Buffer | null;
  readonly #maxHeadBytes: number;
  #atHead = false;
  /** The beginning of a head that may have to be taken out. */
  #held: Buffer | null = null;

  constructor(read: () => Buffer | null, maxHeadBytes: number) {
    this.#read = read;
    this.#maxHeadBytes = maxHeadBytes;
  }

  expect(): void {
    this.#atHead = true;
  }

  next(): Buffer | null {
    for (;;) {
      const piece = this.#read();
      if (!this.#atHead || piece === null) return piece;
      const rest = this.#withoutContinue(this.#held === null ? piece : Buffer.concat([this.#held, piece]));
      if (rest !== null) return rest;
    }
  }

  /** What may be given on of it; null: nothing yet. */
  #withoutContinue(bytes: Buffer): Buffer | null {
    const given: Buffer[] = [];
    this.#held = null;
    for (let rest = bytes; this.#atHead; ) {
      const is = beginning(rest);
      const end = is === 'final' ? -1 : rest.indexOf(HEAD_END, 0, 'latin1');
      if (end >= 0) {
        const head = rest.subarray(0, end + HEAD_END.length);
        if (!isContinue(head)) given.push(head);
        rest = rest.subarray(head.length);
      } else if (is === 'final' || rest.length > this.#maxHeadBytes) {
        this.#atHead = false;
        given.push(rest);
      } else {
        this.#held = rest;
        break;
      }
    }
    if (given.length === 0) return null;
    return given.length === 1 ? (given[0] as Buffer) : Buffer.concat(given);
  }
}

/**
 * Whether it is a `100 Continue` and nothing else. With line feeds that stand alone it may be the 100 and what follows it, as
 * far as some would read: the parser judges.
 */
function isContinue(head: Buffer): boolean {
  return CONTINUE.test(head.toString('latin1', 0, CONTINUE_LENGTH)) && !LONE_FEED.test(head.toString('latin1'));
}

function beginning(bytes: Buffer): 'interim' | 'final' | 'too-short' {
  const text = bytes.toString('latin1', 0, INTERIM_LENGTH);
  if (text.length === INTERIM_LENGTH) return INTERIM.test(text) ? 'interim' : 'final';
  const couldBe = INTERIM_PREFIX.startsWith(text.slice(0, INTERIM_PREFIX.length));
  return couldBe ? 'too-short' : 'final';
}
