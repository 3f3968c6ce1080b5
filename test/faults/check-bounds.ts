/**
 * How long anything may take: rules over each client's view and each call, from what the request's own route promises.
 *
 * - A request that the gateway answers by itself, or from what it keeps, is over when the store has been asked and its
 *   `wait` has passed. One that was forwarded was sent by then.
 * - A call ends within the upstream's deadlines: so long after its beginning, or after the last piece of its answer.
 * - Who was forwarded, and who had begun by then to read somebody else's answer, is done when that call is over and
 *   settled; a reader whose leader was in trouble a lease and a second later.
 * - What the upstream never got to see (its network was broken) takes as long as its deadlines.
 *
 * A gateway, or the machine, that stood still is given just the time for which it did, and for what it had to do in
 * several steps the longest of it again for each. Whatever befalls the store gives no time: each question to it has its
 * own, and a client is not to wait for a store that is gone.
 */

import { UPSTREAM_MS } from './routes.js';
import type { Execution, View } from './seen.js';
import { callText, ruleOf, viewText, type World } from './world.js';

/** A question to the store, with what may follow: its repetition, a confirmation by replicas, giving it back. */
const STORE_MS = 1_000;
/** Followers of a leader that is gone are told so long after its lease. */
const GONE_MS = 1_000;
/** So often is a request in turn, in several processes, between two of its bounds. */
const STEPS = 5;
/** What came while a gateway stood still is done before what comes then. */
const BACKLOG_MS = 1_000;
/** What a busy machine takes without standing still for long enough to be noticed. */
const SLACK_MS = 1_000;

export function boundFaults(world: World): string[] {
  const views = world.seen.views.flatMap((view) => {
    const lateMs = view.endMs - boundMs(world, view);
    // Who hangs is check-answers.ts' to tell; who left did not wait for anything.
    if (lateMs <= 0 || view.how === 'hung' || view.how === 'left') return [];
    return [`${viewText(view)}: over ${Math.ceil(lateMs)} ms after its bound`];
  });
  const calls = world.seen.executions.flatMap((call) => {
    const lateMs = call.endMs - callBoundMs(world, call);
    return lateMs <= 0 ? [] : [`${call.path}: ${callText(call)} went on past the upstream's deadlines`];
  });
  return [...views, ...world.seen.views.flatMap((view) => sentLate(world, view)), ...calls];
}

/** When the gateway has decided what becomes of the request. */
function decidedMs(view: View): number {
  return view.startMs + STORE_MS + ruleOf(view.route).waitMs;
}

/** By when a request is over, at the latest. */
function boundMs(world: World, view: View): number {
  const decided = decidedMs(view);
  const own = world.executionsFor(view.request);
  const read = own.length > 0 ? own : readBy(world, view, decided);
  const unseen = world.troubledBy(UPSTREAM_TROUBLES, view.startMs, view.endMs)
    ? [decided + UPSTREAM_MS.connect + UPSTREAM_MS.headers]
    : [];
  const ends = read.map((call) => call.endMs + STORE_MS + goneMs(world, view, call));
  return Math.max(decided, ...unseen, ...ends) + slackMs(world, view.gateway, view.startMs, view.endMs);
}

const UPSTREAM_TROUBLES = ['refuse-upstream', 'cut-upstream', 'black-hole-upstream'];

/** The calls of others that it may have read, if it has begun to in time. */
function readBy(world: World, view: View, decided: number): readonly Execution[] {
  if (ruleOf(view.route).waitMs === 0 || view.problem !== null || view.firstMs === null) return [];
  if (view.firstMs > decided + slackMs(world, view.gateway, view.startMs, view.firstMs)) return [];
  return world.executionsOf(view.path).filter(({ content }) => content.startsWith(view.content));
}

function goneMs(world: World, view: View, call: Execution): number {
  if (call.request === view.request) return 0;
  const gone = world.troubled(world.gatewayOf(call), call.startMs, call.endMs);
  return gone ? ruleOf(call.route).leaseMs + GONE_MS : 0;
}

function callBoundMs(world: World, call: Execution): number {
  const lastMs = call.grew.at(-1)?.atMs ?? call.startMs;
  const silentMs = Math.max(call.startMs + UPSTREAM_MS.headers, lastMs + UPSTREAM_MS.body);
  const slack = slackMs(world, world.gatewayOf(call), call.startMs, call.endMs);
  // Its end is not seen before the network is whole again.
  return silentMs + slack + world.lengthOf(UPSTREAM_TROUBLES, call.startMs, call.endMs);
}

function slackMs(world: World, gateway: number | null, fromMs: number, toMs: number): number {
  const { inAllMs, longestMs } = world.standstill(gateway, fromMs - BACKLOG_MS, toMs);
  return SLACK_MS + inAllMs + STEPS * longestMs;
}

function sentLate(world: World, view: View): string[] {
  return world.executionsFor(view.request).flatMap((call) => {
    const byMs = decidedMs(view) + slackMs(world, view.gateway, view.startMs, call.startMs);
    return call.startMs <= byMs ? [] : [`${viewText(view)}: forwarded after its wait: ${callText(call)}`];
  });
}
