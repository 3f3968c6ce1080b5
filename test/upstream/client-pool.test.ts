import t from 'tap';
import type { Dispatcher } from 'undici';
import { ClientPool } from '../../src/upstream/client-pool.js';
import { freePort } from '../support/ports.js';
import { StubUpstream } from '../support/upstream.js';

const LONG_MS = 60_000;

/** Sends a request; resolves to its status, or to the code of its failure. */
function ask(pool: ClientPool, path: string, fields: string[] = []): Promise<number | string> {
  return new Promise((resolve) => {
    let status = 0;
    const handler = {
      onConnect: () => {},
      onHeaders: (code: number) => {
        status = code;
        return true;
      },
      onData: () => true,
      onComplete: () => resolve(status),
      onError: (error: Error & { code?: string }) => resolve(error.code ?? error.message),
    };
    const options: Dispatcher.DispatchOptions = { path, method: 'GET', headers: fields };
    pool.dispatch(options, handler as unknown as Dispatcher.DispatchHandler);
  });
}

/** A connection is free again when its response has been read to the end, which undici waits a turn for. */
async function nextTurns(): Promise<void> {
  for (let turn = 0; turn < 3; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

async function begin(t: { teardown(end: () => Promise<void>): void }, maxAgeMs: number) {
  const stub = await StubUpstream.start();
  const pool = new ClientPool(stub.url, { pipelining: 1 }, maxAgeMs);
  t.teardown(async () => {
    await pool.destroy();
    await stub.close();
  });
  return { stub, pool };
}

t.test('a connection that is free is used again', async (t) => {
  const { stub, pool } = await begin(t, LONG_MS);
  for (let i = 0; i < 20; i += 1) {
    t.equal(await ask(pool, '/a'), 200);
    await nextTurns();
  }
  t.equal(stub.connections, 1);
});

t.test('requests at a time have a connection each, and leave it to later ones', async (t) => {
  const { stub, pool } = await begin(t, LONG_MS);
  for (let round = 0; round < 3; round += 1) {
    const held = stub.holds(`/round/${round}`);
    const asked = Array.from({ length: 5 }, () => ask(pool, `/round/${round}`));
    await held.arrived(5);
    held.release();
    t.strictSame(await Promise.all(asked), [200, 200, 200, 200, 200]);
    await nextTurns();
  }
  t.equal(stub.connections, 5);
});

t.test('a connection that is too old gets no further request, and is closed', async (t) => {
  const { stub, pool } = await begin(t, 50);
  t.equal(await ask(pool, '/a'), 200);
  const [first] = stub.callsOf('/a');
  await new Promise((resolve) => setTimeout(resolve, 80));
  t.equal(await ask(pool, '/a'), 200);
  t.equal(stub.connections, 2);
  await first!.closed;
});

t.test('a request that cannot be sent costs no connection', async (t) => {
  const { stub, pool } = await begin(t, LONG_MS);
  t.equal(await ask(pool, '/a'), 200);
  await nextTurns();
  for (let i = 0; i < 5; i += 1) t.match(await ask(pool, 'no path'), /^UND_ERR/);
  t.equal(await ask(pool, '/a'), 200);
  t.equal(stub.connections, 1);
});

t.test('an upstream that could not be connected to is connected to again', async (t) => {
  const port = await freePort();
  const pool = new ClientPool(`http://127.0.0.1:${port}`, { pipelining: 1 }, LONG_MS);
  t.teardown(() => pool.destroy());
  for (let i = 0; i < 3; i += 1) t.equal(await ask(pool, '/a'), 'ECONNREFUSED');
  const { stub, pool: other } = await begin(t, LONG_MS);
  t.equal(await ask(other, '/a'), 200);
  await stub.refuse();
  t.match(await ask(other, '/a'), /ECONNREFUSED|ECONNRESET|UND_ERR_SOCKET/);
  await stub.listen();
  t.equal(await ask(other, '/a'), 200);
});

t.test('nothing is sent after the end', async (t) => {
  const { stub, pool } = await begin(t, LONG_MS);
  t.equal(await ask(pool, '/a'), 200);
  await pool.destroy();
  t.equal(await ask(pool, '/a'), 'UND_ERR_DESTROYED');
  t.equal(stub.count('/a'), 1);
});
