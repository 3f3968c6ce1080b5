/** Lines that say who asked for what: nothing of a client breaks out of its place, and nothing is told that should not be. */

import fc from 'fast-check';
import { pino } from 'pino';
import t from 'tap';
import type { AccessLogConfig } from '../../src/config/config.js';
import type { Outcome } from '../../src/core/outcome.js';
import { clientAddress, truncatedAddress } from '../../src/http/client-address.js';
import { AccessLog } from '../../src/observe/access-log.js';
import { commonLine } from '../../src/observe/common-log.js';
import { rejectPolicy, ruleOf } from '../support/rules.js';

const LINE = { client: '10.0.0.1', method: 'GET', target: '/a', httpVersion: '1.1', status: 200, contentBytes: 12 };
const AT = new Date(Date.UTC(2026, 10, 3, 4, 5, 6));

t.test('the Common Log Format, and the combined one', async (t) => {
  t.equal(commonLine(LINE, null, AT), '10.0.0.1 - - [03/Nov/2026:04:05:06 +0000] "GET /a HTTP/1.1" 200 12');
  t.equal(
    commonLine({ ...LINE, httpVersion: '2', status: 0, contentBytes: 0 }, [undefined, 'curl/8 "x"'], AT),
    '10.0.0.1 - - [03/Nov/2026:04:05:06 +0000] "GET /a HTTP/2.0" - - "-" "curl/8 \\x22x\\x22"',
  );
});

t.test('whatever a client sends stays in its place', async () => {
  const anything = fc.string({ unit: 'binary' });
  const form = /^\S+ - - \[[^\]]+\] "[^"]*" \d{3} \d+ "[^"]*" "[^"]*"$/;
  fc.assert(
    fc.property(anything, anything, anything, (target, referer, client) => {
      const line = commonLine({ ...LINE, target, client: `c${client}` }, [referer, target], AT);
      return form.test(line) && /^[ -~]*$/.test(line) && !line.replace(/\\x[0-9A-F]{2}/g, '').includes('\\');
    }),
  );
});

t.test('a client is who the last believed proxy says it is', async (t) => {
  const trusts = (address: string) => address.startsWith('10.');
  const from = (forwarded: string, trusted = true) =>
    clientAddress({ address: '10.0.0.9', trusted }, ['X-Forwarded-For', forwarded], trusts);
  t.equal(from('203.0.113.7, 10.0.0.9'), '203.0.113.7');
  t.equal(
    from('1.1.1.1, 203.0.113.7, 10.0.0.8, 10.0.0.9'),
    '203.0.113.7',
    'what stands before it anybody may have written',
  );
  t.equal(from('10.0.0.7, 10.0.0.9'), '10.0.0.7', 'a client among the believed');
  t.equal(from('10.0.0.9'), '10.0.0.9', 'a proxy that says nothing');
  t.equal(from('203.0.113.7, 10.0.0.9', false), '10.0.0.9', 'a peer that is not believed');
});

t.test('of a truncated address the household is not left', async (t) => {
  for (const [address, truncated] of [
    ['203.0.113.77', '203.0.113.0'],
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1::'],
    ['2001:db8::6', '2001:db8:0::'],
    ['::1', '0:0:0::'],
    ['fe80::1:2', 'fe80:0:0::'],
    ['203.0.113.77:4711', '203.0.113.0'],
    ['[2001:db8::6]:4711', '2001:db8:0::'],
    ['203.0.113', '-'],
    ['203.0.113:77', '-'],
    ['::ffff:203.0.113.77', '0:0:0::'],
    ['unknown', '-'],
    ['_hidden:7', '-'],
  ] as const) {
    t.equal(truncatedAddress(address), truncated, address);
  }
});

const ALL: AccessLogConfig = { format: 'json', share: 1, target: 'none', client: 'none' };
const SECRET = 'hunter2';

type Line = { readonly sample?: number; readonly target?: string; readonly client?: string };

function linesOf(config: AccessLogConfig, outcome: Outcome, status: number, count = 1): Line[] {
  const lines: string[] = [];
  const log = pino({}, { write: (line: string) => void lines.push(line) });
  const access = new AccessLog({ log, config, trusts: () => false });
  const request = {
    req: { httpVersion: '1.1' },
    target: `/orders/${SECRET}?token=${SECRET}`,
    fields: [],
    peer: { address: '192.0.2.7', scheme: 'http' as const, trusted: false },
    rule: ruleOf('orders', '/orders/:id', rejectPolicy()),
    sentBytes: 0,
  };
  const report = {
    request,
    method: 'GET',
    route: 'orders',
    policy: 'reject',
    outcome,
    status,
    requestId: 'r',
    trace: null,
  };
  for (let i = 0; i < count; i += 1) access.over({ ...report, durationMs: 1, waitedMs: null });
  return lines.map((line) => JSON.parse(line) as Line);
}

const LED: Outcome = { kind: 'led', stored: 'no', came: 'at-once' };

t.test('of what ended well a part is logged, of all else everything', async (t) => {
  const none = { ...ALL, share: 0 };
  const ends: [Outcome, number, number][] = [
    [LED, 200, 0],
    [LED, 302, 0],
    [{ kind: 'passed' }, 204, 0],
    [{ kind: 'collapsed' }, 200, 0],
    [{ kind: 'hit', ttlMs: 1 }, 200, 0],
    [{ kind: 'upgraded' }, 101, 0],
    [LED, 400, 1],
    [LED, 500, 1],
    [{ kind: 'passed' }, 404, 1],
    [{ kind: 'refused', code: 'in-flight', role: 'none' }, 409, 1],
    [{ kind: 'bypassed', reason: 'key-missing' }, 200, 1],
    [{ kind: 'cut', role: 'leader' }, 200, 1],
    [{ kind: 'left', role: 'leader' }, 0, 1],
  ];
  for (const [outcome, status, count] of ends) {
    t.equal(linesOf(none, outcome, status).length, count, `${outcome.kind} ${status}`);
    t.equal(linesOf({ ...none, format: 'off' }, outcome, status).length, 0, 'off');
  }
  const some = linesOf({ ...ALL, share: 0.25 }, LED, 200, 4_000);
  t.ok(some.length > 700 && some.length < 1_300, `${some.length} of 4000 for a quarter`);
  t.equal(some[0]?.sample, 0.25, 'whoever counts lines can count requests');
  t.notOk('sample' in linesOf({ ...ALL, share: 0.25 }, LED, 500)[0]!, 'those that are all there say nothing');
});

t.test('of the target and the client there is what was asked for, and no more', async (t) => {
  const [plain] = linesOf(ALL, LED, 200);
  t.notOk('target' in plain! || 'client' in plain!);
  const told = (target: AccessLogConfig['target']) => linesOf({ ...ALL, target }, LED, 200)[0]?.target;
  t.equal(told('pattern'), '/orders/:id');
  t.equal(told('path'), `/orders/${SECRET}?redacted`);
  t.equal(told('full'), `/orders/${SECRET}?token=${SECRET}`);
  const client = (client: AccessLogConfig['client']) => linesOf({ ...ALL, client }, LED, 200)[0]?.client;
  t.equal(client('truncated'), '192.0.2.0');
  t.equal(client('full'), '192.0.2.7');
});
