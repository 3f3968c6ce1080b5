/** Key health by itself: what is remembered of a rule is bounded, by number and by time. */

import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import t from 'tap';
import { keyOf } from '../../src/core/key.js';
import type { KeyedPolicy } from '../../src/core/rule.js';
import { parseTarget } from '../../src/core/target.js';
import { KeyHealth, type Seen } from '../../src/exchange/key-health.js';
import type { KeyFinding } from '../../src/exchange/observer.js';
import { eventually } from '../support/gate.js';
import { coalescePolicy } from '../support/rules.js';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

/** Bytes of all buffers and arrays of numbers that are in use. */
function arrayBytes(): number {
  collect();
  return process.memoryUsage().arrayBuffers;
}

/** How many requests of a rule are remembered (docs/key-health.md). */
const REMEMBERED = 1_024;

const byTry = (changes = {}) =>
  coalescePolicy({
    key: [{ from: 'header', name: 'x-try', optional: false }],
    keep: { kind: 'fixed', keepMs: 1 },
    ...changes,
  });

function start() {
  const found: KeyFinding[] = [];
  const health = new KeyHealth({ keyFound: (_route, finding) => void found.push(finding) });
  const count = (kind: KeyFinding['kind']): number => found.filter((finding) => finding.kind === kind).length;
  const arrive = (policy: KeyedPolicy, path: string, attempt: string): Seen => {
    const target = parseTarget(path);
    const fields = ['X-Try', attempt];
    const view = { method: 'GET', host: 'h', target, fields, params: new Map(), content: null };
    const key = keyOf(policy, view, null);
    if (key.kind !== 'key') throw new Error('it has a key');
    const seen: Seen = { route: 'r', fingerprint: '', announcesContent: false, announcedBytes: 0, likeness: null };
    health.arrived(seen, policy, key, view, 'alone');
    health.led(seen, policy, key.digest);
    return seen;
  };
  return { health, count, arrive };
}

t.test('a hundred thousand requests take the memory of a thousand, and what is forgotten is counted', async (t) => {
  const { arrive, count } = start();
  const policy = byTry();
  arrive(policy, '/first', '0');
  const before = arrayBytes();
  for (let number = 0; number < 100_000; number += 1) arrive(policy, `/${number}`, '1');
  // What is collected is given back a little later.
  await eventually('nothing was added', () => arrayBytes() - before < 65_536);
  t.equal(count('forgotten'), 100_001 - REMEMBERED);
  t.equal(count('too-fine'), 0);
  arrive(policy, '/99999', '2');
  t.equal(count('too-fine'), 1, 'the last one is remembered');
  arrive(policy, '/first', '2');
  t.equal(count('too-fine'), 1, 'the first one is not');
});

t.test('equal requests count within the lease alone, and nothing is forgotten that is older', async (t) => {
  const { arrive, count } = start();
  const brief = byTry({ leaseMs: 0 });
  for (const attempt of ['1', '2', '3']) arrive(brief, '/a', attempt);
  for (let number = 0; number < 10 * REMEMBERED; number += 1) arrive(brief, `/${number}`, '1');
  t.equal(count('too-fine') + count('forgotten'), 0);
  const policy = byTry();
  for (const attempt of ['1', '2', '2', '3']) arrive(policy, '/a', attempt);
  t.equal(count('too-fine'), 2);
});

t.test('rules have memories of their own', async (t) => {
  const { arrive, count } = start();
  arrive(byTry(), '/a', '1');
  arrive(byTry(), '/a', '2');
  t.equal(count('too-fine'), 0);
});

t.test('a duplicate counts once as another request, whatever it comes to', async (t) => {
  const { arrive, health, count } = start();
  const policy = byTry();
  const leader = arrive(policy, '/a', '1');
  const other = arrive(policy, '/b', '1');
  health.duplicate(other, leader.likeness);
  health.duplicate(other, leader.likeness);
  t.equal(count('too-coarse'), 1);
  health.duplicate(arrive(policy, '/a', '1'), leader.likeness);
  t.equal(count('too-coarse'), 1);
});
