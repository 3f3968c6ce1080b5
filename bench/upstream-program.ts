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
const ANSWER = Buffer.concat([
  Buffer.from(
    [
      'HTTP/1.1 200 OK',
      'Content-Type: application/json',
      'Date: Mon, 02 Mar 2026 10:00:00 GMT',
      'ETag: "5e1f3a"',
      'Cache-Control: max-age=60',
      `Content-Length: ${CONTENT.length}`,
      '\r\n',
    ].join('\r\n'),
  ),
  CONTENT,
]);
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
      if (bytes[5] === S) answerSlowly(bytes.toString('latin1', 4, bytes.indexOf(' ', 4)), (all) => socket.write(all));
      else socket.write(ANSWER);
      bytes = bytes.subarray(end + HEAD_END.length);
    }
  });
});

function answerSlowly(target: string, write: (answer: Buffer) => void): void {
  setTimeout(() => {
    write(ANSWER);
    process.send?.({ target, atNs: String(process.hrtime.bigint()) });
  }, SLOW_MS);
}

const port = await listenOn(server, 0, 8_192);
process.send?.({ port });
process.once('disconnect', () => process.exit(0));
