/**
 * Who has the turn first: the order of queues, as docs/queue.md promises it, over the upstream's log.
 *
 * Of two requests of one key, to whichever gateways, the second sent when the first had been under way for so long that
 * the store was certainly asked for it: the second does not have the turn before the first. By the fence, which is made
 * when a turn is given; of several turns at a time only when the first one's call also began clearly later, for a turn
 * that is made of those of two names is worth the later fence. One that never had a turn was passed over if the second's
 * call began while it still waited.
 *
 * Excused is what may cost the first one its place: trouble of its own gateway or of the whole store, from its asking to
 * the second one's turn, and a store that was emptied. Trouble of other gateways, the second one's too, excuses nothing.
 */

import type { Execution, View } from './seen.js';
import { callText, ruleOf, viewText, type World } from './world.js';

/** A gateway or a store that stands still unnoticed does so for less than this, both together. */
const ASKED_MS = 400;
/** Between a wait's end and the client's notice of it; between two turns of which the later may be sent first. */
const MARGIN_MS = 200;

export function orderFaults(world: World): string[] {
  const faults: string[] = [];
  for (const path of world.paths) {
    const views = world.viewsOf(path);
    for (const [at, first] of views.entries()) {
      if (ruleOf(first.route).policy !== 'queue') break;
      for (const second of views.slice(at + 1)) {
        const [turn] = world.executionsFor(second.request);
        if (turn === undefined || second.startMs < first.startMs + ASKED_MS) continue;
        if (!isPassedOver(world, first, turn) || mayLosePlace(world, first, turn)) continue;
        faults.push(`${viewText(first)}: passed over by ${callText(turn)}, asked for ${Math.round(second.startMs)} ms`);
      }
    }
  }
  return faults;
}

function isPassedOver(world: World, first: View, turn: Execution): boolean {
  const [own] = world.executionsFor(first.request);
  if (own !== undefined) {
    if (own.fence < turn.fence) return false;
    return ruleOf(first.route).concurrency === 1 || own.startMs > turn.startMs + MARGIN_MS;
  }
  // Whoever is told anything else may have been told so before.
  const waited = first.how === 'left' || first.problem === 'wait-timeout';
  return waited && turn.startMs < first.endMs - MARGIN_MS;
}

function mayLosePlace(world: World, first: View, turn: Execution): boolean {
  return (
    world.troubled(first.gateway, first.startMs, turn.startMs) || world.forgot(first.startMs - MARGIN_MS, turn.startMs)
  );
}
