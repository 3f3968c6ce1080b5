/** An answer that waits for its client goes on, although the next one on the connection is written behind it meanwhile. */

import { connect } from 'node:net';
import t from 'tap';
import { within } from '../support/gate.js';
import { configOf, startGateway } from '../support/gateway.js';
import { startUpstream } from '../support/upstream.js';

const MUCH = 16 * 1_048_576;

t.test('two pipelined answers, the first larger than what the connection holds', async (t) => {
  const stub = await startUpstream(t);
  const gateway = await startGateway(t, { config: configOf({ upstream: stub.url, routes: '' }) });
  stub.on('/large', (call) => call.answer({ content: Buffer.alloc(MUCH, 'a') }));
  const second = stub.holds('/second', { content: 'b' });

  const { hostname, port } = new URL(gateway.url);
  const socket = connect({ host: hostname, port: Number(port), noDelay: true }).pause();
  t.teardown(() => socket.destroy());
  socket.write('GET /large HTTP/1.1\r\nHost: a\r\n\r\nGET /second HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n');
  await second.arrived(1);
  // By now the first one has filled the connection: the gateway has answered others.
  await gateway.caughtUp();
  await gateway.caughtUp();
  second.release();
  await gateway.caughtUp();
  let bytes = 0;
  let last = '';
  socket.resume().on('data', (piece: Buffer) => {
    bytes += piece.length;
    last = (last + piece.toString('latin1')).slice(-1);
  });
  await within(15_000, 'the end of both answers', new Promise((resolve) => socket.once('end', resolve)));
  t.ok(bytes > MUCH, `${bytes} bytes`);
  t.equal(last, 'b');
});
