/** One connection has a bounded number of requests in progress, however many it has sent. */

import t, { type Test } from 'tap';
import { RawClient, request } from '../support/client.js';
import { tlsYaml } from '../support/dial.js';
import { delay, Gate, within } from '../support/gate.js';
import { configOf, startGateway } from '../support/gateway.js';
import { startUpstream } from '../support/upstream.js';

t.setTimeout(120_000);

const MANY = 1_000;
const MOST = 128;
const MOST_WAITING = 1_000;
const CHANNELS = { 'in clear': '', 'over TLS': `tls: ${tlsYaml()}` } as const;

async function start(t: Test, listen = '', limits = '') {
  const stub = await startUpstream(t);
  const gate = new Gate();
  let most = 0;
  let now = 0;
  const behave = async (call: Parameters<Parameters<typeof stub.on>[1]>[0]) => {
    most = Math.max(most, ++now);
    await call.received;
    await gate.opened;
    now -= 1;
    call.answer({ content: call.target });
  };
  stub.on('/many', behave);
  const more = limits === '' ? '' : `limits: { ${limits} }`;
  const gateway = await startGateway(t, { config: configOf({ upstream: stub.url, routes: '', listen, more }) });
  return { stub, gateway, gate, most: () => most };
}

for (const [channel, listen] of Object.entries(CHANNELS)) {
  t.test(`${channel}: no more than are allowed are upstream at once, all are answered in order`, async (t) => {
    const { stub, gateway, gate, most } = await start(t, listen);
    const client = await RawClient.connect(gateway.url);
    for (let i = 0; i < MANY; i += 1) client.write(`GET /many?${i} HTTP/1.1\r\nHost: a\r\n\r\n`);
    await stub.arrived(MOST, '/many');
    for (let i = 0; i < 5; i += 1) await gateway.caughtUp();
    t.equal(stub.count('/many'), MOST, 'while none is answered');
    t.equal((await request(gateway.url, { path: '/other' })).status, 200, 'others are served');
    gate.open();
    const wrong: string[] = [];
    for (let i = 0; i < MANY; i += 1) {
      const text = (await client.answer())?.text ?? '(none)';
      if (text !== `/many?${i}`) wrong.push(`${i}: ${text}`);
    }
    t.same(wrong, []);
    t.equal(stub.count('/many'), MANY, 'each is sent once');
    t.ok(most() <= MOST, `${most()} at once`);
    client.write('POST /last HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nok');
    t.equal((await client.answer())?.status, 200, 'the connection goes on');
    client.close();
  });
}

t.test('beyond what may wait nothing is taken: what was is answered, then the connection ends', async (t) => {
  const { stub, gateway, gate } = await start(t);
  const sent = 5_000;
  const client = await RawClient.connect(gateway.url);
  for (let i = 0; i < sent; i += 1) client.write(`GET /many?${i} HTTP/1.1\r\nHost: a\r\n\r\n`);
  await stub.arrived(MOST, '/many');
  for (let i = 0; i < 5; i += 1) await gateway.caughtUp();
  gate.open();
  let answered = 0;
  for (;;) {
    const answer = await client.answer();
    if (answer === null) break;
    if (answer.text !== `/many?${answered}`) t.fail(`${answered}: ${answer.text}`);
    answered += 1;
  }
  t.equal(answered, MOST + MOST_WAITING);
  t.equal(stub.count('/many'), answered, 'what is not answered was not sent');
});

t.test('large requests wait for no more than a bound of bytes', async (t) => {
  const { stub, gateway, gate } = await start(t);
  const client = await RawClient.connect(gateway.url);
  const field = `X-Long: ${'x'.repeat(30_000)}`;
  for (let i = 0; i < 400; i += 1) client.write(`GET /many?${i} HTTP/1.1\r\nHost: a\r\n${field}\r\n\r\n`);
  await stub.arrived(MOST, '/many');
  for (let i = 0; i < 5; i += 1) await gateway.caughtUp();
  gate.open();
  let answered = 0;
  while ((await client.answer()) !== null) answered += 1;
  t.ok(answered >= MOST && answered < MOST + 50, `${answered} answered`);
  t.equal(stub.count('/many'), answered);
});

t.test('who is not read is not slow: content that waits behind others keeps its time', async (t) => {
  const { stub, gateway, gate } = await start(t, '', 'fieldsTimeout: 400ms, contentTimeout: 400ms');
  const client = await RawClient.connect(gateway.url);
  for (let i = 0; i < MOST + 50; i += 1) client.write(`GET /many?${i} HTTP/1.1\r\nHost: a\r\n\r\n`);
  client.write('POST /behind HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n');
  await stub.arrived(MOST, '/many');
  await delay(1_500);
  t.equal(client.socket.destroyed, false);
  gate.open();
  client.write('ok');
  for (let i = 0; i < MOST + 50; i += 1) t.equal((await client.answer())?.text, `/many?${i}`);
  t.equal((await client.answer())?.status, 200);
  t.equal(stub.callsOf('/behind')[0]?.content?.toString(), 'ok');
  client.close();
});

t.test('who leaves takes those that wait along', async (t) => {
  const { stub, gateway, gate } = await start(t);
  const client = await RawClient.connect(gateway.url);
  for (let i = 0; i < 300; i += 1) client.write(`GET /many?${i} HTTP/1.1\r\nHost: a\r\n\r\n`);
  await stub.arrived(MOST, '/many');
  await gateway.caughtUp();
  client.close();
  await within(10_000, 'the end of a call', stub.callsOf('/many')[0]!.closed);
  gate.open();
  await gateway.caughtUp();
  t.equal(stub.count('/many'), MOST);
});
