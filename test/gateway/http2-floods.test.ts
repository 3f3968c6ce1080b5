/**
 * Clients that send frames of HTTP/2 for the sake of sending them, on raw sockets: each is disconnected, or gets no further
 * than its own connection, and the gateway's memory and its other clients are not the worse for it.
 */

import { readFileSync } from 'node:fs';
import http2, { constants, type OutgoingHttpHeaders } from 'node:http2';
import { connect } from 'node:net';
import type { TLSSocket } from 'node:tls';
import t, { type Test } from 'tap';
import { request } from '../support/client.js';
import { secured, TRUSTING, tlsYaml } from '../support/dial.js';
import { delay, eventually, within } from '../support/gate.js';
import { configOf, type Gateway, startGateway } from '../support/gateway.js';
import { startUpstream } from '../support/upstream.js';

t.setTimeout(100_000);

const MIB = 1_048_576;
/** A flood that is let in would be endless; one of these has failed when so much of it was taken. */
const MOST_FLOOD_BYTES = 1_024 * MIB;
const WRITE_BYTES = 65_536;
const MOST_ABOVE_MIB = 160;
const MUCH = Buffer.alloc(16 * MIB, 'a');
/** Of pings, and of settings. */
const MOST_ANSWERED = 5_000;
const BOMBS = 30;
const STREAMS = 30;
const LONGEST_MS = 20_000;

const stub = await startUpstream(t);
const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
const [DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION, UNKNOWN] = [
  0, 1, 2, 3, 4, 6, 7, 8, 9, 0x42,
];
const END_STREAM = 1;
const ACK = 1;
const END_HEADERS = 4;

function frame(type: number, flags: number, stream: number, content: Buffer = Buffer.alloc(0)): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(content.length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, content]);
}

/** `SETTINGS_INITIAL_WINDOW_SIZE` 0: nothing of any answer can be sent. */
const NO_WINDOW = frame(SETTINGS, 0, 0, Buffer.from([0, 4, 0, 0, 0, 0]));

/** A field block that indexes nothing. */
function fieldsOf(method: 'GET' | 'POST', path: string): Buffer {
  const literal = (index: number, value: string) => Buffer.from([index, value.length, ...Buffer.from(value)]);
  return Buffer.concat([Buffer.from([method === 'GET' ? 0x82 : 0x83, 0x87]), literal(4, path), literal(1, 'a')]);
}

/** A client that has said what it has to at the beginning. */
class Flooder {
  readonly socket: TLSSocket;
  sentBytes = 0;
  /** What ended it; null: nothing was said. */
  goaway: number | null = null;
  closed = false;
  /** Streams that the gateway has reset, and those that it has answered; its answers to pings and settings. */
  readonly reset = new Set<number>();
  readonly answered = new Set<number>();
  acks = 0;
  #unread: Buffer = Buffer.alloc(0);

