/** docs/recipes/auth.md: one refresh, one verification and one secret, and each of them for its own caller only. */

import { join } from 'node:path';
import t from 'tap';
import { COLLAPSED, HIT, isProblem, LED, tally } from '../support/expect.js';
import { runProgram } from '../support/program.js';
import { configOfRecipe, readRecipe, startRecipe } from './recipe.js';

t.setTimeout(60_000);

const REFRESH = '/auth/sessions/refresh';
const VERIFY = '/auth/mfa/verify';
const ENABLE = '/users/u-1/mfa/enable';
/** What token endpoints answer with (RFC 6749 section 5.1). */
const TOKENS = ['Content-Type', 'application/json', 'Cache-Control', 'no-store', 'Set-Cookie', 'session=new'];

const by = (caller: string): string[] => ['Authorization', `Bearer ${caller}`];

t.test('refresh', async (t) => {
  const { upstream, first } = await startRecipe(t, 'auth.md');
  const refresh = (tab: number, refreshToken = 'rt-1') =>
    first.post(REFRESH, { refreshToken }, ['Cookie', `tab=${tab}`, ...by(`old-access-token-${tab}`)]).answer;
  const held = upstream.holds(REFRESH, ({ ordinal }) => ({ fields: TOKENS, content: `pair ${ordinal}` }));

  await t.test('twenty tabs with cookies and old access tokens of their own have one token pair', async (t) => {
    const tabs = Array.from({ length: 20 }, (_, tab) => refresh(tab));
    await held.arrived(1);
    await first.caughtUp();
    held.release();
    const all = await Promise.all(tabs);
    t.same(tally(all), { [LED]: 1, [COLLAPSED]: 19 });
    t.ok(all.every(({ text }) => text === 'pair 1'));
    t.ok(
      all.every((answer) => answer.header('set-cookie') === 'session=new'),
      'and its cookie',
    );
    t.equal(upstream.count(REFRESH), 1);
  });

  await t.test('a tab that comes late has it too, another token has another pair', async (t) => {
    t.match((await refresh(21)).cacheStatus, HIT);
    t.equal((await refresh(1, 'rt-2')).text, 'pair 2');
    t.equal(upstream.count(REFRESH), 2);
  });
});

t.test('refresh with what the page warns of', async (t) => {
  await t.test('the default identity is too fine for tabs with cookies of their own', async (t) => {
    const { upstream, first } = await startRecipe(t, 'auth.md', ({ identity, ...route }) => route);
    const held = upstream.holds(REFRESH);
    const tabs = [1, 2].map((tab) => first.post(REFRESH, { refreshToken: 'rt-1' }, ['Cookie', `tab=${tab}`]).answer);
    await held.arrived(2);
    held.release();
    await Promise.all(tabs);
    t.equal(upstream.count(REFRESH), 2);
  });

  await t.test('public shares no answer of a token endpoint', async (t) => {
    const { upstream, first } = await startRecipe(t, 'auth.md', (route) => ({ ...route, identity: 'public' }));
    const held = upstream.holds(REFRESH, { fields: TOKENS, content: 'pair' });
    const leader = first.post(REFRESH, { refreshToken: 'rt-1' }).answer;
    await held.arrived(1);
    const follower = first.post(REFRESH, { refreshToken: 'rt-1' }).answer;
    await first.caughtUp();
    held.release();
    t.equal((await leader).text, 'pair');
    isProblem(t, await follower, 'not-shareable');
    t.equal(upstream.count(REFRESH), 1);
  });
});

t.test('verify', async (t) => {
  const { upstream, first } = await startRecipe(t, 'auth.md');
  const verify = (code: string, headers: string[]) => first.post(VERIFY, { challenge: 'ch-1', code }, headers).answer;

  await t.test(
    'a code that is sent twice is used once; other codes and other callers are not its followers',
    async (t) => {
      const held = upstream.holds(VERIFY, ({ ordinal }) => ({ fields: TOKENS, content: `session ${ordinal}` }));
      const leader = verify('111111', by('half-a'));
      await held.arrived(1);
      const twice = verify('111111', by('half-a'));
      const others = [verify('222222', by('half-a')), verify('111111', by('half-b')), verify('111111', [])];
      await held.arrived(4);
      await first.caughtUp();
      held.release();
      t.equal((await leader).text, 'session 1');
      const follower = await twice;
      t.equal(follower.text, 'session 1');
      t.equal(follower.cacheStatus, COLLAPSED);
      const apart = await Promise.all(others);
      t.same(apart.map(({ text }) => text).sort(), ['session 2', 'session 3', 'session 4']);
      t.equal(apart[2]!.cacheStatus, 'oneflight; fwd=bypass; detail=key-missing', 'nobody in particular has no key');
      t.equal(upstream.count(VERIFY), 4);
    },
  );

  await t.test('a wrong code that is sent twice is one attempt, and is kept for nobody', async (t) => {
    const before = upstream.count(VERIFY);
    const held = upstream.holds(VERIFY, { status: 401, reason: 'Unauthorized', content: 'wrong' });
    const attempts = [verify('000000', by('half-a')), verify('000000', by('half-a'))];
    await held.arrived(before + 1);
    await first.caughtUp();
    held.release();
    t.same(
      (await Promise.all(attempts)).map(({ status }) => status),
      [401, 401],
    );
    t.equal(upstream.count(VERIFY), before + 1);
    t.equal((await verify('000000', by('half-a'))).status, 401);
    t.equal(upstream.count(VERIFY), before + 2);
  });
});

t.test('explain says why a caller who cannot be told from others has no key', async (t) => {
  const config = join(t.testdir({ 'gateway.yaml': configOfRecipe(readRecipe('auth.md')) }), 'gateway.yaml');
  const content = '{"challenge":"ch-1","code":"1"}';
  const { stdout } = await runProgram(['explain', '-c', config, VERIFY, '--json', content]);
  t.match(stdout, /header: authorization \(identity\) +absent: there is no such field, and it is not optional/);
});

t.test('enable', async (t) => {
  const { upstream, first } = await startRecipe(t, 'auth.md');
  const enable = (caller: string, path = ENABLE) => first.request({ method: 'POST', path, headers: by(caller) });

  await t.test('clicked twice, it makes one secret; nobody else who names the user is given it', async (t) => {
    const held = upstream.holds(ENABLE, ({ ordinal }) => ({ fields: TOKENS, content: `secret ${ordinal}` }));
    const clicks = [enable('user'), enable('user')];
    await held.arrived(1);
    await first.caughtUp();
    const stranger = enable('stranger');
    await held.arrived(2);
    held.release();
    t.same(
      (await Promise.all(clicks)).map(({ text }) => text),
      ['secret 1', 'secret 1'],
    );
    t.equal((await stranger).text, 'secret 2');
    t.match((await enable('user')).cacheStatus, HIT);
    t.equal(upstream.count(ENABLE), 2);
    await enable('user', '/users/u-2/mfa/enable');
    t.equal(upstream.count('/users/u-2/mfa/enable'), 1);
  });
});
