/**
 * What is claimed of the model: with which bounds it holds, and what the checker says when one of the things that the
 * design relies on is taken away.
 */

export type Claim = {
  readonly name: string;
  /** As for `-D`. */
  readonly definitions: readonly string[];
  /** Null: nothing is wrong. Else what is found. */
  readonly finds: RegExp | null;
};

/** What holds: within a few seconds. */
export const HOLDS: readonly Claim[] = [
  { name: 'two gateways, two requests each', definitions: [], finds: null },
  { name: 'three gateways, a request each', definitions: ['GATEWAYS=3', 'REQUESTS=1'], finds: null },
  {
    name: 'nobody pauses or dies: one execution at a time, and no fence is needed',
    definitions: ['PAUSES=0', 'CRASHES=0', 'NO_FENCE_CHECK'],
    finds: null,
  },
];

/** The same with larger bounds: for the run by hand. */
export const HOLDS_LARGER: readonly Claim[] = [
  { name: 'two of everything', definitions: ['PAUSES=2', 'CRASHES=2', 'LOSSES=2'], finds: null },
  { name: 'two gateways, three requests each', definitions: ['REQUESTS=3'], finds: null },
];

const SECOND_HOLDER = /assertion violated \(holder==0\)/;

export const FOUND: readonly Claim[] = [
  {
    name: 'an upstream that does not check fences executes an older call after a newer one: a pause past the lease',
    definitions: ['NO_FENCE_CHECK', 'CRASHES=0', 'LOSSES=0'],
    finds: /assertion violated \(fence>newest\)/,
  },
  {
    name: 'renew without the token: who has lost the key believes to have it',
    definitions: ['NO_TOKEN_IN_RENEW'],
    finds: /assertion violated \(holder==mine\)/,
  },
  {
    name: 'complete without the token: a second holder',
    definitions: ['NO_TOKEN_IN_COMPLETE'],
    finds: SECOND_HOLDER,
  },
  {
    name: 'release without the token: a second holder',
    definitions: ['NO_TOKEN_IN_RELEASE'],
    finds: SECOND_HOLDER,
  },
  {
    name: 'a lost push without the poll: a follower waits for ever',
    definitions: ['NO_POLL', 'PAUSES=0', 'CRASHES=0', 'LOSSES=0'],
    finds: /invalid end state/,
  },
  {
    name: 'results without the flight: a follower gets an earlier one',
    definitions: ['RESULT_PER_KEY', 'LOSSES=0'],
    finds: /assertion violated \(\(result\[0\]==followed\)/,
  },
  {
    name: 'a claim that is not known again: its owner waits for itself',
    definitions: ['NO_OWN_CLAIM'],
    finds: /assertion violated \(followed!=mine\)/,
  },
  {
    name: 'no bar for a claim that was given up: it takes the key when it comes',
    definitions: ['NO_BAR'],
    finds: /assertion violated \(reply!=/,
  },
];
