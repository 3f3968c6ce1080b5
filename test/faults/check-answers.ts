/**
 * What clients may be told: rules over each client's view and the upstream's log.
 *
 * - Nobody hangs: every request ends with an answer or a cut connection within its bound.
 * - An answer of the upstream's is the logged answer of the request's own call (leader), or of a call of its key (all
 *   others), equal by status and content; of a route with fingerprints, of a call with its own body.
 * - A follower's answer ended after the request began; a kept one not longer before it than `keep`. A gateway that stood
 *   still may hand on what it had not read yet; one that is cut off from the store may not know yet that a flight is
 *   over. A flight that has lost its key is joined by nobody.
 * - Where only a push ends a wait, it does so in time; trouble and lost connections for pushes excuse a late one.
 * - The gateway's own answers have a reason in the logs: somebody has the key, another body was there first, something
 *   was sent without an answer. Where there was trouble that may concern its key (world.ts), that is the reason.
 * - When everything is over and whole again, a key that nothing holds is free.
 */

import type { RouteRule } from './routes.js';
import type { Execution, View } from './seen.js';
import { outgrewAtMs, ruleOf, viewText, type World } from './world.js';

/** How long after its last visible sign a flight may still have its key, and a log be late. */
const SLACK_MS = 400;
/** Problems that any route with a policy may answer. */
const COMMON = ['outcome-unknown', 'upstream-unreachable', 'upstream-timeout', 'store-unavailable', 'leader-failed'];

export function answerFaults(world: World): string[] {
  return world.seen.views.flatMap((view) => {
    const fault = faultOf(world, ruleOf(view.route), view);
    return fault === null ? [] : [`${viewText(view)}: ${fault}`];
  });
}

function faultOf(world: World, rule: RouteRule, view: View): string | null {
  if (view.how === 'hung') return 'neither an answer nor an end';
  if (view.how === 'refused') return troubledFor(world, view) ? null : 'no connection';
  // What came of an answer that did not end is check-streams.ts' to judge.
  if (view.how !== 'answered') return null;
  if (view.problem === null) return givenFault(world, rule, view);
  if (![...COMMON, ...rule.refusals].includes(view.problem)) return 'no answer of this policy';
  return (view.afterwards ? stuckFault(world, rule, view) : null) ?? reasonFault(world, rule, view);
}

/** An answer that came from the upstream, the gateway says. */
function givenFault(world: World, rule: RouteRule, view: View): string | null {
  const { cacheStatus } = view;
  const shared = /; (hit|collapsed)\b/.test(cacheStatus);
  const [own] = world.executionsFor(view.request);
  if (!shared) {
    if (view.replayed) return 'a replay that does not say so in Cache-Status';
    if (!/^oneflight; fwd=miss(;|$)/.test(cacheStatus)) return 'neither led nor shared';
    if (own === undefined) return 'no call was made for it';
    return own.answer === view.answer ? null : `not the answer of its call, ${own.answer || own.how}`;
  }
  if (rule.once !== view.replayed) return `Idempotent-Replayed: ${view.replayed}`;
  if (own !== undefined) return 'shared, though it was forwarded itself';
  const equal = world.executionsOf(view.path).filter((call) => call.answer === view.answer);
  if (equal.length === 0) return `an answer that no call of its key gave: ${view.answer}`;
  const fitting = equal.filter((call) => !rule.fingerprinted || call.body === view.body);
  if (fitting.length === 0) return 'the answer of another body';
  if (fitting.every((call) => rule.once && rule.freeing.includes(call.status)))
    return 'replayed, though it freed the key';
  if (fitting.every((call) => superseded(world, rule, call, view)))
    return 'the answer of a flight that had lost the key';
  const keptMs = cacheStatus.includes('collapsed') ? 0 : rule.keepMs;
  const recent = fitting.some(
    (call) =>
      call.endMs >= view.startMs - keptMs - SLACK_MS ||
      world.troubled(world.gatewayOf(call), call.endMs, view.startMs) ||
      world.troubled(view.gateway, call.endMs, view.startMs),
  );
  if (!recent) return 'an answer from before its time';
  const isLate = rule.prompt && fitting.every((call) => wokenLate(world, call, view));
  return isLate ? 'told so late of the end of its flight that no push can have told it' : null;
}

function wokenLate(world: World, call: Execution, view: View): boolean {
  const sinceMs = Math.max(call.endMs, view.startMs);
  if (view.endMs - sinceMs <= SLACK_MS) return false;
  return (
    !world.troubledAbout(call.path, call.startMs - ruleOf(view.route).leaseMs, view.endMs) &&
    !world.deaf(call.startMs, view.endMs)
  );
}

/**
 * Whether somebody else had the key before the request came: who lost it is not joined any more. A route that goes on
 * without the store cannot know.
 */
