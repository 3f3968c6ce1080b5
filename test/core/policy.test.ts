import t from 'tap';
import type { ClaimResult, FlightRef } from '../../src/core/claim.js';
import { decide, endingOf, keepMsFor, retryAfterSeconds } from '../../src/core/policy.js';
import { coalescePolicy, rejectPolicy, replayPolicy } from '../support/rules.js';

const flight: FlightRef = { key: 'k', flight: 'f', leaseLeftMs: 4_000, ageMs: 500, election: 0, material: null };
const response = {
  status: 200,
  reason: 'OK',
  fields: [],
  content: Buffer.from('x'),
  trailers: [],
  vary: { names: [], digest: '' },
};

t.test('the store says who has the key, the policy what that means', async (t) => {
  const lease = { key: 'k', flight: 'f', fence: 1, leaseMs: 5_000, material: null };
  const expects = 'shareable';
  const leader: ClaimResult = { kind: 'leader', lease, expects };
  const follower: ClaimResult = { kind: 'follower', flight, expects };
  t.same(decide(coalescePolicy(), leader), { kind: 'forward', lease, expects });
  t.same(decide(rejectPolicy(), leader), { kind: 'forward', lease, expects });
  t.same(decide(coalescePolicy(), follower), { kind: 'wait', flight });
  t.same(decide(rejectPolicy(), follower), { kind: 'reject', flight });
  const stored: ClaimResult = {
    kind: 'stored',
    flight: 'f',
    ended: { kind: 'response', response },
    ageMs: 1,
    ttlMs: 2,
  };
  t.same(decide(coalescePolicy(), stored), { kind: 'replay', response, ageMs: 1, ttlMs: 2 });
});

t.test('of a marked key the first one leads and nobody waits', async (t) => {
  const lease = { key: 'k', flight: 'f', fence: 1, leaseMs: 5_000, material: null };
  const expects = 'unshareable';
  t.same(decide(coalescePolicy(), { kind: 'leader', lease, expects }), { kind: 'forward', lease, expects });
  t.same(decide(coalescePolicy(), { kind: 'follower', flight, expects }), { kind: 'apart' });
});

t.test('replay refuses what is under way, what differs, what is held and what was not kept', async (t) => {
  const follower: ClaimResult = { kind: 'follower', flight, expects: 'shareable' };
  const waiting = replayPolicy({ wait: { kind: 'bounded', waitMs: 5, pollMs: 5 } });
  t.same(decide(replayPolicy(), follower), { kind: 'reject', flight });
  t.same(decide(waiting, follower), { kind: 'wait', flight });
  t.same(decide(replayPolicy(), { kind: 'mismatch' }), { kind: 'refuse', code: 'key-reused' });
  t.same(decide(replayPolicy(), { kind: 'unknown', key: 'k', material: null, flight: 'f', ttlMs: 1 }), {
    kind: 'refuse',
    code: 'outcome-unknown',
  });
  const spent: ClaimResult = { kind: 'stored', flight: 'f', ended: { kind: 'not-kept' }, ageMs: 1, ttlMs: 2 };
  t.same(decide(replayPolicy(), spent), { kind: 'refuse', code: 'response-not-kept' });
  t.same(endingOf(waiting, 'POST', { kind: 'not-kept' }), { kind: 'refuse', code: 'response-not-kept' });
  t.same(endingOf(waiting, 'POST', { kind: 'failed', election: 0 }), { kind: 'refuse', code: 'leader-failed' });
  t.same(endingOf(waiting, 'POST', { kind: 'unknown', election: 0 }), { kind: 'refuse', code: 'outcome-unknown' });
});

t.test(
  'whoever joined one that left before it sent anything asks again, whatever the rule says of failures',
  async (t) => {
    const waiting = replayPolicy({ wait: { kind: 'bounded', waitMs: 5, pollMs: 5 } });
    for (const policy of [coalescePolicy(), waiting]) {
      t.same(endingOf(policy, 'POST', { kind: 'withdrawn', election: 1 }), { kind: 'ask-again', election: 1 });
    }
  },
);

