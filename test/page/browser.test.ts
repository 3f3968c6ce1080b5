/** The live page in a real Chromium: what it shows is what the gateway says, and whoever uses it can, with whatever they have. */

import { writeFileSync } from 'node:fs';
import t from 'tap';
import { HIT } from '../support/expect.js';
import { eventually } from '../support/gate.js';
import { configOf, Gateway, startGateway, startGateways } from '../support/gateway.js';
import { faintTexts, namelessOf, openPage, PHONE, textOf } from '../support/live-page.js';
import { freePort } from '../support/ports.js';
import { startRedis } from '../support/redis.js';
import { answersAfter, hangsUpAfterReading, type StubUpstream, startUpstream } from '../support/upstream.js';

t.setTimeout(170_000);

const TOKEN = 'this-is-the-token-of-operators';
const routes = `
  - name: session-refresh
    match: { methods: [POST], path: "/refresh/*" }
    upstream: api
    policy: coalesce
    key: [ { request: path } ]
  - name: step-proceed
    match: { methods: [POST], path: "/step/:id" }
    upstream: api
    policy: reject
    key: [ { param: id } ]
  - name: orders
    match: { methods: [POST], path: "/orders/*" }
    upstream: api
    policy: replay`;

const configFor = (upstream: StubUpstream, more: { store?: string; more?: string } = {}) =>
  configOf({ upstream: upstream.url, routes, ...more });
const order = (gateway: Gateway, path: string) =>
  gateway.request({ method: 'POST', path, headers: ['Idempotency-Key', path], body: 'A' });
const post = (gateway: Gateway, path: string) => gateway.request({ method: 'POST', path });

/** Sends what comes to every outcome that is counted, again and again until the end. */
function startLoad(gateway: Gateway): { end(): Promise<void> } {
  let isOver = false;
  const round = async (n: number): Promise<void> => {
    const many = (count: number, path: string) => Array.from({ length: count }, () => post(gateway, path));
    await Promise.all([
      ...many(6, `/refresh/${n}`),
      ...many(3, `/step/${n % 8}`),
      order(gateway, `/orders/${n >> 2}`),
      gateway.request({ path: '/other' }),
    ]);
    if (!isOver) await round(n + 1);
  };
  const lanes = Promise.all([1, 1_000_000].map(round));
  return {
    end: async () => {
      isOver = true;
      await lanes;
    },
  };
}

/** Every rule's calls take a moment, so that duplicates find them in flight. */
function slow(upstream: StubUpstream): void {
  for (let i = 0; i < 8; i += 1) upstream.on(`/step/${i}`, answersAfter(60));
}

t.test('a gateway that has done nothing yet', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startGateway(t, { config: configFor(upstream) });
  const shown = await openPage(t, gateway);
  await eventually('it is ready', async () => /^Ready/.test(await textOf(shown.page.locator('.bar [role=status]'))));
  for (const tile of ['Requests', 'Upstream calls', 'Calls saved', 'Coalesced', 'Replayed', 'Rejected', 'Failed']) {
    t.equal(await shown.tile(tile), '0', tile);
  }
  for (const text of ['Nothing is unknown.', 'No flight is in progress.', 'No request has come yet.']) {
    t.equal(await shown.page.getByText(text).count(), 1, text);
  }
  for (const fact of ['Store', 'Event loop', 'Upstream api']) t.equal(await shown.fact(fact), 'ok', fact);
  const rules = shown.page.getByRole('table', { name: 'Rules as loaded' });
  t.match((await rules.getByRole('row').allInnerTexts()).join('\n'), /orders.*\/orders\/\*.*replay.*Idempotency-Key/s);
  await shown.page.getByText('The whole configuration').click();
  t.match(await textOf(shown.page.locator('pre')), /^ {2}- name: orders$/m);
  await shown.picture('empty');
  await shown.close();
});

