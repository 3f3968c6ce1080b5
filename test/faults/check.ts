/**
 * Judges what was seen of one schedule. Pure; an empty list: nothing is wrong.
 *
 * The rules of sends, of their order, of answers, of their pieces and of the time that all may take have files of their
 * own; here is what must be true at the end: the store holds nothing longer than a rule says, no flight goes on, and no gateway has ended or failed by itself.
 */

import { answerFaults } from './check-answers.js';
import { boundFaults } from './check-bounds.js';
import { orderFaults } from './check-order.js';
import { sendFaults } from './check-sends.js';
import { streamFaults } from './check-streams.js';
import type { Leftover, Seen } from './seen.js';
import { ruleOf, World } from './world.js';

/** What is remembered of elections is the longest of what is no flight's record. */
const LONGEST_MS = 120_000;

export function check(seen: Seen): string[] {
  const world = new World(seen);
  return [
    ...sendFaults(world),
    ...orderFaults(world),
    ...answerFaults(world),
    ...streamFaults(world),
    ...boundFaults(world),
    ...seen.leftovers.flatMap(leftoverFault),
    ...seen.oddities,
  ];
}

function leftoverFault({ name, route, state, ttlMs }: Leftover): string[] {
  if (ttlMs < 0) return [`${name}: stays in the store for ever`];
  if (route === '') return ttlMs > LONGEST_MS ? [`${name}: stays in the store for ${ttlMs} ms`] : [];
  const rule = ruleOf(route);
  if (state === 'f' && rule.unknownForMs === 0) return [`${name}: a flight of ${route} goes on`];
  const mostMs = { f: rule.unknownForMs, u: rule.unknownForMs, d: rule.keepMs }[state] ?? 0;
  return ttlMs > mostMs ? [`${name}: in state ${state} of ${route} for ${ttlMs} ms more`] : [];
}
