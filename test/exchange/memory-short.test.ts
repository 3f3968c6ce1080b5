/** Memory is looked at when a response's fields say how long it is: whoever would wait in vain is told so at once. */

import t from 'tap';
import { MemoryBudget } from '../../src/core/memory-budget.js';
import { send } from '../support/client.js';
import { COLLAPSED, isProblem, LED } from '../support/expect.js';
import { eventually, Gate, within } from '../support/gate.js';
import { startInProcess, storeWith } from '../support/in-process.js';
import { coalescePolicy, ruleOf } from '../support/rules.js';
import { type StubUpstream, startUpstream } from '../support/upstream.js';

const MOST_BYTES = 1_000_000;
const NOT_STORED = 'oneflight; fwd=miss';

/** Announces so many bytes at once, and sends them in two halves, each when the test says so. */
function announces(upstream: StubUpstream, path: string, length: number) {
  const [fields, half, rest] = [new Gate(), new Gate(), new Gate()];
  upstream.on(path, async (call) => {
    await fields.opened;
    call.head(200, 'OK', ['Content-Length', String(length)]);
    await half.opened;
    call.raw(Buffer.alloc(length / 2, 'a'));
    await rest.opened;
    call.raw(Buffer.alloc(length / 2, 'b'));
    call.finish();
  });
  return { fields, half, rest };
}

t.test(
  'a response longer than the memory that is left is given up at its fields, and nothing is remembered',
  async (t) => {
    const upstream = await startUpstream(t);
    const budget = new MemoryBudget(MOST_BYTES);
    const rules = [ruleOf('r', '/*', coalescePolicy())];
    const gateway = await startInProcess(t, { upstreamUrl: upstream.url, rules, store: storeWith(() => ({})), budget });
    const post = (path: string) => send(gateway.url, { method: 'POST', path }).answer;
    /** A leader and two followers that wait for it, beside so many requests that are still up. */
    const flight = async (path: string, up = 0) => {
      await eventually('the requests before are over', () => gateway.waiting() === up);
      const calls = upstream.count(path);
      const leader = post(path);
      await upstream.arrived(calls + 1, path);
      const followers = [post(path), post(path)];
      await eventually('all of them wait', () => gateway.waiting() === up + 3);
      return { leader, followers };
    };
    const shared = async (path: string, { leader, followers }: Awaited<ReturnType<typeof flight>>) => {
      t.equal((await leader).cacheStatus, LED, path);
      for (const follower of followers) t.equal((await follower).cacheStatus, COLLAPSED, path);
    };
    const givenUp = async (path: string, followers: readonly ReturnType<typeof post>[]) => {
      for (const follower of followers)
        isProblem(t, await within(10_000, `${path}: its followers`, follower), 'not-shareable');
    };

    const alone = announces(upstream, '/alone', MOST_BYTES + 2);
    const first = await flight('/alone');
    alone.fields.open();
    await givenUp('/alone', first.followers);
    t.equal(budget.usedBytes, 0, 'nothing of it was recorded');
    alone.half.open();
    alone.rest.open();
    const whole = await first.leader;
    t.equal(whole.body.length, MOST_BYTES + 2);
    t.equal(whole.cacheStatus, NOT_STORED);

    const large = announces(upstream, '/large', 700_000);
    const second = await flight('/large');
    large.fields.open();
    large.half.open();
    await eventually('half of it is recorded', () => budget.usedBytes >= 350_000);
    const late = announces(upstream, '/late', 800_000);
    const third = await flight('/late', 3);
    late.fields.open();
    await givenUp('/late', third.followers);
    late.half.open();
    late.rest.open();
    t.equal((await third.leader).body.length, 800_000);
    const fits = announces(upstream, '/fits', 200_000);
    const fourth = await flight('/fits', 3);
    for (const gate of [fits.fields, fits.half, fits.rest]) gate.open();
    await shared('/fits', fourth);
    large.rest.open();
    await shared('/large', second);

    await eventually('there is room again', () => budget.usedBytes === 0);
    const again = announces(upstream, '/late', 800_000);
    const fifth = await flight('/late');
    for (const gate of [again.fields, again.half, again.rest]) gate.open();
    await shared('/late', fifth);
  },
);