t.test('under load: the numbers are those of /metrics, of all workers', async (t) => {
  const upstream = await startUpstream(t);
  slow(upstream);
  const gateway = await startGateway(t, { config: configFor(upstream, { more: 'workers: 2' }) });
  const shown = await openPage(t, gateway);
  const load = startLoad(gateway);
  const rejected = async () => Number((await shown.tile('Rejected')).replaceAll(',', ''));
  await eventually('the numbers move', async () => (await rejected()) > 20, 30_000);
  const line = shown.page.getByRole('img', { name: /^Requests per second/ });
  await eventually('the plots move', async () => /requests [1-9]/.test((await line.getAttribute('aria-label')) ?? ''));
  await eventually('waits are timed', async () => (await shown.page.getByText('Follower wait').count()) > 0);
  await shown.picture('load');
  await load.end();

  const metrics = await gateway.metrics();
  const outcome = (name: string) => metrics.sum('oneflight_requests_total', { outcome: name });
  const wanted = {
    Requests: metrics.sum('oneflight_requests_total'),
    'Upstream calls': upstream.count(),
    'Calls saved': outcome('collapsed') + outcome('hit'),
    Coalesced: outcome('collapsed'),
    Replayed: outcome('hit'),
    Rejected: outcome('in-flight'),
    Failed: 0,
  };
  t.ok(wanted.Coalesced > 0 && wanted.Replayed > 0 && wanted.Rejected > 0, 'there is something to compare');
  for (const [name, count] of Object.entries(wanted)) {
    await eventually(`${name}: ${count}`, async () => (await shown.tile(name)) === count.toLocaleString('en'));
  }
  t.match(await textOf(shown.page.locator('#traffic .note')), /2 workers/);
  const row = shown.page.getByRole('table', { name: 'Routes' }).getByRole('row', { name: /^step-proceed/ });
  const { led = 0, 'in-flight': refused = 0 } = metrics.outcomes('step-proceed');
  const counts = [led + refused, led, 0, 0, refused, 0].map((count) => count.toLocaleString('en'));
  t.same((await row.getByRole('cell').allInnerTexts()).slice(1, 7), counts, 'of a route, too');
  await shown.close();
});

t.test('flights of another gateway, and a store that is away', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  const upstream = await startUpstream(t);
  const store = `{ kind: redis, url: "${redis.url}", commandTimeout: 1s }`;
  const [here, there] = (await startGateways(t, 2, { config: configFor(upstream, { store }) })) as [Gateway, Gateway];
  const shown = await openPage(t, here);
  const held = upstream.holds('/refresh/held');
  const led = post(there, '/refresh/held');
  await held.arrived(1);
  const follower = post(here, '/refresh/held');
  const row = shown.page
    .getByRole('table', { name: 'Flights in progress' })
    .getByRole('row', { name: /session-refresh/ });
  await eventually('it is shown, with who waits for it', async () => {
    const cells = (await row.count()) === 1 ? await row.getByRole('cell').allInnerTexts() : [];
    return cells[4] === '1';
  });
  const { flights } = (await there.admin('/flights')).json() as { flights: { key: string; leader: string }[] };
  const titles = await Promise.all((await row.locator('code').all()).map((code) => code.getAttribute('title')));
  t.same(titles, [flights[0]?.key, flights[0]?.leader], 'with its digest and its leader');
  held.release();
  t.equal((await led).text, (await follower).text);
  await eventually('it is over', async () => (await row.count()) === 0);

  redis.pause();
  await eventually('the store is away', async () => (await shown.fact('Store')) !== 'ok', 15_000);
  await eventually('no list is taken for an empty one', async () => {
    return (await textOf(shown.page.locator('#flights .empty'))).startsWith('The store cannot be asked');
  });
  await eventually(
    'the head says so',
    async () => (await shown.page.getByText(/^Not ready: store/).count()) === 1,
    15_000,
  );
  await shown.picture('dead-store');
  redis.resume();
  await eventually('it is back', async () => (await shown.fact('Store')) === 'ok', 15_000);
  await eventually('lists are', async () => (await shown.page.getByText('No flight is in progress.').count()) === 1);
  await shown.close();
});

