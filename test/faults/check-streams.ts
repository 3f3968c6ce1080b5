/**
 * What clients have of answers while they come: rules over the content that reached each client, piece by piece.
 *
 * - What a client has of an answer that did not end is the beginning of the content of one call of its key, of its own
 *   call if there was one. Nothing excuses a mixture, a gap, or a piece twice. (Of answers that ended, check-answers.ts
 *   asks for the whole.)
 * - Who is cut off had a call that was cut, failed or was given up. Excused: trouble that may concern its key (world.ts),
 *   from a lease before the request to its end. That a response outgrew `maxShared` excuses nobody, in any gateway, nor
 *   does a stall: every client reads at once.
 * - Of a route with `streams`, whoever was there so long before the end of the call has something of its content before
 *   that end. Excused: such trouble while it waited. The loss of pushes is no excuse: the poll is shorter.
 */

import type { RouteRule } from './routes.js';
import type { Execution, View } from './seen.js';
import { ruleOf, viewText, type World } from './world.js';

/** How long after its end a call may still be read, or its log be late. */
const SLACK_MS = 400;
/** Longer than the poll of any route. */
const EARLY_MS = 700;

export function streamFaults(world: World): string[] {
  return world.seen.views.flatMap((view) => {
    const rule = ruleOf(view.route);
    const fault = partFault(world, view) ?? cutFault(world, rule, view) ?? lateFault(world, rule, view);
    return fault === null ? [] : [`${viewText(view)}: ${fault}`];
  });
}

/** The calls of which a client may have what it has. */
function callsOf(world: World, { request, path, content }: View): readonly Execution[] {
  const own = world.executionsFor(request);
  const possible = own.length > 0 ? own : world.executionsOf(path);
  return possible.filter((call) => call.content.startsWith(content));
}

function partFault(world: World, view: View): string | null {
  if ((view.how !== 'cut' && view.how !== 'left') || view.content === '') return null;
  return callsOf(world, view).length > 0 ? null : `${view.content.length} bytes that no call of its began with`;
}

function cutFault(world: World, rule: RouteRule, view: View): string | null {
  if (view.how !== 'cut' || world.troubledAbout(view.path, view.startMs - rule.leaseMs, view.endMs)) return null;
  const read = callsOf(world, view).filter(
    (call) => call.startMs <= view.endMs && call.endMs + SLACK_MS >= view.startMs,
  );
  return read.some(({ how }) => how !== 'answered') ? null : 'cut off, though no call failed';
}

function lateFault(world: World, rule: RouteRule, view: View): string | null {
  if (!rule.streams || view.how !== 'answered' || view.problem !== null) return null;
  const call = callsOf(world, view).find(({ answer }) => answer === view.answer);
  const beganMs = call?.grew[0]?.atMs;
  if (call === undefined || beganMs === undefined) return null;
  if (call.endMs - Math.max(beganMs, view.startMs) <= EARLY_MS) return null;
  if (view.firstMs !== null && view.firstMs < call.endMs) return null;
  return world.troubledAbout(view.path, view.startMs - rule.leaseMs, call.endMs)
    ? null
    : 'nothing came before its call was over';
}
