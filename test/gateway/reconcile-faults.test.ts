/** Questions to the API over the end of processes, and what is left of the key's value: nothing. */

import t from 'tap';
import { delay, eventually, Gate } from '../support/gate.js';
import { type Gateway, startGateways } from '../support/gateway.js';
import { startRedis } from '../support/redis.js';
import { answers, gated, resetsAfterReading, stalls, startUpstream } from '../support/upstream.js';
import { configFor, EVERY_MS, LEASE_MS, Operation, RAW, settledBy, TOKEN } from './reconciling.js';

t.setTimeout(170_000);

const redis = await startRedis();
t.teardown(() => redis.stop());
const store = `{ kind: redis, url: "${redis.url}", commandTimeout: 300ms }`;
const found = answers({ content: 'found' });
const env = { API_TOKEN: TOKEN };

/** Every key and every value of the store. */
const EVERYTHING = `
  local all = {}
  for _, key in ipairs(redis.call('KEYS', '*')) do
    all[#all + 1] = key
    local hash = redis.call('TYPE', key).ok == 'hash'
    for _, value in ipairs(hash and redis.call('HGETALL', key) or { redis.call('GET', key) }) do all[#all + 1] = value end
  end
  return table.concat(all, '\\n')`;

t.test('kill -9 of the leader: a repeat elsewhere brings the question up', async (t) => {
  const upstream = await startUpstream(t);
  const config = configFor(upstream.url, store, upstream.url);
  const [leading, there] = (await startGateways(t, 2, { config, env })) as [Gateway, Gateway];
  const operation = new Operation(upstream, 'found', 'killed');
  const gate = new Gate();
  operation.is(stalls, gated(gate, found));
  const gone = t.rejects(operation.run(leading));
  await upstream.arrived(1, operation.path);
  await leading.kill9();
  await gone;
  await delay(LEASE_MS + EVERY_MS);
  t.equal(operation.questions.length, 0, 'nobody is there who knows the key');
  await operation.isHeld(t, there);
  await operation.asked(1);
  const held = String(await redis.command('EVAL', EVERYTHING, 0));
  t.ok(held.includes('oneflight'), 'something is in the store');
  gate.open();
  const known = await operation.known(there);
  t.equal(known.text, 'found');
  t.equal(known.header('idempotent-replayed'), 'true');
  t.equal(operation.runs, 1);
  await eventually('it being in the log', () => settledBy([there], 'found').length === 1);
  for (const text of [held, String(await redis.command('EVAL', EVERYTHING, 0)), there.output, leading.output]) {
    for (const secret of [RAW, TOKEN]) t.notOk(text.includes(secret), secret);
  }
});

t.test('a process that stops asks nothing any more and does not wait for an answer', async (t) => {
  const upstream = await startUpstream(t);
  const config = configFor(upstream.url, store, upstream.url, 'drain: 5s');
  const [stopping, there] = (await startGateways(t, 2, { config, env })) as [Gateway, Gateway];
  const operation = new Operation(upstream, 'found', 'stopped');
  operation.is(resetsAfterReading, stalls);
  await operation.lose(t, stopping);
  await operation.asked(1);
  const began = performance.now();
  await stopping.stop();
  t.ok(performance.now() - began < 3_000, 'neither the drain nor the question held it up');
  await operation.questions[0]!.closed;
  await delay(3 * EVERY_MS);
  t.equal(operation.questions.length, 1);
  upstream.on(operation.question, found);
  t.equal((await operation.known(there)).text, 'found', 'the next one goes on');
  t.equal(operation.runs, 1);
});

t.test('the store is away: nothing is asked, and it is settled when it is back', async (t) => {
  const upstream = await startUpstream(t);
  const own = await startRedis();
  t.teardown(() => own.stop());
  const config = configFor(upstream.url, `{ kind: redis, url: "${own.url}", commandTimeout: 300ms }`, upstream.url);
  const [gateway] = (await startGateways(t, 1, { config, env })) as [Gateway];
  const operation = new Operation(upstream, 'found', 'store-away');
  const gate = new Gate();
  operation.is(resetsAfterReading, gated(gate, found));
  await operation.lose(t, gateway);
  await operation.asked(1);
  own.pause();
  t.teardown(() => own.resume());
  gate.open();
  const unanswered = 'settling by reconcile: the store did not answer';
  await eventually('the store not taking it', () => gateway.logs.some(({ msg }) => msg === unanswered));
  t.same(settledBy([gateway], 'found'), []);
  const asked = operation.questions.length;
  await delay(3 * EVERY_MS);
  t.equal(operation.questions.length, asked, 'what nobody could write down is not asked');
  own.resume();
  const known = await operation.known(gateway, 15_000);
  t.equal(known.text, 'found');
  t.equal(operation.runs, 1);
});
