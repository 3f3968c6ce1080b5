/** How exchanges end before their time, and how fast they may go: over every kind of route. */

import type { Socket } from 'node:net';
import t from 'tap';
import { Gate, within } from '../support/gate.js';
import { allResponses, bytesOf, KINDS, lastRequest, startStage, Wire } from './stage.js';
import { readResponse, statusOf } from './strict-reading.js';

t.setTimeout(60_000);

const { gateway, witness } = await startStage(t);
const MIB = 1_048_576;
/** More than all buffers between the two ends can hold, several times. */
const MUCH = 96 * MIB;
/** What the systems' buffers on both connections may hold, and the gateway's own. */
const BUFFERS = 48 * MIB;

/** Resolves when a number has not changed for many turns of the gateway; answers it. */
async function settled(read: () => number): Promise<number> {
  let last = read();
  for (let same = 0; same < 12; ) {
    await gateway.caughtUp();
    same = read() === last ? same + 1 : 0;
    last = read();
  }
  return last;
}

/** Writes zeros as fast as they are taken; answers how many bytes were handed to the system. */
function pour(socket: Socket, bytes: number): () => number {
  const piece = Buffer.alloc(64 * 1_024);
  const before = socket.bytesWritten;
  let left = bytes;
  const more = () => {
    while (left > 0 && !socket.destroyed) {
      left -= piece.length;
      if (!socket.write(piece)) return;
    }
  };
  socket.on('drain', more);
  more();
  return () => socket.bytesWritten - before - socket.writableLength;
}