function superseded(world: World, rule: RouteRule, call: Execution, view: View): boolean {
  if (rule.local || world.forgot(call.startMs - SLACK_MS, view.endMs)) return false;
  return world
    .executionsOf(view.path)
    .some((later) => later.fence > call.fence && later.startMs < view.startMs && call.endMs > later.startMs);
}

/** Why the gateway may not have said this; null when it may. */
function reasonFault(world: World, rule: RouteRule, view: View): string | null {
  if (troubledFor(world, view)) return null;
  const [own] = world.executionsFor(view.request);
  if (own?.how === 'answered') return 'its own call was answered';
  switch (view.problem) {
    case 'in-flight':
      return isHeld(world, rule, view) ? null : 'nobody had the key';
    case 'key-reused':
      return othersBefore(world, view).some(({ body }) => body !== view.body) ? null : 'no other body has used its key';
    case 'wait-timeout':
      // Who repeats a replayed request is told what has its key, unless the store could not say so in time.
      if (rule.once) return 'the store was there to say what has its key';
      return view.endMs - view.startMs >= rule.waitMs - SLACK_MS ? null : 'before its wait was over';
    case 'outcome-unknown':
      return own !== undefined || failed(world, view).length > 0 ? null : 'no outcome is unknown';
    case 'leader-failed':
      return failed(world, view).length > 0 ? null : 'no leader has failed';
    case 'not-shareable':
      return hasOutgrown(world, rule, view) ? null : 'nothing was too long to be shared';
    case 'store-unavailable':
      return 'the store was there';
    case 'upstream-unreachable':
    case 'upstream-timeout':
      return 'the upstream was there';
    default:
      return null;
  }
}

/** A request, or a call, of its key was under way while it asked; of its own body where bodies differ. */
function isHeld(world: World, rule: RouteRule, view: View): boolean {
  const meets = (other: { body: string; startMs: number; endMs: number }) =>
    (!rule.fingerprinted || other.body === view.body) &&
    other.startMs <= view.endMs &&
    other.endMs + SLACK_MS >= view.startMs;
  return (
    world.executionsOf(view.path).some(meets) ||
    world.viewsOf(view.path).some((other) => other !== view && other.problem !== 'in-flight' && meets(other))
  );
}

/** Until then an answer of its key was too long: one of which it waited, or one that has left a mark. */
function hasOutgrown(world: World, rule: RouteRule, view: View): boolean {
  return world.executionsOf(view.path).some((call) => outgrewAtMs(rule, call) <= view.endMs);
}

function othersBefore(world: World, view: View): View[] {
  return world.viewsOf(view.path).filter((other) => other !== view && other.startMs <= view.endMs);
}

/** Calls of its key that ended, or may have ended by then, without an answer or with one that is for nobody else. */
function failed(world: World, view: View): Execution[] {
  const { once, freeing } = ruleOf(view.route);
  return world
    .executionsOf(view.path)
    .filter(
      (call) => call.startMs <= view.endMs && (call.how !== 'answered' || (once && freeing.includes(call.status))),
    );
}

/** What is said when nothing is under way and nothing broken: only what is held for longer can be in the way. */
function stuckFault(world: World, rule: RouteRule, view: View): string | null {
  const { problem } = view;
  // A machine that stands still just then is no fault of the gateway's.
  if (problem === 'key-reused' || world.troubledAbout(view.path, view.startMs, view.endMs)) return null;
  if (problem !== 'outcome-unknown' || rule.unknownForMs === 0) return 'its key should be free';
  return mayBeHeld(world, view) ? null : 'nothing was sent whose outcome is unknown';
}

/**
 * Whether something of this key was sent without an answer, or with one that the store may not have heard of. A claim of
 * a gateway that died or stood still before it sent anything is held like any other; a claim that was only lost on its
 * way to the store or back is given up as soon as the store answers.
 */
function mayBeHeld(world: World, view: View): boolean {
  const calls = world.executionsOf(view.path);
  if (calls.some(({ how }) => how !== 'answered')) return true;
  const sinceMs = world.viewsOf(view.path)[0]!.startMs;
  return calls.length > 0
    ? world.troubledAbout(view.path, sinceMs, view.startMs)
    : world.stoodStill(sinceMs, view.startMs);
}

/** Trouble that may concern its key until the request ended, from so long before as it can have an effect on it. */
function troubledFor(world: World, view: View): boolean {
  const rule = ruleOf(view.route);
  const [first] = world.viewsOf(view.path);
  const sinceMs = rule.unknownForMs > 0 ? first!.startMs : view.startMs;
  return world.troubledAbout(view.path, sinceMs - rule.leaseMs, view.endMs);
}
