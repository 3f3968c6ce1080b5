/** docs/recipes/nightly-job.md: several hosts start one job, at once or late, and it runs once. */

import t from 'tap';
import { isProblem } from '../support/expect.js';
import type { Gateway } from '../support/gateway.js';
import { answers, inTurn, resetsAfterReading } from '../support/upstream.js';
import { startRecipe } from './recipe.js';

t.setTimeout(60_000);

const JOB = '/jobs/invoices/2026-01-31';

const start = (gateway: Gateway, path = JOB, token = 'jobs') =>
  gateway.request({ method: 'POST', path, headers: ['Authorization', `Bearer ${token}`] });

t.test('one run a day, whichever host is first', async (t) => {
  const { upstream, first, last } = await startRecipe(t, 'nightly-job.md');
  const held = upstream.holds(JOB, ({ ordinal }) => ({ content: `run ${ordinal}` }));
  const running = start(first);
  await held.arrived(1);
  for (const gateway of [first, last]) {
    const refused = await start(gateway);
    t.equal(refused.status, 409);
    isProblem(t, refused, 'in-flight');
  }
  held.release();
  t.equal((await running).text, 'run 1');
  const late = await start(last);
  t.equal(late.text, 'run 1', 'a host whose clock is late');
  t.equal(late.header('idempotent-replayed'), 'true');
  t.equal(upstream.count(JOB), 1);

  for (const other of ['/jobs/invoices/2026-02-01', '/jobs/backup/2026-01-31']) {
    t.equal((await start(last, other)).status, 200);
    t.equal(upstream.count(other), 1, other);
  }
  t.equal((await start(last, JOB, 'of-one-host')).text, 'run 2', 'a token of its own makes another caller');
  isProblem(t, await start(last, `${JOB}?host=b`), 'key-reused');
  t.equal(upstream.count(JOB), 2);
});

t.test('a failure is recorded, and an answer that was lost is held', async (t) => {
  const { upstream, first, last } = await startRecipe(t, 'nightly-job.md');
  const [failing, lost] = ['/jobs/failing/2026-01-31', '/jobs/lost/2026-01-31'];
  upstream.on(failing, answers({ status: 500, content: 'no paper' }));
  for (const gateway of [first, last]) t.equal((await start(gateway, failing)).text, 'no paper');
  t.equal(upstream.count(failing), 1);
  upstream.on(lost, resetsAfterReading);
  t.equal((await start(first, lost)).status, 504);
  isProblem(t, await start(last, lost), 'outcome-unknown');
  t.equal(upstream.count(lost), 1);

  await upstream.refuse();
  t.equal((await start(first)).status, 502);
  await upstream.listen();
  t.equal((await start(last)).status, 200, 'what could not be reached has not run');
});

t.test('with the statuses of the page in release, another host tries after a failure', async (t) => {
  const release = [401, 407, 408, 421, 425, 429, 500, 503];
  const { upstream, first, last } = await startRecipe(t, 'nightly-job.md', (route) => ({ ...route, release }));
  upstream.on(JOB, inTurn(answers({ status: 500 }), answers({ content: 'done' })));
  t.equal((await start(first)).status, 500);
  t.equal((await start(last)).text, 'done');
  t.equal((await start(first)).text, 'done');
  t.equal(upstream.count(JOB), 2);
});

t.test('reject would run it again for a host that is late', async (t) => {
  const { upstream, first, last } = await startRecipe(t, 'nightly-job.md', ({ keep, ...route }) => ({
    ...route,
    policy: 'reject',
  }));
  await start(first);
  await start(last);
  t.equal(upstream.count(JOB), 2);
});