t.test('a client that leaves ends the call of a plain route, and no call of a key', async (t) => {
  for (const kind of KINDS) {
    for (const begun of [false, true]) {
      const target = `/${kind}/leaves-${begun}`;
      const arrived = new Gate();
      const closed = new Gate();
      let socket: Socket | null = null;
      witness.on(target, (received) => {
        socket = received.socket;
        received.socket.once('close', () => closed.open());
        if (begun) bytesOf('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n')(received);
        arrived.open();
      });
      const wire = new Wire(gateway.url);
      wire.write(`POST ${target} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n`);
      await arrived.opened;
      // A replayed answer of unknown length streams as well; nothing else is held back.
      if (begun) await wire.has('half');
      wire.socket.destroy();
      if (kind === 'pass') {
        await within(10_000, `${target}: the end of the call`, closed.opened);
        continue;
      }
      await gateway.caughtUp();
      await gateway.caughtUp();
      t.equal(socket!.destroyed, false, `${target}: the call goes on`);
      socket!.write(begun ? '0\r\n\r\n' : 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n');
      await gateway.caughtUp();
      t.equal(
        (await gateway.metrics()).sum('oneflight_flights_in_progress', { route: kind }),
        0,
        `${target}: and ends`,
      );
    }
  }
});

t.test('an upstream that cuts its answer is seen to cut it, whatever its framing', async (t) => {
  const rows: Readonly<Record<string, readonly [head: string, end: 'FIN' | 'RST']>> = {
    'length, FIN': ['HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n', 'FIN'],
    'length, RST': ['HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n', 'RST'],
    'chunked, FIN': ['HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n', 'FIN'],
    'chunked, RST': ['HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n', 'RST'],
    'between chunks, FIN': ['HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n', 'FIN'],
    'before the last line, FIN': [
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-A: 1\r\n',
      'FIN',
    ],
    'until close, RST': ['HTTP/1.1 200 OK\r\n\r\n', 'RST'],
  };
  for (const kind of KINDS) {
    for (const [name, [head, end]] of Object.entries(rows)) {
      for (const version of ['1.1', '1.0']) {
        const target = `/${kind}/cut-${name.replace(/\W+/g, '-')}-${version}`;
        const cut = new Gate();
        witness.on(target, async (received) => {
          bytesOf(head + (name.startsWith('b') ? '' : 'half'))(received);
          await cut.opened;
          if (end === 'RST') received.socket.resetAndDestroy();
          else received.socket.end();
        });
        const wire = new Wire(gateway.url);
        let error = '';
        wire.socket.on('error', (failure: NodeJS.ErrnoException) => {
          error = failure.code ?? '';
        });
        wire.write(`GET ${target} HTTP/${version}\r\nHost: a\r\n\r\n`);
        // A replayed answer of known length is held back: its client gets a problem in its place.
        const heldBack = kind === 'replay' && name.startsWith('length');
        if (heldBack) await gateway.caughtUp();
        else await wire.has(name.startsWith('b') ? 'ok' : 'half');
        cut.open();
        if (heldBack) {
          await wire.has('outcome-unknown');
          wire.socket.destroy();
          continue;
        }
        await within(10_000, `${target}: the end`, wire.closed);
        const read = readResponse(wire.bytes, false);
        // Without a length or chunks, the end of the connection would be the end of the message.
        t.ok(read.kind === 'incomplete' || error === 'ECONNRESET', `${target}: ${read.kind} ${error}`);
      }
    }
  }
});

t.test('a client that does not read pauses the upstream', async (t) => {
  for (const kind of KINDS) {
    const target = `/${kind}/unread`;
    const arrived = new Gate();
    let taken = () => 0;
    witness.on(target, ({ socket }) => {
      socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${MUCH}\r\n\r\n`);
      taken = pour(socket, MUCH);
      arrived.open();
    });
    const wire = new Wire(gateway.url);
    wire.socket.pause();
    wire.write(`GET ${target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`);
    await arrived.opened;
    const bytes = await settled(taken);
    t.ok(bytes < BUFFERS, `${kind}: ${Math.round(bytes / MIB)} of ${MUCH / MIB} MiB were taken`);
    const [other] = await allResponses(gateway.url, lastRequest(`/${kind}/meanwhile`));
    t.equal(statusOf(other!), 200, `${kind}: others are served meanwhile`);
    if (kind === 'pass') {
      wire.socket.resume();
      await within(30_000, 'the whole', wire.closed);
      t.ok(wire.bytes.length > MUCH, `${kind}: who reads at last gets everything`);
    }
    wire.socket.destroy();
  }
});

t.test('an upstream that does not read pauses the client', async (t) => {
  for (const kind of ['pass', 'reject'] as const) {
    for (const framing of ['Content-Length: 100663296', 'Transfer-Encoding: chunked']) {
      const target = `/${kind}/unread-${framing.length}`;
      const arrived = new Gate();
      let upstreams: Socket | null = null;
      witness.hands(target, (socket) => {
        upstreams = socket;
        arrived.open();
      });
      const wire = new Wire(gateway.url);
      const chunk = framing.startsWith('T') ? `${MUCH.toString(16)}\r\n` : '';
      wire.write(`PUT ${target} HTTP/1.1\r\nHost: a\r\n${framing}\r\n\r\n${chunk}`);
      const sent = pour(wire.socket, MUCH);
      await arrived.opened;
      const bytes = await settled(sent);
      t.ok(bytes < BUFFERS, `${kind}, ${framing}: ${Math.round(bytes / MIB)} of ${MUCH / MIB} MiB were taken`);
      wire.socket.destroy();
      upstreams!.destroy();
    }
  }
});

t.test('many transfers that stand still starve nobody', async (t) => {
  const wires: Wire[] = [];
  for (const kind of KINDS) {
    const target = `/${kind}/standing`;
    witness.on(target, bytesOf('HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf'));
    for (let index = 0; index < 40; index += 1) {
      const download = new Wire(gateway.url);
      download.write(`GET ${target} HTTP/1.1\r\nHost: a\r\n\r\n`);
      const upload = new Wire(gateway.url);
      upload.write(`PUT /${kind}/standing-${index} HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf`);
      wires.push(download, upload);
    }
  }
  await gateway.caughtUp();
  for (const kind of KINDS) {
    for (let index = 0; index < 10; index += 1) {
      const [response] = await allResponses(gateway.url, lastRequest(`/${kind}/moving-${index}`));
      t.equal(response?.content.toString(), `/${kind}/moving-${index}`);
    }
  }
  for (const wire of wires) wire.socket.destroy();
});
