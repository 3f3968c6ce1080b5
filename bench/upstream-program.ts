/**
 * The upstream of the measurements, as a process: raw sockets and prebuilt answers, so that it is never what limits.
 * `/slow/*` is answered after 200 ms, everything else at once, with 1 KiB that may be cached.
 *
 * It tells its port at first, and then each answer of `/slow/*` with the monotonic time at which it was written.
 */

import { createServer } from 'node:net';
import { listenOn } from '../test/support/ports.js';

const SLOW_MS = 200;
const HEAD_END = Buffer.from('\r\n\r\n');
const CONTENT = Buffer.alloc(1_024, 'x');
/** With the date of now: caches would take an older one for stale. */
function answerOfNow(): Buffer {
  const lines = [
    'HTTP/1.1 200 OK',
    'Content-Type: application/json',
    `Date: ${new Date().toUTCString()}`,
    'ETag: "5e1f3a"',
    'Cache-Control: max-age=60',
    `Content-Length: ${CONTENT.length}`,
    '\r\n',
  ];
  return Buffer.concat([Buffer.from(lines.join('\r\n')), CONTENT]);
}

let answer = answerOfNow();
setInterval(() => {
  answer = answerOfNow();
}, 1_000);
/** `s` of `GET /slow/` */
const S = 0x73;

const server = createServer({ noDelay: true }, (socket) => {
  let rest: Buffer | null = null;
  socket.on('error', () => {});
  socket.on('data', (piece: Buffer) => {
    let bytes: Buffer = rest === null ? piece : Buffer.concat([rest, piece]);
    rest = null;
    while (bytes.length > 0) {
      const end = bytes.indexOf(HEAD_END);
      if (end < 0) {
        rest = bytes;
        return;
      }
      if (bytes[5] === S)
        answerSlowly(bytes.toString('latin1', 4, bytes.indexOf(' ', 4)), (bytes) => socket.write(bytes));
      else socket.write(answer);
      bytes = bytes.subarray(end + HEAD_END.length);
    }
  });
});

function answerSlowly(target: string, write: (bytes: Buffer) => void): void {
  setTimeout(() => {
    write(answer);
    process.send?.({ target, atNs: String(process.hrtime.bigint()) });
  }, SLOW_MS);
}

const port = await listenOn(server, 0, 8_192);
process.send?.({ port });
process.once('disconnect', () => process.exit(0));