  constructor(t: Test, { url }: Gateway, settings = frame(SETTINGS, 0, 0)) {
    const tcp = connect({ host: '127.0.0.1', port: Number(new URL(url).port) });
    this.socket = secured(tcp, { ALPNProtocols: ['h2'] });
    this.socket.on('error', () => {}).on('data', (piece: Buffer) => this.#read(piece));
    this.socket.once('close', () => {
      this.closed = true;
    });
    this.socket.write(Buffer.concat([PREFACE, settings, frame(SETTINGS, ACK, 0)]));
    t.teardown(() => this.socket.destroy());
  }

  /** Sends pieces, the first one first, until it is disconnected; answers whether it was. */
  async flood(first: Buffer, more: () => Buffer | Promise<Buffer>): Promise<boolean> {
    await this.write(first);
    while (!this.closed && this.sentBytes < MOST_FLOOD_BYTES) await this.write(await more());
    return this.closed;
  }

  async write(bytes: Buffer): Promise<void> {
    this.sentBytes += bytes.length;
    await new Promise<void>((resolve) => {
      // A reset tells the writer, and an end that is written over the reader.
      this.socket.once('close', resolve);
      this.socket.write(bytes, () => {
        this.socket.off('close', resolve);
        // What the gateway says is read in between.
        setImmediate(resolve);
      });
    });
  }

  #read(piece: Buffer): void {
    this.#unread = Buffer.concat([this.#unread, piece]);
    for (;;) {
      const length = this.#unread.length < 9 ? 0 : 9 + this.#unread.readUIntBE(0, 3);
      if (length === 0 || this.#unread.length < length) return;
      const [, , , type] = this.#unread;
      const stream = this.#unread.readUInt32BE(5);
      if (type === GOAWAY) this.goaway = this.#unread.readUInt32BE(13);
      if (type === RST_STREAM) this.reset.add(stream);
      if ((type === PING || type === SETTINGS) && this.#unread[4] === ACK) this.acks += 1;
      if (type === HEADERS) this.answered.add(stream);
      this.#unread = this.#unread.subarray(length);
    }
  }
}

/** Fills a piece with frames that are all the same. */
function many(one: Buffer): Buffer {
  return Buffer.concat(Array(Math.ceil(WRITE_BYTES / one.length)).fill(one));
}

function memoryMiB({ pid }: Gateway, name: 'VmRSS' | 'VmHWM'): number {
  const line = new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(readFileSync(`/proc/${pid}/status`, 'utf8'));
  return Number(line?.[1]) / 1_024;
}

function start(t: Test, more = ''): Promise<Gateway> {
  const listen = `http2: true, tls: ${tlsYaml()}`;
  return startGateway(t, { config: configOf({ upstream: stub.url, routes: '', listen, more }) });
}

/** What others see, and the memory that is needed, while something goes on. */
async function beside<T>(t: Test, gateway: Gateway, goesOn: () => Promise<T>): Promise<T> {
  t.equal((await request(gateway.url, { path: '/beside' })).status, 200);
  const before = memoryMiB(gateway, 'VmRSS');
  let over = false;
  const result = goesOn().finally(() => {
    over = true;
  });
  const statuses = new Set<number>();
  do statuses.add((await request(gateway.url, { path: '/beside' })).status);
  while (!over);
  const answer = await within(LONGEST_MS, 'the end of it', result);
  t.same([...statuses], [200], 'another client is answered meanwhile');
  const above = memoryMiB(gateway, 'VmHWM') - before;
  t.ok(above < MOST_ABOVE_MIB, `${above.toFixed(0)} MiB above what it had`);
  t.ok(gateway.running);
  t.equal((await request(gateway.url, { path: '/beside' })).status, 200, 'and afterwards');
  return answer;
}

const OPEN = frame(HEADERS, END_HEADERS, 1, fieldsOf('POST', '/held'));
const ENDLESS = frame(HEADERS, END_STREAM, 1, fieldsOf('GET', '/endless'));
const FIELD = Buffer.concat([Buffer.from([0, 1, 0x61, 100]), Buffer.alloc(100, 'v')]);
const NONE = Buffer.alloc(0);
const FLOODS: readonly { name: string; first: Buffer; piece: Buffer }[] = [
  {
    name: 'an endless field block',
    first: ENDLESS,
    piece: many(frame(CONTINUATION, 0, 1, Buffer.concat(Array(150).fill(FIELD)))),
  },
  { name: 'an endless field block of little pieces', first: ENDLESS, piece: many(frame(CONTINUATION, 0, 1, FIELD)) },
  { name: 'an endless field block of nothing', first: ENDLESS, piece: many(frame(CONTINUATION, 0, 1)) },
  { name: 'pings', first: NONE, piece: many(frame(PING, 0, 0, Buffer.alloc(8))) },
  { name: 'answers to pings', first: NONE, piece: many(frame(PING, ACK, 0, Buffer.alloc(8))) },
  { name: 'settings', first: NONE, piece: many(frame(SETTINGS, 0, 0, Buffer.from([0, 4, 0, 1, 0, 0]))) },
  { name: 'settings that set nothing', first: NONE, piece: many(frame(SETTINGS, 0, 0)) },
  { name: 'empty content', first: OPEN, piece: many(frame(DATA, 0, 1)) },
  { name: 'windows of a stream', first: OPEN, piece: many(frame(WINDOW_UPDATE, 0, 1, Buffer.from([0, 0, 0, 1]))) },
  { name: 'windows', first: NONE, piece: many(frame(WINDOW_UPDATE, 0, 0, Buffer.from([0, 0, 0, 1]))) },
  { name: 'priorities', first: OPEN, piece: many(frame(PRIORITY, 0, 1, Buffer.from([0, 0, 0, 0, 7]))) },
  { name: 'priorities of no stream', first: NONE, piece: many(frame(PRIORITY, 0, 7, Buffer.from([0, 0, 0, 0, 7]))) },
  { name: 'frames that nobody knows', first: NONE, piece: many(frame(UNKNOWN, 0, 0)) },
];

const flooded = await start(t);
stub.holds('/held');
for (const { name, first, piece } of FLOODS) {
  t.test(`flood: ${name}`, async (t) => {
    const gateway = flooded;
    const flooder = new Flooder(t, gateway);
    const ended = await beside(t, gateway, () => flooder.flood(first, () => piece));
    t.ok(ended, `disconnected after ${flooder.sentBytes} bytes, GOAWAY ${flooder.goaway}`);
    // It may not come through: what is still on its way when the connection ends resets it.
    t.not(flooder.goaway, constants.NGHTTP2_NO_ERROR);
    t.equal(stub.count('/endless'), 0);
  });
}

for (const [name, one] of [
  ['pings', frame(PING, 0, 0, Buffer.alloc(8))],
  ['settings', frame(SETTINGS, 0, 0, Buffer.from([0, 4, 0, 1, 0, 0]))],
] as const) {
  t.test(`flood: ${name} of a client that reads what is answered`, async (t) => {
    const gateway = flooded;
    const flooder = new Flooder(t, gateway);
    let sent = 0;
    const ended = await beside(t, gateway, () =>
      flooder.flood(NONE, async () => {
        await eventually('answers', () => flooder.closed || flooder.acks >= sent);
        sent += 100;
        if (sent > MOST_ANSWERED) flooder.socket.end();
        return Buffer.concat(Array(100).fill(one));
      }),
    );
    t.ok(ended && sent <= MOST_ANSWERED, `disconnected after ${sent}`);
    t.not(flooder.goaway, constants.NGHTTP2_NO_ERROR);
    t.ok(sent > 500, 'no sooner than an honest one would be in need of them');
  });
}

t.test('little fields that become large ones', async (t) => {
  const gateway = flooded;
  const entry = Buffer.concat([Buffer.from([0x40, 1, 0x61, 0x7f, 0xa1, 0x1e]), Buffer.alloc(4_000, 'v')]);
  // The newest entry of the table (62), over and over: 16 KiB that are 64 MiB.
  const bomb = Buffer.concat([fieldsOf('GET', '/bomb'), entry, Buffer.alloc(12_000, 0xbe)]);
  const flooder = new Flooder(t, gateway);
  await beside(t, gateway, async () => {
    for (let turn = 0; turn < BOMBS && !flooder.closed; turn += 1) {
      const stream = 1 + 2 * turn;
      await flooder.write(frame(HEADERS, END_STREAM | END_HEADERS, stream, bomb));
      await eventually('its end', () => flooder.closed || flooder.reset.has(stream) || flooder.answered.has(stream));
    }
  });
  t.equal(stub.count('/bomb'), 0);
  t.ok(flooder.closed || flooder.reset.size + flooder.answered.size >= BOMBS, `${flooder.reset.size} were reset`);
});

t.test('answers for which there is never a window', async (t) => {
  const gateway = await start(t, 'limits: { stallTimeout: 1s }');
  stub.on('/much', (call) => call.answer({ content: MUCH }));
  const flooder = new Flooder(t, gateway, NO_WINDOW);
  await beside(t, gateway, async () => {
    for (let turn = 0; turn < STREAMS; turn += 1) {
      await flooder.write(frame(HEADERS, END_STREAM | END_HEADERS, 1 + 2 * turn, fieldsOf('GET', '/much')));
    }
    await stub.arrived(STREAMS, '/much');
    await Promise.all(stub.callsOf('/much').map((call) => call.closed));
  });
  await eventually('resets', () => flooder.reset.size === STREAMS);
  t.notOk(flooder.closed, 'the connection may have other streams');
});

t.test('a client that moves much is none of these', async (t) => {
  const gateway = await start(t, 'limits: { maxContent: 64MiB }');
  stub.on('/much', (call) => call.answer({ content: MUCH }));
  // What it sends is much for Node's idea of a client.
  const session = http2.connect(gateway.url, { ...TRUSTING, maxSessionMemory: 1_000 });
  t.teardown(() => session.destroy());
  let isEnded = false;
  session
    .on('error', () => {})
    .once('close', () => {
      isEnded = true;
    });
  const ask = (headers: OutgoingHttpHeaders, content: Buffer | null) => {
    const stream = session.request(headers, { endStream: content === null });
    let status = 0;
    let bytes = 0;
    stream
      .on('error', () => {})
      .on('response', (head) => {
        status = Number(head[':status']);
      });
    stream.on('data', (piece: Buffer) => {
      bytes += piece.length;
    });
    if (content !== null) stream.end(content);
    // Node's client does not always close a stream that was reset, without an error, while it sent.
    const ended = new Promise<void>((resolve) => stream.once('end', resolve).once('close', resolve));
    return within(LONGEST_MS, 'the end of a stream', ended).then(() => ({ status, bytes }));
  };
  for (let turn = 0; turn < 4; turn += 1) {
    t.same(await ask({ ':path': '/much' }, null), { status: 200, bytes: MUCH.length });
    t.match(await ask({ ':path': '/upload', ':method': 'POST' }, MUCH), { status: 200 });
  }
  // What is refused at once has sent a window full by then.
  const refused = { ':path': '/refused', ':method': 'POST', 'content-length': 5 * MUCH.length };
  for (let turn = 0; turn < 3; turn += 1) {
    const answers = await Promise.all(Array.from({ length: 50 }, () => ask(refused, MUCH.subarray(0, MIB / 4))));
    t.same(new Set(answers.map(({ status }) => status)), new Set([413]));
  }
  // The gateway looks twice a second.
  await delay(700);
  t.match(await ask({ ':path': '/beside' }, null), { status: 200 });
  t.notOk(isEnded);
});
