/**
 * What must add up when everything is over: what clients saw, what the gateways counted, and what the API counted. Pure:
 * the numbers go in.
 *
 * The identities:
 * - requests of a route = sum of its outcomes, over all gateways;
 * - `oneflight_upstream_calls_total` of a route = the API's count;
 * - each outcome is counted for as many requests as clients saw end so; only a client that left does not know whether its
 *   request ended as `left` or, a moment before, otherwise: there are as many of those as are missing;
 * - on calm routes, where nobody leaves and nothing fails, clients and gateways agree on each outcome, and the calls are:
 *   pass, those that passed; reject, replay and queue, those that led; coalesce, those that led, and those that were
 *   forwarded unprotected; where a route only observes, all. Followers (`collapsed`), replays (`hit`) and refusals have none;
 * - of each request of a route that only observes it is told once what would have become of it, of no other any;
 * - on stormy routes the calls are those, and at most one for each request that was cut, left, or refused for what became
 *   of its call.
 */

import type { Tally } from './lanes.js';
import type { SoakRoute } from './routes.js';

export type Counted = {
  readonly route: SoakRoute;
  readonly clients: Tally;
  /** `oneflight_requests_total` by outcome. */
  readonly outcomes: Readonly<Record<string, number>>;
  /** `oneflight_upstream_calls_total`. */
  readonly calls: number;
  /** `oneflight_observed_requests_total`. */
  readonly foretold: number;
  /** What the API saw. */
  readonly arrived: number;
};

/** Outcomes of requests that had a call, of one that may have had one, and all others. */
const WITH_CALL = ['passed', 'led', 'bypassed', 'observed'];
const MAYBE = ['cut', 'left', 'outcome-unknown', 'bad-upstream-response', 'upstream-unreachable', 'upstream-timeout'];

/** What does not add up, a sentence each. */
export function sumFaults({ route, clients, outcomes, calls, foretold, arrived }: Counted): string[] {
  const { name, mood } = route;
  const faults: string[] = [];
  const of = (labels: readonly string[]) => labels.reduce((sum, label) => sum + (outcomes[label] ?? 0), 0);
  const total = of(Object.keys(outcomes));
  if (total !== clients.sent) faults.push(`${name}: ${clients.sent} requests, ${total} outcomes`);
  if (calls !== arrived) faults.push(`${name}: ${calls} calls counted, ${arrived} arrived`);
  const wanted = route.yaml.includes('observe: true') ? clients.sent : 0;
  if (foretold !== wanted) faults.push(`${name}: ${foretold} foretold of ${wanted}`);
  let unseen = 0;
  for (const label of new Set([...Object.keys(outcomes), ...clients.ended.keys()])) {
    const counted = outcomes[label] ?? 0;
    const seen = clients.ended.get(label) ?? 0;
    unseen += counted - seen;
    const agrees = mood === 'calm' ? counted === seen : counted >= seen;
    if (!agrees) faults.push(`${name}: ${label} seen by ${seen} clients, counted ${counted} times`);
  }
  if (unseen !== clients.left) faults.push(`${name}: ${clients.left} clients left, ${unseen} ends that nobody saw`);
  const least = of(WITH_CALL);
  const most = mood === 'calm' ? least : least + of(MAYBE);
  if (arrived < least || arrived > most) {
    faults.push(`${name}: ${arrived} calls for ${least} to ${most} requests that may have had one`);
  }
  return faults;
}
