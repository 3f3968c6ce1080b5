/**
 * Random requests with random faults, many on one connection: the gateway executes only what a strict reading finds in the
 * bytes, in the same number and with the same content, or refuses.
 */

import fc from 'fast-check';
import t from 'tap';
import { within } from '../support/gate.js';
import { KINDS, lastRequest, startStage, Wire } from './stage.js';
import { readRequests, readResponses, statusOf } from './strict-reading.js';

t.setTimeout(90_000);

const RUNS = 400;
const { gateway, witness } = await startStage(t);

type Part = {
  readonly method: string;
  readonly framing: 'none' | 'length' | 'chunked';
  readonly content: string;
  readonly extra: readonly string[];
  /** How the head, or the chunks, are spoilt. */
  readonly spoilings: readonly Spoiling[];
};
/** Replaces the nth place that the pattern finds, or the last one if there are fewer. */
type Spoiling = { readonly find: RegExp; readonly nth: number; readonly by: string };

const spoiling: fc.Arbitrary<Spoiling> = fc.oneof(
  // Line ends.
  fc.record({
    find: fc.constant(/\r\n/g),
    nth: fc.nat(6),
    by: fc.constantFrom('\n', '\r', '\r\r\n', '\n\r', '\r\n ', '\r\n\t', '', '\r\n\r\n', '\x00\r\n'),
  }),
  // Around colons and in names.
  fc.record({
    find: fc.constant(/: ?/g),
    nth: fc.nat(6),
    by: fc.constantFrom(' : ', '\t:', ':', '::', ':\t', ': \x0b', ':\r\n ', '=', ''),
  }),
  // Values that frame.
  fc.record({
    find: fc.constant(/(?<=Content-Length: )\d+/g),
    nth: fc.nat(1),
    by: fc.constantFrom('0', '1', '7', '40', '+5', '-5', '0x5', '5,5', '5 5', '005', '', '99999999999999999999', '5;'),
  }),
  fc.record({
    find: fc.constant(/(?<=Transfer-Encoding: )chunked/g),
    nth: fc.nat(1),
    by: fc.constantFrom(
      'Chunked',
      'xchunked',
      'chunked, identity',
      'identity, chunked',
      'gzip, chunked',
      'chunked\t',
      '"chunked"',
      'chunked;a',
      'identity',
      '',
    ),
  }),
  fc.record({
    find: fc.constant(/Content-Length|Transfer-Encoding|Host/g),
    nth: fc.nat(3),
    by: fc.constantFrom('X', 'content-length', 'TRANSFER-ENCODING', 'Content_Length', 'Transfer-Encoding ', 'Host'),
  }),
  // More framing.
  fc.record({
    find: fc.constant(/(?<=\r\n)Host: a\r\n/g),
    nth: fc.constant(0),
    by: fc.constantFrom(
      'Host: a\r\nContent-Length: 5\r\n',
      'Host: a\r\nTransfer-Encoding: chunked\r\n',
      'Transfer-Encoding: identity\r\nHost: a\r\n',
      'Content-Length: 0\r\nHost: a\r\n',
      'Host: a\r\nHost: a\r\n',
      'Host: a\r\nConnection: close\r\n',
      'Host: a\r\nConnection: content-length, transfer-encoding\r\n',
      'Host: a, b\r\n',
      '',
    ),
  }),
  // Chunk sizes.
  fc.record({
    find: fc.constant(/^[0-9a-f]+(?=\r\n)/gm),
    nth: fc.nat(3),
    by: fc.constantFrom('0', '1', '5', 'ff', '5 ', '5;a=b', '5;\n', '0x5', '+5', '-1', '0005', 'fffffffffffffffff', ''),
  }),
  // Request lines.
  fc.record({
    find: fc.constant(/ HTTP\/1\.1/g),
    nth: fc.constant(0),
    by: fc.constantFrom(
      ' HTTP/1.0',
      ' HTTP/1.2',
      ' HTTP/2.0',
      ' HTTP/0.9',
      '  HTTP/1.1',
      '\tHTTP/1.1',
      '',
      ' HTTP/1.1 ',
    ),
  }),
  // Any byte anywhere.
  fc.record({
    find: fc.constant(/[\s\S]/g),
    nth: fc.nat(200),
    by: fc.constantFrom('', '\x00', '\r', '\n', ' ', '\t', ':', '0', '\xff', '\x7f', 'GET '),
  }),
);

const part: fc.Arbitrary<Part> = fc.record({
  method: fc.constantFrom('GET', 'POST', 'PUT', 'DELETE', 'OPTIONS'),
  framing: fc.constantFrom('none', 'length', 'chunked'),
  content: fc.oneof(
    fc.constantFrom('', 'hello', '0\r\n\r\n', '%EVIL%', 'x\r\n\r\n%EVIL%'),
    fc.string({ maxLength: 40 }),
  ),
  extra: fc.subarray(['X-A: b', 'Accept: a/b', 'X-Empty:', 'Expect: 100-continue', 'X-Latin: caf\xe9']),
  spoilings: fc.oneof(
    { weight: 2, arbitrary: fc.constant([]) },
    { weight: 3, arbitrary: fc.array(spoiling, { minLength: 1, maxLength: 2 }) },
  ),
});