t.test('nobody is elected while an unknown outcome is held', async (t) => {
  const policy = coalescePolicy({ onLeaderFailure: { kind: 'elect', elections: 2 }, unknownForMs: 1_000 });
  t.same(endingOf(policy, 'POST', { kind: 'unknown', election: 0 }), { kind: 'refuse', code: 'leader-failed' });
  t.same(endingOf(policy, 'POST', { kind: 'failed', election: 0 }), { kind: 'elect', election: 1 });
});

t.test('after a failed leader nobody is promoted, unless the rule elects, and then only so often', async (t) => {
  const strict = coalescePolicy();
  const electing = coalescePolicy({ onLeaderFailure: { kind: 'elect', elections: 2 } });
  for (const kind of ['failed', 'unknown'] as const) {
    t.same(endingOf(strict, 'GET', { kind, election: 0 }), { kind: 'refuse', code: 'leader-failed' });
    t.same(endingOf(electing, 'POST', { kind, election: 0 }), { kind: 'elect', election: 1 });
    t.same(endingOf(electing, 'POST', { kind, election: 1 }), { kind: 'elect', election: 2 });
    t.same(endingOf(electing, 'POST', { kind, election: 2 }), { kind: 'refuse', code: 'leader-failed' });
  }
});

t.test('a response that is not to be shared sends safe methods on and refuses the others', async (t) => {
  const settlement = { kind: 'unshareable', reason: 'set-cookie' } as const;
  const refused = { kind: 'refuse', code: 'not-shareable' };
  t.same(endingOf(coalescePolicy(), 'GET', settlement), { kind: 'forward' });
  t.same(endingOf(coalescePolicy(), 'POST', settlement), refused);
  t.same(endingOf(coalescePolicy(), 'UNHEARD-OF', settlement), refused);
  t.same(endingOf(coalescePolicy({ onUnshareable: 'forward' }), 'POST', settlement), { kind: 'forward' });
  t.same(endingOf(coalescePolicy({ onUnshareable: 'fail' }), 'GET', settlement), refused);
});

t.test('how long a response is kept goes by method and status', async (t) => {
  t.equal(keepMsFor(coalescePolicy(), 'POST', 201), 5_000);
  t.equal(keepMsFor(coalescePolicy(), 'GET', 200), 0);
  t.equal(keepMsFor(coalescePolicy({ keep: { kind: 'fixed', keepMs: 7 } }), 'GET', 399), 7);
  t.equal(keepMsFor(coalescePolicy({ keep: { kind: 'fixed', keepMs: 7 } }), 'GET', 400), 0);
  t.equal(keepMsFor(coalescePolicy(), 'POST', 503), 0);
  const some = coalescePolicy({
    keepStatuses: [
      { from: 404, to: 404 },
      { from: 200, to: 299 },
    ],
  });
  t.same(
    [199, 200, 299, 300, 403, 404, 405].map((status) => keepMsFor(some, 'POST', status)),
    [0, 5_000, 5_000, 0, 0, 5_000, 0],
  );
  t.equal(keepMsFor(some, 'GET', 404), 0, 'for as long as keep says, which of a safe method is not at all');
});

t.test('Retry-After is at least 1, at most the lease, and knows the usual latency', async (t) => {
  t.equal(retryAfterSeconds(30_000, flight, null), 4, 'what is left of the lease');
  t.equal(retryAfterSeconds(30_000, flight, 2_400), 2, 'what is left of the usual latency');
  t.equal(retryAfterSeconds(30_000, flight, 100), 4, 'already longer than usual: the lease again');
  t.equal(retryAfterSeconds(30_000, { ...flight, leaseLeftMs: 0 }, null), 1);
  t.equal(retryAfterSeconds(30_000, flight, 90_000), 30);
  t.equal(retryAfterSeconds(300, { ...flight, leaseLeftMs: 300 }, null), 1);
});
