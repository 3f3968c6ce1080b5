/**
 * What was seen, as the checks ask for it: by key, by request, and whether something was broken at a time.
 *
 * Invariant: only what was broken on purpose, or was measured to stand still, excuses anything.
 */

import { LEASE_MS, ROUTES, type RouteRule } from './routes.js';
import type { Execution, Seen, Trouble, View } from './seen.js';

/** After a trouble its effects go on for so long: reconnecting, a settlement that is tried again. */
const AFTERMATH_MS = 600;
/** What merely stood still goes on where it was. */
const SLOW_AFTERMATH_MS = 300;
/**
 * A lease outlasts the loss of one renewal of every three: two of them are late when its gateway stands still for two
 * thirds of it. The first moments of that may have gone unnoticed.
 */
const UNRENEWED_MS = 400;
const STANDSTILLS: readonly string[] = [
  'kill',
  'stop',
  'slow',
  'refuse-upstream',
  'cut-upstream',
  'black-hole-upstream',
];

export class World {
  readonly #views = new Map<string, View>();
  readonly #byPath = new Map<string, { executions: Execution[]; views: View[] }>();
  readonly #byRequest = new Map<string, Execution[]>();

  constructor(readonly seen: Seen) {
    for (const view of [...seen.views].sort(byStart)) {
      this.#views.set(view.request, view);
      this.#of(view.path).views.push(view);
    }
    for (const execution of [...seen.executions].sort(byStart)) {
      this.#of(execution.path).executions.push(execution);
      this.#byRequest.set(execution.request, [...this.executionsFor(execution.request), execution]);
    }
  }

  get paths(): Iterable<string> {
    return this.#byPath.keys();
  }

  /** In order of their start. */
  executionsOf(path: string): readonly Execution[] {
    return this.#of(path).executions;
  }

  /** In order of their start. */
  viewsOf(path: string): readonly View[] {
    return this.#of(path).views;
  }

  /** The calls in which this request was forwarded. */
  executionsFor(request: string): readonly Execution[] {
    return this.#byRequest.get(request) ?? [];
  }

  /** The request that was forwarded in the call; undefined when nobody sent such a one. */
  viewOf({ request }: Execution): View | undefined {
    return this.#views.get(request);
  }

  /** The gateway that made the call; null when nobody sent such a request. */
  gatewayOf(call: Execution): number | null {
    return this.viewOf(call)?.gateway ?? null;
  }

  /** Whether this gateway was in trouble at some moment between the two. */
  troubled(gateway: number | null, fromMs: number, toMs: number): boolean {
    return this.seen.troubles.some(
      (trouble) => (trouble.gateway === 'all' || trouble.gateway === gateway) && isFelt(trouble, fromMs, toMs),
    );
  }

  /**
   * Whether between the two there was trouble that can have anything to do with this key: of the store, of the upstream,
   * or of a gateway that was asked for it, or called for it, in that time.
   */
  troubledAbout(path: string, fromMs: number, toMs: number): boolean {
    const there = (one: { startMs: number; endMs: number }) =>
      one.startMs <= toMs && one.endMs >= fromMs - AFTERMATH_MS;
    const gateways = new Set([
      ...this.viewsOf(path)
        .filter(there)
        .map(({ gateway }) => gateway),
      ...this.executionsOf(path)
        .filter(there)
        .map((call) => this.gatewayOf(call)),
    ]);
    return this.seen.troubles.some(
      (trouble) =>
        (typeof trouble.gateway === 'string' || gateways.has(trouble.gateway)) && isFelt(trouble, fromMs, toMs),
    );
  }

  /**
   * Whether something was broken between the two that may have kept this gateway from renewing a lease until it had
   * passed. What merely stood still, unasked, has to have done so for long enough of some lease.
   */
  mayLoseLease(gateway: number | null, fromMs: number, toMs: number): boolean {
    const there = this.seen.troubles.filter(
      (trouble) => (trouble.gateway === 'all' || trouble.gateway === gateway) && isFelt(trouble, fromMs, toMs),
    );
    if (there.some((trouble) => !isSlow(trouble))) return true;
    return there.some((trouble) => {
      const untilMs = Math.min(toMs, trouble.toMs);
      return lengthOf(there, Math.max(fromMs, untilMs - LEASE_MS), untilMs) >= UNRENEWED_MS;
    });
  }

  /** Whether any gateway was killed or stopped between the two, or may have sent what the upstream did not get to read. */
  stoodStill(fromMs: number, toMs: number): boolean {
    return this.seen.troubles.some(
      ({ what, ...trouble }) => STANDSTILLS.includes(what) && trouble.fromMs <= toMs && trouble.toMs >= fromMs,
    );
  }