t.test('an unknown outcome is settled by who says so twice', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startGateway(t, { config: configFor(upstream) });
  for (const path of ['/orders/a', '/orders/b']) {
    upstream.on(path, hangsUpAfterReading);
    t.equal((await order(gateway, path)).status, 504);
  }
  const shown = await openPage(t, gateway);
  const { page } = shown;
  const button = page.getByRole('button', { name: /^Settle orders/ });
  await eventually('both are shown', async () => (await button.count()) === 2);
  const settled = () => gateway.logs.filter(({ msg }) => msg === 'settled by an operator').length;

  await button.first().click();
  const dialog = page.getByRole('dialog', { name: 'Settle this outcome?' });
  t.match(await textOf(dialog), /orders/);
  await shown.picture('settle');
  t.same(await namelessOf(page), []);
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  t.equal(await dialog.count(), 0);
  t.equal(settled(), 0, 'nothing was settled by looking');
  t.equal((await order(gateway, '/orders/a')).status, 409);

  await button.first().click();
  await dialog.getByRole('button', { name: 'Free the key' }).click();
  await page.getByText('The key of orders is free.').waitFor();
  await eventually('one is left', async () => (await button.count()) === 1);
  t.equal(settled(), 1);
  upstream.on('/orders/a', answersAfter(0));
  t.equal((await order(gateway, '/orders/a')).status, 200, 'the oldest was meant, and may run again');
  t.equal(upstream.count('/orders/a'), 2);

  await button.click();
  await dialog.getByLabel('It was executed').check();
  await dialog.getByLabel('Status').fill('201');
  await dialog.getByLabel('Content', { exact: true }).fill('{"id":7}');
  await dialog.getByRole('button', { name: 'Settle with this answer' }).click();
  await page.getByText('Repeats of orders get your answer.').waitFor();
  const repeat = await order(gateway, '/orders/b');
  t.match(
    { status: repeat.status, text: repeat.text, cache: repeat.cacheStatus },
    { status: 201, text: '{"id":7}', cache: HIT },
  );
  t.equal(upstream.count('/orders/b'), 1);
  await shown.close();
});

t.test('a flight that has changed hands is not settled', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startGateway(t, { config: configFor(upstream) });
  upstream.on('/orders/a', hangsUpAfterReading);
  await order(gateway, '/orders/a');
  const { page, close } = await openPage(t, gateway, { expects: /404|409/ });
  await page.getByRole('button', { name: /^Settle orders/ }).click();
  const { flights } = (await gateway.admin('/flights')).json() as { flights: { key: string }[] };
  await page.evaluate(`fetch('flights/${flights[0]?.key}/settle', {
    method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"as":"free"}' })`);
  await page.getByRole('button', { name: 'Free the key' }).click();
  await page.getByText('Not settled: nothing has this key.').waitFor();
  await close();
});

t.test('explain', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startGateway(t, { config: configFor(upstream) });
  const shown = await openPage(t, gateway, { expects: /400/ });
  const form = shown.page.getByRole('form', { name: 'Explain a request' });
  const answer = shown.page.locator('#explain .answer');
  await form.getByLabel('Method').fill('POST');
  await form.getByLabel('Target').fill('/orders/7?coupon=secret');
  await form.getByLabel('Header fields').fill('Idempotency-Key: abc\nAuthorization: Bearer xyz');
  await form.getByLabel('Content').fill('{"amount":1}');
  await form.getByLabel('Ask the store').check();
  const requests = await shown.tile('Requests');
  await form.getByRole('button', { name: 'Explain' }).click();
  await answer.getByText('forwarded as leader').waitFor();
  const text = await textOf(answer);
  t.match(text, /Ruleorders \(replay\), upstream api/);
  t.match(text, /Storethe key is free/);
  t.notMatch(text, /secret|xyz|abc/, 'values are shown to who asks for them');
  await eventually('the form stays as it is', async () => Number(await shown.page.locator('#traffic').count()) === 1);
  t.equal(await form.getByLabel('Method').inputValue(), 'POST');
  await shown.picture('explain');

  await form.getByLabel('Show the values').check();
  await form.getByRole('button', { name: 'Explain' }).click();
  await answer.getByText('Bearer xyz').waitFor();
  await form.getByLabel('Target').fill('no target');
  await form.getByRole('button', { name: 'Explain' }).click();
  await answer.getByText('target must be a path').waitFor();
  await form.getByLabel('Header fields').fill('no field');
  await form.getByRole('button', { name: 'Explain' }).click();
  await answer.getByText('"no field" is no header field').waitFor();
  t.equal(upstream.count(), 0, 'nothing was sent');
  t.equal(await shown.tile('Requests'), requests);
  await shown.close();
});