function spoil(text: string, { find, nth, by }: Spoiling): string {
  const found = [...text.matchAll(find)];
  const at = found[Math.min(nth, found.length - 1)];
  return at === undefined ? text : text.slice(0, at.index) + by + text.slice(at.index + at[0].length);
}

function textOf({ method, framing, content, extra, spoilings }: Part, target: string): string {
  const inner = content.replace('%EVIL%', `GET ${target}-evil HTTP/1.1\r\nHost: a\r\n\r\n`);
  const bytes = Buffer.from(inner, 'latin1');
  let fields = `Host: a\r\n${extra.map((line) => `${line}\r\n`).join('')}`;
  let text = '';
  if (framing === 'length') {
    fields += `Content-Length: ${bytes.length}\r\n`;
    text = bytes.toString('latin1');
  }
  if (framing === 'chunked') {
    fields += 'Transfer-Encoding: chunked\r\n';
    for (let at = 0; at < bytes.length; at += 11) {
      const chunk = bytes.subarray(at, at + 11);
      text += `${chunk.length.toString(16)}\r\n${chunk.toString('latin1')}\r\n`;
    }
    text += '0\r\n\r\n';
  }
  return spoilings.reduce(spoil, `${method} ${target} HTTP/1.1\r\n${fields}\r\n${text}`);
}

/** What a request is: two that are equal in this are the same one. */
type Told = { readonly startLine: string; readonly content: Buffer };

function tell({ startLine, content }: Told): string {
  const [method, target] = startLine.split(/ +/);
  return `${method} ${target} ${content.toString('latin1')}`;
}

t.test(`${RUNS} connections of random requests`, async (t) => {
  let run = 0;
  const seen = { connections: 0, refused: 0, executed: 0 };
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom(...KINDS),
      fc.array(part, { minLength: 1, maxLength: 4 }),
      fc.nat(600),
      async (kind, parts, cut) => {
        run += 1;
        const prefix = `/${kind}/run-${run}-`;
        const sent =
          parts.map((each, index) => textOf(each, `${prefix}${index}`)).join('') + lastRequest(`${prefix}last`);
        const bytes = Buffer.from(sent, 'latin1');
        const strict = readRequests(bytes);
        const wire = new Wire(gateway.url);
        // In two pieces: what stands at their border must not matter.
        wire.write(bytes.subarray(0, cut));
        if (cut % 2 === 0) await gateway.caughtUp();
        wire.write(bytes.subarray(cut));
        // Where the strict reading finds an end, so must the gateway. Where it does not, the gateway may wait for more.
        if (strict.end === 'closed' || strict.end === 'nothing') {
          await within(10_000, `an end of ${JSON.stringify(sent)}`, wire.closed);
        } else {
          await Promise.race([wire.closed, gateway.caughtUp()]);
          await gateway.caughtUp();
          wire.socket.destroy();
        }
        const executed = witness.of(prefix).map(tell);
        const readable = strict.requests.map(tell);
        for (const each of executed) {
          if (!readable.includes(each))
            throw new Error(`executed, and not to be read: ${each}\nin ${JSON.stringify(sent)}`);
        }
        if (new Set(executed).size !== executed.length) throw new Error(`executed twice in ${JSON.stringify(sent)}`);
        const statuses = readResponses(wire.bytes)
          .map(statusOf)
          .filter((status) => status >= 200);
        const answered = statuses.filter((status) => status === 200).length;
        const refused = statuses.some((status) => status >= 400);
        if (answered > readable.length) throw new Error(`${answered} answers to ${readable.length} requests`);
        if (statuses.indexOf(400) >= 0 && statuses.indexOf(400) < statuses.length - 1) {
          throw new Error(`answers behind a refusal: ${statuses.join()}`);
        }
        const spoilt = parts.some(({ spoilings }) => spoilings.length > 0);
        if (!spoilt && executed.length !== parts.length + 1)
          throw new Error(`not all executed of ${JSON.stringify(sent)}`);
        if (witness.faults.length > 0) throw new Error(witness.faults.join('\n'));
        seen.connections += 1;
        seen.executed += executed.length;
        if (refused) seen.refused += 1;
      },
    ),
    { numRuns: RUNS },
  );
  t.ok(gateway.running);
  t.ok(seen.refused > RUNS / 20, `${seen.refused} of ${seen.connections} were refused`);
  t.ok(seen.executed > RUNS / 2, `${seen.executed} requests were executed`);
});