  /** Whether one of these kinds of trouble was there at some moment between the two. */
  troubledBy(kinds: readonly string[], fromMs: number, toMs: number): boolean {
    return this.seen.troubles.some(
      ({ what, ...trouble }) => kinds.includes(what) && trouble.fromMs <= toMs && trouble.toMs + AFTERMATH_MS >= fromMs,
    );
  }

  /** How long there was trouble of one of these kinds between the two, milliseconds. */
  lengthOf(kinds: readonly string[], fromMs: number, toMs: number): number {
    return lengthOf(
      this.seen.troubles.filter(({ what }) => kinds.includes(what)),
      fromMs,
      toMs,
    );
  }

  /** For how long this gateway, or the machine with it, stood still between the two: in all, and unasked at a time. */
  standstill(gateway: number | null, fromMs: number, toMs: number): { inAllMs: number; longestMs: number } {
    const there = this.seen.troubles.filter(
      (trouble) =>
        (trouble.gateway === 'all' || trouble.gateway === gateway) && trouble.fromMs <= toMs && trouble.toMs >= fromMs,
    );
    const slow = there.filter(({ what }) => what === 'slow');
    const still = there.filter(({ what }) => what === 'stop' || what === 'lost-server');
    const asked = there.filter(({ what }) => what === 'stop' || what === 'kill');
    // A probe finds a gateway standing still that was told to.
    const unasked = slow.filter((one) => !asked.some((other) => one.fromMs < other.toMs && other.fromMs < one.toMs));
    return {
      inAllMs: lengthOf([...slow, ...still], fromMs, toMs),
      longestMs: Math.max(0, ...unasked.map((trouble) => trouble.toMs - trouble.fromMs)),
    };
  }

  /** Whether the store lost everything between the two. */
  forgot(fromMs: number, toMs: number): boolean {
    return this.seen.flushesMs.some((atMs) => atMs >= fromMs && atMs <= toMs);
  }

  /** Whether a push may have been lost between the two because its connections were. */
  deaf(fromMs: number, toMs: number): boolean {
    return this.seen.deafMs.some((atMs) => atMs + AFTERMATH_MS >= fromMs && atMs <= toMs);
  }

  #of(path: string): { executions: Execution[]; views: View[] } {
    let there = this.#byPath.get(path);
    if (there === undefined) {
      there = { executions: [], views: [] };
      this.#byPath.set(path, there);
    }
    return there;
  }
}

function isSlow({ what }: Trouble): boolean {
  return what.startsWith('slow');
}

/** Whether it, or what it has brought about, may be felt at some moment between the two. */
function isFelt(trouble: Trouble, fromMs: number, toMs: number): boolean {
  const aftermathMs = isSlow(trouble) ? SLOW_AFTERMATH_MS : AFTERMATH_MS;
  return trouble.fromMs <= toMs && trouble.toMs + aftermathMs >= fromMs;
}

/** How long some of them lasted between the two, each moment counted once. */
function lengthOf(troubles: readonly Trouble[], sinceMs: number, endMs: number): number {
  let [lengthMs, untilMs] = [0, sinceMs];
  for (const { fromMs, toMs } of [...troubles].sort((one, other) => one.fromMs - other.fromMs)) {
    lengthMs += Math.max(0, Math.min(toMs, endMs) - Math.max(fromMs, untilMs));
    untilMs = Math.max(untilMs, toMs);
  }
  return lengthMs;
}

export function ruleOf(route: string): RouteRule {
  const rule = ROUTES.find(({ name }) => name === route);
  if (rule === undefined) throw new Error(`no route ${route}`);
  return rule;
}

/** When a call's response turned out to be longer than what is shared; infinite: it did not. */
export function outgrewAtMs({ maxSharedBytes }: RouteRule, { startMs, announcedBytes, grew }: Execution): number {
  // Announced, it is known with the fields, which come some time after the call's beginning.
  if (announcedBytes !== null && announcedBytes > maxSharedBytes) return startMs;
  return grew.find(({ bytes }) => bytes > maxSharedBytes)?.atMs ?? Number.POSITIVE_INFINITY;
}

function byStart(one: { startMs: number }, other: { startMs: number }): number {
  return one.startMs - other.startMs;
}

/** A call in words. */
export function callText({ request, body, startMs, endMs, how, status }: Execution): string {
  const ended = how === 'answered' ? `answered ${status}` : how;
  return `call ${request} (${body}, ${Math.round(startMs)}–${Math.round(endMs)} ms, ${ended})`;
}

/** A request in words. */
export function viewText(view: View): string {
  const said = view.how === 'answered' ? `${view.status} ${view.problem ?? view.cacheStatus}` : view.how;
  const when = `${Math.round(view.startMs)}–${Math.round(view.endMs)} ms`;
  return `${view.path}: request ${view.request} (${view.body}, gateway ${view.gateway}, ${when}, ${said})`;
}