t.test('with a token: it is asked for, kept for the tab, and in no address', async (t) => {
  const upstream = await startUpstream(t);
  const admin = `admin: { port: 0, token: ${TOKEN} }`;
  const gateway = await startGateway(t, { config: configFor(upstream).replace(/^admin: .*$/m, admin) });
  const shown = await openPage(t, gateway, { expects: /401/ });
  const { page } = shown;
  const field = page.getByLabel('Token of the admin listener');
  await field.waitFor();
  t.same(await namelessOf(page), []);
  t.notMatch(await page.content(), /session-refresh|orders/, 'nothing is shown before');
  await field.fill('wrong');
  await field.press('Enter');
  await page.getByRole('alert').getByText('did not take this token').waitFor();
  await shown.picture('token');
  await field.fill(TOKEN);
  await page.getByRole('button', { name: 'Show the gateway' }).click();
  await page.getByText('No flight is in progress.').waitFor();
  await page
    .getByRole('row', { name: /session-refresh/ })
    .first()
    .waitFor();
  await page.reload();
  await page.getByText('No flight is in progress.').waitFor();
  t.same(
    shown.urls.filter((url) => url.includes(TOKEN) || url.includes('?')),
    [],
  );
  t.equal(await page.evaluate('localStorage.length + document.cookie.length'), 0);
  const other = await page.context().newPage();
  await other.goto(gateway.adminUrl);
  await other.getByLabel('Token of the admin listener').waitFor();
  await page.getByRole('button', { name: 'Forget token' }).click();
  await field.waitFor();
  t.equal(await page.evaluate('sessionStorage.length'), 0);
  t.notMatch(gateway.output, TOKEN);
  await shown.close();
});

t.test('the policy of the page holds: what somebody would put into it does not run', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startGateway(t, { config: configFor(upstream) });
  const { page, violations, close } = await openPage(t, gateway, {
    expects: /violates the following Content Security Policy/,
  });
  const put = (text: string) => page.evaluate(`document.body.insertAdjacentHTML('beforeend', ${JSON.stringify(text)})`);
  await put('<img src="page.svg" onload="window.ran = 1">');
  await put('<p style="color: red">');
  await put('<iframe src="page.svg"></iframe>');
  await eventually('they are noticed', async () => (await violations()).length >= 3);
  t.same(new Set(await violations()), new Set(['script-src-attr', 'style-src-attr', 'frame-src']));
  t.equal(await page.evaluate('window.ran ?? 0'), 0);
  await page.evaluate('window.violations.length = 0');
  await close();
});

t.test('dark and light, for every eye', async (t) => {
  const upstream = await startUpstream(t);
  slow(upstream);
  const gateway = await startGateway(t, { config: configFor(upstream) });
  upstream.on('/orders/lost', hangsUpAfterReading);
  await order(gateway, '/orders/lost');
  const load = startLoad(gateway);
  for (const colorScheme of ['light', 'dark'] as const) {
    const shown = await openPage(t, gateway, { colorScheme });
    await eventually('it has something to show', async () => {
      return (await shown.page.getByRole('img', { name: /^Requests per second.*requests [1-9]/ }).count()) === 1;
    });
    const ground = await shown.page.evaluate('getComputedStyle(document.body).backgroundColor');
    t.equal(ground, colorScheme === 'dark' ? 'rgb(15, 20, 26)' : 'rgb(244, 246, 248)');
    t.same(await faintTexts(shown.page), [], `${colorScheme}: every text can be read`);
    t.same(await namelessOf(shown.page), [], `${colorScheme}: everything has a name`);
    await shown.picture(colorScheme);
    await shown.close();
  }
  await load.end();
});

t.test('a phone: nothing is wider than the screen', async (t) => {
  const upstream = await startUpstream(t);
  slow(upstream);
  const gateway = await startGateway(t, { config: configFor(upstream) });
  upstream.on('/orders/lost', hangsUpAfterReading);
  await order(gateway, '/orders/lost');
  const held = upstream.holds('/refresh/held');
  const led = post(gateway, '/refresh/held');
  const load = startLoad(gateway);
  const shown = await openPage(t, gateway, { viewport: PHONE, isMobile: true, hasTouch: true });
  await shown.page
    .getByRole('row', { name: /session-refresh/ })
    .first()
    .waitFor();
  await shown.page.getByLabel('Method').fill('POST');
  await shown.page.getByLabel('Target').fill('/orders/7');
  await shown.page.getByRole('button', { name: 'Explain' }).tap();
  await shown.page.locator('#explain .explained').waitFor();
  await shown.page.getByText('The whole configuration').tap();
  const tooWide = `[...document.querySelectorAll('body *')].filter((one) => one.closest('pre, .unseen, thead, .skip') === null
    && one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.outerHTML.slice(0, 120))`;
  const width = () => shown.page.evaluate('document.documentElement.scrollWidth');
  t.equal(await width(), PHONE.width);
  t.same(await shown.page.evaluate(tooWide), []);
  await shown.page.getByText('The whole configuration').tap();
  await shown.picture('phone');
  await shown.page.getByRole('button', { name: /^Settle orders/ }).tap();
  await shown.page.getByLabel('It was executed').check();
  t.equal(await width(), PHONE.width);
  t.same(await shown.page.evaluate(tooWide), []);
  await shown.page.screenshot({ path: 'test-output/page/phone-settle.png' });
  await shown.page.getByRole('button', { name: 'Cancel' }).tap();
  t.same(await namelessOf(shown.page), [], 'a table that is a list of cards is still a table');
  t.ok((await shown.page.getByRole('table', { name: 'Routes' }).getByRole('columnheader').count()) > 5);
  held.release();
  await led;
  await load.end();
  await shown.close();
});

