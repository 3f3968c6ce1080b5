import t from 'tap';
import { isOffered, offeringFields, offerOf, switchingFields } from '../../src/http/upgrade.js';

t.test('what is offered is offered on, in order, but for HTTP itself', async (t) => {
  const offers: [string[], string | null][] = [
    [['websocket'], 'websocket'],
    [['a/1,b', ' c '], 'a/1, b, c'],
    [['h2c, websocket, TLS/1.2'], 'websocket'],
    [['H2C'], null],
    [['HTTP/2.0'], null],
    [['http'], null],
    [['h2c-like'], 'h2c-like'],
    [['h2, h2c-14, H2-16, "h2c", h2c;a=b, "TLS/1.0"'], null],
    [[' , '], null],
    [[], null],
  ];
  for (const [lines, offer] of offers) {
    t.equal(offerOf(lines.flatMap((line) => ['Upgrade', line])), offer, lines.join(' | '));
  }
  t.same(offeringFields(['Host', 'a'], 'b'), ['Host', 'a', 'Connection', 'Upgrade', 'Upgrade', 'b']);
});

t.test('a server may choose nothing but what was offered', async (t) => {
  const offering = ['Upgrade', 'websocket, b/2'];
  t.ok(isOffered(offering, ['upgrade', 'WebSocket']));
  t.ok(isOffered(offering, ['Upgrade', 'b/2, websocket']));
  t.notOk(isOffered(offering, ['Upgrade', 'h2c']));
  t.notOk(isOffered(offering, ['Upgrade', 'websocket, h2c']));
  t.notOk(isOffered(offering, ['Connection', 'Upgrade']), 'none at all');
});

t.test('a 101 crosses as it came, without what would delimit content', async (t) => {
  const own = ['UPGRADE', 'websocket', 'Connection', 'keep-alive, Upgrade', 'X-One', '1', 'X-One', '2'];
  t.same(switchingFields([...own, 'Keep-Alive', 'x', 'Content-Length', '5', 'Transfer-Encoding', 'chunked']), own);
});
