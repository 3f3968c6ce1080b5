/**
 * What may be sent when: the promises of docs/guarantees.md as rules over the upstream's log.
 *
 * Of two calls A, B of one key, A begun first:
 * - `once`, outcome held: B begins only after A's answer is kept no longer (completion + `keep`) or, if nobody knows A's
 *   outcome, it is held no longer (`unknownFor`, counted from A's beginning at the earliest). This holds whatever is
 *   killed, frozen or cut off: a lease that passes leaves an unknown outcome.
 * - `once`, outcome released: after an answer as above; after an unknown outcome once A is over. A lease that passed
 *   frees the key, so trouble of A's gateway or of the store while A ran, or a lease before or after, excuses B.
 * - a status of `release`, answered whole, frees the key of either.
 * - any rule: no more than `concurrency` at a time. A lease that passed is the limit: A may still run when its gateway
 *   was killed or frozen, or could not renew; trouble of B's gateway alone is no excuse. A call that the gateway itself
 *   ended may be seen to end a moment after the next one has begun.
 * - a response longer than `maxShared` is for nobody else: from the moment when that is known B may begin beside A.
 * - an outcome that is held (without `once`): as above, only that an answer holds nothing.
 * - an answer that is kept: B begins only after that, unless either gateway or the store was in trouble.
 * - fences grow with every call of a key; of calls whose gateways were in trouble they may be overtaken, never equal.
 * - a route that goes on without the store promises all this only while nothing of the store is in trouble.
 * - what the store knew before it was emptied binds nobody.
 */

import type { RouteRule } from './routes.js';
import type { Execution } from './seen.js';
import { callText, outgrewAtMs, ruleOf, type World } from './world.js';

/** Clocks of the store and of the log, and whole milliseconds. */
const TICK_MS = 25;
/** Between the claim of a call and its log, where nothing stands still. */
const LAG_MS = 300;
/** Until the end of a connection that a gateway closed is seen. */
const CLOSE_MS = 200;

export function sendFaults(world: World): string[] {
  const faults: string[] = [];
  for (const path of world.paths) {
    const calls = world.executionsOf(path);
    for (const [at, later] of calls.entries()) {
      const rule = ruleOf(later.route);
      const earlier = calls.slice(0, at);
      const running = earlier.filter((call) => overlaps(world, rule, call, later));
      if (running.length >= rule.concurrency) {
        faults.push(`${path}: ${callText(later)} while ${running.map(callText).join(' and ')} was running`);
      }
      for (const call of earlier) {
        const why = tooEarly(world, rule, call, later);
        if (why !== null) faults.push(`${path}: ${why}: ${callText(call)}, then ${callText(later)}`);
        // Of several at a time the later turn may be sent first.
        if (rule.concurrency === 1 && !fenced(world, call, later)) {
          faults.push(
            `${path}: the fence did not grow: ${call.fence} of ${callText(call)}, ${later.fence} of ${callText(later)}`,
          );
        }
      }
    }
  }
  for (const call of world.seen.executions) {
    const all = world.executionsFor(call.request);
    if (all.length > 1 && all[0] === call) faults.push(`${call.path}: sent ${all.length} times: ${callText(call)}`);
  }
  return faults;
}

function overlaps(world: World, rule: RouteRule, call: Execution, later: Execution): boolean {
  if (later.startMs >= call.endMs) return false;
  if (call.how === 'abandoned' && later.startMs >= call.endMs - CLOSE_MS) return false;
  if (outgrewAtMs(rule, call) <= later.startMs) return false;
  if (world.forgot(sentAtMs(world, call), later.startMs)) return false;
  // That a call runs is a matter of its lease alone; what else trouble may have cost is not asked here.
  const lost = world.mayLoseLease(world.gatewayOf(call), call.startMs - rule.leaseMs, later.startMs);
  return !lost && !localMayRun(world, rule, later);
}

/** When it may have been claimed: what stood still on its way to the log has made that late. */
function sentAtMs(world: World, call: Execution): number {
  const askedMs = world.viewOf(call)?.startMs ?? call.startMs;
  const { inAllMs } = world.standstill(world.gatewayOf(call), askedMs, call.startMs);
  return Math.max(Math.min(askedMs, call.startMs), call.startMs - LAG_MS - inAllMs);
}

/** Whether the key may have been free, for the one who sent `later`, by the end of the lease of `call`. */
function leaseMayPass(world: World, rule: RouteRule, call: Execution, later: Execution): boolean {
  const from = call.startMs - rule.leaseMs;
  const to = Math.min(later.startMs, call.endMs + rule.leaseMs);
  return world.troubled(world.gatewayOf(call), from, to) || localMayRun(world, rule, later);
}

/** Whether the one who sent `later` may have gone on without the store. */
function localMayRun(world: World, rule: RouteRule, later: Execution): boolean {
  return rule.local && world.troubled(world.gatewayOf(later), later.startMs - rule.leaseMs, later.startMs);
}

/** Why `later` may not have been sent after `call`; null when it may. */
function tooEarly(world: World, rule: RouteRule, call: Execution, later: Execution): string | null {
  if (world.forgot(sentAtMs(world, call), later.startMs)) return null;
  const passed = leaseMayPass(world, rule, call, later);
  const answered = call.how === 'answered';
  const freed = rule.once && rule.freeing.includes(call.status);
  const kept = rule.keepMs > 0 && answered && call.status < rule.unkeptFrom && !freed;
  if (kept && !passed && later.startMs >= call.endMs && later.startMs < call.endMs + rule.keepMs - TICK_MS) {
    return 'sent again while the answer was kept';
  }
  // What is certain of an outcome, the store need not have heard when there was trouble: then it holds it as unknown.
  const executed = answered || call.how === 'perhaps';
  const unknown = !freed && (!executed || (rule.once && (passed || !answered)));
  const heldMs = executed ? Math.min(rule.keepMs, rule.unknownForMs) : rule.unknownForMs;
  if (rule.unknownForMs > 0 && !rule.local && unknown && later.startMs < sentAtMs(world, call) + heldMs) {
    return 'sent again while the outcome was held';
  }
  // A second one that begins while the first one runs is `overlaps`' to find, for every rule.
  return null;
}

function fenced(world: World, call: Execution, later: Execution): boolean {
  if (call.fence < later.fence) return true;
  const rule = ruleOf(call.route);
  if (rule.local && world.troubledAbout(call.path, call.startMs - rule.leaseMs, later.startMs)) return true;
  return call.fence !== later.fence && leaseMayPass(world, { ...rule, local: true }, call, later);
}
