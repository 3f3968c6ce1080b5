/**
 * The upstream of the measurements, as a process: raw sockets and prebuilt answers, so that it is never what limits.
 * `/slow/*` is answered after 200 ms, everything else at once, with 1 KiB that may be cached; but `…/volume?BYTES` with that
 * many bytes, in chunks when `…/volume?BYTES&chunked` asks for it. Content of a `PUT` to there is read and let go of first.
 *
 * It tells its port at first, and then each answer of `/slow/*` with the monotonic time at which it was written.
 */

import { createServer, type Socket } from 'node:net';
import { listenOn } from '../test/support/ports.js';
import { chunkBytes, lastChunkBytes } from '../test/support/wire.js';

const SLOW_MS = 200;
const HEAD_END = Buffer.from('\r\n\r\n');
const CONTENT = Buffer.alloc(1_024, 'x');
const PIECE = Buffer.alloc(256 * 1_024, 'x');
const PIECE_CHUNK = chunkBytes(PIECE);
/** Of a request's head, when it asks for a volume or brings one. */
const VOLUME = /^(GET|PUT) \S+\/volume\?(\d+)(&chunked)? /;
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
  /** Of an upload, what has still to come. */
  let owedBytes = 0;
  socket.on('error', () => {});
  socket.on('data', (piece: Buffer) => {
    let bytes: Buffer = rest === null ? piece : Buffer.concat([rest, piece]);
    rest = null;
    while (bytes.length > 0) {
      if (owedBytes > 0) {
        const own = Math.min(owedBytes, bytes.length);
        owedBytes -= own;
        bytes = bytes.subarray(own);
        if (owedBytes === 0) socket.write(answer);
        continue;
      }
      const end = bytes.indexOf(HEAD_END);
      if (end < 0) {
        rest = bytes;
        return;
      }
      const volume = bytes.includes('/volume?') ? VOLUME.exec(bytes.toString('latin1', 0, end)) : null;
      if (volume?.[1] === 'PUT') owedBytes = Number(volume[2]);
      else if (volume !== null) void sendVolume(socket, Number(volume[2]), volume[3] !== undefined);
      else if (bytes[5] === S)
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

async function sendVolume(socket: Socket, bytes: number, isChunked: boolean): Promise<void> {
  const framing = isChunked ? 'Transfer-Encoding: chunked' : `Content-Length: ${bytes}`;
  socket.write(`HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n${framing}\r\n\r\n`);
  for (let left = bytes; left > 0 && !socket.destroyed; left -= PIECE.length) {
    const piece = left < PIECE.length ? PIECE.subarray(0, left) : PIECE;
    const isWhole = piece === PIECE;
    const hasRoom = socket.write(isChunked ? (isWhole ? PIECE_CHUNK : chunkBytes(piece)) : piece);
    if (!hasRoom) await new Promise((resolve) => socket.once('drain', resolve));
  }
  if (isChunked) socket.write(lastChunkBytes());
}

const port = await listenOn(server, 0, 8_192);
process.send?.({ port });
process.once('disconnect', () => process.exit(0));