t.test('a keyboard is enough', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startGateway(t, { config: configFor(upstream) });
  upstream.on('/orders/lost', hangsUpAfterReading);
  await order(gateway, '/orders/lost');
  const { page, close } = await openPage(t, gateway);
  await page.getByRole('button', { name: /^Settle orders/ }).waitFor();
  const { keyboard } = page;
  const focused = () =>
    page.evaluate<string>('document.activeElement.getAttribute("aria-label") ?? document.activeElement.textContent');
  await keyboard.press('Tab');
  t.equal(await focused(), 'Skip to the content');
  t.not(await page.evaluate('getComputedStyle(document.activeElement).outlineStyle'), 'none', 'it shows where one is');
  await keyboard.press('Enter');
  await keyboard.press('Tab');
  t.match(await focused(), /^Settle orders/);
  await keyboard.press('Enter');
  const dialog = page.getByRole('dialog');
  await dialog.waitFor();
  t.equal(await focused(), 'Cancel', 'Enter does nothing by mistake');
  await keyboard.press('Escape');
  t.equal(await dialog.count(), 0);
  await eventually('back where it was', async () => /^Settle orders/.test(await focused()));
  await keyboard.press('Enter');
  await dialog.waitFor();
  await keyboard.press('Tab');
  t.equal(await focused(), 'Free the key');
  await keyboard.press('Enter');
  await page.getByText('The key of orders is free.').waitFor();

  await page.getByLabel('Method').focus();
  await keyboard.press('Tab');
  await keyboard.type('/other');
  await keyboard.press('Enter');
  await page.locator('#explain .answer').getByText('forwarded, without a key').waitFor();
  await close();
});

t.test('a gateway that stops, and one that is there again', async (t) => {
  const upstream = await startUpstream(t);
  const port = await freePort();
  const config = configFor(upstream).replace(/^admin: .*$/m, `admin: { host: 127.0.0.1, port: ${port} }`);
  const first = new Gateway({ config });
  t.teardown(() => first.dispose().then(() => {}));
  await first.started();
  await post(first, '/refresh/a');
  const shown = await openPage(t, first, { expects: /ERR_CONNECTION_REFUSED|ERR_INCOMPLETE/ });
  await eventually('it shows the first', async () => (await shown.tile('Requests')) === '1');
  await first.stop();
  await shown.page.getByText(/^Not connected/).waitFor();
  t.equal(await shown.tile('Requests'), '1', 'what was last known is still there');
  await shown.picture('stopped');
  await startGateway(t, { config });
  await eventually('it shows the next', async () => (await shown.tile('Requests')) === '0', 15_000);
  await shown.page.getByText('Ready', { exact: true }).waitFor();
  await shown.close();
});

t.test('a configuration that is bad is told of', async (t) => {
  const upstream = await startUpstream(t);
  const folder = t.testdir({ 'gateway.yaml': configFor(upstream) });
  const file = `${folder}/gateway.yaml`;
  const gateway = await startGateway(t, { config: '', file });
  const shown = await openPage(t, gateway);
  await eventually('in use', async () => /in use/.test(await shown.fact('Configuration')));
  writeFileSync(file, configFor(upstream, { more: 'lgo: { level: debug }' }));
  await eventually('told', async () => /not taken:.*lgo/s.test(await shown.fact('Configuration')), 15_000);
  writeFileSync(file, configFor(upstream).replace('orders', 'purchases'));
  const rules = shown.page.getByRole('table', { name: 'Rules as loaded' });
  await eventually('rules are read again', async () => /purchases/.test(await textOf(rules)), 15_000);
  await shown.close();
});
